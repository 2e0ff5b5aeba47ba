"""VGG-16 (Simonyan and Zisserman, arXiv:1409.1556, configuration D) as tf_cnn_benchmarks trains it, without dropout.

The first dense layer holds 411 MB, three quarters of the model: with whole tensors one parameter server serves all of it.
As in ``mnist_cnn`` it is a convolution over all 7×7 pixels that are left of an image of 224. Of larger images it leaves
several pixels, and the mean over them is classified.
"""

from __future__ import annotations

from typing import Iterator

from harness.models.layers import HALVE, Convolution, Layer, ModelSpecification

STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))  # convolutions, width


def _stages() -> Iterator[Layer]:
    inputs = 3
    for stage, (count, width) in enumerate(STAGES, 1):
        for number in range(1, count + 1):
            yield Convolution(f"conv{stage}_{number}", inputs, width, (3, 3))
            inputs = width
        yield HALVE


SPECIFICATION = ModelSpecification(
    name="vgg16",
    description="VGG-16 without dropout, 1001 classes",
    image_size=224,
    smallest_image=224,
    layers=(
        *_stages(),
        Convolution("hidden1", 512, 4096, (7, 7), padded=False),
        Convolution("hidden2", 4096, 4096, (1, 1)),
    ),
    features=4096,
)

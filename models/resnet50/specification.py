"""ResNet-50 v1 (He et al., arXiv:1512.03385) as tf_cnn_benchmarks trains it under the name `resnet50`.

Version 1 is what the published results used: the first 1×1 convolution of a bottleneck has the stride. Version 1.5,
which torchvision and most recent figures use, has it in the 3×3 convolution: equally many parameters, but about 6 %
more arithmetic, so the two have different img/s and must not be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, Optional, Tuple

from harness.models.layers import BatchNorm, Classifier, Convolution, model_specification, output_size

NORM = BatchNorm(decay=0.9, epsilon=1e-5, gamma=True)
EXPANSION = 4  # a bottleneck puts out this many times its width
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # bottlenecks, width, stride of the first


@dataclass(frozen=True)
class Bottleneck:
    """``relu(expand(spatial(reduce(x))) + shortcut(x))``; without a projection the shortcut is x itself."""

    name: str
    shortcut: Optional[Convolution]
    reduce: Convolution
    spatial: Convolution
    expand: Convolution

    @property
    def convolutions(self) -> Tuple[Convolution, ...]:
        """In creation order: tf_cnn_benchmarks makes the shortcut first."""
        path = (self.reduce, self.spatial, self.expand)
        return (self.shortcut, *path) if self.shortcut else path


def _bottleneck(name: str, inputs: int, width: int, stride: int) -> Bottleneck:
    outputs = width * EXPANSION
    project = Convolution(f"{name}.shortcut", inputs, outputs, (1, 1), stride, relu=False)
    return Bottleneck(
        name=name,
        shortcut=project if inputs != outputs else None,
        reduce=Convolution(f"{name}.reduce", inputs, width, (1, 1), stride),
        spatial=Convolution(f"{name}.spatial", width, width, (3, 3)),
        # A residual branch starts as nothing (Goyal et al., arXiv:1706.02677, section 5.1). It costs the same to compute;
        # starting at one, rounding in the first layer would grow a thousandfold per step, and no two runs would agree.
        expand=Convolution(f"{name}.expand", width, outputs, (1, 1), relu=False, gamma="zeros"),
    )


def _bottlenecks(inputs: int) -> Iterator[Bottleneck]:
    for stage, (count, width, stride) in enumerate(STAGES, 1):
        for block in range(1, count + 1):
            yield _bottleneck(f"stage{stage}_block{block}", inputs, width, stride if block == 1 else 1)
            inputs = width * EXPANSION


# After the stem comes a 3×3 max pool of stride 2 with TensorFlow's "SAME" padding.
STEM = Convolution("stem", 3, 64, (7, 7), 2)
BOTTLENECKS = tuple(_bottlenecks(STEM.outputs))
CLASSIFIER = Classifier(BOTTLENECKS[-1].expand.outputs, 1001)


def _pixels(image_size: int) -> Dict[str, int]:
    side = output_size(image_size, STEM.size[0], STEM.stride, STEM.padding[0])
    pixels = {STEM.name: side**2}
    side = -(-side // 2)
    for block in BOTTLENECKS:
        side = output_size(side, 1, block.reduce.stride, 0)
        pixels.update({layer.name: side**2 for layer in block.convolutions})
    return pixels


SPECIFICATION = model_specification(
    name="resnet50",
    description="ResNet-50 v1 (stride in the first 1×1 of a bottleneck), 1001 classes",
    image_size=224,
    smallest_image=32,
    norm=NORM,
    convolutions=(STEM, *(convolution for block in BOTTLENECKS for convolution in block.convolutions)),
    classifier=CLASSIFIER,
    pixels=_pixels,
)

"""The supervised network of Kurth et al., "Deep Learning at 15PF" (arXiv:1708.05256, SC17), for high-energy physics.

Five convolutions of 3×3 with 128 filters and one dense layer. A 2×2 max pool follows each convolution but the last, whose
pool is the mean over all pixels, as in the authors' benchmark in TensorFlow (NERSC/hep_cnn_benchmark on GitHub). For two
classes that makes 594,178 parameters, 2.3 MiB.

An image takes two thirds of the arithmetic of one in ResNet-50, whose gradients are 43 times as large: such a shallow
network hardly needs the interconnect (``studies/shallow.toml``).

Not all is as published: there is no dropout, plain SGD takes ADAM's place, the weights start as everywhere in the suite
(see ``initial.py``), and class 0 is the background, so that two kinds of events make three classes.
"""

from __future__ import annotations

from typing import Dict

from harness.models.layers import Classifier, Convolution, model_specification

NORM = None  # the convolutions have biases
WIDTH = 128
HALVED = tuple(  # a 2×2 max pool follows each
    Convolution(f"conv{number}", 3 if number == 1 else WIDTH, WIDTH, (3, 3)) for number in range(1, 5)
)
LAST = Convolution("conv5", WIDTH, WIDTH, (3, 3))
CLASSIFIER = Classifier(WIDTH, 3)


def _pixels(image_size: int) -> Dict[str, int]:
    return {layer.name: (image_size // 2**halvings) ** 2 for halvings, layer in enumerate((*HALVED, LAST))}


SPECIFICATION = model_specification(
    name="hep_cnn",
    description="the supervised network of Kurth et al. 2017 for high-energy physics, 3 classes",
    image_size=224,
    smallest_image=16,
    norm=NORM,
    convolutions=(*HALVED, LAST),
    classifier=CLASSIFIER,
    pixels=_pixels,
)

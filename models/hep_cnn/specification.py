"""The supervised network of Kurth et al., "Deep Learning at 15PF" (arXiv:1708.05256, SC17), for high-energy physics.

A 2×2 max pool follows each convolution but the last, whose pool is the mean over all pixels, as in the authors' benchmark
in TensorFlow (NERSC/hep_cnn_benchmark on GitHub). Not all is as published: there is no dropout, plain SGD takes ADAM's
place, and class 0 is the background, so that two kinds of events make three classes.
"""

from harness.models.layers import HALVE, Convolution, ModelSpecification

WIDTH = 128
CONVOLUTIONS = tuple(Convolution(f"conv{number}", 3 if number == 1 else WIDTH, WIDTH, (3, 3)) for number in range(1, 6))

SPECIFICATION = ModelSpecification(
    name="hep_cnn",
    description="the supervised network of Kurth et al. 2017 for high-energy physics, 3 classes",
    image_size=224,
    smallest_image=16,
    layers=(*(layer for convolution in CONVOLUTIONS[:-1] for layer in (convolution, HALVE)), CONVOLUTIONS[-1]),
    features=WIDTH,
    num_classes=3,
)

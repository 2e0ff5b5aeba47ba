"""One convolution and a classifier. TensorFlow and Caffe2 build it from this data, PyTorch from a file of its own.

It runs beside every framework: Python 3.9, standard library and ``harness.models``.
"""

from __future__ import annotations

from harness.models.layers import Architecture, Classifier, Convolution, Pool, model_specification

CONVOLUTION = Convolution("conv", 3, 8, (3, 3))
ARCHITECTURE = Architecture(
    norm=None,
    layers=(CONVOLUTION, Pool("max", size=2, stride=2, padded=False)),
    classifier=Classifier(8, 5),
)
SPECIFICATION = model_specification(
    ARCHITECTURE,
    name="tiny_cnn",
    description="an example: one convolution",
    image_size=16,
    smallest_image=2,
)

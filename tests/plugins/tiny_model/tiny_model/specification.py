"""One convolution and a classifier. TensorFlow and Caffe2 build it from this data, PyTorch from a file of its own.

It runs beside every framework: Python 3.9, standard library and ``harness.models``.
"""

from __future__ import annotations

from harness.models.layers import Convolution, ModelSpecification, Pool

CONVOLUTION = Convolution("conv", 3, 8, (3, 3))
SPECIFICATION = ModelSpecification(
    name="tiny_cnn",
    description="an example: one convolution",
    image_size=16,
    smallest_image=2,
    norm=None,
    layers=(CONVOLUTION, Pool("max", size=2, stride=2, padded=False)),
    features=8,
    num_classes=5,
)

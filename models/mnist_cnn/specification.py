"""The convolutional network of TensorFlow's tutorial "Deep MNIST for Experts": two convolutions, two dense layers.

The first network that most people train, and a quick one to try things with. Not all is as in the tutorial: images have the
three channels that all images of the suite have, there is no dropout, the weights start as everywhere in the suite (see
``initial.py``), and class 0 is the background, so that ten digits make eleven classes.

The first dense layer reads 7×7 pixels of 64 channels. It is a convolution of that size without padding, which is the
same arithmetic and gives its kernel one canonical layout. Of larger images it leaves several pixels, and their mean is
classified.
"""

from __future__ import annotations

from typing import Dict

from harness.models.layers import Classifier, Convolution, model_specification

NORM = None  # the convolutions have biases
HALVED = (Convolution("conv1", 3, 32, (5, 5)), Convolution("conv2", 32, 64, (5, 5)))  # a 2×2 max pool follows each
HIDDEN = Convolution("hidden", 64, 1024, (7, 7), padded=False)
CLASSIFIER = Classifier(HIDDEN.outputs, 11)


def _pixels(image_size: int) -> Dict[str, int]:
    pixels, side = {}, image_size
    for layer in HALVED:
        pixels[layer.name] = side**2
        side //= 2
    return {**pixels, HIDDEN.name: (side - HIDDEN.size[0] + 1) ** 2}


SPECIFICATION = model_specification(
    name="mnist_cnn",
    description="the network of TensorFlow's MNIST tutorial, on three channels, 11 classes",
    image_size=28,
    smallest_image=28,
    norm=NORM,
    convolutions=(*HALVED, HIDDEN),
    classifier=CLASSIFIER,
    pixels=_pixels,
)

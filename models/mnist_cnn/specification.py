"""The convolutional network of TensorFlow's tutorial "Deep MNIST for Experts": two convolutions, two dense layers.

Not all is as in the tutorial: images have three channels, there is no dropout, and class 0 is the background, so that ten
digits make eleven classes.

The first dense layer reads 7×7 pixels of 64 channels. It is a convolution of that size without padding, which is the
same arithmetic and gives its kernel one canonical layout. Of larger images it leaves several pixels, and their mean is
classified.
"""

from harness.models.layers import HALVE, Convolution, ModelSpecification

SPECIFICATION = ModelSpecification(
    name="mnist_cnn",
    description="the network of TensorFlow's MNIST tutorial, on three channels, 11 classes",
    image_size=28,
    smallest_image=28,
    layers=(
        Convolution("conv1", 3, 32, (5, 5)),
        HALVE,
        Convolution("conv2", 32, 64, (5, 5)),
        HALVE,
        Convolution("hidden", 64, 1024, (7, 7), padded=False),
    ),
    features=1024,
    num_classes=11,
)

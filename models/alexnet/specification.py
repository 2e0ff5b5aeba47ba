"""AlexNet in one tower (Krizhevsky, arXiv:1404.5997) as tf_cnn_benchmarks trains it, without dropout.

It has the fourth convolution of that benchmark, with 384 outputs in place of 256, and no local response normalisation. The
first dense layer, 151 of 247 MB, is a convolution over all 6×6 pixels that are left of an image of 227, as in ``vgg16``.
"""

from harness.models.layers import Convolution, ModelSpecification, Pool

HALVE = Pool("max", size=3, stride=2, padded=False)

SPECIFICATION = ModelSpecification(
    name="alexnet",
    description="AlexNet in one tower without dropout, 1001 classes",
    image_size=227,
    smallest_image=227,
    layers=(
        Convolution("conv1", 3, 64, (11, 11), 4, padded=False),
        HALVE,
        Convolution("conv2", 64, 192, (5, 5)),
        HALVE,
        Convolution("conv3", 192, 384, (3, 3)),
        Convolution("conv4", 384, 384, (3, 3)),
        Convolution("conv5", 384, 256, (3, 3)),
        HALVE,
        Convolution("hidden1", 256, 4096, (6, 6), padded=False),
        Convolution("hidden2", 4096, 4096, (1, 1)),
    ),
    features=4096,
)

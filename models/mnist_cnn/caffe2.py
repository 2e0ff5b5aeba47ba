"""The network of the MNIST tutorial in Caffe2."""

from __future__ import annotations

from typing import Any

from harness.models.caffe2_layers import Blob, Images, Layers, Lookup
from harness.models.mnist_cnn.specification import HALVED, HIDDEN, NORM


def logits(net: Any, images: Images, tensor: Lookup, statistics: Lookup, *, training: bool = True) -> Blob:
    """Add the model to ``net``: float32 logits [N, 11] from float32 ``images`` [N, 3, H, W], H and W at least 28.

    ``tensor`` maps a canonical name to the IDEEP blob of its value and is called once per name, in creation order.
    """
    layers = Layers(net, tensor, statistics, NORM, training)
    x = images
    for convolution in HALVED:
        x = layers.halve(layers.convolution(x, convolution))
    return layers.classifier(layers.convolution(x, HIDDEN))

"""A chain of 1×1 convolutions in Caffe2."""

from __future__ import annotations

from typing import Any

from harness.models.caffe2_layers import Blob, Images, Layers, Lookup
from harness.models.pointwise.specification import CHAIN, NORM, STEM


def logits(net: Any, images: Images, tensor: Lookup, statistics: Lookup, *, training: bool = True) -> Blob:
    """Add the model to ``net``: float32 logits [N, 1001] from float32 ``images`` [N, 3, H, W], H and W at least 32.

    ``tensor`` and ``statistics`` map a canonical name to the IDEEP blob of its value and are called once per name, in
    creation order. When training, the net moves the statistics.
    """
    layers = Layers(net, tensor, statistics, NORM, training)
    x = images
    for convolution in (STEM, *CHAIN):
        x = layers.convolution(x, convolution)
    return layers.classifier(x)

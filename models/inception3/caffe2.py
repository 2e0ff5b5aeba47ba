"""InceptionV3 in Caffe2."""

from __future__ import annotations

from typing import Any, Iterable

from harness.models.caffe2_layers import Blob, Images, Layers, Lookup
from harness.models.inception3.specification import MODULES, NORM, STEM, Branches, Layer, Pool


def logits(net: Any, images: Images, tensor: Lookup, statistics: Lookup, *, training: bool = True) -> Blob:
    """Add the model to ``net``: float32 logits [N, 1001] from float32 ``images`` [N, 3, H, W], H and W at least 75.

    ``tensor`` and ``statistics`` map a canonical name to the IDEEP blob of its value and are called once per name, in
    creation order. When training, the net moves the statistics.
    """
    layers = Layers(net, tensor, statistics, NORM, training)
    return layers.classifier(_sequence(layers, images, (*STEM, *MODULES)))


def _sequence(layers: Layers, x: Images, sequence: Iterable[Layer]) -> Images:
    for layer in sequence:
        if isinstance(layer, Branches):
            x = layers.concatenate(_sequence(layers, x, branch) for branch in layer.branches)
        elif isinstance(layer, Pool):
            pool = layers.max_pool if layer.kind == "max" else layers.average_pool
            x = pool(x, layer.stride, "SAME" if layer.stride == 1 else "VALID")
        else:
            x = layers.convolution(x, layer)
    return x

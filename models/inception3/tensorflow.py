"""InceptionV3 in TensorFlow."""

from __future__ import annotations

from typing import Dict, Iterable, Tuple

import tensorflow as tf

from harness.models.inception3.specification import MODULES, NORM, STEM, Branches, Layer, Pool
from harness.models.tensorflow_layers import Layers, Lookup


def logits(
    images: tf.Tensor, tensor: Lookup, statistics: Lookup, *, data_format: str = "NHWC", training: bool = True
) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """Float32 logits [N, 1001], and the moving averages to assign after the step (none when not training).

    ``images`` are [N, H, W, 3] or, with "NCHW", [N, 3, H, W]; H and W are at least 75. ``tensor`` and ``statistics``
    map a canonical name to its current value and are called once per name, in creation order. Kernels have the images'
    type; what belongs to batch norm is float32.
    """
    layers = Layers(tensor, statistics, NORM, data_format, training)
    x = _sequence(layers, images, (*STEM, *MODULES))
    return layers.classifier(x), layers.new_statistics


def _sequence(layers: Layers, x: tf.Tensor, sequence: Iterable[Layer]) -> tf.Tensor:
    for layer in sequence:
        if isinstance(layer, Branches):
            x = tf.concat([_sequence(layers, x, branch) for branch in layer.branches], axis=layers.channels)
        elif isinstance(layer, Pool):
            pool = layers.max_pool if layer.kind == "max" else layers.average_pool
            x = pool(x, layer.stride, "SAME" if layer.stride == 1 else "VALID")
        else:
            x = layers.convolution(x, layer)
    return x

"""A chain of 1×1 convolutions in TensorFlow."""

from __future__ import annotations

from typing import Dict, Tuple

import tensorflow as tf

from harness.models.pointwise.specification import CHAIN, NORM, STEM
from harness.models.tensorflow_layers import Layers, Lookup


def logits(
    images: tf.Tensor, tensor: Lookup, statistics: Lookup, *, data_format: str = "NHWC", training: bool = True
) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """Float32 logits [N, 1001], and the moving averages to assign after the step (none when not training).

    ``images`` are [N, H, W, 3] or, with "NCHW", [N, 3, H, W]; H and W are at least 32. ``tensor`` and ``statistics``
    map a canonical name to its current value and are called once per name, in creation order. Kernels have the images'
    type; what belongs to batch norm is float32.
    """
    layers = Layers(tensor, statistics, NORM, data_format, training)
    x = images
    for convolution in (STEM, *CHAIN):
        x = layers.convolution(x, convolution)
    return layers.classifier(x), layers.new_statistics

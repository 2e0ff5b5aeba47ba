"""The network of "Deep Learning at 15PF" in TensorFlow."""

from __future__ import annotations

from typing import Dict, Tuple

import tensorflow as tf

from harness.models.hep_cnn.specification import HALVED, LAST, NORM
from harness.models.tensorflow_layers import Layers, Lookup


def logits(
    images: tf.Tensor, tensor: Lookup, statistics: Lookup, *, data_format: str = "NHWC", training: bool = True
) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """Float32 logits [N, 3], and no moving averages.

    ``images`` are [N, H, W, 3] or, with "NCHW", [N, 3, H, W]; H and W are at least 16. ``tensor`` maps a canonical name
    to its current value and is called once per name, in creation order. Kernels have the images' type.
    """
    layers = Layers(tensor, statistics, NORM, data_format, training)
    x = images
    for convolution in HALVED:
        x = layers.halve(layers.convolution(x, convolution))
    return layers.classifier(layers.convolution(x, LAST)), layers.new_statistics

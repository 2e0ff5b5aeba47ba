"""The layers of ``layers.py`` in TensorFlow: raw operations, for a graph or eager execution, NHWC or NCHW.

No Keras: in graph mode Keras 3 ignores custom getters and registers no update operations.
"""

from __future__ import annotations

from typing import Callable, Dict, Optional, Sequence, Tuple, Union

import tensorflow as tf

from harness.models.layers import SCOPE, BatchNorm, Convolution, Layers, ModelSpecification, Pool

Lookup = Callable[[str], tf.Tensor]


def build(
    specification: ModelSpecification,
    images: tf.Tensor,
    tensor: Lookup,
    statistics: Lookup,
    *,
    data_format: str = "NHWC",
    training: bool = True,
) -> Tuple[tf.Tensor, Dict[str, tf.Tensor]]:
    """Float32 logits [N, classes], and the moving averages to assign after the step (none when not training).

    ``images`` are [N, H, W, 3] or, with "NCHW", [N, 3, H, W]. ``tensor`` and ``statistics`` map a canonical name to its
    current value and are called once per name, in creation order. Kernels have the images' type; what belongs to batch
    norm is float32.
    """
    layers = TensorFlowLayers(tensor, statistics, specification.norm, data_format, training)
    return layers.classifier(layers.sequence(images, specification.layers)), layers.new_statistics


class TensorFlowLayers(Layers[tf.Tensor]):
    """The layers of one forward pass; ``new_statistics`` collects the moving averages to be assigned after the step."""

    def __init__(self, tensor: Lookup, statistics: Lookup, norm: Optional[BatchNorm], data_format: str, training: bool):
        self.new_statistics: Dict[str, tf.Tensor] = {}
        self.channels = data_format.index("C")  # the axis
        self._tensor, self._statistics, self._norm = tensor, statistics, norm
        self._data_format, self._training = data_format, training

    def convolution(self, x: tf.Tensor, layer: Convolution) -> tf.Tensor:
        with tf.name_scope(f"{SCOPE}/{layer.name}.conv.kernel/"):
            return self._convolution(x, layer)

    def _convolution(self, x: tf.Tensor, layer: Convolution) -> tf.Tensor:
        """A batch norm's scale, offset and statistics are float32, whatever x is."""
        kernel = self._tensor(f"{layer.name}.conv.kernel")
        x = tf.nn.conv2d(x, kernel, layer.stride, self._padding(layer), data_format=self._data_format)
        if not self._norm:
            bias = tf.cast(self._tensor(f"{layer.name}.conv.bias"), x.dtype)
            x = tf.nn.bias_add(x, bias, data_format=self._data_format)
            return tf.nn.relu(x) if layer.relu else x
        name = f"{layer.name}.bn"
        x, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            x,
            scale=self._tensor(f"{name}.gamma") if self._norm.gamma else tf.ones([layer.outputs]),
            offset=self._tensor(f"{name}.beta"),
            mean=self._statistics(f"{name}.moving_mean"),
            variance=self._statistics(f"{name}.moving_variance"),
            epsilon=self._norm.epsilon,
            data_format=self._data_format,
            is_training=self._training,
            exponential_avg_factor=1 - self._norm.decay,
        )
        if self._training:
            self.new_statistics.update({f"{name}.moving_mean": mean, f"{name}.moving_variance": variance})
        return tf.nn.relu(x) if layer.relu else x

    def pool(self, x: tf.Tensor, layer: Pool) -> tf.Tensor:
        pool = tf.nn.max_pool2d if layer.kind == "max" else tf.nn.avg_pool2d
        padding = "SAME" if layer.padded else "VALID"
        return pool(x, layer.size, layer.stride, padding, data_format=self._data_format)

    def concatenate(self, branches: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.concat(list(branches), axis=self.channels)

    def add(self, path: tf.Tensor, shortcut: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(path + shortcut)

    def classifier(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.reduce_mean(x, axis=[axis for axis in (1, 2, 3) if axis != self.channels])
        with tf.name_scope(f"{SCOPE}/dense.kernel/"):
            x = tf.matmul(x, self._tensor("dense.kernel"))
            return tf.cast(x, tf.float32) + tf.cast(self._tensor("dense.bias"), tf.float32)

    def _padding(self, layer: Convolution) -> Union[str, Tuple[Tuple[int, int], ...]]:
        """TensorFlow's "SAME" is symmetric for stride 1 only."""
        if layer.padding == (0, 0):
            return "VALID"
        if layer.stride == 1:
            return "SAME"
        (height, width), none = layer.padding, (0, 0)
        image = ((height, height), (width, width))
        return (none, *image, none) if self._data_format == "NHWC" else (none, none, *image)

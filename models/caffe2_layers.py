"""The layers of ``layers.py`` in Caffe2: operators for IDEEP (Intel's kernels, the fast ones of its CPU build), NCHW.

The caller adds them within IDEEP's device scope. They are told the size of the images, because IDEEP's gradients of pools
ignore what Caffe2 works out by itself (global pooling, "SAME" padding), and fail.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, NamedTuple, Optional, Tuple

from harness.models.layers import BatchNorm, Convolution, output_size

Blob = Any  # caffe2.python.core.BlobReference
Lookup = Callable[[str], Blob]


class Images(NamedTuple):
    """A blob of float32 [N, C, height, width]."""

    blob: Blob
    height: int
    width: int


class Layers:
    """Adds layers to a ``caffe2.python.core.Net``, asking for every tensor once, in creation order.

    ``tensor`` and ``statistics`` give the IDEEP blob that holds a canonical name's value, kernels as (out, in, height,
    width). In training the net itself moves the statistics. Without ``norm`` convolutions have biases.

    Of n values IDEEP's moving variance is the mean square; the other frameworks' is n / (n - 1) times as large.
    """

    def __init__(self, net: Any, tensor: Lookup, statistics: Lookup, norm: Optional[BatchNorm], training: bool):
        self._net, self._tensor, self._statistics = net, tensor, statistics
        self._norm, self._training = norm, training

    def convolution(self, x: Images, layer: Convolution) -> Images:
        """Convolution, batch norm or bias and, if the layer has one, ReLU."""
        trained = ("kernel",) if self._norm else ("kernel", "bias")
        blob = self._net.Conv(
            [x.blob, *(self._tensor(f"{layer.name}.conv.{name}") for name in trained)],
            self._net.NextScopedBlob("conv"),
            kernels=layer.size,
            strides=(layer.stride, layer.stride),
            pads=2 * layer.padding,
            order="NCHW",
            training_mode=1,  # IDEEP computes no gradient of a kernel without it
        )
        if self._norm:
            blob = self._batch_norm(blob, f"{layer.name}.bn", layer.outputs, self._norm)
        if layer.relu:
            self._net.Relu(blob, blob)
        height, width = (
            output_size(side, kernel, layer.stride, padding)
            for side, kernel, padding in zip((x.height, x.width), layer.size, layer.padding)
        )
        return Images(blob, height, width)

    def add(self, x: Images, y: Images) -> Images:
        """The sum of images of equal shapes, then ReLU."""
        blob = self._net.Sum([x.blob, y.blob], self._net.NextScopedBlob("sum"))
        return x._replace(blob=self._net.Relu(blob, blob))

    def concatenate(self, branches: Iterable[Images]) -> Images:
        """Images of one size, along the channels."""
        branches = list(branches)
        names = [self._net.NextScopedBlob(name) for name in ("concat", "widths")]
        blob, _ = self._net.Concat([branch.blob for branch in branches], names, order="NCHW")
        return branches[0]._replace(blob=blob)

    def max_pool(self, x: Images, stride: int, padding: str) -> Images:
        """3×3, with TensorFlow's "SAME" or "VALID" padding."""
        return self._pool(self._net.MaxPool, x, 3, stride, padding)

    def halve(self, x: Images) -> Images:
        """A 2×2 max pool of stride 2: the last row of an odd height and the last column of an odd width are left out."""
        return self._pool(self._net.MaxPool, x, 2, 2, "VALID")

    def average_pool(self, x: Images, stride: int, padding: str) -> Images:
        """3×3, with TensorFlow's "SAME" or "VALID" padding, which does not count."""
        return self._pool(self._net.AveragePool, x, 3, stride, padding)

    def classifier(self, x: Images) -> Blob:
        """The mean over all pixels and a dense layer: float32 logits [N, classes]."""
        net = self._net
        mean = net.AveragePool(x.blob, net.NextScopedBlob("mean"), kernels=(x.height, x.width), order="NCHW")
        return net.FC([mean, self._tensor("dense.kernel"), self._tensor("dense.bias")], net.NextScopedBlob("logits"))

    def _batch_norm(self, x: Blob, name: str, channels: int, norm: BatchNorm) -> Blob:
        net = self._net
        if norm.gamma:
            gamma = self._tensor(f"{name}.gamma")
        else:
            gamma = net.ConstantFill([], net.NextScopedBlob("ones"), shape=[channels], value=1.0)
        moving = [self._statistics(f"{name}.moving_mean"), self._statistics(f"{name}.moving_variance")]
        y = net.NextScopedBlob("bn")
        of_batch = [net.NextScopedBlob(f"bn_{moment}") for moment in ("mean", "variance")]
        net.SpatialBN(
            [x, gamma, self._tensor(f"{name}.beta"), *moving],
            [y, *moving, *of_batch] if self._training else y,
            epsilon=norm.epsilon,
            momentum=norm.decay,
            is_test=0 if self._training else 1,
            order="NCHW",
        )
        return y

    def _pool(self, operator: Any, x: Images, size: int, stride: int, padding: str) -> Images:
        (top, bottom, height), (left, right, width) = (
            _padded(side, size, stride) if padding == "SAME" else (0, 0, output_size(side, size, stride, 0))
            for side in (x.height, x.width)
        )
        blob = operator(
            x.blob,
            self._net.NextScopedBlob("pool"),
            kernel=size,
            stride=stride,
            pads=[top, left, bottom, right],
            order="NCHW",
        )
        return Images(blob, height, width)


def _padded(side: int, size: int, stride: int) -> Tuple[int, int, int]:
    """TensorFlow's "SAME" for a pool: padding before and after ``side`` pixels, and how many pixels are left."""
    left = -(-side // stride)
    padding = max((left - 1) * stride + size - side, 0)
    return padding // 2, padding - padding // 2, left

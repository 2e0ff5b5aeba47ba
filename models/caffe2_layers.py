"""The layers of ``layers.py`` in Caffe2: operators for IDEEP (Intel's kernels, the fast ones of its CPU build), NCHW.

The caller adds them within IDEEP's device scope. They are given the size of the images, because IDEEP's gradients of pools
ignore what Caffe2 works out by itself (global pooling, "SAME" padding), and fail.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Sequence

from harness.models.layers import Architecture, BatchNorm, Convolution, Layers, Pool

Blob = Any  # caffe2.python.core.BlobReference
Lookup = Callable[[str], Blob]


class ImageBlob(NamedTuple):
    """A blob of float32 [N, C, height, width]."""

    blob: Blob
    height: int
    width: int


def build(
    architecture: Architecture,
    net: Any,
    images: ImageBlob,
    tensor: Lookup,
    statistics: Lookup,
    *,
    training: bool = True,
) -> Blob:
    """Add the model to ``net``: float32 logits [N, classes] from float32 ``images`` [N, 3, H, W].

    ``tensor`` and ``statistics`` map a canonical name to the IDEEP blob of its value and are called once per name, in
    creation order. When training, the net moves the statistics.
    """
    layers = Caffe2Layers(net, tensor, statistics, architecture.norm, training)
    return layers.classifier(layers.sequence(images, architecture.layers))


class Caffe2Layers(Layers[ImageBlob]):
    """Adds layers to a ``caffe2.python.core.Net``, asking for every tensor once, in creation order.

    ``tensor`` and ``statistics`` give the IDEEP blob that holds a canonical name's value, kernels as (out, in, height,
    width). In training the net itself moves the statistics. Without ``norm`` convolutions have biases.

    Of n values IDEEP's moving variance is the mean square; the other frameworks' is n / (n - 1) times as large.
    """

    def __init__(self, net: Any, tensor: Lookup, statistics: Lookup, norm: Optional[BatchNorm], training: bool):
        self._net, self._tensor, self._statistics = net, tensor, statistics
        self._norm, self._training = norm, training

    def convolution(self, x: ImageBlob, layer: Convolution) -> ImageBlob:
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
        return ImageBlob(blob, *layer.pixels(x.height, x.width))

    def pool(self, x: ImageBlob, layer: Pool) -> ImageBlob:
        (top, bottom), (left, right) = layer.padding(x.height), layer.padding(x.width)
        blob = (self._net.MaxPool if layer.kind == "max" else self._net.AveragePool)(
            x.blob,
            self._net.NextScopedBlob("pool"),
            kernel=layer.size,
            stride=layer.stride,
            pads=[top, left, bottom, right],
            order="NCHW",
        )
        return ImageBlob(blob, *layer.pixels(x.height, x.width))

    def concatenate(self, branches: Sequence[ImageBlob]) -> ImageBlob:
        names = [self._net.NextScopedBlob(name) for name in ("concat", "widths")]
        blob, _ = self._net.Concat([branch.blob for branch in branches], names, order="NCHW")
        return branches[0]._replace(blob=blob)

    def add(self, path: ImageBlob, shortcut: ImageBlob) -> ImageBlob:
        blob = self._net.Sum([path.blob, shortcut.blob], self._net.NextScopedBlob("sum"))
        return path._replace(blob=self._net.Relu(blob, blob))

    def classifier(self, x: ImageBlob) -> Blob:
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

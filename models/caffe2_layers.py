"""The layers of ``layers.py`` in Caffe2, and canonical arrays in and out of its workspace: NCHW, for IDEEP.

IDEEP is Intel's kernels, the fast ones of Caffe2's CPU build. The caller adds the layers within its device scope. They are
given the size of the images, because IDEEP's gradients of pools ignore what Caffe2 works out by itself (global pooling,
"SAME" padding), and fail.

IDEEP keeps arrays in layouts of its own, and not all of its operators mind: ``MomentumSGDUpdate``, which Caffe2's example
trains with, adds a kernel and its gradient element by element, each in its layout, without an error. So what is trained is
a plain array in host memory: every step copies it to IDEEP, and its gradient back.

Blobs have the tensors' canonical names, after the name scope of whoever builds the net (such as ``ideep_0/``).
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from caffe2.proto import caffe2_pb2
from caffe2.python import core, workspace

from harness.models.initial import canonical, stored
from harness.models.layers import BatchNorm, Convolution, Layers, ModelSpecification, Pool

HOST = core.DeviceOption(caffe2_pb2.CPU)
IDEEP = core.DeviceOption(caffe2_pb2.IDEEP)

Blob = Any  # caffe2.python.core.BlobReference
Lookup = Callable[[str], Blob]


class ImageBlob(NamedTuple):
    """A blob of float32 [N, C, height, width]."""

    blob: Blob
    height: int
    width: int


def build(
    specification: ModelSpecification,
    net: Any,
    images: ImageBlob,
    tensor: Lookup,
    statistics: Lookup,
    *,
    training: bool = True,
) -> Blob:
    """Add the model to ``net``: float32 logits [N, classes] from float32 ``images`` [N, 3, H, W].

    ``tensor`` and ``statistics`` map a canonical name to the IDEEP blob of its value, kernels as (out, in, height, width),
    and are called once per name, in creation order. When training, the net moves the statistics.
    """
    layers = Caffe2Layers(net, tensor, statistics, specification.norm, training)
    return layers.classifier(layers.sequence(images, specification.layers))


class Caffe2Layers(Layers[ImageBlob]):
    """Adds layers to a ``caffe2.python.core.Net``.

    Of n values IDEEP's moving variance is the mean square; the other frameworks' is n / (n - 1) times as large.
    """

    def __init__(self, net: Any, tensor: Lookup, statistics: Lookup, norm: Optional[BatchNorm], training: bool):
        self._net, self._tensor, self._statistics = net, tensor, statistics
        self._norm, self._training = norm, training

    def convolution(self, x: ImageBlob, layer: Convolution) -> ImageBlob:
        net, norm, name = self._net, self._norm, f"{layer.name}.bn"
        trained = ("kernel",) if norm else ("kernel", "bias")
        blob = net.Conv(
            [x.blob, *(self._tensor(f"{layer.name}.conv.{tensor}") for tensor in trained)],
            net.NextScopedBlob("conv"),
            kernels=layer.size,
            strides=(layer.stride, layer.stride),
            pads=2 * layer.padding,
            order="NCHW",
            training_mode=1,  # IDEEP computes no gradient of a kernel without it
        )
        if norm:
            if norm.gamma:
                gamma = self._tensor(f"{name}.gamma")
            else:
                gamma = net.ConstantFill([], net.NextScopedBlob("ones"), shape=[layer.outputs], value=1.0)
            moving = [self._statistics(f"{name}.moving_mean"), self._statistics(f"{name}.moving_variance")]
            normalised = net.NextScopedBlob("bn")
            of_batch = [net.NextScopedBlob(f"bn_{moment}") for moment in ("mean", "variance")]
            net.SpatialBN(
                [blob, gamma, self._tensor(f"{name}.beta"), *moving],
                [normalised, *moving, *of_batch] if self._training else normalised,
                epsilon=norm.epsilon,
                momentum=norm.decay,
                is_test=0 if self._training else 1,
                order="NCHW",
            )
            blob = normalised
        if layer.relu:
            net.Relu(blob, blob)
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
        net = self._net
        mean = net.AveragePool(x.blob, net.NextScopedBlob("mean"), kernels=(x.height, x.width), order="NCHW")
        return net.FC([mean, self._tensor("dense.kernel"), self._tensor("dense.bias")], net.NextScopedBlob("logits"))


def feed(specification: ModelSpecification, values: Mapping[str, np.ndarray], scope: str = "") -> None:
    """Put canonical float32 ``values`` of every tensor (in host memory) and statistic (on IDEEP) into the workspace."""
    for tensors, device in ((specification.tensors, HOST), (specification.statistics, IDEEP)):
        for tensor in tensors:
            workspace.FeedBlob(scope + tensor.name, stored(values[tensor.name]), device)


def fetch(specification: ModelSpecification, scope: str = "") -> Dict[str, np.ndarray]:
    """Copies of all tensors and statistics in the workspace, float32 in canonical layout."""
    everything = (*specification.tensors, *specification.statistics)
    return {tensor.name: canonical(workspace.FetchBlob(scope + tensor.name)) for tensor in everything}


def on_ideep(net: Any, name: str) -> Any:
    """Add to ``net`` the copy of a trained tensor to IDEEP, and return its blob. Its gradient is a plain array again."""
    held = core.ScopedBlobReference(name)
    net.AddExternalInput(held)
    return copy_to_ideep(net, held)


def copy_to_ideep(net: Any, held: Any) -> Any:
    copy = core.BlobReference(f"{held}.ideep")
    # Not `net.CopyCPUToIDEEP`: Caffe2 has no schema for it, so its nets do not know the name.
    net.Proto().op.extend([core.CreateOperator("CopyCPUToIDEEP", [held], [copy], device_option=IDEEP)])
    return copy


@core.GradientRegistry.RegisterGradient("CopyCPUToIDEEP")  # type: ignore[untyped-decorator]
def _copy_back(operator: Any, gradients: List[Any]) -> Tuple[List[Any], List[Any]]:
    (gradient,) = gradients
    back = core.BlobReference(f"{operator.input[0]}_grad")
    return [core.CreateOperator("CopyIDEEPToCPU", [gradient], [back], device_option=IDEEP)], [str(back)]

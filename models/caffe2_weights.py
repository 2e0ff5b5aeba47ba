"""Canonical arrays in and out of Caffe2's workspace, and on to IDEEP.

IDEEP keeps arrays in layouts of its own, and not all of its operators mind: ``MomentumSGDUpdate``, which Caffe2's example
trains with, adds a kernel and its gradient element by element, each in its layout, without an error. So what is trained is
a plain array in host memory: every step copies it to IDEEP, and its gradient back.

Blobs have the tensors' canonical names, after the name scope of whoever builds the net (such as ``ideep_0/``).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

import numpy as np
from caffe2.proto import caffe2_pb2
from caffe2.python import core, workspace

from harness.models.channels_first import canonical, stored
from harness.models.specification import ModelSpecification

HOST = core.DeviceOption(caffe2_pb2.CPU)
IDEEP = core.DeviceOption(caffe2_pb2.IDEEP)


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
    held, copy = core.ScopedBlobReference(name), core.ScopedBlobReference(f"{name}.ideep")
    net.AddExternalInput(held)
    # Not `net.CopyCPUToIDEEP`: Caffe2 has no schema for it, so its nets do not know the name.
    net.Proto().op.extend([core.CreateOperator("CopyCPUToIDEEP", [held], [copy], device_option=IDEEP)])
    return copy


@core.GradientRegistry.RegisterGradient("CopyCPUToIDEEP")  # type: ignore[untyped-decorator]
def _copy_back(operator: Any, gradients: List[Any]) -> Tuple[List[Any], List[Any]]:
    (gradient,) = gradients
    back = core.BlobReference(f"{operator.input[0]}_grad")
    return [core.CreateOperator("CopyIDEEPToCPU", [gradient], [back], device_option=IDEEP)], [str(back)]

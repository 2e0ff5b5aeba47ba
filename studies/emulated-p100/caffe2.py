"""Is Caffe2 over MPI a more suitable toolkit than TensorFlow? On emulated P100, as TensorFlow was measured there.

    .venv/bin/python studies/emulated-p100/caffe2.py RESULTS... [-o DIR]

RESULTS are the records that measure.py keeps in ``caffe2``, and those in ``steady``, which have the other contenders.
"""

from collections.abc import Callable
from functools import partial

from steady import AS_2017, KINDS, Point, Questions, command, longer


def caffe2(transport: str = "mpi", net: str = "dag") -> Callable[[Point], bool]:
    spec = ("caffe2", transport, net)
    return lambda point: (point.spec.backend, point.spec.transport, point.spec.options.get("net_type")) == spec


def horovod(fused: bool) -> Callable[[Point], bool]:
    """Horovod with PyTorch, as fused as by default or not at all."""
    return lambda point: (
        (point.spec.backend, point.spec.framework, bool(point.spec.options.get("fusion_threshold_mb")))
        == ("horovod", "torch", fused)
    )


def servers(kind: str) -> Callable[[Point], bool]:
    return lambda point: point.kind == kind


MPI, GLOO, FUSED = caffe2(), caffe2("gloo"), horovod(fused=True)
# By the name of a finding: the question, and the slow and fast sides.
COMPARED = {
    "no_order": (
        "Do whole tensors on 2017's number of servers, in no order, take longer than Caffe2 over MPI?",
        servers(AS_2017[0]),
        MPI,
    ),
    "in_order": ("And in the order of their use?", servers(AS_2017[1]), MPI),
    "slices": ("And slices, in the order of their use?", servers(KINDS[-1]), MPI),
    "gloo": ("Does Caffe2 take longer over Gloo than over MPI?", GLOO, MPI),
    "simple_mpi": (
        "Does it take longer if it computes and exchanges in turn (simple), over MPI?",
        caffe2(net="simple"),
        MPI,
    ),
    "simple_gloo": ("And over Gloo?", caffe2("gloo", "simple"), GLOO),
    "per_tensor": (
        "Does Horovod take longer with an allreduce for each tensor, as Caffe2 has it?",
        horovod(fused=False),
        FUSED,
    ),
    "horovod": ("Does Horovod with PyTorch take longer than Caffe2 over MPI?", FUSED, MPI),
    "pytorch": ("And PyTorch's own allreduce?", lambda point: point.spec.backend == "pytorch", MPI),
}
QUESTIONS: Questions = {
    name: (text, partial(longer, slow=slow, fast=fast)) for name, (text, slow, fast) in COMPARED.items()
}

if __name__ == "__main__":
    command(__file__, QUESTIONS, __doc__, title="Caffe2 beside TensorFlow")

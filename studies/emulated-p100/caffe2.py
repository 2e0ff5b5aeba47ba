"""Is Caffe2 over MPI a more suitable toolkit than TensorFlow? On emulated P100, as TensorFlow was measured there.

    .venv/bin/python studies/emulated-p100/caffe2.py RESULTS... [-o DIR]

RESULTS are the records that measure.py keeps in ``caffe2``, and those in ``steady``, which have the other contenders.
"""

from functools import partial
from pathlib import Path

from steady import AS_2017, KINDS, Point, Questions, command, longer, plain_page


def caffe2(point: Point, transport: str = "mpi", net: str = "dag") -> bool:
    return (point.spec.backend, point.spec.transport, point.spec.options.get("net_type")) == ("caffe2", transport, net)


def horovod(point: Point, fused: bool) -> bool:
    """Horovod with PyTorch, as fused as by default or not at all."""
    spec = point.spec
    return (spec.backend, spec.framework) == ("horovod", "torch") and bool(spec.options["fusion_threshold_mb"]) == fused


def of_kind(point: Point, kind: str) -> bool:
    return point.kind == kind


QUESTIONS: Questions = {
    "no_order": (
        "Do whole tensors on 2017's number of servers, in no order, take longer than Caffe2 over MPI?",
        partial(longer, slow=partial(of_kind, kind=AS_2017[0]), fast=caffe2),
    ),
    "in_order": (
        "Do whole tensors on 2017's number of servers, in the order of their use, take longer?",
        partial(longer, slow=partial(of_kind, kind=AS_2017[1]), fast=caffe2),
    ),
    "slices": (
        "Do slices on servers, in the order of their use, take longer?",
        partial(longer, slow=partial(of_kind, kind=KINDS[-1]), fast=caffe2),
    ),
    "gloo": (
        "Does Caffe2 take longer over Gloo than over MPI?",
        partial(longer, slow=partial(caffe2, transport="gloo"), fast=caffe2),
    ),
    "simple_mpi": (
        "Does a net that computes and exchanges in turn (simple) take longer, over MPI?",
        partial(longer, slow=partial(caffe2, net="simple"), fast=caffe2),
    ),
    "simple_gloo": (
        "And over Gloo?",
        partial(longer, slow=partial(caffe2, transport="gloo", net="simple"), fast=partial(caffe2, transport="gloo")),
    ),
    "per_tensor": (
        "Does an allreduce for each tensor, as Caffe2 has it, take longer than fused ones, with Horovod?",
        partial(longer, slow=partial(horovod, fused=False), fast=partial(horovod, fused=True)),
    ),
    "horovod": (
        "Does Horovod with PyTorch take longer than Caffe2 over MPI?",
        partial(longer, slow=partial(horovod, fused=True), fast=caffe2),
    ),
    "pytorch": (
        "Does PyTorch's own allreduce take longer than Caffe2 over MPI?",
        partial(longer, slow=lambda point: point.spec.backend == "pytorch", fast=caffe2),
    ),
}

if __name__ == "__main__":
    script = Path(__file__)
    page = partial(plain_page, title="Caffe2 beside TensorFlow", questions=QUESTIONS, script=script)
    command(script, page, QUESTIONS, __doc__)

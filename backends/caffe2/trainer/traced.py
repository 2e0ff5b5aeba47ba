"""A net that notes when its operators run: a copy, with operators in Python between its own, which only take the time."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Tuple

from caffe2.python import core, workspace

from harness.backends.caffe2.trainer.world import ALLREDUCE
from harness.models.caffe2_layers import HOST
from harness.models.layers import ModelSpecification
from harness.worker.frameworks.caffe2 import plain_errors
from harness.worker.notes import BACKWARD, FORWARD, REDUCE, Notes


def traced(net: Any, notes: Notes, specification: ModelSpecification, scope: str, with_layers: bool) -> Any:
    """A copy of ``net``, created, that notes its allreduces and, ``with_layers``, the passes of its layers.

    What computes runs in turn, so a pass of a layer ends where the next one's begins.
    """
    copy = core.Net(net.Proto())
    operators = [*copy.Proto().op]
    del copy.Proto().op[:]
    sizes = {tensor.name: tensor.bytes for tensor in specification.tensors}
    passes = _passes(operators, scope, sizes) if with_layers else {}
    began: Dict[str, float] = {}

    def mark(blob: str, call: Callable[[], None]) -> str:
        """Have ``call`` called once the blob is there. Returns a blob that is there afterwards."""
        made = f"{scope}mark_{len(copy.Proto().op)}"
        # Not an input: one on IDEEP is refused.
        calling = core.CreatePythonOperator(lambda *_: call(), [], [made], control_input=[blob], device_option=HOST)
        copy.Proto().op.append(calling)
        return made

    def begin(name: str) -> None:
        began[name] = notes.now()

    def end(kind: str, name: str, size: int = 0) -> None:
        notes.note(kind, name, began[name], notes.now(), size=size)

    under_way, before = ("", ""), f"{scope}labels"
    for number, operator in enumerate(operators):
        if ALLREDUCE in (operator.type, operator.name):
            name = operator.input[-1][len(scope) :].partition("_grad")[0]
            operator.control_input.append(mark(operator.input[-1], partial(begin, name)))
            copy.Proto().op.append(operator)
            mark(operator.output[0], partial(end, REDUCE, name, sizes.get(name, 0)))
            continue
        following = passes.get(number, ("", ""))
        if following != under_way:
            for call in [partial(end, *under_way)] * bool(under_way[0]) + [partial(begin, following[1])] * bool(
                following[0]
            ):
                before = mark(before, call)
            operator.control_input.append(before)
            under_way = following
        copy.Proto().op.append(operator)
        before = operator.output[0]
    with plain_errors():
        workspace.CreateNet(copy)
    return copy


def _passes(operators: List[Any], scope: str, known: Dict[str, int]) -> Dict[int, Tuple[str, str]]:
    """The kind of pass and the layer, by its kernel, of each operator of the model, by its number.

    A layer begins with the operator that reads its kernel; backwards it ends with that.
    """

    def kernel(operator: Any) -> str:
        names = (blob[len(scope) :].partition(".kernel") for blob in operator.input)
        return next((layer + dot for layer, dot, _ in names if layer + dot in known), "")

    last = max(number for number, operator in enumerate(operators) if operator.is_gradient_op)
    numbers = [
        number for number in range(last + 1) if ALLREDUCE not in (operators[number].type, operators[number].name)
    ]
    passes: Dict[int, Tuple[str, str]] = {}
    for kind, order in ((FORWARD, numbers), (BACKWARD, numbers[::-1])):
        layer = ""
        for number in order:
            if operators[number].is_gradient_op == (kind == BACKWARD):
                layer = kernel(operators[number]) or layer
                passes[number] = kind, layer
    return {number: each for number, each in passes.items() if each[1]}

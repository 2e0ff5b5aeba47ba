"""TensorFlow's own account of a step, its step statistics, as notes: operations of each device, tensors that came over gRPC.

Times are those of day on the host of the device, or of the receiver. A layer's operations are those in its name scope
(``harness.models.tensorflow_layers``), and TensorFlow names their gradients after them.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from harness.models.tensorflow_layers import SCOPE
from harness.worker.notes import BACKWARD, FORWARD, Notes

DEVICE = re.compile(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)")
RECEIVED = re.compile(r"edge_\d+_(\S+) from (\S+) to (\S+)")
OF_LAYER = re.compile(rf"^(gradient\w*/)?.*?{SCOPE}/([\w.]+)/")


class Operation(NamedTuple):
    """An operation, by its name in the graph, or a tensor that was received, by that of the operation that made it.

    ``process`` has carried it out or received it, ``source`` has sent it ("" for an operation). Seconds are of the day.
    """

    name: str
    process: str
    source: str
    begin: float
    end: float


def operations(metadata: Any) -> Iterator[Operation]:
    """What the metadata of a run, made with a full trace, tell of it."""
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            begin = node.all_start_micros / 1e6
            end = begin + node.all_end_rel_micros / 1e6
            if node.node_name == "RecvTensor":
                if match := RECEIVED.search(node.timeline_label):
                    name, source, target = match.groups()
                    yield Operation(name, process_of(target), process_of(source), begin, end)
            elif not node.timeline_label.endswith("()"):  # what needs no input, such as constants, is made as a step begins
                yield Operation(node.node_name, process_of(device.device), "", begin, end)


def process_of(device: str) -> str:
    """``ps-1`` for TensorFlow's name of a device of that process."""
    match = DEVICE.search(device)
    return "-".join(match.groups()) if match else "worker-0"


def note_layers(notes: Notes, done: List[Operation], step: int) -> None:
    """Note the passes of each layer of this process: from the first of its operations to the end of the last."""
    passes: Dict[Tuple[str, str], List[Operation]] = {}
    for operation in done:
        match = OF_LAYER.match(operation.name)
        if match and operation.process == notes.process and not operation.source:
            passes.setdefault((BACKWARD if match[1] else FORWARD, match[2]), []).append(operation)
    for (kind, layer), of_layer in passes.items():
        begin, end = min(each.begin for each in of_layer), max(each.end for each in of_layer)
        notes.note(kind, layer, begin, end, step=step, clock=notes.process)

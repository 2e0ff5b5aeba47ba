"""TensorFlow's own accounts of a step: the statistics of a run of a graph, over all its devices, and its profiler.

Times of the first are those of day on the host of the device, or of the receiver of a tensor.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import tensorflow as tf

from harness.worker.frameworks.profile import STEP, Operation, by_step, note_layers
from harness.worker.notes import REDUCE, Notes

DEVICE = re.compile(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)")
RECEIVED = re.compile(r"edge_\d+_(\S+) from (\S+) to (\S+)")
STARTS, ENDS = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"
AVERAGED = re.compile(r"(?:Allreduce/cond(?:_(\d+))?/.*HorovodAllreduce|^CollectiveReduceV2(?:_(\d+))?$)")


class Done(NamedTuple):
    """An operation of a graph, or a tensor that was received, by the name of the operation that made it.

    ``process`` has carried it out or received it, ``source`` has sent it ("" for an operation). Seconds are of the day.
    """

    name: str
    process: str
    source: str
    begin: float
    end: float


def done(metadata: Any) -> Iterator[Done]:
    """What the metadata of a run, made with a full trace, tell of it."""
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            begin = node.all_start_micros / 1e6
            end = begin + node.all_end_rel_micros / 1e6
            if node.node_name == "RecvTensor":
                if match := RECEIVED.search(node.timeline_label):
                    name, source, target = match.groups()
                    yield Done(name, _process(target), _process(source), begin, end)
            elif not node.timeline_label.endswith("()"):  # without inputs, such as constants: made as a step begins
                yield Done(node.node_name, _process(device.device), "", begin, end)


def _process(device: str) -> str:
    """``ps-1`` for TensorFlow's name of a device of that process."""
    match = DEVICE.search(device)
    return "-".join(match.groups()) if match else ""


class Profiler:
    """TensorFlow's profiler around the steps of a function. ``gradients`` are the names and bytes of what it averages.

    They are by the number in the name of the operation that does so.
    """

    def __init__(self, notes: Notes, gradients: List[Tuple[str, int]], with_layers: bool) -> None:
        self._notes, self._gradients, self._with_layers = notes, gradients, with_layers
        self._began: Dict[int, float] = {}
        self._folder = Path(tempfile.mkdtemp())
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0)
        tf.profiler.experimental.start(str(self._folder), options)
        notes.later(self._end)

    def around(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def marked(*batch: Any) -> Any:
            number = self._notes.step
            with tf.profiler.experimental.Trace(f"{STEP}{number}"):
                self._began[number] = self._notes.now()
                return step(*batch)

        return marked

    def _end(self) -> None:
        from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

        tf.profiler.experimental.stop()
        (file,) = self._folder.rglob("*.xplane.pb")
        space = XSpace.FromString(file.read_bytes())
        shutil.rmtree(self._folder)
        operations: Dict[int, List[Operation]] = {}
        for step, operation in by_step(self._operations(space), self._began):
            operations.setdefault(step, []).append(operation)
        for step, of_step in operations.items():
            if self._with_layers:
                note_layers(self._notes, of_step, step)
            starts = {each.name[len(STARTS) :]: each.begin for each in of_step if each.name.startswith(STARTS)}
            for each in of_step:
                averaged = AVERAGED.search(each.name[len(ENDS) :]) if each.name.startswith(ENDS) else None
                if averaged and each.name[len(ENDS) :] in starts:
                    name, size = self._gradients[int(averaged[1] or averaged[2] or 0)]
                    begin = starts[each.name[len(ENDS) :]]
                    self._notes.note(REDUCE, name, begin, each.begin, size=size, step=step)

    @staticmethod
    def _operations(space: Any) -> Iterator[Operation]:
        """Operations, and the starts and ends of asynchronous ones, which have a name of their own."""
        for plane in space.planes:
            stats = {number: metadata.name for number, metadata in plane.stat_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    begin = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
                    name = plane.event_metadata[event.metadata_id].name
                    if name in (STARTS, ENDS):
                        named = (stat for stat in event.stats if stats[stat.metadata_id] == "name")
                        name += next((stat.str_value or stats.get(stat.ref_value, "") for stat in named), "")
                    yield Operation(name, begin, begin + event.duration_ps / 1e12)

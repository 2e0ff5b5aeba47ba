"""The interface of a backend: one ``Trainer`` per worker process, and ``serve`` for a parameter server process.

A backend's ``trainer.py``, or ``trainer/main.py``, defines ``create(job) -> Trainer`` and, for parameter servers,
``serve(job, ready) -> None``, which calls ``ready()`` once it listens and returns when the workers have finished.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Protocol, Sequence, Tuple, Type, runtime_checkable

import numpy as np

from harness.models.initial import initial_value
from harness.worker.job import Job
from harness.worker.notes import Notes

PADDING = -1  # the label of a row that is there only to fill a batch


@dataclass(frozen=True)
class State:
    """A worker's account of its training when the window is closed.

    ``parameters`` are this worker's view, float32 in the canonical layout (see ``harness.models.layers``), keyed by
    tensor name. ``losses`` are this worker's, of every step since the start. ``updates`` counts how often the parameters
    were updated since the start, as counted where they live. ``world_size`` (worker processes) and ``transport`` are what
    the framework reports at run time, not what was asked for. ``input_wait_s`` has the seconds that each step since the
    start waited for its batch, of the device that waited longest; it is empty where the batch is always the same.
    """

    parameters: Dict[str, np.ndarray]
    losses: List[float]
    updates: int
    world_size: int
    transport: str
    device: str
    details: Dict[str, Any] = field(default_factory=dict)
    input_wait_s: List[float] = field(default_factory=list)

    def evidence(self, job: Job) -> Dict[str, Any]:
        """Evidence (JSON) that the training was real, such as a digest of all parameters, for the controller to judge."""
        spec, tensors = job.spec, job.specification.tensors
        digest, finite = hashlib.sha256(), all(map(math.isfinite, self.losses))
        for tensor in tensors:
            values = np.ascontiguousarray(self.parameters[tensor.name], dtype=np.float32)
            if values.shape != tensor.shape:
                raise RuntimeError(f"{tensor.name} has the shape {values.shape}, the model specifies {tensor.shape}")
            digest.update(values.tobytes())
            finite = finite and bool(np.isfinite(values).all())
        # The last kernel has a gradient from the first step on, whatever the others are initialised to.
        index, last = [pair for pair in enumerate(tensors) if pair[1].name.endswith("kernel")][-1]
        losses = [loss if math.isfinite(loss) else str(loss) for loss in self.losses]
        return {
            **{name: value for name, value in vars(self).items() if name != "parameters"},
            "digest": digest.hexdigest(),
            "finite": finite,
            "changed": not np.array_equal(initial_value(last, index, spec["seed"]), self.parameters[last.name]),
            "loss": losses[-1],
            "losses": losses,
            "input_wait_s": self.input_wait_s[-spec["steps"] :],
        }


class Evaluation(NamedTuple):
    """The number of images, of those with their class first and among the first five, and the sum of all losses."""

    images: int
    top1: int
    top5: int
    loss: float


def evaluation(batches: Iterable[Tuple[np.ndarray, np.ndarray]]) -> Evaluation:
    """Count over (logits float [N, classes], labels int [N]); rows with the label ``PADDING`` are left out.

    A class counts as before the right one unless its logit is less: a model that finds all classes equally likely, or
    whose logits are not numbers, gets none right.
    """
    images, top1, top5, loss = 0, 0, 0, 0.0
    for logits, labels in batches:
        real = labels != PADDING
        logits, labels = logits[real].astype(np.float64), labels[real]
        right = logits[np.arange(len(labels)), labels]
        rank = (~(logits < right[:, None])).sum(axis=1)  # 1: nothing but itself is before it
        highest = logits.max(axis=1, initial=-np.inf)
        images += len(labels)
        top1 += int((rank <= 1).sum())
        top5 += int((rank <= 5).sum())
        loss += float((highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1)) - right).sum())
    return Evaluation(images, top1, top5, loss)


class Marks:
    """A row of points in time, with room for ``count``: taken on the host during the window and read after it."""

    def __init__(self, count: int) -> None:
        self._times = [0.0] * count

    def take(self, index: int) -> None:
        """Take mark ``index`` now; must not wait for a device."""
        self._times[index] = time.perf_counter()

    def seconds(self) -> List[float]:
        """Seconds from mark 0 to each mark. Only after the device is synchronised."""
        return [when - self._times[0] for when in self._times]


class Trainer(Protocol):
    """One worker's share of synchronous (or, where the backend says so, asynchronous) training. It never takes the time.

    What is written out here suits a backend without servers whose steps have ended when ``step`` returns.
    """

    marks: Type[Marks] = Marks

    def setup(self) -> None:
        """Join the others, build the model, load the initial weights, open the data."""

    def step(self) -> None:
        """One training step on one per-device batch. May return before the device is done."""

    def synchronize(self) -> None:
        """Wait until this worker's device has finished all steps."""
        return

    def barrier(self) -> None:
        """Wait until every worker is here."""

    def server_bytes(self) -> List[Tuple[int, int]]:
        """Bytes that each parameter server has sent and received so far, by rank. Called while all workers stand still.

        Only rank 0 has to know; empty where there are no servers, or where their kernel does not count.
        """
        return []

    def state(self) -> State:
        """The state after the last measured step. Called after a barrier; only traced steps may follow."""

    def trace(self, notes: Notes) -> None:
        """Note in ``notes`` the events of the steps that follow. Called once, while all workers stand still."""

    def close(self) -> None:
        """Leave in good order. Called after a barrier; parameter servers end because of it."""


@runtime_checkable
class Learner(Trainer, Protocol):
    """A trainer that can train to an accuracy (see ``harness.worker.training``). Measurements call none of these.

    ``values`` and ``restore`` speak of parameters, batch-norm statistics and, with momentum, velocities: float32 by name
    (``harness.worker.checkpoint``), in the canonical layout.
    """

    def set_learning_rate(self, rate: float) -> None:
        """Set the rate of the steps that follow, on all devices of this worker."""

    def losses(self, since: int) -> List[float]:
        """This worker's losses from step ``since`` on; its first step has number 0. Waits for the device."""

    def total(self, numbers: Sequence[float]) -> List[float]:
        """The sums over all workers of as many numbers from each; the same result everywhere. Called by all of them.

        Whole numbers below 2^24 are added exactly.
        """

    def evaluate(self) -> Evaluation:
        """One pass over this worker's share of the validation images, in inference mode. Called by all workers."""

    def statistics(self) -> Dict[str, np.ndarray]:
        """This worker's batch-norm statistics (the mean of its devices'). Empty for models without any."""

    def values(self) -> Dict[str, np.ndarray]:
        """Everything that a checkpoint holds. Called by rank 0 alone, while the others wait for it."""

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Set what is in ``values`` on this worker's devices and on the servers. Called by all, with the same values."""

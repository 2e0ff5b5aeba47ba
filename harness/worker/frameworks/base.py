"""What all trainers do alike, whatever the framework. A backend adds the exchange of gradients."""

from __future__ import annotations

import time
from typing import Any, Dict, Iterable, Iterator, List, TypeVar

import numpy as np

from harness import models
from harness.worker.job import Job
from harness.worker.sgd import Sgd
from harness.worker.trainer import Learner, State

Batch = TypeVar("Batch")


class DeviceTrainer(Learner):
    """One rank. ``_losses`` are those of every step, means over its devices, ``_waited`` the seconds it had no batch."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._specification = models.specification(job.spec["model"])
        self._sgd = Sgd.of(job.spec)
        self._losses: List[Any] = []
        self._waited: List[float] = []
        self._world_size = 0  # what the last barrier counted

    def barrier(self) -> None:
        """The sum of a one from each rank says how many there are."""
        self._world_size = int(self.total([1])[0])

    def losses(self, since: int) -> List[float]:
        return self._losses[since:]

    def statistics(self) -> Dict[str, np.ndarray]:
        values = self.values()
        return {tensor.name: values[tensor.name] for tensor in self._specification.statistics}

    def _timed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Batches without end, which are made from now on; how long the training waits for each of them is noted.

        A pipeline works ahead in processes or threads of its own. Where it keeps up, the next batch is there at once.
        Where it does not, the training stands still: on this rank and, in synchronous training, on all the others.
        """
        made = iter(batches)

        def timed() -> Iterator[Batch]:
            while True:
                began = time.perf_counter()
                batch = next(made)
                self._waited.append(time.perf_counter() - began)
                yield batch

        return timed()

    def _state(self, world_size: int, transport: str, *, device: str, **details: Any) -> State:
        """This rank's state, with what the backend knows of its world; ``details`` go into the record."""
        values = self.values()
        return State(
            parameters={tensor.name: values[tensor.name] for tensor in self._specification.tensors},
            losses=self.losses(0),
            updates=len(self._losses),
            world_size=world_size,
            transport=transport,
            device=device,
            details=details,
            input_wait_s=self._waited,
        )

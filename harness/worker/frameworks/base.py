"""The common part of all trainers, whatever the framework. A backend adds the exchange of gradients."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple, TypeVar

import numpy as np

from harness.models.initial import initial_values
from harness.worker.checkpoint import velocity
from harness.worker.job import Job
from harness.worker.trainer import Learner, State

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Sgd:
    """The optimizer of all backends; ``rate`` is that of the first step.

    To measure img/s it is plain SGD at one rate. To train to an accuracy it is SGD with momentum as Goyal et al. write it
    (arXiv:1706.02677, equations 9 and section 5.1), with the rate outside the velocity, so that a new rate acts at once:

        v ← momentum · v + (gradient + weight decay · w)
        w ← w − rate · v
    """

    rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Sgd:
        training = spec.get("training")
        if training is None:
            return cls(spec["learning_rate"])
        return cls(spec["learning_rate"], training["momentum"], training["weight_decay"])

    def decay(self, name: str) -> float:
        """The weight decay of a tensor: none for biases, nor for batch norms' gamma and beta."""
        return self.weight_decay if name.endswith("kernel") else 0.0


def require_tf32(gpu: str, capability: Tuple[int, int]) -> None:
    """Raises RuntimeError where a GPU of this compute capability has no TF32; its framework would silently take float32."""
    if capability < (8, 0):
        raise RuntimeError(f"--precision tf32: {gpu} has none, it would be fp32")


class DeviceTrainer(Learner):
    """One rank. ``_losses`` are those of every step, means over its devices, ``_waited`` the seconds without a batch.

    Making one opens the data if decoders are processes (PyTorch's, which JAX and Caffe2 take, too), so that ``setup`` is
    free to start communication threads. Where there is a ``build``, it calls that after the process has joined the others.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._cuda = job.spec["device"] == "cuda"
        self._specification = job.specification
        self._sgd = Sgd.of(job.spec)
        self._losses: List[Any] = []
        self._waited: List[float] = []
        self._world_size = 0  # as the last barrier counted

    def barrier(self) -> None:
        """The sum of a one from each rank says how many there are."""
        self._world_size = int(self.total([1])[0])

    def losses(self, since: int) -> List[float]:
        return self._losses[since:]

    def statistics(self) -> Dict[str, np.ndarray]:
        values = self.values()
        return {tensor.name: values[tensor.name] for tensor in self._specification.statistics}

    def _first_values(self) -> Dict[str, np.ndarray]:
        """The values that training starts from: with momentum, velocities of zero are among them."""
        values = initial_values(self._specification, self._job.spec["seed"])
        if self._sgd.momentum:
            names = [tensor.name for tensor in self._specification.tensors]
            values.update({velocity(name): np.zeros_like(values[name]) for name in names})
        return values

    def _timed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Batches without end, made from now on. How long the training waits for each is noted: nothing if they keep up."""
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

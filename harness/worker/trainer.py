"""What a backend implements: one ``Trainer`` per worker process, and ``serve`` for a parameter server process.

A ``trainer.py`` defines ``create(job) -> Trainer`` and, if its plan has parameter servers,
``serve(job, ready) -> None``, which calls ``ready()`` once it listens and returns when the workers have finished.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Protocol, Tuple

import numpy as np

from harness.worker.clock import Clock


@dataclass(frozen=True)
class State:
    """What a worker can say of its training when the window is closed.

    ``parameters`` are this worker's view, float32 in the canonical layout (see ``harness.models.specification``), keyed by
    tensor name. ``losses`` are this worker's, of every step since the start. ``updates`` counts how often the parameters
    were updated since the start, as counted where they live. ``world_size`` (worker processes) and ``transport`` are what
    the framework reports at run time, not what was asked for.
    """

    parameters: Dict[str, np.ndarray]
    losses: List[float]
    updates: int
    world_size: int
    transport: str
    device: str
    details: Dict[str, Any] = field(default_factory=dict)


class Trainer(Protocol):
    """One worker's share of synchronous (or, where the backend says so, asynchronous) training. It never takes the time."""

    @property
    def clock(self) -> Clock:
        """The device's clock."""

    def setup(self) -> None:
        """Join the others, build the model, load the initial weights, open the data."""

    def step(self) -> None:
        """One training step on one per-device batch. May return before the device is done."""

    def synchronize(self) -> None:
        """Wait until this worker's device has finished all steps."""

    def barrier(self) -> None:
        """Wait until every worker is here."""

    def server_bytes(self) -> List[Tuple[int, int]]:
        """Bytes that each parameter server has sent and received so far, by rank. Called while all workers stand still.

        Only rank 0 has to know; empty where there are no servers, or where their kernel does not tell.
        """

    def state(self) -> State:
        """The state after the last step. Called after a barrier; no step follows."""

    def close(self) -> None:
        """Leave in good order. Called after a barrier; parameter servers end because of it."""

"""What a backend implements to have kernels measured over its transport: one ``Fabric`` per worker process.

A backend's ``trainer/fabric.py`` defines ``create(job) -> Fabric``, which has joined the others when it returns. The
backend names the kernels that it has the operations for (``Backend.kernels``).
"""

from __future__ import annotations

from typing import Any, Callable, Tuple, Type

import numpy as np

from harness.worker.trainer import Marks


class Fabric:
    """One rank among ``size``. Arrays are the framework's: flat, float32, on the device whose gradients it would carry.

    An operation may put its result into the array that it is given for it, or into another one, which it returns. A fabric
    needs those of its backend's kernels only.
    """

    rank: int
    size: int
    marks: Type[Marks] = Marks

    def array(self, values: np.ndarray) -> Any:
        """An array of its own with these values."""
        raise NotImplementedError

    def values(self, array: Any) -> np.ndarray:
        """The values of an array."""
        raise NotImplementedError

    def allreduce(self, array: Any) -> Any:
        """The sums over all ranks."""
        raise NotImplementedError

    def allgather(self, mine: Any, every: Any) -> Any:
        """All ranks' arrays, one after another."""
        raise NotImplementedError

    def alltoall(self, mine: Any, theirs: Any) -> Any:
        """The slices that all ranks have for this one, one after another."""
        raise NotImplementedError

    def send(self, array: Any, rank: int) -> None:
        """Send to a rank."""
        raise NotImplementedError

    def recv(self, array: Any, rank: int) -> Any:
        """What a rank sends."""
        raise NotImplementedError

    def pushing(self, values: np.ndarray) -> Tuple[Callable[[], None], Callable[[], np.ndarray]]:
        """What adds ``values`` on the parameter servers whenever it is called, and what says the sums of all workers'."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until the device has finished all operations."""
        return

    def barrier(self) -> None:
        """Wait until every rank is here."""
        raise NotImplementedError

    def transport(self) -> str:
        """What carries the messages, as the libraries in this process say."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave in good order. Called after a barrier."""
        raise NotImplementedError

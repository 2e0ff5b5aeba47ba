"""What a backend implements to have kernels measured over its transport: one ``Fabric`` per worker process.

A backend's ``trainer/fabric.py`` defines ``create(job) -> Fabric``, which has joined the others when it returns. The
backend names the kernels that it has the operations for (``Backend.kernels``).
"""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple, Type

import numpy as np

from harness.worker.arithmetic import Arithmetic
from harness.worker.trainer import Marks

# What moves numbers, and what says those that it has left.
Transfer = Tuple[Callable[[], None], Callable[[], np.ndarray]]


class Fabric:
    """One rank among ``size``, beside so many parameter ``servers``.

    Arrays are the framework's, on the device whose gradients it would carry. An operation may put its result into the array
    that it is given for it, or into another one, which it returns. A fabric needs those of its backend's kernels only.
    """

    rank: int
    size: int
    servers: int = 0
    cuda: bool = False  # whether the arrays are on a GPU
    marks: Type[Marks] = Marks
    arithmetic: Arithmetic = Arithmetic()

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
        raise NotImplementedError

    def recv(self, array: Any, rank: int) -> Any:
        raise NotImplementedError

    def pushing(self, parts: Sequence[np.ndarray]) -> Transfer:
        """A function that adds ``parts``, one on each of the first servers, and one that says the sums of all ranks' parts.

        The sums are zero at first. Called by all ranks.
        """
        raise NotImplementedError

    def pulling(self, parts: Sequence[np.ndarray]) -> Transfer:
        """A function that reads ``parts``, one of which each server holds, and one that says the numbers that came last.

        Called by all ranks, with the same parts.
        """
        raise NotImplementedError

    def queue(self, name: str, shape: Sequence[int], dtype: Any = np.float64, server: int = 0) -> Any:
        """For programs: the queue of this name on a server, of arrays of one shape, the same for all ranks and servers.

        ``put(array, index)`` is the operation that appends an array. ``get(after)`` takes the next one with its index, when
        the operations ``after`` are done, and ``gather(count)`` so many, one after another in the order of the index.
        """
        raise NotImplementedError

    def held(self, name: str, shape: Sequence[int], dtype: Any = np.float64, server: int = 0) -> Any:
        """For programs: the array of this name on a server, the same for all ranks and servers.

        ``part(begin, end)`` is some of it. Operations change it: ``set(array)``, and ``add(array, index)``, which adds to
        what has that index; with ``to_zero`` all is zero before.
        """
        raise NotImplementedError

    def program(self, build: Callable[..., Any], *like: Any) -> Callable[..., Any]:
        """A function, of arguments ``like`` these, that carries out what ``build`` makes of them.

        That is an operation, an array, or a list of both. The function returns the arrays' values, as NumPy's.
        """
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

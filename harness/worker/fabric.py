"""The operations that kernels measure over a backend's transport: one ``Fabric`` per worker process.

A backend's ``trainer/fabric.py`` defines ``create(job) -> Fabric``, which has joined the others when it returns. The
backend names the kernels that it has the operations for (``Backend.kernels``).
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, NamedTuple, Sequence, Tuple, Type

import numpy as np

from harness.worker.trainer import Marks

# A function that moves numbers, and one that returns those that it has left.
Transfer = Tuple[Callable[[], None], Callable[[], np.ndarray]]


class Arithmetic(NamedTuple):
    """Functions that kernels compute with, beside ``@``, ``+``, ``-``, ``*`` and ``/``: by default NumPy's."""

    # The product of two vectors, as an array of one number.
    dot: Callable[[Any, Any], Any] = lambda left, right: np.vdot(left, right).reshape(1)
    # The transform of each row.
    fft: Callable[[Any], Any] = np.fft.fft
    # (array, shape, axes): an array of such a shape, with its dimensions in another order, one after another in memory.
    permuted: Callable[[Any, Sequence[int], Sequence[int]], Any] = lambda array, shape, axes: np.ascontiguousarray(
        array.reshape(shape).transpose(axes)
    )
    # A complex array's numbers as pairs, in the same memory, and the other way: no transport has to know complex numbers.
    real: Callable[[Any], Any] = lambda array: array.view(np.float64)
    complex: Callable[[Any], Any] = lambda array: array.view(np.complex128)


def of_torch() -> Arithmetic:
    torch = importlib.import_module("torch")
    return Arithmetic(
        dot=lambda left, right: torch.dot(left.reshape(-1), right.reshape(-1)).reshape(1),
        fft=torch.fft.fft,
        permuted=lambda array, shape, axes: array.reshape(tuple(shape)).permute(tuple(axes)).contiguous(),
        real=torch.view_as_real,
        complex=torch.view_as_complex,
    )


def of_tensorflow() -> Arithmetic:
    tf = importlib.import_module("tensorflow")
    return Arithmetic(
        dot=lambda left, right: tf.reshape(tf.tensordot(tf.reshape(left, [-1]), tf.reshape(right, [-1]), 1), [1]),
        fft=tf.signal.fft,
        permuted=lambda array, shape, axes: tf.transpose(tf.reshape(array, shape), axes),
        real=lambda array: tf.bitcast(array, tf.float64),
        complex=lambda array: tf.bitcast(array, tf.complex128),
    )


class Fabric:
    """One rank among ``size``, beside so many parameter ``servers``.

    Arrays are the framework's, on the device whose gradients it would carry. An operation may put its result into the array
    that it is given for it, or into another one, which it returns. A fabric defines the operations of its backend's kernels
    alone.
    """

    rank: int
    size: int
    servers: int = 0
    cuda: bool = False  # whether the arrays are on a GPU
    marks: Type[Marks] = Marks
    arithmetic: Arithmetic = Arithmetic()

    array: Callable[[np.ndarray], Any]  # an array of its own with these values
    values: Callable[[Any], np.ndarray]  # the values of an array
    allreduce: Callable[[Any], Any]  # the sums over all ranks
    allgather: Callable[[Any, Any], Any]  # (mine, every): all ranks' arrays, one after another
    alltoall: Callable[[Any, Any], Any]  # (mine, theirs): all ranks' slices for this one, one after another
    send: Callable[[Any, int], None]  # (array, rank)
    recv: Callable[[Any, int], Any]  # (array, rank)
    # From ``parts``, one for each of the first servers, a function that adds them there, and one that returns the sums of
    # all ranks' parts. The sums are zero at first. Called by all ranks.
    pushing: Callable[[Sequence[np.ndarray]], Transfer]
    # From ``parts``, one of which each server holds, a function that reads them, and one that returns the numbers that came
    # last. Called by all ranks, with the same parts.
    pulling: Callable[[Sequence[np.ndarray]], Transfer]

    # For programs: (name, shape, dtype=float64, server=0), the queue of this name on a server, of arrays of one shape, the
    # same for all ranks and servers. ``put(array, index)`` is the operation that appends an array. ``get(after)`` takes the
    # next one with its index, when the operations ``after`` are done, and ``gather(count)`` so many, one after another in
    # the order of the index.
    queue: Callable[..., Any]
    # For programs: (name, shape, dtype=float64, server=0), the array of this name on a server, the same for all ranks and
    # servers. ``part(begin, end)`` is some of it. Operations change it: ``set(array)``, and ``add(array, index)``, which
    # adds to what has that index; with ``to_zero`` all is zero before.
    held: Callable[..., Any]
    # (build, *like): a function, of arguments ``like`` these, that carries out what ``build`` makes of them: an operation,
    # an array, or a list of both. The function returns the arrays' values, as NumPy's.
    program: Callable[..., Callable[..., Any]]

    barrier: Callable[[], None]  # waits until every rank is here
    transport: Callable[[], str]  # what carries the messages, as the libraries in this process say
    close: Callable[[], None]  # leaves in good order; called after a barrier

    def synchronize(self) -> None:
        """Wait until the device has finished all operations."""

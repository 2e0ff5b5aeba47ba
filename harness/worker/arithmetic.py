"""The functions of each library that kernels compute with, beside ``@``, ``+``, ``-``, ``*`` and ``/``."""

from __future__ import annotations

import importlib
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np


class Arithmetic(NamedTuple):
    """Functions of arrays: by default of NumPy's."""

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

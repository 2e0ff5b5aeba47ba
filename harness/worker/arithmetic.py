"""What kernels compute with beside ``@``, ``+``, ``-``, ``*`` and ``/``, by each library's own functions."""

from __future__ import annotations

import importlib
from typing import Any, Sequence

import numpy as np


class Arithmetic:
    """With arrays of NumPy. ``dot``: the product of two vectors, as an array of one number. ``fft``: of each row.

    ``permuted``: an array of such a shape, with its dimensions in another order, one after another in memory. ``real``: a
    complex array's numbers as pairs, in the same memory, and ``complex`` the other way: no transport has to know complex
    numbers.
    """

    def dot(self, left: Any, right: Any) -> Any:
        return np.vdot(left, right).reshape(1)

    def fft(self, rows: Any) -> Any:
        return np.fft.fft(rows)

    def permuted(self, array: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
        return np.ascontiguousarray(array.reshape(shape).transpose(axes))

    def real(self, array: Any) -> Any:
        return array.view(np.float64)

    def complex(self, array: Any) -> Any:
        return array.view(np.complex128)


class OfTorch(Arithmetic):
    """With tensors of PyTorch."""

    def __init__(self) -> None:
        self._torch = importlib.import_module("torch")

    def dot(self, left: Any, right: Any) -> Any:
        return self._torch.dot(left.reshape(-1), right.reshape(-1)).reshape(1)

    def fft(self, rows: Any) -> Any:
        return self._torch.fft.fft(rows)

    def permuted(self, array: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
        return array.reshape(tuple(shape)).permute(tuple(axes)).contiguous()

    def real(self, array: Any) -> Any:
        return self._torch.view_as_real(array)

    def complex(self, array: Any) -> Any:
        return self._torch.view_as_complex(array)


class OfTensorFlow(Arithmetic):
    """With tensors of TensorFlow."""

    def __init__(self) -> None:
        self._tf = importlib.import_module("tensorflow")

    def dot(self, left: Any, right: Any) -> Any:
        return self._tf.reshape(self._tf.tensordot(self._flat(left), self._flat(right), 1), [1])

    def fft(self, rows: Any) -> Any:
        return self._tf.signal.fft(rows)

    def permuted(self, array: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
        return self._tf.transpose(self._tf.reshape(array, shape), axes)

    def real(self, array: Any) -> Any:
        return self._tf.bitcast(array, self._tf.float64)

    def complex(self, array: Any) -> Any:
        return self._tf.bitcast(array, self._tf.complex128)

    def _flat(self, array: Any) -> Any:
        return self._tf.reshape(array, [-1])

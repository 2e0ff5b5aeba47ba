"""A model's arrays: the values that it starts from, and how frameworks that put channels first store them. NumPy only.

The values are the same for every framework, process and NumPy version, given a seed.

Kernels follow He et al., "Delving Deep into Rectifiers" (arXiv:1502.01852, ICCV 2015): normal with variance 2 / fan-in,
which keeps the variance of activations constant from layer to layer under ReLU. The dense kernel is small, for a first
loss near log(classes).

Every tensor has a random stream of its own, so one can be made without the others. NumPy promises that SeedSequence
and PCG64 never change, but not what ``standard_normal`` makes of them (NEP 19). So: all values of all models were
found bitwise equal under NumPy 1.23.5 on Python 3.9 and 2.4.6 on 3.11, and a unit test pins some of them.
"""

from __future__ import annotations

import math
from typing import Dict, Tuple

import numpy as np
import numpy.typing as npt

from harness.models.layers import ModelSpecification, Tensor

Array = npt.NDArray[np.float32]
# Frameworks that put channels first transpose kernels. By rank: (in, out) -> (out, in) and HWIO -> OIHW.
STORED = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
CANONICAL = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}


def initial_value(tensor: Tensor, index: int, seed: int) -> Array:
    """The first value of ``tensor``, float32. ``index``, its position in the specification, chooses its random stream."""
    if tensor.initial in ("zeros", "ones"):
        return np.full(tensor.shape, tensor.initial == "ones", np.float32)
    # All inputs of a kernel's output are its dimensions but the last, (height, width, in).
    deviation = {"he_normal": math.sqrt(2 / math.prod(tensor.shape[:-1])), "small_normal": 0.01}[tensor.initial]
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))
    return random.standard_normal(tensor.shape, dtype=np.float32) * np.float32(deviation)


def initial_values(specification: ModelSpecification, seed: int) -> Dict[str, Array]:
    """The first value of every tensor, then of every batch-norm statistic, by name."""
    everything = (*specification.tensors, *specification.statistics)
    return {tensor.name: initial_value(tensor, index, seed) for index, tensor in enumerate(everything)}


def stored_shape(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """The shape of what ``stored`` makes of a canonical array."""
    return tuple(shape[axis] for axis in STORED[len(shape)])


def stored(value: np.ndarray) -> np.ndarray:
    """A canonical array as such a framework stores it, in C order."""
    return np.ascontiguousarray(value.transpose(STORED[value.ndim]))


def canonical(value: np.ndarray) -> np.ndarray:
    """A copy of a stored array in the canonical layout, in C order."""
    return np.array(value.transpose(CANONICAL[value.ndim]), order="C")

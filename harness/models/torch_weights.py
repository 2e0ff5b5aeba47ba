"""Canonical arrays in and out of a PyTorch module: which parameter is which tensor is decided here and nowhere else.

A module's path equals the canonical name up to its last part, and kernels are stored transposed.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, Mapping, Tuple

import numpy as np
import torch
from torch import nn

from harness.models.specification import ModelSpecification, Tensor

_LAST_PART = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_TO_TORCH = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}  # by rank: (in, out) -> (out, in) and HWIO -> OIHW
_TO_CANONICAL = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}


def load(module: nn.Module, specification: ModelSpecification, values: Mapping[str, np.ndarray]) -> None:
    """Copy canonical float32 ``values``, one for every tensor and statistic of the specification, into ``module``.

    Raises ``ValueError`` if a name is missing or left over in the values or the module, or if a shape differs.
    """
    everything = (*specification.tensors, *specification.statistics)
    _same_names("values", (tensor.name for tensor in everything), values)
    with torch.no_grad():
        for tensor, held in _pairs(module, specification):
            value = values[tensor.name]
            if value.shape != tensor.shape:
                raise ValueError(f"{tensor.name}: the value is {value.shape}, the specification says {tensor.shape}")
            held.copy_(torch.from_numpy(value.transpose(_TO_TORCH[value.ndim])))


def dump(module: nn.Module, specification: ModelSpecification) -> Dict[str, np.ndarray]:
    """Copies of all tensors and statistics of ``module``, float32 in canonical layout; raises as ``load`` does."""
    return {tensor.name: _canonical(held) for tensor, held in _pairs(module, specification)}


def gradients(module: nn.Module, specification: ModelSpecification) -> Dict[str, np.ndarray]:
    """Copies of the gradients of all trainable tensors, float32 in canonical layout.

    Raises ``ValueError`` as ``load`` does, and for a tensor that no gradient has reached.
    """
    found = {}
    for tensor, held in _pairs(module, specification):
        if held.requires_grad:
            if held.grad is None:
                raise ValueError(f"{tensor.name}: no gradient")
            found[tensor.name] = _canonical(held.grad)
    return found


def torch_name(name: str) -> str:
    """The name of a tensor within a PyTorch module, from its canonical name."""
    path, last = name.rsplit(".", 1)
    return f"{path}.{_LAST_PART[last]}"


def _pairs(module: nn.Module, specification: ModelSpecification) -> Iterator[Tuple[Tensor, torch.Tensor]]:
    """Every tensor and statistic with what ``module`` holds for it; untrained parameters are constants and left out."""
    trained = {name: held for name, held in module.named_parameters() if held.requires_grad}
    buffers = dict(module.named_buffers())
    for kind, tensors, held in (
        ("parameters", specification.tensors, trained),
        ("buffers", specification.statistics, buffers),
    ):
        by_name = {torch_name(tensor.name): tensor for tensor in tensors}
        _same_names(f"{kind} of the module", by_name, held)
        for name, tensor in by_name.items():
            shape = tuple(tensor.shape[axis] for axis in _TO_TORCH[len(tensor.shape)])
            if tuple(held[name].shape) != shape:
                raise ValueError(f"{tensor.name}: the module has {tuple(held[name].shape)}, not {shape}")
            yield tensor, held[name]


def _canonical(held: torch.Tensor) -> np.ndarray:
    value = held.detach().to("cpu", torch.float32).numpy()
    return np.array(value.transpose(_TO_CANONICAL[value.ndim]), order="C")


def _same_names(what: str, expected: Iterable[str], found: Iterable[str]) -> None:
    expected, found = set(expected), set(found)
    if expected != found:
        raise ValueError(f"{what}: missing {sorted(expected - found)}, left over {sorted(found - expected)}")

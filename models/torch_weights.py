"""Canonical arrays in and out of a PyTorch module: which parameter is which tensor is decided here and nowhere else.

A module's path equals the canonical name up to its last part, and kernels are stored transposed.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, Mapping, Tuple

import numpy as np
import torch
from torch import nn

from harness.models.channels_first import STORED, canonical, stored_shape
from harness.models.specification import ModelSpecification, Tensor

_LAST_PART = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


def load(module: nn.Module, specification: ModelSpecification, values: Mapping[str, np.ndarray]) -> None:
    """Copy canonical float32 ``values``, one for every tensor and statistic of the specification, into ``module``.

    Raises ``ValueError`` if a name is missing or left over in the values or the module, or if a shape differs.
    """
    everything = (*specification.tensors, *specification.statistics)
    _same_names("values", (tensor.name for tensor in everything), values)
    for tensor, held in _pairs(module, specification):
        value = values[tensor.name]
        if value.shape != tensor.shape:
            raise ValueError(f"{tensor.name}: the value is {value.shape}, the specification says {tensor.shape}")
        assign(held, value)


def held(module: nn.Module, specification: ModelSpecification) -> Dict[str, torch.Tensor]:
    """What ``module`` holds for every tensor and statistic, by canonical name; raises as ``load`` does."""
    return {tensor.name: held for tensor, held in _pairs(module, specification)}


def trained(module: nn.Module, specification: ModelSpecification) -> Dict[str, torch.Tensor]:
    """The parameters that ``module`` trains, by canonical name, in creation order; raises as ``load`` does."""
    return {tensor.name: held for tensor, held in _pairs(module, specification) if held.requires_grad}


def assign(held: torch.Tensor, value: np.ndarray) -> None:
    """Copy a canonical array into what a module, or its optimizer, holds for it."""
    with torch.no_grad():
        held.copy_(torch.from_numpy(np.ascontiguousarray(value.transpose(STORED[value.ndim]))))


def dump(module: nn.Module, specification: ModelSpecification) -> Dict[str, np.ndarray]:
    """Copies of all tensors and statistics of ``module``, float32 in canonical layout; raises as ``load`` does."""
    return {tensor.name: canonical_copy(held) for tensor, held in _pairs(module, specification)}


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
            shape = stored_shape(tensor.shape)
            if tuple(held[name].shape) != shape:
                raise ValueError(f"{tensor.name}: the module has {tuple(held[name].shape)}, not {shape}")
            yield tensor, held[name]


def canonical_copy(held: torch.Tensor) -> np.ndarray:
    """A copy of what a module, or its optimizer, holds for a tensor: float32 in canonical layout."""
    return canonical(held.detach().to("cpu", torch.float32).numpy())


def _same_names(what: str, expected: Iterable[str], found: Iterable[str]) -> None:
    expected, found = set(expected), set(found)
    if expected != found:
        raise ValueError(f"{what}: missing {sorted(expected - found)}, left over {sorted(found - expected)}")

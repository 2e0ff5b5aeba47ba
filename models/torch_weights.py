"""Canonical arrays in and out of a PyTorch module: which parameter is which tensor is decided here and nowhere else.

A module's path equals the canonical name up to its last part, and kernels are stored transposed.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

import numpy as np
import torch
from torch import nn

from harness.models.channels_first import STORED, canonical, stored_shape
from harness.models.specification import ModelSpecification

_LAST_PART = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


def load(module: nn.Module, specification: ModelSpecification, values: Mapping[str, np.ndarray]) -> None:
    """Copy canonical float32 ``values``, by the names of the specification's tensors and statistics, into ``module``.

    Raises ``ValueError`` as ``held`` does, or if a value has another shape than the specification says.
    """
    everything = (*specification.tensors, *specification.statistics)
    of_module = held(module, specification)
    _same("values and specification", _shapes(values), {tensor.name: tensor.shape for tensor in everything})
    for name, tensor in of_module.items():
        assign(tensor, values[name])


def held(module: nn.Module, specification: ModelSpecification) -> Dict[str, torch.Tensor]:
    """What ``module`` holds for every tensor and statistic, by canonical name; untrained parameters are left out.

    Raises ``ValueError`` unless the module has exactly those tensors, in their shapes.
    """
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    of_module = {**trained, **dict(module.named_buffers())}
    everything = (*specification.tensors, *specification.statistics)
    wanted = {torch_name(tensor.name): stored_shape(tensor.shape) for tensor in everything}
    _same("module and specification", _shapes(of_module), wanted)
    return {tensor.name: of_module[torch_name(tensor.name)] for tensor in everything}


def trained(module: nn.Module, specification: ModelSpecification) -> Dict[str, torch.Tensor]:
    """The parameters that ``module`` trains, by canonical name, in creation order; raises as ``held`` does."""
    return {name: tensor for name, tensor in held(module, specification).items() if tensor.requires_grad}


def assign(held: torch.Tensor, value: np.ndarray) -> None:
    """Copy a canonical array into what a module, or its optimizer, holds for it."""
    with torch.no_grad():
        held.copy_(torch.from_numpy(np.ascontiguousarray(value.transpose(STORED[value.ndim]))))


def dump(module: nn.Module, specification: ModelSpecification) -> Dict[str, np.ndarray]:
    """Copies of all tensors and statistics of ``module``, float32 in canonical layout; raises as ``held`` does."""
    return {name: canonical_copy(tensor) for name, tensor in held(module, specification).items()}


def torch_name(name: str) -> str:
    """The name of a tensor within a PyTorch module, from its canonical name."""
    path, last = name.rsplit(".", 1)
    return f"{path}.{_LAST_PART[last]}"


def canonical_copy(held: torch.Tensor) -> np.ndarray:
    """A copy of what a module, or its optimizer, holds for a tensor: float32 in canonical layout."""
    return canonical(held.detach().to("cpu", torch.float32).numpy())


def _shapes(arrays: Mapping[str, Any]) -> Dict[str, Tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in arrays.items()}


def _same(what: str, ours: Dict[str, Tuple[int, ...]], wanted: Dict[str, Tuple[int, ...]]) -> None:
    if ours != wanted:
        raise ValueError(f"{what} differ in {sorted({name for name, _ in ours.items() ^ wanted.items()})}")

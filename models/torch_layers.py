"""The layers of ``layers.py`` in PyTorch, and canonical arrays in and out of its modules.

Shapes are NCHW, in whichever memory format the images and weights have. A module's path is the canonical name of its
tensors up to the last part (see ``torch_name``), and kernels are stored transposed.
"""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from harness.models.initial import canonical, stored, stored_shape
from harness.models.layers import BatchNorm, Convolution, Layers, ModelSpecification, Pool, Residual

_LAST_PART = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


class TorchModel(nn.Module, Layers[torch.Tensor]):
    """float32 [N, 3, H, W] -> float32 logits [N, classes]; in training mode the batch norms' moving averages advance.

    It has PyTorch's own first values; ``load`` gives it the suite's.
    """

    def __init__(self, specification: ModelSpecification):
        super().__init__()
        self._layers = specification.layers
        for layer in specification.convolutions:
            *folders, last = layer.name.split(".")
            parent: nn.Module = self
            for folder in folders:
                parent.add_module(folder, getattr(parent, folder, None) or nn.Module())
                parent = parent.get_submodule(folder)
            parent.add_module(last, ConvolutionUnit(layer, specification.norm))
        self.dense = Head(specification.features, specification.num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.dense(self.sequence(images, self._layers))

    def convolution(self, x: torch.Tensor, layer: Convolution) -> torch.Tensor:
        return self.get_submodule(layer.name)(x)

    def pool(self, x: torch.Tensor, layer: Pool) -> torch.Tensor:
        """Rounding the output size up is the one pixel that "SAME" may pad only at the end."""
        padding = [layer.padding(side)[0] for side in x.shape[2:]]
        if layer.kind == "max":
            return F.max_pool2d(x, layer.size, layer.stride, padding, ceil_mode=layer.padded)
        return F.avg_pool2d(x, layer.size, layer.stride, padding, ceil_mode=layer.padded, count_include_pad=False)

    def concatenate(self, branches: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat(list(branches), dim=1)

    def add(self, path: torch.Tensor, shortcut: torch.Tensor) -> torch.Tensor:
        return path.add_(shortcut).relu_()

    def residual(self, x: torch.Tensor, layer: Residual) -> torch.Tensor:
        """The path first, as PyTorch users write it: the backward pass begins with the shortcut."""
        path = self.sequence(x, layer.path)
        return self.add(path, self.convolution(x, layer.shortcut) if layer.shortcut else x)


build = TorchModel


class ConvolutionUnit(nn.Module):
    """Convolution, batch norm or bias and, if the layer has one, ReLU: [N, inputs, H, W] -> [N, outputs, H', W'].

    The batch norm is one that PyTorch's own kernels run, without what the specification does not have. Without gamma the
    weight stays at one and is not trained, rather than absent, as cuDNN wants both or none. The batch counter only serves a
    cumulative average; dropped, it costs no kernel per step and no broadcast between ranks.
    """

    def __init__(self, layer: Convolution, norm: Optional[BatchNorm]):
        super().__init__()
        self.conv = nn.Conv2d(layer.inputs, layer.outputs, layer.size, layer.stride, layer.padding, bias=norm is None)
        self.bn: nn.Module = nn.Identity()
        if norm:
            self.bn = nn.BatchNorm2d(layer.outputs, eps=norm.epsilon, momentum=1 - norm.decay)
            self.bn.num_batches_tracked = None
            self.bn.weight.requires_grad_(norm.gamma)
        self.relu = layer.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """ReLU works in place: the layer before it keeps its input for the backward pass, ReLU its output."""
        x = self.bn(self.conv(x))
        return x.relu_() if self.relu else x


class Head(nn.Linear):
    """The mean over all pixels and a dense layer: [N, features, H, W] -> float32 logits [N, classes]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 also where autocast computed the dense layer in less."""
        return super().forward(x.mean((2, 3))).float()


def load(module: nn.Module, specification: ModelSpecification, values: Mapping[str, np.ndarray]) -> None:
    """Copy canonical float32 ``values`` of all tensors and statistics into ``module``; raises as ``held`` does."""
    for name, tensor in held(module, specification).items():
        assign(tensor, values[name])


def held(module: nn.Module, specification: ModelSpecification) -> Dict[str, torch.Tensor]:
    """The module's tensor for every tensor and statistic, by canonical name; untrained parameters are left out.

    Raises ``ValueError`` unless the module has exactly those tensors, in their shapes.
    """
    of_module = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    of_module.update(module.named_buffers())
    everything = (*specification.tensors, *specification.statistics)
    specified = {torch_name(tensor.name): stored_shape(tensor.shape) for tensor in everything}
    shapes = {name: tuple(tensor.shape) for name, tensor in of_module.items()}
    if shapes != specified:
        differing = sorted({name for name, _ in shapes.items() ^ specified.items()})
        raise ValueError(f"module and specification differ in {differing}")
    return {tensor.name: of_module[torch_name(tensor.name)] for tensor in everything}


def trained(module: nn.Module, specification: ModelSpecification) -> Dict[str, torch.Tensor]:
    """The parameters that ``module`` trains, by canonical name, in creation order; raises as ``held`` does."""
    return {name: tensor for name, tensor in held(module, specification).items() if tensor.requires_grad}


def assign(held: torch.Tensor, value: np.ndarray) -> None:
    """Copy a canonical array into a tensor of a module, or of its optimizer."""
    with torch.no_grad():
        held.copy_(torch.from_numpy(stored(value)))


def torch_name(name: str) -> str:
    """The name of a tensor within a PyTorch module, from its canonical name."""
    path, last = name.rsplit(".", 1)
    return f"{path}.{_LAST_PART[last]}"


def canonical_copy(held: torch.Tensor) -> np.ndarray:
    """A copy of a tensor of a module, or of its optimizer: float32 in canonical layout."""
    return canonical(held.detach().to("cpu", torch.float32).numpy())

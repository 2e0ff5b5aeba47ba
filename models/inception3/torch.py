"""InceptionV3 in PyTorch."""

from __future__ import annotations

from typing import Iterable

import torch
from torch import nn

from harness.models.inception3.specification import CLASSIFIER, MODULES, NORM, STEM, Branches, Layer, Pool
from harness.models.torch_layers import ConvolutionUnit, Head


class Concatenation(nn.Module):
    """Branches that read the same input: [N, C, H, W] -> [N, the sum of their channels, H', W']."""

    def __init__(self, layer: Branches):
        super().__init__()
        for number, branch in enumerate(layer.branches, 1):
            self.add_module(f"branch{number}", sequence(branch))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The branches' outputs, in order, along the channels."""
        return torch.cat([branch(x) for branch in self.children()], dim=1)


class Inception3(nn.Module):
    """float32 [N, 3, H, W] with H and W at least 75 -> float32 logits [N, 1001]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = sequence(STEM)
        self.mixed = [module.name for module in MODULES]
        for module in MODULES:
            self.add_module(module.name, Concatenation(module))
        self.dense = Head(CLASSIFIER)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits; in training mode the batch norms' moving averages advance."""
        x = self.stem(images)
        for name in self.mixed:
            x = self.get_submodule(name)(x)
        return self.dense(x)


def sequence(layers: Iterable[Layer]) -> nn.Sequential:
    """One module per layer, in order; their positions are part of the canonical names."""
    return nn.Sequential(*map(_module, layers))


def _module(layer: Layer) -> nn.Module:
    if isinstance(layer, Branches):
        return Concatenation(layer)
    if isinstance(layer, Pool):
        return _pool(layer)
    return ConvolutionUnit(layer, NORM)


def _pool(pool: Pool) -> nn.Module:
    padding = 1 if pool.stride == 1 else 0
    if pool.kind == "max":
        return nn.MaxPool2d(3, pool.stride, padding)
    return nn.AvgPool2d(3, pool.stride, padding, count_include_pad=False)


def build() -> nn.Module:
    """The model in training mode, with PyTorch's own first values; ``torch_weights.load`` gives it the suite's."""
    return Inception3()

"""A chain of 1×1 convolutions in PyTorch."""

from __future__ import annotations

import torch
from torch import nn

from harness.models.pointwise.specification import CHAIN, CLASSIFIER, NORM, STEM
from harness.models.torch_layers import ConvolutionUnit, Head


class Pointwise(nn.Module):
    """float32 [N, 3, H, W] with H and W at least 32 -> float32 logits [N, 1001]."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = [convolution.name for convolution in (STEM, *CHAIN)]
        for convolution in (STEM, *CHAIN):
            self.add_module(convolution.name, ConvolutionUnit(convolution, NORM))
        self.dense = Head(CLASSIFIER)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits; in training mode the batch norms' moving averages advance."""
        x = images
        for name in self.convolutions:
            x = self.get_submodule(name)(x)
        return self.dense(x)


def build() -> nn.Module:
    """The model in training mode, with PyTorch's own first values; ``torch_weights.load`` gives it the suite's."""
    return Pointwise()

"""The network of "Deep Learning at 15PF" in PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from harness.models.hep_cnn.specification import CLASSIFIER, HALVED, LAST, NORM
from harness.models.torch_layers import ConvolutionUnit, Head


class HepCnn(nn.Module):
    """float32 [N, 3, H, W] with H and W at least 16 -> float32 logits [N, 3]."""

    def __init__(self) -> None:
        super().__init__()
        for convolution in (*HALVED, LAST):
            self.add_module(convolution.name, ConvolutionUnit(convolution, NORM))
        self.dense = Head(CLASSIFIER)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits."""
        x = images
        for convolution in HALVED:
            x = F.max_pool2d(self.get_submodule(convolution.name)(x), 2)
        return self.dense(self.get_submodule(LAST.name)(x))


def build() -> nn.Module:
    """The model with PyTorch's own first values; ``torch_weights.load`` gives it the suite's."""
    return HepCnn()

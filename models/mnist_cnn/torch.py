"""The network of the MNIST tutorial in PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from harness.models.mnist_cnn.specification import CLASSIFIER, HALVED, HIDDEN, NORM
from harness.models.torch_layers import ConvolutionUnit, Head


class MnistCnn(nn.Module):
    """float32 [N, 3, H, W] with H and W at least 28 -> float32 logits [N, 11]."""

    def __init__(self) -> None:
        super().__init__()
        for convolution in (*HALVED, HIDDEN):
            self.add_module(convolution.name, ConvolutionUnit(convolution, NORM))
        self.dense = Head(CLASSIFIER)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits."""
        x = images
        for convolution in HALVED:
            x = F.max_pool2d(self.get_submodule(convolution.name)(x), 2)
        return self.dense(self.get_submodule(HIDDEN.name)(x))


def build() -> nn.Module:
    """The model with PyTorch's own first values; ``torch_weights.load`` gives it the suite's."""
    return MnistCnn()

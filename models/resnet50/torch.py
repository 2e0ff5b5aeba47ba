"""ResNet-50 v1 in PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from harness.models.resnet50.specification import BOTTLENECKS, CLASSIFIER, NORM, STEM, Bottleneck
from harness.models.torch_layers import ConvolutionUnit, Head


class BottleneckBlock(nn.Module):
    """Three convolutions beside a shortcut; the first one has the stride."""

    def __init__(self, block: Bottleneck):
        super().__init__()
        self.shortcut = ConvolutionUnit(block.shortcut, NORM) if block.shortcut else nn.Identity()
        self.reduce = ConvolutionUnit(block.reduce, NORM)
        self.spatial = ConvolutionUnit(block.spatial, NORM)
        self.expand = ConvolutionUnit(block.expand, NORM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, C, H, W] -> [N, C', H', W']."""
        return self.expand(self.spatial(self.reduce(x))).add_(self.shortcut(x)).relu_()


class ResNet50(nn.Module):
    """float32 [N, 3, H, W] with H and W at least 32 -> float32 logits [N, 1001]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvolutionUnit(STEM, NORM)
        self.blocks = [block.name for block in BOTTLENECKS]
        for block in BOTTLENECKS:
            self.add_module(block.name, BottleneckBlock(block))
        self.dense = Head(CLASSIFIER)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits; in training mode the batch norms' moving averages advance."""
        x = same_max_pool(self.stem(images))
        for name in self.blocks:
            x = self.get_submodule(name)(x)
        return self.dense(x)


def same_max_pool(x: torch.Tensor) -> torch.Tensor:
    """A 3×3 max pool of stride 2 with TensorFlow's "SAME" padding.

    That pads an even height or width by one at its end only, which is what rounding the output size up means, and an
    odd one by one on both sides.
    """
    height, width = x.shape[2:]
    return F.max_pool2d(x, 3, stride=2, padding=(height % 2, width % 2), ceil_mode=True)


def build() -> nn.Module:
    """The model in training mode, with PyTorch's own first values; ``torch_weights.load`` gives it the suite's."""
    return ResNet50()

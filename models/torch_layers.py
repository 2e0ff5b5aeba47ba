"""The layers of ``layers.py`` in PyTorch: NCHW shapes, in whichever memory format the images and weights have.

A module's path is the canonical name of its tensors; only the last part differs (see ``torch_weights.py``).
"""

from __future__ import annotations

from typing import Optional

import torch
from torch import nn

from harness.models.layers import BatchNorm, Classifier, Convolution


class ConvolutionUnit(nn.Module):
    """Convolution, batch norm or bias and, if the layer has one, ReLU: [N, inputs, H, W] -> [N, outputs, H', W']."""

    def __init__(self, layer: Convolution, norm: Optional[BatchNorm]):
        super().__init__()
        self.conv = nn.Conv2d(layer.inputs, layer.outputs, layer.size, layer.stride, layer.padding, bias=norm is None)
        self.bn = batch_norm(layer.outputs, norm) if norm else nn.Identity()
        self.relu = layer.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In place where autograd allows: what precedes ReLU keeps its input for the backward pass, ReLU its output."""
        x = self.bn(self.conv(x))
        return x.relu_() if self.relu else x


class Head(nn.Linear):
    """The mean over all pixels and a dense layer: [N, inputs, H, W] -> float32 logits [N, outputs]."""

    def __init__(self, layer: Classifier):
        super().__init__(layer.inputs, layer.outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 also where autocast computed the dense layer in less."""
        return super().forward(x.mean((2, 3))).float()


def batch_norm(channels: int, norm: BatchNorm) -> nn.BatchNorm2d:
    """A batch norm that PyTorch's own kernels run, without what the specification does not have.

    Without gamma the weight stays at one and is not trained, rather than absent, as cuDNN wants both or none. The batch
    counter only serves a cumulative average; dropped, it costs no kernel per step and no broadcast between ranks.
    """
    layer = nn.BatchNorm2d(channels, eps=norm.epsilon, momentum=1 - norm.decay)
    layer.num_batches_tracked = None
    layer.weight.requires_grad_(norm.gamma)
    return layer

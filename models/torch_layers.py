"""The layers of ``layers.py`` in PyTorch: NCHW shapes, in whichever memory format the images and weights have.

A module's path is the canonical name of its tensors; only the last part differs (see ``torch_weights.py``).
"""

from __future__ import annotations

from typing import Optional, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from harness.models.layers import Architecture, BatchNorm, Classifier, Convolution, Layers, Pool, Residual


def build(architecture: Architecture) -> nn.Module:
    """The model in training mode, with PyTorch's own first values; ``torch_weights.load`` gives it the suite's."""
    return TorchModel(architecture)


class TorchModel(nn.Module, Layers[torch.Tensor]):
    """float32 [N, 3, H, W] -> float32 logits [N, classes]; in training mode the batch norms' moving averages advance."""

    def __init__(self, architecture: Architecture):
        super().__init__()
        self._layers = architecture.layers
        for layer in architecture.convolutions:
            *folders, last = layer.name.split(".")
            parent: nn.Module = self
            for folder in folders:
                if folder not in dict(parent.named_children()):
                    parent.add_module(folder, nn.Module())
                parent = parent.get_submodule(folder)
            parent.add_module(last, ConvolutionUnit(layer, architecture.norm))
        self.dense = Head(architecture.classifier)

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

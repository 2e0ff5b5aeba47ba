"""The models that Horovod's PyTorch script looks up by name."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
from harness import models


def resnet50() -> torch.nn.Module:
    """The suite's ResNet-50, in PyTorch's default memory format."""
    module: torch.nn.Module = models.definition("resnet50", "torch")()
    return module

"""Beside PyTorch: DistributedDataParallel over Gloo, MPI or NCCL."""

from __future__ import annotations

from harness.backends.pytorch.trainer.ddp import create

__all__ = ["create"]

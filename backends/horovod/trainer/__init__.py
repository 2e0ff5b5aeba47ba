"""Beside TensorFlow or PyTorch: Horovod's ring allreduce."""

from __future__ import annotations

from harness.backends.horovod.trainer.choice import create

__all__ = ["create"]

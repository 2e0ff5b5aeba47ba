"""Beside TensorFlow: its own collective allreduce."""

from __future__ import annotations

from harness.backends.multi_worker_mirrored.trainer.collective import create

__all__ = ["create"]

"""Beside TensorFlow: replicas whose gradients meet on parameter servers."""

from __future__ import annotations

from harness.backends.distributed_replicated.trainer.replicated import create, serve

__all__ = ["create", "serve"]

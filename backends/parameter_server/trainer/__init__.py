"""Beside TensorFlow: parameter servers and the workers that pull from them."""

from __future__ import annotations

from harness.backends.parameter_server.trainer.servers import create, serve

__all__ = ["create", "serve"]

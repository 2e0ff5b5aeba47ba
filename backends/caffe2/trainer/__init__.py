"""Beside Caffe2: its data-parallel model over Gloo or MPI."""

from __future__ import annotations

from harness.backends.caffe2.trainer.data_parallel import create

__all__ = ["create"]

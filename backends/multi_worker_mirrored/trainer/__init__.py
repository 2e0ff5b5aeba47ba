"""Beside TensorFlow: its own collective allreduce."""

"""Beside TensorFlow: replicas whose gradients meet on parameter servers."""

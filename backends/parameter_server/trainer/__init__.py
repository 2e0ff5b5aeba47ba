"""Beside TensorFlow: parameter servers and the workers that pull from them."""

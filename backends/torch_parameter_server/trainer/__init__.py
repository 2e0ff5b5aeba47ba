"""Beside PyTorch: parameter servers, their workers, and the links between them."""

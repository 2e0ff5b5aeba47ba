"""A chain of 1×1 convolutions."""

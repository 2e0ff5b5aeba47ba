"""Incast: what the workers of parameter servers do with their gradients."""

"""Conjugate gradients."""

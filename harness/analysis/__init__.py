"""Figures derived from raw times. Pure functions."""

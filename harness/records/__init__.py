"""Measurements, as they are written and verified."""

"""Outcast: how the workers of parameter servers get what they train."""

"""Traced steps: events of all processes on one time axis, the critical path through a step, and formats to look at them."""

"""The backends: one folder each. Imports nothing, because workers load it inside every backend's environment."""

"""Ping-pong: a message to another rank and back."""

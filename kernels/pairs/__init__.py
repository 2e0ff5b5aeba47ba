"""Pairs: every rank and every other one, two by two."""

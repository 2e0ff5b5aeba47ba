"""Allgather: what spreads what each rank has."""

"""The supervised network of "Deep Learning at 15PF"."""

"""Allreduce: what averages gradients."""

"""Beside JAX: the processes of ``jax.distributed``, over Gloo or NCCL."""

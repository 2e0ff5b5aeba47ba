"""JAX: a compiled step over the devices of all processes, in which XLA's own collectives average the gradients."""

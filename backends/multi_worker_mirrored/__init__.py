"""TensorFlow's own collective allreduce: the control that separates the framework from the strategy."""

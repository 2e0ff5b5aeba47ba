"""TensorFlow: every worker has a replica of its own; gradients go to parameter servers, updated values come back."""

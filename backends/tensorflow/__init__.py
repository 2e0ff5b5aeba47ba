"""TensorFlow alone, the environment of the backends that need nothing else. It is no backend itself."""

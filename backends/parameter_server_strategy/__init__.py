"""TensorFlow's own parameter servers: the control that separates its servers from ours."""

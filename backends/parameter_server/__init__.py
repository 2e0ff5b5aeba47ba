"""TensorFlow parameter servers: variables live on servers, workers pull them and push gradients."""

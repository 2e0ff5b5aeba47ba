"""The convolutional network of TensorFlow's MNIST tutorial."""

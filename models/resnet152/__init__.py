"""ResNet-152, version 1."""

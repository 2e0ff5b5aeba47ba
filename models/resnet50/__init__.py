"""ResNet-50, version 1."""

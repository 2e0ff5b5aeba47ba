"""ResNet-101, version 1."""

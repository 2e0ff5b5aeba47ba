"""ResNet-101, version 1."""

from harness.models.bottlenecks import resnet

SPECIFICATION = resnet(101, (3, 4, 23, 3))

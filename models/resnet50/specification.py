"""ResNet-50, version 1."""

from harness.models.bottlenecks import resnet

SPECIFICATION = resnet(50, (3, 4, 6, 3))

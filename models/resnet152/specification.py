"""ResNet-152, version 1."""

from harness.models.bottlenecks import resnet

SPECIFICATION = resnet(152, (3, 8, 36, 3))

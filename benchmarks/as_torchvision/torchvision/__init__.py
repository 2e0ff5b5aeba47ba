"""Stands in for torchvision, which has no CPU build, so that Horovod's benchmark script trains the suite's models."""

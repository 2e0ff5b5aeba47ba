"""The first rank sends the last one S bytes, which sends them back; the others wait."""

from harness.kernels.kernel import Communication

SPECIFICATION = Communication("the first rank's message goes to the last rank and back", messages=2, processes=2)

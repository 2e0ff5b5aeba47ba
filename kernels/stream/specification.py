"""The last rank sends S bytes, which their holder adds to what it holds: the STREAM of "TensorFlow Doing HPC".

The holder is the first parameter server or, where there is none, the first rank. The other ranks wait.
"""

from harness.kernels.kernel import Communication

SPECIFICATION = Communication("the last rank's message is added where it arrives", processes=2, steps_of=-1)

"""Where Caffe2's compiled MPI operators are, for the build and for the trainer. Standard library only; Python 3.9."""

from pathlib import Path

LIBRARY = Path("lib", "harness", "caffe2_mpi_operators.so")  # below the environment's folder

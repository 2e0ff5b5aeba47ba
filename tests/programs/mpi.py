"""A program with mpi4py, of which each rank is one of a launcher's MPI world. Given its rank, the third one fails."""

import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size}, sum {world.allreduce(world.rank)}", flush=True)
MPI.Finalize()
sys.exit(4 if sys.argv[1:] == ["2"] else 0)

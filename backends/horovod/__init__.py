"""Horovod: allreduce of every gradient, fused and overlapped with the backward pass, over MPI, Gloo or NCCL."""

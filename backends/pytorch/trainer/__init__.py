"""Beside PyTorch: DistributedDataParallel over Gloo, MPI or NCCL."""

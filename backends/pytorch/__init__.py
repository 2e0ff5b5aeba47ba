"""PyTorch DistributedDataParallel: bucketed allreduce, overlapped with the backward pass."""

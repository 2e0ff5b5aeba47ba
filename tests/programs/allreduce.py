"""A program with torch.distributed over Gloo, which finds its place in the environment; rank 1 fails if it is asked to."""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="env://")
ones, began = torch.ones(250_000), time.monotonic()
for _ in range(4):
    dist.all_reduce(ones)
assert ones[0] == dist.get_world_size() ** 4
print(f"rank {dist.get_rank()} of {dist.get_world_size()}")
print(f"total images/sec: {4 / (time.monotonic() - began):.2f}")
rank = dist.get_rank()
dist.destroy_process_group()
if sys.argv[1:] == ["fail"] and rank == 1:
    raise RuntimeError("rank 1 gives up")

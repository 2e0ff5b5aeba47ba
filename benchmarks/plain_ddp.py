"""A plain DistributedDataParallel script, as a user would write it: what the pytorch backend must not be slower than.

One process per rank, started by hand or by ``alternate.py``. It trains the suite's model on one resident synthetic batch
and prints ``total images/sec`` from rank 0: ranks × batch × steps / time between two barriers.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).parent.parent))  # the models are the suite's own
from harness import models


def main() -> None:
    """Train, and print the throughput."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "amp", "fp16"], default="fp32")
    options = parser.parse_args()
    cuda = options.device == "cuda"

    torch.set_num_threads(options.threads)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"tcp://127.0.0.1:{options.port}",
        rank=options.rank,
        world_size=options.world,
    )
    memory_format = torch.channels_last if options.channels_last else torch.contiguous_format
    module = models.definition(options.model, "torch")().to(options.device, memory_format=memory_format)
    model = torch.nn.parallel.DistributedDataParallel(module, device_ids=[0] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    shape = (options.batch_size, 3, options.image_size, options.image_size)
    images = torch.randn(shape).to(options.device, memory_format=memory_format)
    labels = torch.randint(1000, (options.batch_size,), device=options.device)

    mixed = torch.float16 if options.precision == "fp16" else torch.bfloat16
    scaler = torch.amp.GradScaler(options.device, enabled=options.precision == "fp16")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(options.device, mixed, enabled=options.precision != "fp32"):
            loss = cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def wait() -> None:
        if cuda:
            torch.cuda.synchronize()
        dist.barrier()
        if cuda:
            torch.cuda.synchronize()

    for _ in range(options.warmup):
        step()
    wait()
    began = time.perf_counter()
    for _ in range(options.steps):
        step()
    wait()
    if options.rank == 0:
        seconds = time.perf_counter() - began
        print(f"total images/sec: {options.world * options.batch_size * options.steps / seconds:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

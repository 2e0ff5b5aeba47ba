"""A training step as one CUDA graph: the GPU is handed all of a step's kernels at once, whatever Python takes to name them.

PyTorch's rules for a graph with DDP in it (its notes on CUDA semantics, "Usage with DistributedDataParallel"): DDP is made
on a side stream, the first 11 steps run on one without a graph, and NCCL's watchdog must not look at what is recorded.
"""

from __future__ import annotations

from typing import Callable, Optional

import torch

FREE_STEPS = 11  # DDP looks at its events in the first ones, which a graph cannot hold


class GraphedStep:
    """Carries out ``train``, which trains on a batch on the GPU and returns its loss: as it is, recorded, then replayed.

    To record computes nothing, so every call is one step of training. ``aside`` is the stream that DDP was made on.
    """

    def __init__(self, train: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], aside: torch.cuda.Stream) -> None:
        self._train = train
        self._steps = 0
        self._aside = aside
        self._graph: Optional[torch.cuda.CUDAGraph] = None
        self._copied: Optional[torch.Tensor] = None  # the images that the graph's own are a copy of

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One step. The loss that is returned stays what it is."""
        self._steps += 1
        if self._steps <= FREE_STEPS:
            self._aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._aside):
                loss = self._train(images, labels)
            torch.cuda.current_stream().wait_stream(self._aside)
            return loss
        if self._graph is None:
            self._images, self._labels = images.clone(), labels.clone()
            self._graph = torch.cuda.CUDAGraph()
            # Threads that watch NCCL or pin images ask the GPU for events meanwhile, which concerns none but themselves.
            with torch.cuda.graph(self._graph, stream=self._aside, capture_error_mode="thread_local"):
                self._loss = self._train(self._images, self._labels)
        if images is not self._copied:  # synthetic images are the same in every step
            self._images.copy_(images)
            self._labels.copy_(labels)
            self._copied = images
        self._graph.replay()
        return self._loss.clone()

    def close(self) -> None:
        """Let the graph go: NCCL does not end a communicator whose operations one still holds."""
        torch.cuda.synchronize()
        if self._graph is not None:
            self._graph.reset()

"""The run directory as a worker sees it: the spec, the plan, and this process of the plan."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from harness import models
from harness.models.layers import ModelSpecification
from harness.worker import checkpoint
from harness.worker.agent.seating import SPEC, folder_of, name_of, plan_of
from harness.worker.inputs import index, page_cache
from harness.worker.inputs.order import ReadingOrder


def synthetic_batch(
    seed: int, rank: int, batch_size: int, image_size: int, num_classes: int
) -> Tuple[np.ndarray, np.ndarray]:
    """The batch that a rank trains on in every step: images float32 [N, H, W, 3], labels int64 [N].

    Images are standard normal, as normalised photographs roughly are; labels are uniform in [0, num_classes).
    Another rank gets other values. ``seed`` is in [0, 2**32).
    """
    random = np.random.RandomState([seed, rank])  # the legacy generator, because NumPy promises never to change it
    images = random.standard_normal((batch_size, image_size, image_size, 3)).astype(np.float32)
    return images, random.randint(num_classes, size=batch_size, dtype=np.int64)


@dataclass(frozen=True)
class Job:
    """One process's share of a repeat. ``spec`` and ``plan`` are the JSON of the run directory.

    ``rank`` counts the processes of this role, ``world_size`` the workers, ``devices`` what this process drives.
    """

    run_dir: Path
    repeat: int
    spec: Dict[str, Any]
    plan: Dict[str, Any]
    process: Dict[str, Any]

    @classmethod
    def load(cls, run_dir: Path, repeat: int, number: int) -> Job:
        spec, plan = json.loads((run_dir / SPEC).read_text()), plan_of(run_dir, repeat)
        return cls(run_dir, repeat, spec, plan, plan["processes"][number])

    @property
    def name(self) -> str:
        return name_of(self.process)

    @property
    def rank(self) -> int:
        return int(self.process["rank"])

    @property
    def world_size(self) -> int:
        return int(self.plan["world_size"])

    @property
    def devices(self) -> int:
        return int(self.process["devices"])

    @property
    def repeat_dir(self) -> Path:
        return folder_of(self.run_dir, self.repeat)

    @property
    def training(self) -> Any:
        """The fields of a training to an accuracy (a dictionary); None when img/s are measured."""
        return self.spec.get("training")

    @property
    def kernel(self) -> Any:
        """The kernel to measure (a dictionary); None when something is trained."""
        return self.spec.get("kernel")

    @property
    def real_data(self) -> bool:
        return bool(self.spec["data"] != "synthetic")

    @property
    def emulation(self) -> Any:
        """The plan's facts of an emulated device (a dictionary); None for a real one."""
        return self.plan.get("emulation")

    @property
    def traced_steps(self) -> int:
        """The number of steps to trace after the measured ones."""
        return int(self.spec.get("trace_steps", 0))

    @property
    def data_format(self) -> str:
        """``NCHW`` or ``NHWC``, the order of images in memory; weights and batches are canonical in either."""
        return str(self.plan["data_format"]).upper()

    @property
    def batch_shape(self) -> Tuple[int, int]:
        """A device's images at once, and their size. An emulated one uses none: synthetic ones are one pixel."""
        synthetic = self.emulation and not self.real_data
        return (1, 1) if synthetic else (self.spec["batch_size"], self.spec["image_size"])

    @property
    def bytes_scale(self) -> float:
        return float(self.spec.get("bytes_scale", 1.0))

    @property
    def specification(self) -> ModelSpecification:
        return models.specification(self.spec["model"], self.bytes_scale)

    @property
    def num_classes(self) -> int:
        return self.specification.num_classes

    @cached_property
    def resumed(self) -> Optional[Tuple[Dict[str, np.ndarray], checkpoint.Epochs]]:
        """The values of the checkpoint to go on from, and the epochs before it; None without one."""
        path = self.training["resume"] if self.training else None
        if path is None:
            return None
        return checkpoint.read(path, self.specification, self.training["momentum"])

    @cached_property
    def images(self) -> index.Index:
        return index.read(self.run_dir / "images.index")

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which all images are read; the last one is filled with images of the next epoch."""
        return math.ceil(len(self.images) / (self.world_size * self.devices * int(self.spec["batch_size"])))

    def reading(self, device: int = 0) -> ReadingOrder:
        """The images that a device of this process trains on, after those of the epochs before a checkpoint."""
        _, epochs = self.resumed or ({}, [])
        done = len(epochs) * self.steps_per_epoch * self.spec["batch_size"] if epochs else 0
        rank, world = self.rank * self.devices + device, self.world_size * self.devices
        return self._reading(self.images, rank, world, seed=self.spec["seed"], done=done)

    def evaluating(self) -> ReadingOrder:
        """The images that this process evaluates, on its first device."""
        return self._reading(index.read(self.run_dir / "validation.index"), self.rank, self.world_size)

    def _reading(self, images: index.Index, rank: int, world: int, **training: int) -> ReadingOrder:
        batch_size, image_size, decoders = (self.spec[name] for name in ("batch_size", "image_size", "data_threads"))
        return ReadingOrder(images, rank, world, batch_size, image_size, decoders, self.num_classes, **training)

    def cache_images(self) -> Dict[str, Any]:
        """Bring the images to read into the state of ``--data-cache``. Returns the fields to note of the page cache."""
        count = (self.spec["warmup_steps"] + self.spec["steps"]) * self.spec["batch_size"]
        extents: List[page_cache.Extent] = []
        for device in range(self.devices):
            reading = self.reading(device)
            positions = itertools.islice(reading.positions(), min(count, reading.longest_share))
            extents += [reading.index.extent(image) for image in sorted({image for _, image in positions})]
        state = self.spec["data_cache"]
        before = after = page_cache.cached_share(extents)
        if state != "as_found":
            (page_cache.forget if state == "cold" else page_cache.fetch)(extents)
            after = page_cache.cached_share(extents)
        image_bytes = page_cache.mean_bytes(extents)
        return {"data_cache": {"wanted": state, "found": before, "left": after, "image_bytes": image_bytes}}

    def synthetic_batch(self, device: int = 0) -> Tuple[np.ndarray, np.ndarray]:
        """A device's synthetic batch, the same in every framework: images float32 [N, H, W, 3], labels int64 [N]."""
        number = self.rank * self.devices + device
        return synthetic_batch(self.spec["seed"], number, *self.batch_shape, self.num_classes)

    def processes(self, role: str) -> List[Dict[str, Any]]:
        return [process for process in self.plan["processes"] if process["role"] == role]

    def addresses(self, role: str) -> List[str]:
        return [f"{process['address']}:{process['port']}" for process in self.processes(role)]

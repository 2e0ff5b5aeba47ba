"""The run directory as a worker sees it: the spec, the plan, and which process of the plan this is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np

from harness import models
from harness.inputs import index, synthetic
from harness.worker.seating import Hosts, seated


@dataclass(frozen=True)
class Job:
    """One process's share of a repeat. ``spec`` and ``plan`` are the JSON of the run directory."""

    run_dir: Path
    repeat: int
    spec: Dict[str, Any]
    plan: Dict[str, Any]
    process: Dict[str, Any]

    @classmethod
    def load(cls, run_dir: Path, repeat: int, number: int) -> Job:
        """Read the run directory for process ``number`` of the plan."""
        spec = json.loads((run_dir / "spec.json").read_text())
        hosts = Hosts.read(run_dir / f"repeat-{repeat}")
        plan = seated(json.loads((run_dir / "plan.json").read_text()), hosts)
        return cls(run_dir, repeat, spec, plan, plan["processes"][number])

    @property
    def name(self) -> str:
        """For example ``worker-0``: the stem of this process's log and events files."""
        return f"{self.process['role']}-{self.process['rank']}"

    @property
    def rank(self) -> int:
        """Rank among the processes of this role."""
        return int(self.process["rank"])

    @property
    def world_size(self) -> int:
        """Number of worker processes, as planned."""
        return int(self.plan["world_size"])

    @property
    def devices(self) -> int:
        """Devices that this process drives."""
        return int(self.process["devices"])

    @property
    def repeat_dir(self) -> Path:
        """Where this repeat's events, logs and rendezvous files are."""
        return self.run_dir / f"repeat-{self.repeat}"

    @property
    def image_index(self) -> Path:
        """The list of images the controller has written, when the run reads real ones."""
        return self.run_dir / "images.index"

    @property
    def real_data(self) -> bool:
        """True when the run reads images from files."""
        return bool(self.spec["data"] != "synthetic")

    def reading(self, device: int = 0) -> Dict[str, Any]:
        """Which images a device of this process reads: what every input pipeline of ``harness.inputs`` takes."""
        return {
            "index": index.read(self.image_index),
            "rank": self.rank * self.devices + device,
            "world": self.world_size * self.devices,
            "batch_size": self.spec["batch_size"],
            "image_size": self.spec["image_size"],
            "seed": self.spec["seed"],
        }

    def synthetic_batch(self, device: int = 0) -> Tuple[np.ndarray, np.ndarray]:
        """A device's synthetic batch, the same in every framework: images float32 [N, H, W, 3], labels int64 [N]."""
        num_classes = models.specification(self.spec["model"]).num_classes
        spec, number = self.spec, self.rank * self.devices + device
        return synthetic.batch(spec["seed"], number, spec["batch_size"], spec["image_size"], num_classes)

    def processes(self, role: str) -> List[Dict[str, Any]]:
        """The plan's processes of one role, by rank."""
        return [process for process in self.plan["processes"] if process["role"] == role]

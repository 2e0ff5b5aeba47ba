"""The pace of the repeats of several runs, and the time that the rest will take. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Self

from harness.core.spec import RunSpec
from harness.running.study import labels


@dataclass
class Pace:
    """The repeats of runs, by the runs' folders."""

    wanted: Mapping[Path, int]  # the number of repeats of each run
    names: Mapping[Path, str]  # that tell the runs apart
    lanes: int = 1  # repeats that go on at once
    took_s: dict[Path, list[float]] = field(default_factory=lambda: defaultdict(list))  # seconds of each repeat so far
    given_up: set[Path] = field(default_factory=set)  # runs that no repeat is expected of

    @classmethod
    def of(cls, specs: Mapping[Path, RunSpec]) -> Self:
        """The pace of runs with these specs, before any repeat has ended."""
        follows = {"threads", "data_threads"}  # from the number of nodes, as a rule
        names = labels([spec.model_dump(exclude=follows) for spec in specs.values()])
        if len(set(names)) < len(names):
            names = labels([spec.model_dump() for spec in specs.values()])
        return cls({folder: spec.repeats for folder, spec in specs.items()}, dict(zip(specs, names, strict=True)))

    @property
    def done(self) -> int:
        return sum(map(len, self.took_s.values()))

    @property
    def left(self) -> dict[Path, int]:
        """The number of repeats of each run that are still to come."""
        return {
            folder: wanted - len(self.took_s.get(folder, ()))
            for folder, wanted in self.wanted.items()
            if folder not in self.given_up
        }

    @property
    def left_s(self) -> float | None:
        """Seconds for the rest, without queueing; None while no repeat has ended. New runs take the mean time of others."""
        usual_s = {folder: fmean(took_s) for folder, took_s in self.took_s.items() if took_s}
        if not usual_s:
            return None
        others_s = fmean(usual_s.values())
        return sum(count * usual_s.get(folder, others_s) for folder, count in self.left.items()) / self.lanes

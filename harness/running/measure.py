"""A measurement of img/s: the kind of work whose repeats are all alike."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness import models
from harness.core.spec import SYNTHETIC, RunSpec
from harness.errors import InvalidInput
from harness.launch.watch import Watch
from harness.records.measurement import Rank, Record, Repeat, derive, judge
from harness.records.record import Check
from harness.running.run import Run, reported
from harness.worker.inputs.errors import DataError

# harness.worker.inputs.index is imported where it is used: NumPy takes a quarter of the time that --dry-run may take.
if TYPE_CHECKING:
    from harness.worker.inputs import index


class Measurement(Run):
    """Its ``inputs`` are the images to train on, None for synthetic ones."""

    RECORD, UNIT = Record, "repeats"

    def planned(self) -> int:
        return self.spec.repeats

    def done(self) -> int:
        return len(list(self.folder.glob("repeat-*/ended.json")))

    def find_inputs(self) -> index.Index | None:
        return training_images(self.spec)

    def write_inputs(self) -> None:
        if self.inputs is not None:
            from harness.worker.inputs import index

            index.write(self.inputs, self.folder / "images.index")

    def judge_ranks(self, watch: Watch) -> tuple[list[Rank], list[Check]]:
        ranks = []
        for worker in watch.workers():
            started, measured, evidence, _ = reported(worker, "started", "measured", "evidence", "closed")
            waits_s = evidence.pop("input_wait_s", [])
            fields = {name: measured[name] for name in ("marks_s", "finished_s", "window_s", "network", "servers")}
            facts = fields | {"input_wait_s": waits_s, "evidence": evidence}
            ranks.append(Rank(rank=worker.process.rank, host=started["host"], **facts))
        return ranks, judge(self.spec, ranks, self.plan.world_size, self.backend.expected_updates(self.spec))

    def record(self, complete: bool, facts: dict[str, Any]) -> Record:
        repeats = [Repeat(**judged) for judged in self.judged]
        return Record(
            schema="harness.record/1",
            expected_updates=self.backend.expected_updates(self.spec),
            repeats=repeats,
            derived=derive(self.spec, repeats) if complete else None,
            **facts,
        )


def training_images(spec: RunSpec) -> index.Index | None:
    """The images to train on, if they are real ones. Raises InvalidInput."""
    if spec.data == SYNTHETIC:
        return None
    from harness.worker.inputs.order import check_world

    try:
        images = _scanned(spec.data, models.specification(spec.model).num_classes)
        check_world(len(images), spec.workers)
    except DataError as error:
        raise InvalidInput(f"--data: {error}") from None
    except OSError as error:
        raise InvalidInput(f"--data {spec.data}: {error.strerror}") from None
    return images


@lru_cache(maxsize=4)
def _scanned(data: str, num_classes: int) -> index.Index:
    """The images to train on. The runs of one command look only once: a million files take minutes."""
    from harness.worker.inputs import index

    return index.find(data, "train", num_classes)

"""A measurement of img/s: the kind of work (see ``kinds``) whose repeats are all alike."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import models
from harness.core.spec import SYNTHETIC, RunSpec
from harness.errors import InvalidInput
from harness.launch.watch import Followed, Watch
from harness.records import checks, measurement
from harness.records.measurement import Record, Repeat
from harness.running.evidence import allotted, reported
from harness.running.prepare import Prepared
from harness.worker.agent.seating import Hosts
from harness.worker.inputs.errors import DataError

# harness.worker.inputs.index is imported where it is used: NumPy takes a quarter of the time that --dry-run may take.
if TYPE_CHECKING:
    from harness.worker.inputs import index

RECORD = Record
UNIT = "repeats"


def wanted(spec: RunSpec) -> bool:
    return spec.training is None


def planned(spec: RunSpec) -> int:
    return spec.repeats


def done(prepared: Prepared) -> int:
    return len(list(prepared.run_dir.glob("repeat-*/ended.json")))


def inputs(prepared: Prepared) -> index.Index | None:
    """The images to train on, if they are real ones."""
    spec = prepared.spec
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


def write_inputs(inputs: index.Index | None, folder: Path) -> None:
    if inputs is not None:
        from harness.worker.inputs import index

        index.write(inputs, folder / "images.index")


def named(number: int) -> str:
    return f"repeat {number}"


def judge(prepared: Prepared, number: int, watch: Watch, started: str, ended: str, hosts: Hosts | None) -> Repeat:
    ranks = [_rank(worker) for worker in watch.workers()]
    return Repeat(
        number=number,
        ranks=ranks,
        checks=checks.judge(prepared.spec, ranks, prepared.plan.world_size, _expected_updates(prepared)),
        started=started,
        ended=ended,
        **allotted(hosts),
    )


def _rank(worker: Followed) -> checks.Rank:
    started, measured, evidence, _ = reported(worker, "started", "measured", "evidence", "closed")
    return checks.Rank(
        rank=worker.process.rank,
        host=started["host"],
        input_wait_s=evidence.pop("input_wait_s", []),
        evidence=evidence,
        **{name: measured[name] for name in ("marks_s", "finished_s", "window_s", "network", "servers")},
    )


def _expected_updates(prepared: Prepared) -> int:
    return prepared.backend.expected_updates(prepared.spec)


def record(prepared: Prepared, judged: list[Repeat], complete: bool, facts: dict[str, Any]) -> Record:
    return Record(
        schema="harness.record/1",
        expected_updates=_expected_updates(prepared),
        repeats=judged,
        derived=measurement.derive(prepared.spec, judged) if complete else None,
        **facts,
    )


def outcome(record: Record) -> str:
    return f"{record.derived.img_per_s.mean:.2f} img/s" if record.derived else ""


def continuation(folder: Path) -> str:
    return ""

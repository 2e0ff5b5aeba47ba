"""Records with chosen figures, for tests of what is made of records: they pass every check that a real run's record does.

The times in them are made up, so nothing that measures is tested with these.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness.core import emulation
from harness.core.backend import backend as known_backend
from harness.core.emulation import Kept
from harness.core.spec import RunSpec
from harness.records import measurement as records
from harness.records.energy import CounterReading, RankEnergy
from harness.records.kernel import KernelRecord
from harness.records.measurement import Rank, Record, Repeat, judge
from harness.records.record import RAW, merged, sealed

_NUMBERS = itertools.count(1)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
PACKAGES = {"tensorflow": "2.16.1", "torch": "2.13.0", "horovod": "0.28.1"}


def record(
    backend: str = "pytorch",
    nodes: int = 1,
    img_per_s: Sequence[float] = (100.0, 101.0, 99.0),
    *,
    day: float = 0.0,
    status: str = "completed",
    reason: str | None = None,
    site: str | None = "daint:gpu",
    packages: dict[str, str] | None = None,
    machine: dict[str, Any] | None = None,
    variables: dict[str, str] | None = None,
    hosts: Sequence[str] | None = None,
    kept: Sequence[Kept] = (),
    joules: Sequence[float] | None = None,
    losses: Sequence[Sequence[float]] | None = None,
    apart: bool = False,
    **fields: Any,
) -> Record:
    """A record of ``len(img_per_s)`` repeats with these throughputs, started ``day`` days after ``FIRST``.

    ``kept`` is how each rank of an emulated device kept up, ``joules`` are those per image of each repeat, which the first
    rank reads from a package's counter, ``losses`` those of every step of each repeat, the same on all ranks. ``apart``
    means that each repeat had a batch job of its own. ``fields``
    are RunSpec's; a field that is none of those is an option of the backend (``ps=3``).
    """
    own = {name: value for name, value in fields.items() if name not in RunSpec.model_fields}
    fields = {name: value for name, value in fields.items() if name in RunSpec.model_fields}
    known = known_backend(backend)
    framework = fields.pop("framework", known.frameworks[0])
    usual = {"model": "inception3", "image_size": 299, "threads": 12, "data_threads": 12, "steps": 4, "warmup_steps": 1}
    spec = RunSpec(
        backend=backend,
        framework=framework,
        nodes=nodes,
        repeats=len(img_per_s),
        **usual
        | {"transport": known.transports[0], "device": "cpu"}
        | fields
        | {"options": known.options(**own).model_dump()},
    )
    started = FIRST + timedelta(days=day)
    ended = started + timedelta(minutes=10)
    names = list(hosts) if hosts else [f"nid{node:05}" for node in range(nodes)]
    repeats = [_repeat(spec, number, value, names, kept) for number, value in enumerate(img_per_s, start=1)]
    if apart:
        repeats = [each.model_copy(update={"job": f"{day}-{backend}-{nodes}-{each.number}"}) for each in repeats]
    for repeat, value in zip(repeats, joules or (), strict=False):
        energy = read(value * spec.global_batch * spec.steps, repeat.ranks[0].window_s)
        repeat.ranks[0] = repeat.ranks[0].model_copy(update={"energy": energy})
    for repeat, of_steps in zip(repeats, losses or (), strict=False):
        for rank in repeat.ranks:
            rank.evidence["losses"] = list(of_steps)
    completed = status == "completed"
    wanted = packages if packages is not None else PACKAGES
    return Record(
        schema="harness.record/1",
        id=f"{started:%Y%m%d-%H%M%S}-{backend}-{spec.model}-n{nodes}-{next(_NUMBERS):08x}",
        status=status,
        reason=None if completed else (reason or "rank 0 on nid00000 exited with 1"),
        spec=spec,
        plan=_plan(spec),
        expected_updates=spec.warmup_steps + spec.steps,
        repeats=repeats if completed else [],
        seen=records.window_seen_by(spec, repeats if completed else []),
        derived=records.derive(spec, repeats) if completed else None,
        machine=machine or {"host": names[0], "cpu": "Xeon E5-2690 v3", "kernel": "5.3.18", "gpus": []},
        software={"python": "3.11.7", "packages": wanted},
        variables=variables or {"OMP_NUM_THREADS": "12"},
        harness={"version": "0.1.0", "commit": None},
        started=started.isoformat(timespec="milliseconds"),
        ended=ended.isoformat(timespec="milliseconds"),
        site=site,
    )


def read(joules: float, window_s: float) -> RankEnergy:
    """What a reader says of a package that used so many joules within its window."""
    counter = {"source": "powercap", "covers": "package", "name": "package-0", "update_s": 0.001}
    return RankEnergy(
        machine="one", interval_s=window_s, counters=[CounterReading(**counter, before_j=0.0, after_j=joules)]
    )


def save(folder: Path, made: Iterable[Record | KernelRecord]) -> Path:
    """Write records as runs do, each in a folder of its own below ``folder``, which is returned."""
    for one in made:
        (folder / one.id).mkdir(parents=True)
        one.write(folder / one.id)
    return folder


def content(file: Path) -> dict[str, Any]:
    """The JSON of a record's file and of the raw one beside it, together, without digests."""
    together = merged(json.loads(file.read_text()), json.loads(file.with_name(RAW).read_text()))
    return {name: value for name, value in together.items() if name not in ("raw", "seal")}


def store(file: Path, edited: dict[str, Any], seal: bool = False) -> None:
    """Write what ``content`` gave, and somebody may have edited, into both files."""
    own = json.loads(json.dumps(edited))
    raw: dict[str, Any] = {"plan": {name: own["plan"].pop(name) for name in ("processes",) if name in own["plan"]}}
    if "ranks" in own:
        raw["ranks"] = own.pop("ranks")
    else:
        raw["repeats"] = [{"ranks": repeat.pop("ranks")} for repeat in own["repeats"]]
    text = json.dumps(raw)
    file.with_name(RAW).write_text(text)
    own["raw"] = hashlib.sha256(text.encode()).hexdigest()
    data = json.dumps(own)
    file.write_bytes(sealed(data.removesuffix("}").encode()) if seal else data.encode())


def edited(record: dict[str, Any], statement: str) -> dict[str, Any]:
    """Return a copy of a record after a statement of Python in which its fields are variables."""
    copy = deepcopy(record)
    exec(statement, {"nan": math.nan}, copy)
    return copy


def tampered(file: Path) -> None:
    """Make all steps in a record's file half as long, and leave its figures as they were."""
    record = content(file)
    for rank in (rank for repeat in record["repeats"] for rank in repeat["ranks"]):
        rank["marks_s"] = [mark_s / 2 for mark_s in rank["marks_s"]]
    store(file, record)


def _plan(spec: RunSpec) -> dict[str, Any]:
    workers = [{"role": "worker", "devices": 1, "rank": rank} for rank in range(spec.workers)]
    servers = [{"role": "ps", "devices": 1, "rank": rank} for rank in range(spec.options.get("ps", 0))]
    details = {"servers": [{"ps": one["rank"], "bytes": 0, "pieces": 1} for one in servers]} if servers else {}
    emulated = {"emulation": emulation.emulation(spec).model_dump()} if spec.emulated else {}
    return {"world_size": spec.workers, "processes": workers + servers, "details": details} | emulated


def _repeat(spec: RunSpec, number: int, img_per_s: float, hosts: Sequence[str], kept: Sequence[Kept]) -> Repeat:
    window_s = spec.dilation * spec.global_batch * spec.steps / img_per_s
    ranks = [
        Rank(
            rank=rank,
            host=hosts[rank // spec.devices_per_node % len(hosts)],
            # Ranks differ a little, so that distributions have a width.
            marks_s=[window_s * (1 - 1e-3 * (rank % 7)) * step / spec.steps for step in range(spec.steps + 1)],
            finished_s=window_s * (1 - 1e-3 * (rank % 7)),
            window_s=window_s,
            kept=kept[rank] if kept else None,
            evidence={
                "digest": "d",
                "finite": True,
                "changed": True,
                "loss": 7.0,
                "updates": spec.warmup_steps + spec.steps,
                "world_size": spec.workers,
                "transport": f"{spec.transport} on ipogif0",
            },
        )
        for rank in range(spec.workers)
    ]
    checks = judge(spec, {"world_size": spec.workers}, ranks, spec.warmup_steps + spec.steps)
    return Repeat(number=number, ranks=ranks, checks=checks, started=FIRST.isoformat(), ended=FIRST.isoformat())

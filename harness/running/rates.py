"""Rates of runs and records by size, their noise, and the verdict on the two sides of an A/B comparison."""

import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from harness.analysis.ab import Noise, PairedVerdict, judge
from harness.analysis.ratios import Sample
from harness.core import backend as backends
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.records.kernel import KernelRecord
from harness.records.launch import LaunchRecord
from harness.records.measurement import Record
from harness.records.record import AnyRecord, search
from harness.running.kinds import KernelRun, LaunchRun, Measurement
from harness.running.request import failed
from harness.running.run import Run
from harness.running.sides import Comparison
from harness.worker.agent.seating import SPEC

NO_NOISE = ("repeats", "timeout_s", "straggler_limit", "save_parameters")  # fields that say nothing of a repeat's rate


def rates(record: AnyRecord) -> dict[int, tuple[float, ...]]:
    """The rates of all repeats by size: bytes, operations or images per second. Empty without a number."""
    if isinstance(record, KernelRecord):
        return {figures.size: figures.rate.values for figures in record.derived or ()}
    if isinstance(record, LaunchRecord):
        return {0: record.img_per_s.values} if record.img_per_s else {}
    return {0: record.derived.img_per_s.values} if isinstance(record, Record) and record.derived else {}


def last_rates(run: Run) -> dict[int, float]:
    """The rate of the last repeat that was judged, by size."""
    if isinstance(run, KernelRun):
        return {figures.size: figures.rate.mean for figures in run.last_figures()}
    assert isinstance(run, Measurement | LaunchRun)
    return {} if (img_per_s := run.img_per_s()) is None else {0: img_per_s}


def noises(samples: Sequence[Mapping[int, Sequence[float]]], of: Sequence[int]) -> dict[int, Noise]:
    """The noise of these sizes from the rates of several runs; none where that of one of them is not known."""
    by_size = defaultdict(list)
    for sample in samples:
        for size, values in sample.items():
            by_size[size].append(values)
    found = {size: noise for size in of if (noise := Noise.of(by_size[size]))}
    return found if len(found) == len(of) else {}


def earlier(runs: Sequence[Run], folder: Path) -> list[dict[int, tuple[float, ...]]]:
    """Rates of the runs at or below ``folder`` that have measured what one of ``runs`` is to measure, on this system."""
    first, wanted = runs[0], [_measured(run.spec) for run in runs]
    found: list[dict[int, tuple[float, ...]]] = []
    if not folder.is_dir():
        return found
    for path in map(Path, search(folder, [first.RECORD.file_name])):
        with suppress(OSError, ValueError, InvalidInput):  # what cannot be read says nothing
            if _measured(RunSpec.model_validate_json(path.with_name(SPEC).read_bytes())) in wanted:
                record = first.RECORD.read(path)
                if record.site == first.site_name and (
                    record.site or record.machine.get("host") == socket.gethostname()
                ):
                    found.append(rates(record))
    return found


def _measured(spec: RunSpec) -> dict[str, object]:
    """The fields of a spec that decide on rates and their noise. A program's folder may be a copy."""
    fields = backends.differing(spec.model_dump(), NO_NOISE)
    fields.get("program", {}).pop("folder", None)
    fields.get("kernel", {}).pop("sizes", None)
    return fields


def judged(comparison: Comparison, runs: Sequence[Run], records: Sequence[AnyRecord]) -> dict[int, PairedVerdict]:
    """What the records of A and B say, by size. Raises RunFailed for a side that has no number."""
    for record, run in zip(records, runs, strict=True):
        if record.problem:
            raise failed(record, run)
    a, b = map(rates, records)
    # A verdict takes what both sides have done in the same jobs, which are all that there are.
    jobs = []
    for record in records:
        assert isinstance(record, Record | KernelRecord | LaunchRecord)
        jobs.append([repeat.job or comparison.schema_ for repeat in record.repeats])
    return {
        size: judge(Sample.of(a[size], jobs[0]), Sample.of(b[size], jobs[1]), comparison.difference, len(a))
        for size in a
    }

"""Rates of runs and records by size, their noise, and the verdict on the two sides of an A/B comparison."""

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from harness.analysis.ab import Noise, PairedVerdict, judge
from harness.analysis.ratios import Sample
from harness.core import backend as backends
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.records.record import AnyRecord, search
from harness.results.result import Result, of_record
from harness.running.request import Outcome
from harness.running.run import Run
from harness.running.sides import Comparison
from harness.worker.agent.seating import SPEC

NO_NOISE = (
    "repeats",
    "timeout_s",
    "straggler_limit",
    "save_parameters",
    "trace_steps",
)  # fields without influence on a repeat's rate


def by_size(record: AnyRecord) -> dict[int, Result]:
    """The results of a record by their size, which is 0 but for a kernel. Empty without a number."""
    return {result.size: result for result in of_record(record, "") if result.values}


def noises(samples: Sequence[Mapping[int, Result]], of: Sequence[int]) -> dict[int, Noise]:
    """The noise of these sizes from the rates of several runs; none if that of one of them is not known."""
    rates = {size: [sample[size].values for sample in samples if size in sample] for size in of}
    noise_of = {size: noise for size, values in rates.items() if (noise := Noise.of(values))}
    return noise_of if len(noise_of) == len(of) else {}


def earlier(runs: Sequence[Run], folder: Path) -> list[dict[int, Result]]:
    """Results of the runs at or below ``folder`` with the measurement of one of ``runs``, on this system."""
    first, alike = runs[0], [_measured(run.spec) for run in runs]
    results: list[dict[int, Result]] = []
    for path in map(Path, search(folder, [first.RECORD.file_name]) if folder.is_dir() else []):
        with suppress(OSError, ValueError, InvalidInput):  # records that cannot be read are left out
            if _measured(RunSpec.model_validate_json(path.with_name(SPEC).read_bytes())) in alike:
                record = first.RECORD.read(path)
                here = record.site or record.machine.get("host") == socket.gethostname()
                if here and record.site == first.site_name:
                    results.append(by_size(record))
    return results


def _measured(spec: RunSpec) -> dict[str, object]:
    """The fields of a spec that decide on rates and their noise. A program's folder may be a copy."""
    fields = backends.differing(spec.model_dump(), NO_NOISE)
    fields.get("program", {}).pop("folder", None)
    fields.get("kernel", {}).pop("sizes", None)
    return fields


def judged(comparison: Comparison, runs: Sequence[Run], records: Sequence[AnyRecord]) -> dict[int, PairedVerdict]:
    """The verdicts on the records of A and B, by size. Raises RunFailed for a side that has no number."""
    Outcome([*runs], [*records]).check()
    samples = [{size: Sample.of(rate.values, rate.jobs) for size, rate in by_size(each).items()} for each in records]
    a, b = samples
    return {size: judge(a[size], b[size], comparison.difference, len(a)) for size in a}

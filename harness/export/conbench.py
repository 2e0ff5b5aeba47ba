"""Records as benchmark results for Conbench, ready for ``POST /api/benchmark-results/``, one request for each of the list.

The fields and what they mean are those of ``_BenchmarkResultCreateSchema`` in ``conbench/entities/benchmark_result.py`` of
https://github.com/conbench/conbench. A record is one result; its repeats are ``stats.data``, of which Conbench computes
mean and spread itself. The hardware is a ``cluster_info``: ``machine_info`` wants cache sizes and clock rates, which
records do not hold.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from harness.errors import InvalidInput
from harness.records import measurement
from harness.records.measurement import Record
from harness.results import cache, rows

BENCHMARK = "distributed-training-throughput"
UNIT = "i/s"  # of the units that Conbench knows the one for things per second: here images
VARIABLE = "CONBENCH_PROJECT_REPOSITORY"  # where Conbench's own clients look
# Conbench takes no others, as it asks GitHub about the commits.
REPOSITORY = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/?")


def checked_repository(given: str | None) -> str:
    """The repository that was given, else that of Conbench's own variable. Raises InvalidInput for one it would refuse."""
    url = given or os.environ.get(VARIABLE)
    if not url:
        raise InvalidInput(
            f"--format conbench: needs --repository https://github.com/ORG/REPO (or {VARIABLE}), to which results belong"
        )
    if not REPOSITORY.fullmatch(url):
        raise InvalidInput(f"--repository {url}: must be https://github.com/ORG/REPO; Conbench takes no other")
    return url


def write(
    paths: Sequence[Path],
    repository: str,
    stream: IO[bytes],
    told: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """Write the records at ``paths`` as a JSON list, one result a line. ``told`` hears how many are done."""
    separator = b"[\n"
    for text in cache.each(partial(_text, repository), [str(path) for path in paths], told):
        stream.write(separator + text.encode())
        separator = b",\n"
    stream.write(b"\n]\n" if paths else b"[]\n")


def _text(repository: str, path: str) -> str:
    return json.dumps(result(measurement.read(Path(path)), Path(path), repository))


def result(found: Record, path: Path, repository: str) -> dict[str, Any]:
    """One record, whose file is ``path``, as Conbench's BenchmarkResultCreate."""
    spec, row = found.spec, rows.row(found, path)
    commit = found.harness.get("commit")
    parameters = {name: row[name] for name in _PARAMETERS} | {"ps": row["ps"] or "", **json.loads(row["options"])}
    common = {
        "run_id": found.id,
        "batch_id": found.id,
        "timestamp": found.started,
        # What tells one case from another, as text; Conbench ignores empty ones.
        "tags": {"name": BENCHMARK}
        | {name: _as_text(value) for name, value in parameters.items() if value not in (None, "")},
        # Conbench starts a new history when the context changes, so versions, which people want to compare, are info.
        "context": {"benchmark_language": "Python"},
        "info": json.loads(row["environment"]) | {"software": row["software"], "record": str(path)},
        "cluster_info": {
            "name": row["system"],
            "info": {
                "processor": row["processor"],
                "device": spec.device,
                "nodes": str(spec.nodes),
                "devices_per_node": str(spec.devices_per_node),
            },
            "optional_info": {},
        },
        "github": {"repository": repository} | ({"commit": commit} if commit else {}),
    }
    if found.derived is None:
        return common | {"error": {"status": found.status, "reason": found.reason}}
    return common | {
        "stats": {
            "data": list(found.derived.img_per_s.values),
            "unit": UNIT,
            "times": [max(rank.window_s for rank in repeat.ranks) for repeat in found.repeats],
            "time_unit": "s",
            "iterations": spec.steps,
        }
    }


_PARAMETERS = (
    *("backend", "framework", "transport", "model", "nodes", "devices_per_node"),
    *("batch_size", "image_size", "data", "device", "precision"),
)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

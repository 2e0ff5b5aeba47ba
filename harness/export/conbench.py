"""Records as benchmark results for Conbench, ready for ``POST /api/benchmark-results/``, one request for each of the list.

The fields and what they mean are those of ``_BenchmarkResultCreateSchema`` in ``conbench/entities/benchmark_result.py`` of
https://github.com/conbench/conbench. A record is one result; its repeats are ``stats.data``, of which Conbench computes
mean and spread itself. The hardware is a ``cluster_info``: ``machine_info`` wants cache sizes and clock rates, which
records do not hold.
"""

import json
import os
import re
from functools import partial
from pathlib import Path
from typing import IO

from harness.errors import InvalidInput
from harness.export import Export
from harness.records.measurement import Record
from harness.results.rows import row
from harness.results.sources import each

UNIT = "i/s"  # of the units that Conbench knows the one for things per second: here images
VARIABLE = "CONBENCH_PROJECT_REPOSITORY"  # where Conbench's own clients look
# Conbench takes no others, as it asks GitHub about the commits.
REPOSITORY = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/?")
# What tells one case from another.
PARAMETERS = (
    *("backend", "framework", "transport", "model", "nodes", "devices_per_node"),
    *("batch_size", "image_size", "data", "device", "precision"),
)


def write(export: Export, stream: IO[bytes]) -> None:
    url = export.repository or os.environ.get(VARIABLE)
    if not url:
        raise InvalidInput(
            f"--format conbench: needs --repository https://github.com/ORG/REPO (or {VARIABLE}), to which results belong"
        )
    if not REPOSITORY.fullmatch(url):
        raise InvalidInput(f"--repository {url}: must be https://github.com/ORG/REPO; Conbench takes no other")
    separator = b"[\n"
    for text in each(partial(_text, url), export.record_files("conbench"), export.progress):
        stream.write(separator + text.encode())
        separator = b",\n"
    stream.write(b"\n]\n")


def _energy(record: Record) -> dict[str, str]:
    energy = record.derived and record.derived.energy
    if not (energy and energy.joules_per_image):
        return {}
    return {"joules_per_image": str(energy.joules_per_image.mean), "energy_of": energy.covers}


def _text(repository: str, file: str) -> str:
    record = Record.read(Path(file))
    cells, commit = row(record, file), record.harness.get("commit")
    parameters = {name: cells[name] for name in PARAMETERS} | {"ps": cells["ps"] or ""} | json.loads(cells["options"])
    tags = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in parameters.items()
        if value not in (None, "")  # Conbench ignores empty ones
    }
    common = {
        "run_id": record.id,
        "batch_id": record.id,
        "timestamp": record.started,
        "tags": {"name": "distributed-training-throughput"} | tags,
        # Conbench starts a new history when the context changes, so versions, which people want to compare, are info.
        "context": {"benchmark_language": "Python"},
        "info": json.loads(cells["environment"]) | {"software": cells["software"], "record": file} | _energy(record),
        "cluster_info": {
            "name": cells["system"],
            "info": {name: str(cells[name]) for name in ("processor", "device", "nodes", "devices_per_node")},
            "optional_info": {},
        },
        "github": {"repository": repository} | ({"commit": commit} if commit else {}),
    }
    if record.derived is None:
        return json.dumps(common | {"error": {"status": record.status, "reason": record.reason}})
    stats = {
        "data": record.derived.img_per_s.values,
        "unit": UNIT,
        "times": [record.spec.steps * record.spec.global_batch / value for value in record.derived.img_per_s.values],
        "time_unit": "s",
        "iterations": record.spec.steps,
    }
    return json.dumps(common | {"stats": stats})

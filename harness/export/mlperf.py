"""Records as MLPerf log lines, ``:::MLLOG {json}``, for tools that read those. This is no MLPerf submission.

The line format is that of ``mllog.py`` and the keys those of ``constants.py`` and the HPC rules in
https://github.com/mlcommons/logging; ``tracked_stats`` with ``throughput`` in samples per second is what submitters use
(https://github.com/NVIDIA/mlperf-common). Each repeat is a run of its own, in a namespace of its own: ``ID/repeat-1``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from harness.export import Export
from harness.records.measurement import Record, Repeat
from harness.results.cache import each

POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
Event = tuple[str, Any, dict[str, Any]]  # key, value, metadata


def write(export: Export, stream: IO[bytes]) -> None:
    """Write the lines of all records."""
    for text in each(_text, export.record_files("mlperf"), export.progress):
        stream.write(text.encode())


def _text(file: str) -> str:
    return "".join(f"{line}\n" for line in lines(Record.read(Path(file)), file))


def lines(record: Record, file: str) -> list[str]:
    """The lines of one record.

    ``run_start`` and ``run_stop`` are when a repeat was started and had ended, with the start of its processes and its
    warm-up; the throughput is that of the measured window alone. A record without a number is one run that was aborted.
    """
    if record.derived is None:
        aborted = {"status": "aborted", "reason": record.reason}
        return _run(record, file, record.id, (record.started, record.ended), [], aborted)
    return [
        line
        for repeat, img_per_s in zip(record.repeats, record.derived.img_per_s.values, strict=True)
        for line in _run(
            record,
            file,
            f"{record.id}/repeat-{repeat.number}",
            (repeat.started, repeat.ended),
            [_stats(record, repeat, img_per_s)],
            {"status": "success", "repeat": repeat.number},
        )
    ]


def _run(
    record: Record, file: str, namespace: str, times: tuple[str, str], seen: Sequence[Event], outcome: dict[str, Any]
) -> list[str]:
    def line(time: str, kind: str, key: str, value: Any = None, metadata: dict[str, Any] | None = None) -> str:
        # ``file`` and ``lineno`` are for the place in the code that logs; here it is the record that says so.
        event = {
            "namespace": namespace,
            "time_ms": round(datetime.fromisoformat(time).timestamp() * 1000),
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": {"file": file, "lineno": 0} | (metadata or {}),
        }
        return f":::MLLOG {json.dumps(event)}"

    started, ended = times
    return [
        *(line(started, POINT, *event) for event in _configuration(record)),
        line(started, START, "run_start"),
        *(line(ended, POINT, *event) for event in seen),
        line(ended, END, "run_stop", None, outcome),
    ]


def _configuration(record: Record) -> list[Event]:
    spec = record.spec
    how = spec.model_dump(include={"backend", "framework", "transport", "device", "precision", "image_size", "data"})
    accelerators = spec.devices_per_node if spec.device == "cuda" else 0  # CPUs are none; the metadata counts workers
    return [
        ("submission_benchmark", spec.model, how | {"options": spec.options}),
        ("submission_platform", record.site or record.machine.get("host") or "", {}),
        ("number_of_nodes", spec.nodes, {}),
        ("accelerators_per_node", accelerators, {"devices_per_node": spec.devices_per_node}),
        ("global_batch_size", spec.global_batch, {}),
        ("micro_batch_size", spec.batch_size, {}),
        ("opt_name", "sgd", {}),
        ("opt_base_learning_rate", spec.learning_rate, {}),
        ("seed", spec.seed, {}),
    ]


def _stats(record: Record, repeat: Repeat, img_per_s: float) -> Event:
    window_s = max(rank.window_s for rank in repeat.ranks)
    return ("tracked_stats", {"throughput": img_per_s, "window_s": window_s}, {"step": record.spec.steps})

"""Records as MLPerf log lines, ``:::MLLOG {json}``, for tools that read those. This is no MLPerf submission.

The line format is that of ``mllog.py`` and the keys those of ``constants.py`` and the HPC rules in
https://github.com/mlcommons/logging; ``tracked_stats`` with ``throughput`` in samples per second is what submitters use
(https://github.com/NVIDIA/mlperf-common). Each repeat is a run of its own, in a namespace of its own: ``ID/repeat-1``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from harness.records import measurement
from harness.records.measurement import Record, Repeat
from harness.results import cache

POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"


def write(paths: Sequence[Path], stream: IO[bytes], told: Callable[[int, int], None] = lambda done, of: None) -> None:
    """Write the lines of the records at ``paths``. ``told`` hears how many are done."""
    for text in cache.each(_text, [str(path) for path in paths], told):
        stream.write(text.encode())


def _text(path: str) -> str:
    return "".join(f"{line}\n" for line in lines(measurement.read(Path(path)), Path(path)))


def lines(found: Record, path: Path) -> list[str]:
    """The lines of one record, whose file is ``path``.

    ``run_start`` and ``run_stop`` are when a repeat was started and had ended, with the start of its processes and its
    warm-up; the throughput is that of the measured window alone. A record without a number is one run that was aborted.
    """
    if found.derived is None:
        aborted = {"status": "aborted", "reason": found.reason}
        return _run(found, path, found.id, found.started, found.ended, [], aborted)
    told = []
    for repeat, img_per_s in zip(found.repeats, found.derived.img_per_s.values, strict=True):
        name = f"{found.id}/repeat-{repeat.number}"
        status = {"status": "success", "repeat": repeat.number}
        told += _run(found, path, name, repeat.started, repeat.ended, [_stats(found, repeat, img_per_s)], status)
    return told


Event = tuple[str, Any, dict[str, Any]]  # key, value, metadata


def _run(
    found: Record, path: Path, namespace: str, started: str, ended: str, seen: Sequence[Event], outcome: dict[str, Any]
) -> list[str]:
    def line(time: str, kind: str, key: str, value: Any = None, metadata: dict[str, Any] | None = None) -> str:
        # ``file`` and ``lineno`` are for the place in the code that logs; here it is the record that says so.
        event = {
            "namespace": namespace,
            "time_ms": round(datetime.fromisoformat(time).timestamp() * 1000),
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": {"file": str(path), "lineno": 0} | (metadata or {}),
        }
        return f":::MLLOG {json.dumps(event)}"

    return [
        *(line(started, POINT, *event) for event in _configuration(found)),
        line(started, START, "run_start"),
        *(line(ended, POINT, *event) for event in seen),
        line(ended, END, "run_stop", None, outcome),
    ]


def _configuration(found: Record) -> list[Event]:
    spec = found.spec
    how = spec.model_dump(include={"backend", "framework", "transport", "device", "precision", "image_size", "data"})
    return [
        ("submission_benchmark", spec.model, how | {"options": spec.options}),
        ("submission_platform", found.site or found.machine.get("host") or "", {}),
        ("number_of_nodes", spec.nodes, {}),
        # CPUs are no accelerators; how many workers share a node is in the metadata.
        (
            "accelerators_per_node",
            spec.devices_per_node if spec.device == "cuda" else 0,
            {"devices_per_node": spec.devices_per_node},
        ),
        ("global_batch_size", spec.global_batch, {}),
        ("micro_batch_size", spec.batch_size, {}),
        ("opt_name", "sgd", {}),
        ("opt_base_learning_rate", spec.learning_rate, {}),
        ("seed", spec.seed, {}),
    ]


def _stats(found: Record, repeat: Repeat, img_per_s: float) -> Event:
    window_s = max(rank.window_s for rank in repeat.ranks)
    return ("tracked_stats", {"throughput": img_per_s, "window_s": window_s}, {"step": found.spec.steps})

"""Records as MLPerf log lines, ``:::MLLOG {json}``, for tools that read those. This is no MLPerf submission.

The line format is that of ``mllog.py`` and the keys those of ``constants.py`` and the HPC rules in
https://github.com/mlcommons/logging; ``tracked_stats`` with ``throughput`` in samples per second is what submitters use
(https://github.com/NVIDIA/mlperf-common). Each repeat is a run of its own, in a namespace of its own: ``ID/repeat-1``.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from harness.export import Export
from harness.records.measurement import Record

POINT, START, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"


def write(export: Export, stream: IO[bytes]) -> None:
    files = export.record_files("mlperf")
    for done, file in enumerate(files, start=1):
        stream.write(_text(file).encode())
        export.progress(done, len(files))


def _text(file: str) -> str:
    """The lines of one record.

    ``run_start`` and ``run_stop`` are when a repeat was started and had ended, with the start of its processes and its
    warm-up; the throughput is that of the window's steady steps. A record without a number is one run that was aborted.
    """
    record = Record.read(Path(file))
    if record.derived is None:
        aborted = {"status": "aborted", "reason": record.reason}
        return _run(record, file, record.id, (record.started, record.ended), None, aborted)
    runs, used = [], record.derived.energy and record.derived.energy.joules_per_image
    for number, (repeat, img_per_s) in enumerate(zip(record.repeats, record.derived.img_per_s.values, strict=True)):
        stats = {"throughput": img_per_s, "window_s": max(rank.window_s for rank in repeat.ranks)}
        stats |= {"joules_per_image": used.values[number]} if used else {}
        namespace, times = f"{record.id}/repeat-{repeat.number}", (repeat.started, repeat.ended)
        runs.append(_run(record, file, namespace, times, stats, {"status": "success", "repeat": repeat.number}))
    return "".join(runs)


def _run(
    record: Record,
    file: str,
    namespace: str,
    times: tuple[str, str],
    stats: dict[str, float] | None,
    outcome: dict[str, Any],
) -> str:
    spec, (started, ended) = record.spec, times
    how = spec.model_dump(include={"backend", "framework", "transport", "device", "precision", "image_size", "data"})
    accelerators = spec.devices_per_node if spec.device == "cuda" else 0  # CPUs are none; the metadata counts workers
    events: list[tuple[str, str, str, Any, dict[str, Any]]] = [
        (started, POINT, "submission_benchmark", spec.model, how | {"options": spec.options}),
        (started, POINT, "submission_platform", record.site or record.machine.get("host") or "", {}),
        (started, POINT, "number_of_nodes", spec.nodes, {}),
        (started, POINT, "accelerators_per_node", accelerators, {"devices_per_node": spec.devices_per_node}),
        (started, POINT, "global_batch_size", spec.global_batch, {}),
        (started, POINT, "micro_batch_size", spec.batch_size, {}),
        (started, POINT, "opt_name", "sgd", {}),
        (started, POINT, "opt_base_learning_rate", spec.learning_rate, {}),
        (started, POINT, "seed", spec.seed, {}),
        (started, START, "run_start", None, {}),
        *([(ended, POINT, "tracked_stats", stats, {"step": spec.steps})] if stats else []),
        (ended, END, "run_stop", None, outcome),
    ]
    lines = []
    for time, kind, key, value, metadata in events:
        event = {
            "namespace": namespace,
            "time_ms": round(datetime.fromisoformat(time).timestamp() * 1000),
            "event_type": kind,
            "key": key,
            "value": value,
            # These are for the place in the code that logs; here it is the record that says so.
            "metadata": {"file": file, "lineno": 0} | metadata,
        }
        lines.append(f":::MLLOG {json.dumps(event)}\n")
    return "".join(lines)

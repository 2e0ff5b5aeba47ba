"""Measurements of other suites: MLPerf's logs as a table, the output of OSU's and NVIDIA's tests as a rate."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.core.elsewhere import lines, no_formula, number, plain
from harness.errors import InvalidInput

_EVENT = re.compile(r":::MLLOG (\{.*\})")
NOTE = "samples of an epoch over the median time of its epochs but the first, without evaluation"


def mlperf(paths: Sequence[Path], backend: str, devices: int, per_node: int = 1) -> str:
    """A table (CSV) of the logs at ``paths``, of runs on so many ``devices``: samples/s, with their deviation.

    Raises InvalidInput for a file that lacks something, or where there is none.
    """
    import pandas

    runs: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    for file in (file for path in paths for file in (sorted(path.rglob("*.txt")) if path.is_dir() else [path])):
        run, samples_per_s = _run(file)
        runs[run].append(samples_per_s)
    if not runs:
        raise InvalidInput(f"{', '.join(map(str, paths))}: no *.txt is there")
    if len({(system, batch) for system, _, _, batch in runs}) > 1:
        raise InvalidInput("these logs have several systems or batches, and --devices is for each: give them in turn")
    rows = [
        {
            "system": system,
            "backend": backend,
            "model": benchmark,
            "batch_size": "" if batch % devices else batch // devices,
            "workers": devices,
            "devices_per_node": per_node,
            "data": "real",
            "img_per_s": f"{statistics.fmean(rates):.6g}",
            "stdev": f"{statistics.stdev(rates):.4g}" if len(rates) > 1 else "",
            "runs": len(rates),
            "source": f"MLPerf, {organisation}",
            "note": NOTE,
        }
        for (system, benchmark, organisation, batch), rates in sorted(runs.items())
    ]
    return pandas.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n")


def _run(log: Path) -> tuple[tuple[str, str, str, int], float]:
    """The system, the benchmark, the organisation and the global batch of a log, and its samples/s."""
    try:
        events = [json.loads(match[1]) for line in lines(log) if (match := _EVENT.search(line))]
        values = {event.get("key"): event.get("value") for event in events}
        rates = [*_rates(events, float(values["train_samples"]))]
        names = ("submission_platform", "submission_benchmark", "submission_org")
        system, benchmark, organisation = (no_formula(plain(str(values[name]))) for name in names)
        rate = statistics.median(rates[1:] or rates)
        return (system, benchmark, organisation, int(values["global_batch_size"])), rate
    except OSError as error:
        raise InvalidInput(f"{log}: {error.strerror}") from None
    except json.JSONDecodeError:
        raise InvalidInput(f"{log}: a line with :::MLLOG is no JSON, or is cut short") from None
    except KeyError as missing:
        raise InvalidInput(f"{log}: no log of MLPerf, for it does not have {missing}") from None
    except (TypeError, ValueError, statistics.StatisticsError):
        raise InvalidInput(f"{log}: no epoch with its beginning and end is in it") from None


def _rates(events: Iterable[Mapping[str, Any]], samples: float) -> Iterable[float]:
    """Samples/s of each epoch, or of each block, until its evaluation at the end, or its end.

    A block says how many epochs it is of, or how many samples there were at its ends. Raises ValueError for a log whose
    epochs are evaluated several times.
    """
    start: Mapping[str, Any] | None = None
    ends_ms: list[float] = []
    for event in events:
        key = str(event.get("key"))
        if key in ("epoch_start", "block_start"):
            start, ends_ms = event, []
        elif key == "eval_start":
            ends_ms.append(float(event["time_ms"]))
        elif key in ("epoch_stop", "block_stop") and start and start["key"].partition("_")[0] == key.partition("_")[0]:
            if len(ends_ms) > 1:
                raise ValueError("several evaluations within an epoch")
            began, ended = (each.get("metadata") or {} for each in (start, event))
            trained = float(began.get("epoch_count", 1)) * samples
            if "samples_count" in began and "samples_count" in ended:
                trained = float(ended["samples_count"]) - float(began["samples_count"])
            took_ms = (ends_ms or [float(event["time_ms"])])[0] - float(start["time_ms"])
            if trained > 0 and took_ms > 0:
                yield 1e3 * trained / took_ms
            start = None


def network_rate(file: Path) -> float | None:
    """The most bytes/s of a link in the output of OSU's bandwidth tests (MB/s), or of nccl-tests (busbw, GB/s).

    None if it is neither. Raises InvalidInput for a test that is not of one link in one direction, and OSError.
    """
    scale, column, rates = 0.0, 0, list[float]()
    for line in lines(file):
        words = line.lstrip("# ").split()
        if line.lstrip().startswith("#"):
            if "Bi-Directional" in line or "Multiple" in words:
                raise InvalidInput(f"{file}: is of both directions, or of several pairs; give the output of osu_bw")
            if "busbw" in words:
                scale, column = 1e9, words.index("busbw")
            elif words[:1] == ["Size"] and any(word.strip("()") == "MB/s" for word in words):
                scale, column = 1e6, 1
        elif scale and len(words) > column:
            with suppress(ValueError):
                rates.append(scale * number(words[column]))
    return max(rates, default=None)

"""Results as DataFrames, for Python and for exports: one of trainings, another one of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness.core.fingerprint import Fingerprint
from harness.results.result import UNKNOWN, Result, sorted_json

if TYPE_CHECKING:
    import pandas

_COMMON = ("origin", "source", "id", "status", "reason", "system", "site", "tag", "processor")
_ENERGY = ("joules_values", "energy", "energy_note")
_ATTRIBUTES = {  # where a column has another name
    **{"options": "tuned", "img_per_s": "rate", "step_p50_s": "p50_s", "step_p99_s": "p99_s"},
    **{"sent_bytes_per_step": "sent_bytes", "received_bytes_per_step": "received_bytes", "joules_per_image": "joules"},
}


def _columns(*names: str) -> dict[str, str]:
    return {name: _ATTRIBUTES.get(name, name) for name in names}


# The columns of trainings and of kernels, and the attribute of ``Result`` that each has: see there what it holds.
OF_TRAININGS = _columns(
    *(*_COMMON, "backend", "family", "framework", "software", "transport", "mpi"),
    *("model", "nodes", "devices_per_node", "workers", "ps", "batch_size", "image_size"),
    *("data", "device", "dilation", "precision", "threads", "warmup_steps", "steps", "training"),
    *("variant", "link_gb_s"),
    *("options", "spec"),
    *("img_per_s", "stdev", "ci95", "values", "jobs", "runs", "published_efficiency", "published_base"),
    *("step_p50_s", "step_p99_s", "jitter_s", "slowest_rank", "throttled", "slowest_over_median"),
    *("sent_bytes_per_step", "received_bytes_per_step", "joules_per_image"),
    *(*_ENERGY, "transport_seen", "fingerprint", "started", "ended", "note", "environment"),
)
OF_KERNELS = _columns(
    *(*_COMMON, "kernel", "backend", "framework", "software", "transport", "mpi"),
    *("nodes", "devices_per_node", "workers", "ps", "size", "device", "threads"),
    *("warmup_steps", "steps", "options", "spec", "unit"),
    *("rate", "stdev", "ci95", "values", "jobs", "bus_bytes_per_s", "p50_s", "p99_s"),
    *("sent_bytes", "joules", "work_per_joule", *_ENERGY, "transport_seen", "started", "ended", "environment"),
)


def trainings(results: Sequence[Result]) -> pandas.DataFrame:
    """A row for each training and published result, with the columns of ``OF_TRAININGS``; JSON where it is a mapping."""
    return _frame([result for result in results if not result.kernel], OF_TRAININGS)


def kernels(results: Sequence[Result]) -> pandas.DataFrame:
    """A row for each size of each run of a kernel, with the columns of ``OF_KERNELS``."""
    return _frame([result for result in results if result.kernel], OF_KERNELS)


def kinds(columns: Mapping[str, str]) -> dict[str, type]:
    """What each column holds: str, int, float or list."""
    usual, kind = Result(), {str: str, int: int, float: float, tuple: list}
    return {column: kind.get(type(getattr(usual, name)), str) for column, name in columns.items()}


def _frame(results: Sequence[Result], columns: Mapping[str, str]) -> pandas.DataFrame:
    import pandas

    dtypes = {str: "str", int: "int64", float: "float64", list: "object"}
    values = {column: [_cell(getattr(result, name)) for result in results] for column, name in columns.items()}
    return pandas.DataFrame(values).astype({column: dtypes[kind] for column, kind in kinds(columns).items()})


def _cell(value: object) -> object:
    if isinstance(value, tuple):
        return [*value]
    if isinstance(value, Mapping):
        return sorted_json(value)
    if isinstance(value, Fingerprint):
        return "" if value is UNKNOWN else value.model_dump_json()
    return value

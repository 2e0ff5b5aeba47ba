"""Results as DataFrames, for Python and for exports: one of trainings, another one of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from harness.core.fingerprint import Fingerprint
from harness.results.result import UNKNOWN, Result, sorted_json

if TYPE_CHECKING:
    import pandas

_OF_NEITHER = {"warmup", "epochs", "target", "top1", "time_to_accuracy_s"}
_OF_KERNELS_ALONE = {"kernel", "size", "unit", "bus_bytes_per_s", "work_per_joule"}
_OF_TRAININGS_ALONE = {
    *("family", "model", "batch_size", "image_size", "data", "dilation", "precision", "training", "variant", "note"),
    *("link_gb_s", "runs", "published_efficiency", "published_base", "jitter_s", "slowest_rank", "throttled"),
    *("slowest_over_median", "received_bytes", "fingerprint"),
}
_NAMES = {  # of trainings, where a column is not called as the field
    **{"rate": "img_per_s", "p50_s": "step_p50_s", "p99_s": "step_p99_s", "joules": "joules_per_image"},
    **{"sent_bytes": "sent_bytes_per_step", "received_bytes": "received_bytes_per_step"},
}
_FIELDS = [field.name for field in fields(Result) if field.name not in _OF_NEITHER]
# The columns of trainings and of kernels, and the field of ``Result`` that each has: see there what it holds.
OF_TRAININGS = {_NAMES.get(name, name): name for name in _FIELDS if name not in _OF_KERNELS_ALONE}
OF_KERNELS = {name: name for name in _FIELDS if name not in _OF_TRAININGS_ALONE}


def trainings(results: Sequence[Result]) -> pandas.DataFrame:
    """A row for each training and published result, with the columns of ``OF_TRAININGS``; JSON where it is a mapping."""
    return frame([result for result in results if not result.kernel], OF_TRAININGS)


def kernels(results: Sequence[Result]) -> pandas.DataFrame:
    """A row for each size of each run of a kernel, with the columns of ``OF_KERNELS``."""
    return frame([result for result in results if result.kernel], OF_KERNELS)


def kinds(columns: Mapping[str, str]) -> dict[str, type]:
    """The type of each column's values: str, int, float or list."""
    usual, kind = Result(), {int: int, float: float, tuple: list}
    return {column: kind.get(type(getattr(usual, name)), str) for column, name in columns.items()}


def frame(results: Sequence[Result], columns: Mapping[str, str]) -> pandas.DataFrame:
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

"""The columns that all results have, measured and published ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core import backend as backends
from harness.core.spec import OTHER_TRAINING
from harness.errors import InvalidInput

if TYPE_CHECKING:
    import pandas

# What each column holds. Text is "" and a count 0 where it does not apply or is not known, a figure NaN.
COLUMNS: dict[str, type] = {
    "origin": str,  # "measured" or "published"
    "source": str,  # the record's file, or the publication
    "id": str,
    "status": str,
    "reason": str,
    "system": str,  # the site and partition, else the host; or the published system's name
    "processor": str,
    "backend": str,
    "family": str,  # harness.core.backend.Family
    "framework": str,
    "software": str,  # the framework and the backend with their versions
    "transport": str,
    "model": str,
    "nodes": int,
    "devices_per_node": int,
    "workers": int,
    "ps": int,
    "batch_size": int,  # per device
    "image_size": int,
    "data": str,  # "synthetic" or "real"
    "device": str,
    "precision": str,
    "threads": int,  # per worker
    "warmup_steps": int,
    "steps": int,
    "training": str,  # options that make it another training than everyone's: "sync=none" (see ``other_training``)
    "options": str,  # JSON: the backend's own options without ps
    "spec": str,  # JSON: everything that makes two runs the same measurement
    "img_per_s": float,
    "stdev": float,
    "ci95": float,
    "values": list,  # img/s of each repeat
    "published_efficiency": float,  # where only an efficiency was published
    "published_base": int,  # the number of workers that it is relative to
    "step_p50_s": float,
    "step_p99_s": float,
    "jitter_s": float,
    "slowest_rank": int,
    "slowest_over_median": float,  # time of the slowest rank over that of the median rank
    "sent_bytes_per_step": float,  # per worker
    "received_bytes_per_step": float,
    "transport_seen": str,
    "started": str,  # ISO 8601, UTC
    "ended": str,
    "note": str,
    "environment": str,  # JSON: packages, machine, variables, nodes; what may explain a difference
}

_EMPTY: dict[type, Any] = {str: "", int: 0, float: float("nan"), list: ()}
_DTYPES = {str: "str", int: "int64", float: "float64", list: "object"}


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a DataFrame with all ``COLUMNS``. What a row lacks, or has as None, is "", 0, NaN or empty."""
    import pandas

    columns = {
        name: [_EMPTY[kind] if (value := row.get(name)) is None else value for row in rows]
        for name, kind in COLUMNS.items()
    }
    return pandas.DataFrame(columns).astype({name: _DTYPES[kind] for name, kind in COLUMNS.items()})


def as_backends_say(frame: pandas.DataFrame) -> pandas.DataFrame:
    """``frame`` with the two columns that backends decide on, ``family`` and ``training``.

    They are not kept with the rows: a backend may be installed, or change its mind, after a row was made.
    """
    keys = list(zip(frame["backend"], frame["ps"], frame["options"], strict=True))
    families = {key: family(key[0], key[1]) for key in set(keys)}
    trainings = {key: _training(key[0], json.loads(key[2])) for key in set(keys)}
    said = frame.assign(family=[families[key] for key in keys], training=[trainings[key] for key in keys])
    return said.astype({"family": "str", "training": "str"})


def family(backend: str, ps: int) -> backends.Family:
    """On which side of a comparison a backend stands, also one that is not installed here."""
    try:
        return backends.backend(backend).family
    except InvalidInput:
        return "parameter_servers" if ps else "toolkit"


def other_training(backend: backends.Backend, options: Mapping[str, Any]) -> str:
    """Those ``options`` of which ``backend`` says that they make another training than synchronous SGD in float32."""
    different = []
    for name, field in backend.options.model_fields.items():
        marked = field.json_schema_extra.get(OTHER_TRAINING) if isinstance(field.json_schema_extra, dict) else None
        if isinstance(marked, list) and options.get(name) in marked:
            different.append(f"{name}={options[name]}")
    return ", ".join(different)


def _training(backend: str, options: Mapping[str, Any]) -> str:
    try:
        return other_training(backends.backend(backend), options)
    except InvalidInput:  # it is not installed here
        return ""

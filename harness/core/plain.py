"""Figures for scripts: any dataclass as JSON, by one rule."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def json_text(document: object) -> str:
    """The JSON of what ``plain`` makes of a ``document``."""
    return json.dumps(plain(document), indent=1, allow_nan=False)


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it. NaN and infinity are None.

    A dataclass becomes a mapping of its fields, without those that its ``repr`` leaves out, and of the properties that its
    class lists as ``DERIVED``. A named tuple becomes a mapping, any other tuple a list.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.repr] + [*getattr(value, "DERIVED", ())]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {name: plain(held) for name, held in value.items()}
    if isinstance(value, tuple | list):
        return [plain(held) for held in value]
    return value

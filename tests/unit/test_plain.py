"""The one rule by which figures become JSON."""

import json
import math
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from harness.core.plain import json_text


class Ratio(NamedTuple):
    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Point:
    DERIVED: ClassVar = ("double",)

    workers: int
    ratio: Ratio
    runs: tuple[object, ...] = field(default=(), repr=False)

    @property
    def double(self) -> int:
        return 2 * self.workers


def test_a_dataclass_is_its_fields_and_what_it_lists_without_what_its_repr_leaves_out() -> None:
    found = json.loads(json_text({"points": (Point(2, Ratio(1.5), runs=(object(),)),), "name": "a"}))
    assert found == {"points": [{"workers": 2, "ratio": {"value": 1.5, "interval": None}, "double": 4}], "name": "a"}


def test_what_is_no_number_is_null() -> None:
    assert json.loads(json_text([math.nan, Ratio(1.0, (-math.inf, 2.0))])) == [
        None,
        {"value": 1.0, "interval": [None, 2.0]},
    ]

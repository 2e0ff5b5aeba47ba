"""What a figure shows, said once: ``plotly`` draws it in the page, ``static`` into files.

Pure data. Colours are positions in a palette (``palette``), because light and dark pages and printed ones need different
ones; markers and dashes have the names that both drawing modules translate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Scale = Literal["linear", "log", "date"]
Unit = Literal["count", "img_per_s", "share", "ms", "s", "MB", "date"]
Dash = Literal["solid", "dash", "dot", "dashdot"]
Marker = Literal[
    "square",
    "diamond",
    "pentagon",
    "circle",
    "star",
    "hexagon",
    "cross",
    "x",
    "triangle-up",
    "triangle-down",
    "triangle-left",
    "triangle-right",
]
# A curve; the line that a curve would follow without any loss; bars from low to high; single points that stand out; a line
# without points; the area from low to high; columns on low, or on nothing, up to y; bars along x from low to high.
Kind = Literal["curve", "ideal", "spread", "accent", "line", "band", "column", "span"]
TOLD_ONCE: frozenset[Kind] = frozenset(("ideal", "band"))  # one entry of a legend stands for all of them

CLOSEST_TICKS = 1.35  # ratio of neighbouring ticks' values on a logarithmic axis, below which their labels would touch
COLUMN, SPAN = 0.85, 0.7  # thickness of columns and spans, which are 1 apart
DECADES_WITH_STEPS = 3.5  # over more than these, ticks at 1, 2 and 5 are too many

DATA = {"synthetic": "synthetic data", "real": "image files"}


class Facets(NamedTuple):
    """What a reader can filter by. A curve that joins several backends has them all; "" is what is not stated."""

    origin: tuple[str, ...]
    system: tuple[str, ...]
    model: tuple[str, ...]
    data: tuple[str, ...]
    backend: tuple[str, ...]
    framework: tuple[str, ...]
    transport: tuple[str, ...]


@dataclass(frozen=True)
class Axis:
    """``ticks`` are values with their labels; without them whoever draws chooses some. ``top`` is at least shown."""

    name: str
    scale: Scale
    unit: Unit
    ticks: tuple[tuple[float, str], ...] = ()
    from_zero: bool = False
    top: float | None = None


@dataclass(frozen=True)
class Style:
    """``colour`` is a position among a palette's colours, or with ``shade`` among its shades; None is the grey one."""

    colour: int | None
    marker: Marker
    dash: Dash = "solid"
    hollow: bool = False
    shade: bool = False


class Spot(NamedTuple):
    """A point of a series; ``low`` and ``high`` are the ends of its bar, NaN where there is none."""

    x: float | str
    y: float
    low: float = math.nan
    high: float = math.nan
    hover: tuple[str, ...] = ()
    starred: bool = False


@dataclass(frozen=True)
class Series:
    """``low`` and ``high`` are the ends of bars (NaN where there is none), ``hover`` lines of text for each point.

    Columns stand at whole numbers, one apart; spans lie at such heights. A series without ``facets`` is shown with whatever
    else is. ``starred`` points are the best ones. ``width`` is that of bars of a ``spread``, in points.
    """

    name: str
    kind: Kind
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    style: Style
    facets: Facets | None
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    hover: tuple[tuple[str, ...], ...] = ()
    group: str = ""
    starred: tuple[bool, ...] = ()
    width: float = 1.0

    @classmethod
    def of(
        cls,
        name: str,
        kind: Kind,
        spots: Iterable[Spot],
        style: Style,
        facets: Facets | None,
        group: str = "",
        width: float = 1.0,
    ) -> Series:
        """The series through ``spots``."""
        x, y, low, high, hover, starred = zip(*spots, strict=True)
        low, high = (() if all(map(math.isnan, ends)) else ends for ends in (low, high))
        hover, starred = (values if any(values) else () for values in (hover, starred))
        return cls(name, kind, x, y, style, facets, low, high, hover, group, starred, width)


@dataclass(frozen=True)
class Mark:
    """A vertical line at ``x`` with a word on it, such as a change point."""

    x: float | str
    text: str


@dataclass(frozen=True)
class Figure:
    """``name`` is that of its files, ``choice`` what tells it from the other figures of its section."""

    name: str
    title: str
    choice: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    note: str = ""
    marks: tuple[Mark, ...] = ()


def measured_ticks(values: Iterable[float]) -> tuple[tuple[float, str], ...]:
    """Ticks of a logarithmic axis at the counts that were measured; powers of two first, others where there is room."""
    found = sorted({value for value in values if value > 0})
    kept: list[float] = []
    for value in sorted(found, key=lambda one: (not math.log2(one).is_integer(), one)):
        if all(max(value, other) / min(value, other) >= CLOSEST_TICKS for other in kept):
            kept.append(value)
    return tuple((value, f"{value:,g}") for value in sorted(kept))


def decade_ticks(values: Sequence[float]) -> tuple[tuple[float, str], ...]:
    """Ticks of a logarithmic axis that holds ``values``, at 1, 2 and 5 of each decade, or at 1 where decades are many."""
    known = [value for value in values if value > 0 and math.isfinite(value)]
    if not known:
        return ()
    low, high = math.log10(min(known)), math.log10(max(known))
    steps = (1, 2, 5) if high - low <= DECADES_WITH_STEPS else (1,)
    exponents = range(math.floor(low) - 1, math.ceil(high) + 1)
    ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
    return tuple((tick, f"{tick:,g}" if tick < 1e6 else f"{tick / 1e6:g} M") for tick in ticks)


def panel_name(model: str, data: str) -> str:
    """What is drawn together: ``inception3, synthetic data``."""
    return f"{model}, {DATA.get(data, data)}"


def slug(*parts: str) -> str:
    """A name for files and for elements of the page: small letters, digits and hyphens."""
    text = "-".join(parts).casefold()
    return "-".join(filter(None, "".join(one if one.isascii() and one.isalnum() else "-" for one in text).split("-")))

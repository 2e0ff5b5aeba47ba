"""The content of a figure, and its colours: ``plotly`` draws it in the page, ``static`` into files.

Pure data. Colours have names, because light and dark pages need different ones.
"""

import math
import re
import tomllib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from harness.core.text import plural
from harness.results.result import Result

# A curve; the line that a curve would follow without any loss; single points; a line without points; the area from low to
# high; columns on low, or on nothing, up to y; thick lines
# with gaps where y is none. In a legend one ideal line stands for all, and so does one band.
Kind = Literal["curve", "ideal", "accent", "line", "band", "column", "span"]

CLOSEST_TICKS = 1.35  # ratio of neighbouring ticks' values on a logarithmic axis, below which their labels would touch
COLUMN = 0.85  # thickness of columns, which are 1 apart
SPAN = 8  # width of thick lines, in pixels
# Ticks of a decade on a logarithmic axis, by the decades that its values span at most.
DECADES = {0.7: (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), 3.5: (1, 2, 5), math.inf: (1,)}

DATA = {"synthetic": "synthetic data", "real": "image files"}

MARK = "c3"  # of vertical lines at times, and the words on them
COLOURS = 10  # c0 to c9, for what has no order (templates/looks.toml)
SHADES = 8  # s0 to s7, for what grows
LOOKS: dict[str, Any] = tomllib.loads((Path(__file__).parent / "templates/looks.toml").read_text(encoding="utf-8"))
LIGHT: dict[str, str] = LOOKS["light"]
DARK: dict[str, str] = LOOKS["dark"]


class Facets(NamedTuple):
    """The values that a reader can filter by. A curve of several backends has them all; "" is what is not stated."""

    origin: tuple[str, ...]
    system: tuple[str, ...]
    model: tuple[str, ...]
    data: tuple[str, ...]
    backend: tuple[str, ...]
    framework: tuple[str, ...]
    transport: tuple[str, ...]

    @classmethod
    def of(cls, *rows: Mapping[str, object]) -> "Facets":
        return cls(*(tuple(sorted({str(row[name]) for row in rows})) for name in cls._fields))

    @classmethod
    def of_run(cls, run: Result) -> "Facets":
        """A kernel is chosen by its name in place of a model, and has no data."""
        return cls.of({**vars(run), "model": run.kernel, "data": "none"} if run.kernel else vars(run))


@dataclass(frozen=True)
class Axis:
    """``ticks`` are values with their labels; without them whoever draws chooses some."""

    name: str
    scale: Literal["linear", "log", "date"]
    ticks: tuple[tuple[float, str], ...] = ()
    percent: bool = False
    from_zero: bool = False

    @property
    def title(self) -> str:
        return f"{self.name} (log)" if self.scale == "log" else self.name

    @property
    def minor(self) -> list[float]:
        """Minor ticks of a logarithmic axis: every step of the decades that its ticks span, as on logarithmic paper."""
        if self.scale != "log" or not self.ticks:
            return []
        first, last = (math.floor(math.log10(self.ticks[end][0])) for end in (0, -1))
        labelled = {value for value, _ in self.ticks}
        steps = [step * 10.0**exponent for exponent in range(first, last + 1) for step in range(1, 10)]
        return [value for value in steps if value not in labelled]


@dataclass(frozen=True)
class Style:
    """``colour`` is a name in a theme; ``marker`` and ``dash`` are Plotly's names, which ``static`` translates."""

    colour: str
    marker: str = "square"
    dash: str = "solid"
    hollow: bool = False


class Spot(NamedTuple):
    """A point of a series; ``low`` and ``high`` are the ends of its bar, NaN where there is none.

    ``hover`` is lines of text. A ``starred`` point is the best one. ``source`` is the record or the publication.
    """

    x: float | str
    y: float
    low: float = math.nan
    high: float = math.nan
    hover: Sequence[str] = ()
    starred: bool = False
    source: str = ""


@dataclass(frozen=True)
class Series:
    """Points drawn alike. Columns stand at whole numbers, one apart.

    A series without ``facets`` is shown with whatever else is.
    """

    name: str
    kind: Kind
    spots: Sequence[Spot]
    style: Style
    facets: Facets | None = None
    group: str = ""

    def column(self, name: str) -> tuple[Any, ...]:
        return tuple(getattr(spot, name) for spot in self.spots)

    def heights(self) -> Any:
        """``y``, ``low`` and ``high``, an array [3, points]."""
        return np.array([self.column("y"), self.column("low"), self.column("high")])


@dataclass(frozen=True)
class Figure:
    """``name`` is that of its files, ``choice`` what tells it from the other figures of its section.

    ``marks`` are vertical lines at times, such as change points, each with a word on it. Of img/s against workers the page
    has other ``views``: on linear axes, and per worker.
    """

    name: str
    title: str
    choice: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    note: str = ""
    marks: Sequence[tuple[str, str]] = ()
    views: bool = False


def window(series: Iterable[Series], axis: Axis) -> tuple[float, float]:
    """The part of a y axis that matters: all points, and a quarter of their height more for what intervals need of it.

    An interval of few repeats may be a hundred times as long as a curve is high. So that 0.3 % looks small, an axis spans a
    fifth of its values, ten percentage points, or a factor of two if it is logarithmic. The page's script does the same.
    """
    log = axis.scale == "log"
    # Only a curve's bars are intervals; what else has a low and a high end is shown whole.
    every = [each.heights() if each.kind == "curve" else np.tile(each.heights().ravel(), (3, 1)) for each in series]
    heights = np.concatenate(every or [np.empty((3, 0))], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        heights = np.log10(heights) if log else heights
    heights[~np.isfinite(heights)] = np.nan
    if np.isnan(heights[0]).all():
        return 0.0, 1.0
    bottom, top = np.nanmin(heights[0]), np.nanmax(heights[0])
    least = math.log10(2) if log else max(0.2 * max(abs(top), abs(bottom)), 0.1 * axis.percent)
    room = 0.25 * max(top - bottom, least)
    spare = max(0.0, least - (top - min(bottom, 0.0 if axis.from_zero else bottom))) / 2
    low = min(bottom - spare, max(np.nanmin(heights), bottom - room))
    high = max(top + spare, min(np.nanmax(heights), top + room))
    if axis.from_zero:
        low = min(low, 0.0)
    margin = 0.04 * (high - low) or 0.1
    low, high = (low if axis.from_zero and low == 0 else low - margin), high + margin
    return (10.0**low, 10.0**high) if log else (float(low), float(high))


def by_system(series: Sequence[Series]) -> list[Series]:
    """``series`` with a colour for each system of a backend: the first one has the backend's, others one that is free.

    That is the same one in all figures where it is free.
    """
    curves = dict.fromkeys((each.style.colour, each.group) for each in series if each.kind == "curve")
    free = {f"c{number}" for number in range(COLOURS)} - {colour for colour, _ in curves}
    hues: dict[tuple[str, str], str] = {}
    for key in curves:
        again = free and key[0] in {colour for colour, _ in hues}
        hues[key] = min(free, key=lambda hue: zlib.crc32(repr((key, hue)).encode())) if again else key[0]
        free -= {hues[key]}
    colours = (hues.get((each.style.colour, each.group), each.style.colour) for each in series)
    return [replace(each, style=replace(each.style, colour=hue)) for each, hue in zip(series, colours, strict=True)]


def side_by_side(series: Sequence[Series], log: bool) -> list[Series]:
    """``series`` with intervals at one size beside each other, within a quarter of the way to the next, as on the page."""
    curves = [each for each in series if each.kind == "curve" and not np.isnan(each.heights()[1]).all()]
    places = np.unique([math.log(x) if log else x for each in curves for x in each.column("x")])
    step = min(np.ptp(places) / 150, np.diff(places).min() / 4 / len(curves)) if len(places) > 1 else 0.02
    moved = {}
    for number, curve in enumerate(curves):
        by = step * (number - (len(curves) - 1) / 2)
        new = (x * math.exp(by) if log else x + by for x in curve.column("x"))
        spots = [spot._replace(x=x) for spot, x in zip(curve.spots, new, strict=True)]
        moved[id(curve)] = replace(curve, spots=spots)
    return [moved.get(id(each), each) for each in series]


def count_ticks(values: Iterable[float]) -> tuple[tuple[float, str], ...]:
    """Ticks of a linear axis of counts: whole numbers, some 8 of them."""
    counts = [int(value) for value in values] or [0]
    first, last = min(counts), max(counts)
    step = next(s * 10**e for e in range(10) for s in (1, 2, 5) if (last - first) / (s * 10**e) <= 8)
    return tuple((float(number), f"{number:,}") for number in range(-(-first // step) * step, last + 1, step))


def measured_ticks(values: Iterable[float]) -> tuple[tuple[float, str], ...]:
    """Ticks of a logarithmic axis at the counts that were measured; powers of two first, others where there is room."""
    kept: list[float] = []
    positive = {value for value in values if value > 0}
    for value in sorted(positive, key=lambda value: (not math.log2(value).is_integer(), value)):
        if all(max(value, other) / min(value, other) >= CLOSEST_TICKS for other in kept):
            kept.append(value)
    return tuple((value, f"{value:,g}") for value in sorted(kept))


def decade_ticks(values: Iterable[float]) -> tuple[tuple[float, str], ...]:
    """Ticks of a logarithmic axis that holds ``values``: more of each decade, the fewer decades they span."""
    logs = [math.log10(value) for value in values if value > 0 and math.isfinite(value)]
    if not logs:
        return ()
    steps = next(steps for decades, steps in DECADES.items() if max(logs) - min(logs) <= decades)
    exponents = range(math.floor(min(logs)) - 1, math.ceil(max(logs)) + 1)
    ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
    return tuple((tick, f"{tick:,g}" if tick < 1e6 else f"{tick / 1e6:g} M") for tick in ticks)


def panel_name(model: str, data: str) -> str:
    return ", ".join(filter(None, (model or "a model that is not stated", DATA.get(data, data))))


def slug(*parts: str) -> str:
    """A name for files and for elements of the page: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).casefold()).strip("-")


def throughput(value: float) -> str:
    """A rate with as many digits as are of interest: ``9,219.7`` and ``38.25``."""
    return f"{value:,.2f}" if value < 100 else f"{value:,.1f}" if value < 10_000 else f"{value:,.0f}"


def relative(base: int | None, unit: str = "worker") -> str:
    """The clause on the size that efficiencies are relative to; "" without one."""
    return f", relative to {plural(base, unit)}" if base else ""


def interval(ends: tuple[float, float] | None, written: Callable[[float], str] = throughput) -> str:
    """`` (95 % CI 90.1 to 93.4)``, or nothing where no spread is known."""
    return "" if ends is None else f" (95 % CI {written(ends[0])} to {written(ends[1])})"

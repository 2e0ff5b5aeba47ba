"""The curves of a report: with names that tell them apart, looks that stay the same in every figure, and what filters them.

Measured curves have one backend, framework and transport each. Published ones are joined by family if they come from the
same source, since the tables of 2017 give the better of two strategies at each size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from harness.analysis import scaling
from harness.analysis.scaling import Curve
from harness.report.figures import Dash, Facets, Marker, Style
from harness.report.palette import LIGHT

if TYPE_CHECKING:
    import pandas

FAMILIES = {"parameter_servers": "parameter servers", "toolkit": "MPI-style toolkits", "collectives": "collectives"}
# A marker says which family a curve is of, also in print and to those who see no colours.
MARKERS: Mapping[str, tuple[Marker, ...]] = {
    "parameter_servers": ("square", "diamond", "cross", "x", "pentagon"),
    "toolkit": ("circle", "hexagon", "star"),
    "collectives": ("triangle-up", "triangle-down", "triangle-left", "triangle-right"),
}
DASHES: tuple[Dash, ...] = ("solid", "dash", "dashdot", "dot")
# Facets that a curve's name leaves out as long as they are the same in all curves that are drawn together.
DETAILS = {
    "devices_per_node": "{} devices per node",
    "batch_size": "batch {} per device",
    "device": "{}",
    "precision": "{}",
    "image_size": "{} px",
    "training": "{}",
    "warmup_steps": "{} warm-up steps",
    "steps": "{} steps",
    "software": "{}",
    "source": "{}",
}


@dataclass(frozen=True)
class Line:
    """A curve as a report shows it. ``name`` does not repeat the system, which the legend's groups give."""

    curve: Curve
    name: str
    facets: Facets
    style: Style

    @property
    def system(self) -> str:
        """The system with a word on where its figures come from, if not from us."""
        name = self.facets.system[0] or "unknown system"
        return f"{name} (published)" if self.published else name

    @property
    def published(self) -> bool:
        """Whether someone else measured it."""
        return self.facets.origin == ("published",)

    @property
    def panel(self) -> tuple[str, str]:
        """Model and data: what is drawn together."""
        return self.facets.model[0], self.facets.data[0]

    @property
    def full_name(self) -> str:
        """The name where no legend gives the system."""
        return f"{self.name}, {self.system}"


def of(frame: pandas.DataFrame) -> list[Line]:
    """The curves in the completed runs of a DataFrame of ``results.load``: measured ones first, each kind by its facets."""
    measured, published = frame[frame["origin"] == "measured"], frame[frame["origin"] == "published"]
    curves = scaling.curves(measured)
    for values, rows in published.groupby(["source", "software", "framework", "transport"], sort=True):
        known = dict(zip(("source", "software", "framework", "transport"), values, strict=True))
        curves += [
            replace(curve, facets={**curve.facets, **known}) for curve in scaling.curves(rows, by="family")
        ]
    found = [(curve, _facets(curve)) for curve in curves]
    names, styles = _names(found), _styles(found)
    return [
        Line(curve, name, facets, style)
        for (curve, facets), name, style in zip(found, names, styles, strict=True)
    ]


def _facets(curve: Curve) -> Facets:
    backends = {one.backend for point in curve.points for one in point.tried}
    equal = {name: (str(curve.facets[name]),) for name in Facets._fields if name != "backend"}
    return Facets(backend=tuple(sorted(backends)), **equal)


# --- names ----------------------------------------------------------------------------------------


def _names(found: Sequence[tuple[Curve, Facets]]) -> list[str]:
    """The shortest names that tell the curves of a system apart, model by model and data by data."""
    frameworks = _values_by_backend(found, "framework")
    transports = _values_by_backend(found, "transport")
    short = []
    for _, facets in found:
        key = facets.backend
        joined = "parameter servers" if len(key) > 1 else key[0]
        parts = [joined, *(facets.framework if len(frameworks[key]) > 1 else ())]
        parts += facets.transport if len(transports[key]) > 1 else ()
        short.append(" ".join(filter(None, parts)))
    alike: dict[Any, list[int]] = {}
    for number, (curve, facets) in enumerate(found):
        alike.setdefault((short[number], facets, curve.scaling), []).append(number)
    names = list(short)
    for (_, _, kind), numbers in alike.items():
        for number in numbers:
            names[number] = ", ".join([short[number], *_details(found, number, numbers)])
            if kind == "strong":
                names[number] += f", global batch {found[number][0].facets['global_batch']:,}"
    return names


def _values_by_backend(found: Sequence[tuple[Curve, Facets]], name: str) -> dict[tuple[str, ...], set[str]]:
    values: dict[tuple[str, ...], set[str]] = {}
    for _, facets in found:
        values.setdefault(facets.backend, set()).update(getattr(facets, name))
    return values


def _details(found: Sequence[tuple[Curve, Facets]], number: int, alike: Sequence[int]) -> Iterator[str]:
    for name, text in DETAILS.items():
        values = {found[other][0].facets.get(name) for other in alike}
        value = found[number][0].facets.get(name)
        if len(values) > 1 and value not in ("", None):
            yield text.format(value)


# --- looks ----------------------------------------------------------------------------------------


def _styles(found: Sequence[tuple[Curve, Facets]]) -> list[Style]:
    """A contender has one colour and one marker on all systems, which differ in their dashes.

    Beside measured curves the published ones are grey. Alone they have colours, and the markers tell systems apart.
    """
    any_measured = any(facets.origin == ("measured",) for _, facets in found)
    contenders = sorted({_contender(curve, facets) for curve, facets in found})
    colours: dict[Any, int] = {}
    markers: dict[Any, Marker] = {}
    for family, keys in groupby(contenders, key=lambda key: (key[1], key[0])):
        shapes = MARKERS.get(family[1], MARKERS["toolkit"])
        for number, key in enumerate(keys):
            markers[key] = shapes[number % len(shapes)]
            if not (any_measured and key[1]):
                colours[key] = len(colours) % len(LIGHT.colours)
    systems = sorted({facets.system for _, facets in found if facets.origin == ("measured",)})
    styles = []
    for curve, facets in found:
        key = _contender(curve, facets)
        published = facets.origin == ("published",)
        dash = "dot" if published else DASHES[systems.index(facets.system) % len(DASHES)]
        styles.append(Style(colours.get(key), markers[key], dash, hollow=published))
    return styles


def _contender(curve: Curve, facets: Facets) -> tuple[str, bool, str, str, str, str]:
    """What has a look of its own; of published curves each system has."""
    published = facets.origin == ("published",)
    own = (" ".join(facets.backend), facets.framework[0], facets.transport[0])
    return (str(curve.facets["family"]), published, *own, facets.system[0] if published else "")

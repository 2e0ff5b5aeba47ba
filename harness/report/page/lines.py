"""The curves of a report: with names that tell them apart, looks that stay the same in every figure, and what filters them.

Measured curves have one backend, framework and transport each. Published ones are joined by family if they come from the
same source, since the tables of 2017 give the better of two strategies at each size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.analysis import scaling
from harness.analysis.scaling import Curve
from harness.report.page.figures import Dash, Facets, Marker, Style
from harness.report.page.palette import LIGHT

if TYPE_CHECKING:
    import pandas

# A marker says which family a curve is of, also in print and to those who see no colours.
MARKERS: Mapping[str, tuple[Marker, ...]] = {
    "parameter_servers": ("square", "diamond", "pentagon"),
    "toolkit": ("circle", "star", "hexagon", "cross", "x"),
    "collectives": ("triangle-up", "triangle-down", "triangle-left", "triangle-right"),
}
DASHES: tuple[Dash, ...] = ("solid", "dash", "dashdot", "dot")
# Facets that a curve's name tells only where they differ from what most points of the same system and model have.
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
        curves += [replace(curve, facets={**curve.facets, **known}) for curve in scaling.curves(rows, by="family")]
    found = [(curve, _facets(curve)) for curve in curves]
    names = _names(found)
    return [
        Line(curve, ", ".join(name), facets, style)
        for (curve, facets), name, style in zip(found, names, _styles(found, names), strict=True)
    ]


def _facets(curve: Curve) -> Facets:
    backends = {one.backend for point in curve.points for one in point.tried}
    equal = {name: (str(curve.facets[name]),) for name in Facets._fields if name != "backend"}
    return Facets(backend=tuple(sorted(backends)), **equal)


# --- names ----------------------------------------------------------------------------------------


def _names(found: Sequence[tuple[Curve, Facets]]) -> list[tuple[str, ...]]:
    """Of each curve what it is called, then in what it deviates from the usual terms of its system."""
    frameworks, transports = _values_by_backend(found, "framework"), _values_by_backend(found, "transport")
    usual, software = _usual(found, _terms), _usual(found, _software)
    names = []
    for curve, facets in found:
        key = (facets.origin, facets.backend)
        parts = ["parameter servers" if len(facets.backend) > 1 else facets.backend[0]]
        parts += facets.framework if len(frameworks[key]) > 1 else ()
        parts += facets.transport if len(transports[key]) > 1 else ()
        own = {name: curve.facets.get(name) for name in DETAILS}
        common = usual[_terms(facets)] | {"software": software[_software(facets)]["software"]}
        details = [
            text.format(own[name]) for name, text in DETAILS.items() if own[name] not in (common[name], "", None)
        ]
        if curve.scaling == "strong":
            # The batch per device follows from the global one.
            details = [f"global batch {curve.facets['global_batch']:,}", *details]
        names.append((" ".join(filter(None, parts)), *details))
    return names


def usual_terms(lines: Sequence[Line]) -> str:
    """What holds for measured curves unless their names say otherwise, in a sentence for each system and model."""
    measured = [(line.curve, line.facets) for line in lines if not line.published]
    told: dict[str, list[str]] = {}
    for (_, system, model), terms in _usual(measured, _terms).items():
        devices = f"{terms['devices_per_node']} devices per node" if terms["devices_per_node"] != 1 else ""
        steps = f"{terms['steps']} steps after a warm-up of {terms['warmup_steps']}"
        batch, pixels = f"batch {terms['batch_size']} per device", f"{terms['image_size']} px"
        said = [batch, devices, str(terms["device"]), str(terms["precision"]), pixels, str(terms["training"]), steps]
        told.setdefault(", ".join(filter(None, said)), []).append(f"{model[0]} on {system[0] or 'an unknown system'}")
    sentences = [f"{' and '.join(which)} with {said}" for said, which in told.items()]
    return f"Unless a name says otherwise: {'; '.join(sentences)}." if sentences else ""


def _terms(facets: Facets) -> tuple[tuple[str, ...], ...]:
    return facets.origin, facets.system, facets.model


def _software(facets: Facets) -> tuple[tuple[str, ...], ...]:
    return facets.origin, facets.system, facets.model, facets.backend, facets.framework


def _usual(
    found: Sequence[tuple[Curve, Facets]], group: Callable[[Facets], tuple[tuple[str, ...], ...]]
) -> dict[tuple[tuple[str, ...], ...], dict[str, Any]]:
    """The values of ``DETAILS`` that most points of each group have."""
    counts: dict[tuple[tuple[str, ...], ...], dict[str, Counter[Any]]] = {}
    for curve, facets in found:
        own = counts.setdefault(group(facets), {name: Counter() for name in DETAILS})
        for name in DETAILS if curve.scaling == "weak" else ():
            own[name][curve.facets.get(name)] += len(curve.points)
    return {
        key: {name: counted.most_common(1)[0][0] if counted else None for name, counted in own.items()}
        for key, own in counts.items()
    }


def _values_by_backend(found: Sequence[tuple[Curve, Facets]], name: str) -> dict[Any, set[str]]:
    values: dict[Any, set[str]] = {}
    for _, facets in found:
        values.setdefault((facets.origin, facets.backend), set()).update(getattr(facets, name))
    return values


# --- looks ----------------------------------------------------------------------------------------


def _styles(found: Sequence[tuple[Curve, Facets]], names: Sequence[tuple[str, ...]]) -> list[Style]:
    """What has one name has one colour and one marker on all systems, which differ in their dashes.

    Beside measured curves the published ones are grey. Alone they have colours, and the markers tell systems apart.
    """
    any_measured = any(facets.origin == ("measured",) for _, facets in found)
    keys = [_look(curve, facets, name) for (curve, facets), name in zip(found, names, strict=True)]
    colours: dict[_Look, int] = {}
    of_contenders: dict[_Look, int] = {}
    markers: dict[_Look, Marker] = {}
    # Weak scaling and the usual terms choose first: the colours that are easiest to tell apart are for the main curves.
    for key in sorted(set(keys), key=lambda key: (key.published, len(key.name), key)):
        shapes = MARKERS.get(key.family, MARKERS["toolkit"])
        taken = sum(other.family == key.family and other.published == key.published for other in markers)
        markers[key] = shapes[taken % len(shapes)]
        if not (any_measured and key.published):
            # What deviates from the usual terms has its contender's colour, and a marker of its own.
            base = key._replace(name=key.name[:1])
            colours[key] = of_contenders.setdefault(base, len(of_contenders) % len(LIGHT.colours))
    dashes = _dashes(found)
    return [
        Style(
            colours.get(key),
            markers[key],
            "dot" if key.published else dashes[facets.system],
            hollow=key.published,
        )
        for key, (_, facets) in zip(keys, found, strict=True)
    ]


class _Look(NamedTuple):
    family: str
    published: bool
    name: tuple[str, ...]
    system: str


def _look(curve: Curve, facets: Facets, name: tuple[str, ...]) -> _Look:
    """What has a look of its own; of published curves each system has."""
    published = facets.origin == ("published",)
    return _Look(str(curve.facets["family"]), published, name, facets.system[0] if published else "")


def _dashes(found: Sequence[tuple[Curve, Facets]]) -> dict[tuple[str, ...], Dash]:
    """Dashes of the systems that we measured on; the one with most points has solid lines."""
    points: Counter[tuple[str, ...]] = Counter()
    for curve, facets in found:
        if facets.origin == ("measured",):
            points[facets.system] += len(curve.points)
    return {system: DASHES[number % len(DASHES)] for number, (system, _) in enumerate(points.most_common())}

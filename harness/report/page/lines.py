"""The curves of a report: names that tell them apart, looks that stay the same in every figure, where points come from.

Measured curves have one backend, framework and transport each. Published ones are joined by family if they come from the
same source, since the tables of 2017 give the better of two strategies at each size.
"""

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

from harness.analysis import scaling
from harness.analysis.fastest import Race, on_common_bases
from harness.analysis.scaling import Configuration, Curve, CurvePoint
from harness.core import backend as registry
from harness.core.text import plural
from harness.report.page.figures import COLOURS, Facets, Style, interval, throughput
from harness.results.result import Result, varied_options

# A marker says which family a curve is of, also in print and to those who see no colours.
MARKERS: Mapping[str, Sequence[str]] = {
    "parameter_servers": ("square", "diamond", "pentagon"),
    "toolkit": ("circle", "star", "hexagon", "cross", "x"),
    "collectives": ("triangle-up", "triangle-down", "triangle-left", "triangle-right"),
}
DASHES = ("solid", "dash", "dashdot", "dot", "longdash", "longdashdot")
# Facets that a curve's name tells only where they differ from what most points of the same system and model have.
DETAILS = {
    "devices_per_node": "{} devices per node",
    "batch_size": "batch {} per device",
    "device": "{}",
    "precision": "{}",
    "image_size": "{} px",
    "training": "{}",
    "software": "{}",
}
USUAL = ("batch_size", "devices_per_node", "device", "precision", "image_size", "training")  # told of a page's curves
# Curves that are equal in these have the same usual terms, and the same usual software.
TERMS = ("origin", "system", "model")
SOFTWARE = (*TERMS, "backend", "framework")

SHOWN_SOURCES = 2  # of a configuration

_Faceted = Sequence[tuple[Curve, Facets]]


@dataclass(frozen=True)
class Line:
    """A curve as a report shows it. ``name`` does not repeat the system, which the legend's groups give.

    ``varied`` are the options of the curve's backend that are not the same in all measured runs.
    """

    curve: Curve
    name: str
    facets: Facets
    style: Style
    varied: frozenset[str]

    @property
    def system(self) -> str:
        """The system with a word on where its figures come from, if not from us."""
        name = self.facets.system[0] or "unknown system"
        return f"{name} (published)" if self.published else name

    @property
    def published(self) -> bool:
        return self.facets.origin == ("published",)

    @property
    def panel(self) -> tuple[str, str]:
        return self.facets.model[0], self.facets.data[0]

    def seen(self, configuration: Configuration, field: str) -> list[str]:
        """The different texts that ``field`` has in the runs of a configuration, without "", in order."""
        return sorted({getattr(run, field) for run in configuration.runs} - {""})

    def options(self, configuration: Configuration) -> str:
        """The options beside the number of servers, without those that are the same in all runs."""
        return _told({name: value for name, value in configuration.options.items() if name in self.varied})

    def tuned(self, configuration: Configuration) -> str:
        """``116 ps, placement=greedy``."""
        servers = f"{configuration.ps} ps" if configuration.ps else ""
        return ", ".join(filter(None, [servers, self.options(configuration)]))

    def hover(self, point: CurvePoint) -> tuple[str, ...]:
        best = point.best
        nodes = f" on {plural(point.nodes, 'node')}" if point.nodes else ""
        lines = [self.name, f"{plural(point.workers, 'worker')}{nodes}, {self.system}"]
        if not math.isnan(point.img_per_s):
            lines.append(f"{throughput(point.img_per_s)} img/s{interval(point.interval)}")
        if not math.isnan(point.efficiency):
            ends = interval(point.efficiency_interval, percent=True)
            base = f", relative to {plural(point.base.workers, 'worker')}" if point.base else ""
            lines.append(f"scaling efficiency {point.efficiency:.1%}{ends}{base}")
        several = f"best of {len(point.tried)} configurations" if len(point.tried) > 1 else ""
        lines += filter(None, [": ".join(filter(None, [several, self.tuned(best)]))])
        return (*lines, *self.origin(best))

    def origin(self, configuration: Configuration) -> list[str]:
        """Repeats, dates, software, options, what carried the gradients, notes, and the sources of one configuration."""
        jobs, values = len(configuration.sample.units), len(configuration.sample.values)
        repeats = f"{plural(values, 'repeat')} in {plural(jobs, 'job')}" if values else "published mean"
        repeats += ", interval within that job" if jobs == 1 < values else ""
        options = _told(configuration.options)
        transports = "; ".join(self.seen(configuration, "transport_seen"))
        sources = list(dict.fromkeys(configuration.sources))
        return [
            ", ".join(filter(None, [repeats, days(self.seen(configuration, "started"))])),
            *self.seen(configuration, "software"),
            *([f"options: {options}"] if options else []),
            *([f"gradients: {transports}"] if transports else []),
            *self.seen(configuration, "note"),
            *(f"THROTTLED by {reasons}" for reasons in self.seen(configuration, "throttled")),
            *sources[:SHOWN_SOURCES],
            *([f"and {len(sources) - SHOWN_SOURCES:,} more"] if len(sources) > SHOWN_SOURCES else []),
        ]


def _told(options: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items() if value is not None)


def days(started: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(time[:10] for time in (*started[:1], *started[-1:])))


def of(results: Sequence[Result], found: Sequence[Curve] | None = None, races: Sequence[Race] = ()) -> list[Line]:
    """The curves of the completed trainings: measured ones first, each kind by its facets.

    ``found`` are the curves of all of them, if they are known already. Efficiencies are relative to the base of their
    race, if it is among ``races``.
    """
    completed = [run for run in results if run.completed]
    published = [run for run in completed if not run.measured]
    if found is None:
        found = scaling.curves(completed)
    curves = [curve for curve in found if curve.facets["origin"] == "measured"]
    sources = ["source", "software", "framework", "transport"]
    for values, its in scaling.grouped(published, attrgetter(*sources)):
        known = dict(zip(sources, values, strict=True))
        # Of two strategies with servers publications tell the better one.
        curves += [replace(curve, facets={**curve.facets, **known}) for curve in scaling.curves_of_sides(its)]
    faceted = []
    for curve in on_common_bases(curves, races):
        equal = {name: (str(curve.facets[name]),) for name in Facets._fields if name != "backend"}
        backends = {each.backend for point in curve.points for each in point.tried}
        faceted.append((curve, Facets(backend=tuple(sorted(backends)), **equal)))
    names, varied = _names(faceted), _varied(results)
    return [
        Line(curve, ", ".join(name), facets, style, varied.get(facets.backend[0], frozenset()))
        for (curve, facets), name, style in zip(faceted, names, _styles(faceted, names), strict=True)
    ]


def _varied(results: Sequence[Result]) -> dict[str, frozenset[str]]:
    options: dict[str, dict[str, Mapping[str, object]]] = defaultdict(dict)
    for run in results:
        if run.measured:  # publications tell no options
            options[run.backend].setdefault(run.tuned, run.options)
    return {backend: frozenset(varied_options(its.values())) for backend, its in options.items()}


def _names(faceted: _Faceted) -> list[tuple[str, ...]]:
    """Of each curve what it is called, then in what it deviates from the usual terms of its system."""
    frameworks = Counter(key[:2] for key in {_equal(facets, "origin", "backend", "framework") for _, facets in faceted})
    transports = Counter(key[:2] for key in {_equal(facets, "origin", "backend", "transport") for _, facets in faceted})
    usual, software = _usual(faceted, TERMS), _usual(faceted, SOFTWARE)
    names = []
    for curve, facets in faceted:
        key = facets.origin, facets.backend
        parts = ["parameter servers" if len(facets.backend) > 1 else facets.backend[0]]
        parts += facets.framework if frameworks[key] > 1 else ()
        parts += facets.transport if transports[key] > 1 else ()
        parts += filter(None, [curve.facets.get("mpi")])
        own = {name: curve.facets.get(name) for name in DETAILS}
        common = usual[_equal(facets, *TERMS)] | {"software": software[_equal(facets, *SOFTWARE)]["software"]}
        # The batch per device of strong scaling follows from the global one.
        details = [f"global batch {curve.facets['global_batch']:,}"] if curve.scaling == "strong" else []
        details += [
            text.format(own[name]) for name, text in DETAILS.items() if own[name] not in (common[name], "", None)
        ]
        names.append((" ".join(filter(None, parts)), *details))
    return names


def usual_terms(lines: Sequence[Line]) -> str:
    """What holds for measured curves unless their names say otherwise, in a sentence for each system and model."""
    measured = [(line.curve, line.facets) for line in lines if not line.published]
    which: dict[str, list[str]] = defaultdict(list)
    for (_, system, model), terms in _usual(measured, TERMS).items():
        words = [DETAILS[name].format(terms[name]) for name in USUAL if (name, terms[name]) != ("devices_per_node", 1)]
        which[", ".join(filter(None, words))].append(f"{model[0]} on {system[0] or 'an unknown system'}")
    sentences = [f"{' and '.join(named)} with {terms}" for terms, named in which.items()]
    return f"Unless a name says otherwise: {'; '.join(sentences)}." if sentences else ""


def _equal(facets: Facets, *names: str) -> tuple[tuple[str, ...], ...]:
    return tuple(getattr(facets, name) for name in names)


def _usual(faceted: _Faceted, names: Sequence[str]) -> dict[tuple[tuple[str, ...], ...], dict[str, object]]:
    """The values of ``DETAILS`` that most points of weak scaling have, of curves with equal facets of these names."""
    counts: dict[Any, dict[str, Counter[Any]]] = defaultdict(lambda: {name: Counter() for name in DETAILS})
    for curve, facets in faceted:
        for name, counter in counts[_equal(facets, *names)].items():
            counter[curve.facets.get(name)] += len(curve.points) * (curve.scaling == "weak")
    return {
        key: {name: counter.most_common(1)[0][0] for name, counter in counters.items()}
        for key, counters in counts.items()
    }


@cache
def _known() -> tuple[dict[tuple[str, str], int], dict[tuple[str, str, str], int]]:
    """The number of each backend on each framework, which is its colour's, and those of a family's contenders.

    The registry gives the order, so they are the same on every page. What states no framework or transport, as
    publications may, counts as the first one.
    """
    colours: dict[tuple[str, str], int] = {}
    # The default of each backend, and the others.
    contenders: dict[bool, list[tuple[str, str, str, str]]] = {True: [], False: []}
    for each in filter(lambda backend: backend.trains, registry.working()):
        transports = dict.fromkeys(one for device in each.devices for one in each.transports_on(device))
        for framework in each.frameworks:
            number = len({*colours.values()})
            colours[each.name, framework] = number
            colours.setdefault((each.name, ""), number)
            for transport in transports:
                default = (framework, transport) == (each.frameworks[0], next(iter(transports)))
                contenders[default].append((each.family, each.name, framework, transport))
    markers: dict[tuple[str, str, str], int] = {}
    taken: Counter[str] = Counter()
    for family, name, framework, transport in (*contenders[True], *contenders[False]):
        for stated in ((name, framework, transport), (name, framework, ""), (name, "", "")):
            markers.setdefault(stated, taken[family])
        taken[family] += 1
    return colours, markers


def look(backend: str, framework: str, transport: str, dash: str = "solid") -> Style:
    """How a backend on a framework over a transport looks where it is no curve of img/s: its colour and its marker.

    What trains nothing is as dark as text.
    """
    colours, marked = _known()
    number = colours.get((backend, framework))
    known = {each.name: each.family for each in registry.working()}
    shapes = MARKERS[known.get(backend, "toolkit")]
    marker = shapes[marked.get((backend, framework, transport), 0) % len(shapes)]
    return Style("ink" if number is None else f"c{number % COLOURS}", marker, dash)


def _styles(faceted: _Faceted, names: Sequence[tuple[str, ...]]) -> list[Style]:
    """A backend on a framework has one colour, and over a transport one marker, on every page and every system.

    Systems differ in their dashes, what others published is hollow. What deviates from the usual terms has a marker of its
    own.
    """
    colours, marked = _known()
    points: dict[bool, Counter[tuple[str, ...]]] = {True: Counter(), False: Counter()}  # of systems, published or not
    looks = []
    for (curve, facets), name in zip(faceted, names, strict=True):
        published = facets.origin == ("published",)
        contender = facets.backend[-1], facets.framework[0], facets.transport[0]
        # The usual terms choose first.
        looks.append((published, len(name), len(facets.backend), name, str(curve.facets["family"]), contender))
        points[published][facets.system] += len(curve.points)
    drawn: dict[Any, tuple[str, str]] = {}
    for look in sorted(set(looks)):
        published, _, joined, _, family, contender = look
        others = zlib.crc32("".join(contender[:2]).encode())  # of backends that are not installed
        colour = f"c{colours.get(contender[:2], others) % COLOURS}"
        shapes = MARKERS.get(family, MARKERS["toolkit"])
        first = marked.get(contender, others) if joined == 1 else len(shapes) - 1
        own = [shapes[(first + further) % len(shapes)] for further in range(len(shapes))]
        used = {marker for other, (its, marker) in drawn.items() if its == colour and other[0] == published}
        drawn[look] = colour, next((marker for marker in own if marker not in used), own[0])
    # The system with most points has solid lines.
    dashes = {
        (published, system): (DASHES[::-1] if published else DASHES)[number % len(DASHES)]
        for published, counted in points.items()
        for number, (system, _) in enumerate(counted.most_common())
    }
    return [
        Style(*drawn[look], dashes[look[0], facets.system], hollow=look[0])
        for look, (_, facets) in zip(looks, faceted, strict=True)
    ]

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
from harness.report.page.figures import COLOURS, LOOKS, Facets, Style, interval, relative, throughput
from harness.results.result import Result, varied_options

MARKERS: Mapping[str, Sequence[str]] = LOOKS["markers"]  # of each family
DASHES: Sequence[str] = [*LOOKS["dashes"]]
# A curve's name has these facets only where they differ from those of most points of the same system and model.
DETAILS = {
    "devices_per_node": "{} devices per node",
    "batch_size": "batch {} per device",
    "device": "{}",
    "precision": "{}",
    "image_size": "{} px",
    "training": "{}",
    "software": "{}",
}
USUAL = ("batch_size", "devices_per_node", "device", "precision", "image_size", "training")  # in a page's sentence
# Curves that are equal in these have the same usual terms, and the same usual software.
TERMS = ("origin", "system", "model")
SOFTWARE = (*TERMS, "backend", "framework")

SHOWN_SOURCES = 2  # of a configuration
PLAIN = Style("ink")  # until all curves of a page are known


@dataclass(frozen=True)
class Line:
    """A curve as a report shows it. ``name`` does not repeat the system, which the legend's groups give.

    ``varied`` are the options of the curve's backend that are not the same in all measured runs.
    """

    curve: Curve
    facets: Facets
    varied: frozenset[str]
    name: str = ""
    style: Style = PLAIN

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
        return _settings({name: value for name, value in configuration.options.items() if name in self.varied})

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
            ends = interval(point.efficiency_interval, "{:.1%}".format)
            lines.append(f"scaling efficiency {point.efficiency:.1%}{ends}{relative(point.base_workers)}")
        several = f"best of {len(point.tried)} configurations" if len(point.tried) > 1 else ""
        lines.append(": ".join(filter(None, [several, self.tuned(best)])))
        return (*filter(None, lines), *self.origin(best))

    def origin(self, configuration: Configuration) -> list[str]:
        """Repeats, dates, software, options, what carried the gradients, notes, and the sources of one configuration."""
        jobs, values = len(configuration.sample.units), len(configuration.sample.values)
        repeats = f"{plural(values, 'repeat')} in {plural(jobs, 'job')}" if values else "published mean"
        repeats += ", interval within that job" if jobs == 1 < values else ""
        options = _settings(configuration.options)
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


def _settings(options: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items() if value is not None)


def days(started: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(time[:10] for time in (*started[:1], *started[-1:])))


def of(results: Sequence[Result], races: Sequence[Race] = (), known: Sequence[Curve] | None = None) -> list[Line]:
    """The curves of the completed trainings: measured ones first, each kind by its facets.

    Efficiencies are relative to the base of their race, if it is among ``races``. ``known`` are the curves of all of them,
    if they were computed already.
    """
    measured, published = ([run for run in results if run.measured == ours] for ours in (True, False))
    if known is None:
        known = scaling.curves([run for run in measured if run.completed])
    curves = [curve for curve in known if curve.facets["origin"] == "measured"]
    sources = ["source", "software", "framework", "transport"]
    for values, its in scaling.grouped([run for run in published if run.completed], attrgetter(*sources)):
        stated = dict(zip(sources, values, strict=True))
        # Of two strategies with servers publications tell the better one.
        curves += [replace(curve, facets={**curve.facets, **stated}) for curve in scaling.curves_of_sides(its)]
    # Publications tell no options.
    of_backends = scaling.grouped(measured, attrgetter("backend"))
    varied = {backend: frozenset(varied_options(run.options for run in its)) for backend, its in of_backends}
    lines = []
    for curve in on_common_bases(curves, races):
        equal = {name: (str(curve.facets[name]),) for name in Facets._fields if name != "backend"}
        backends = sorted({each.backend for point in curve.points for each in point.tried})
        lines.append(Line(curve, Facets(backend=(*backends,), **equal), varied.get(backends[0], frozenset())))
    names = _names(lines)
    looks = zip(lines, names, _styles(lines, names), strict=True)
    return [replace(line, name=", ".join(name), style=style) for line, name, style in looks]


def _names(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """The name of each curve, followed by its deviations from the usual terms of its system."""
    frameworks = Counter(key[:2] for key in {_equal(line, "origin", "backend", "framework") for line in lines})
    transports = Counter(key[:2] for key in {_equal(line, "origin", "backend", "transport") for line in lines})
    usual, software = _usual(lines, TERMS), _usual(lines, SOFTWARE)
    names = []
    for line in lines:
        curve, facets = line.curve, line.facets
        key = facets.origin, facets.backend
        parts = ["parameter servers" if len(facets.backend) > 1 else facets.backend[0]]
        parts += facets.framework if frameworks[key] > 1 else ()
        parts += facets.transport if transports[key] > 1 else ()
        parts += filter(None, [curve.facets.get("mpi")])
        common = usual[_equal(line, *TERMS)] | {"software": software[_equal(line, *SOFTWARE)]["software"]}
        # The batch per device of strong scaling follows from the global one.
        details = [f"global batch {curve.facets['global_batch']:,}"] if curve.scaling == "strong" else []
        for detail, text in DETAILS.items():
            if (value := curve.facets.get(detail)) not in (common[detail], "", None):
                details.append(text.format(value))
        names.append((" ".join(filter(None, parts)), *details))
    return names


def usual_terms(lines: Sequence[Line]) -> str:
    """The terms of measured curves unless their names say otherwise, in a sentence for each system and model."""
    subjects: dict[str, list[str]] = defaultdict(list)
    for (_, system, model), terms in _usual([line for line in lines if not line.published], TERMS).items():
        words = [DETAILS[name].format(terms[name]) for name in USUAL if (name, terms[name]) != ("devices_per_node", 1)]
        subjects[", ".join(filter(None, words))].append(f"{model[0]} on {system[0] or 'an unknown system'}")
    sentences = [f"{' and '.join(named)} with {terms}" for terms, named in subjects.items()]
    return f"Unless a name says otherwise: {'; '.join(sentences)}." if sentences else ""


def _equal(line: Line, *names: str) -> tuple[tuple[str, ...], ...]:
    return tuple(getattr(line.facets, name) for name in names)


def _usual(lines: Sequence[Line], names: Sequence[str]) -> dict[tuple[tuple[str, ...], ...], dict[str, object]]:
    """The values of ``DETAILS`` that most points of weak scaling have, of curves with equal facets of these names."""
    counts: dict[Any, dict[str, Counter[Any]]] = defaultdict(lambda: {name: Counter() for name in DETAILS})
    for line in lines:
        weight = len(line.curve.points) if line.curve.scaling == "weak" else 0
        for name, counter in counts[_equal(line, *names)].items():
            counter[line.curve.facets.get(name)] += weight
    return {key: {name: of_name.most_common(1)[0][0] for name, of_name in its.items()} for key, its in counts.items()}


@cache
def _known() -> tuple[dict[tuple[str, str], int], dict[tuple[str, str, str], int]]:
    """The number of each backend on each framework, which is its colour's, and those of a family's contenders.

    The registry gives the order, so they are the same on every page. A publication that
    states no framework or transport counts as the first one.
    """
    colours: dict[tuple[str, str], int] = {}
    defaults, others = list[tuple[str, str, str, str]](), list[tuple[str, str, str, str]]()
    for each in filter(lambda backend: backend.trains, registry.working()):
        transports = [*dict.fromkeys(transport for device in each.devices for transport in each.transports_on(device))]
        for framework in each.frameworks:
            number = len({*colours.values()})
            colours[each.name, framework] = number
            colours.setdefault((each.name, ""), number)
            others += [(each.family, each.name, framework, transport) for transport in transports]
        defaults.append((each.family, each.name, each.frameworks[0], transports[0]))
    markers: dict[tuple[str, str, str], int] = {}
    taken: Counter[str] = Counter()
    for family, name, framework, transport in dict.fromkeys([*defaults, *others]):
        for stated in ((name, framework, transport), (name, framework, ""), (name, "", "")):
            markers.setdefault(stated, taken[family])
        taken[family] += 1
    return colours, markers


def look(backend: str, framework: str, transport: str, dash: str = "solid") -> Style:
    """The colour and the marker of a backend on a framework over a transport, in figures other than of img/s.

    A backend that trains nothing is as dark as text.
    """
    colours, marked = _known()
    number = colours.get((backend, framework))
    families = {each.name: each.family for each in registry.working()}
    shapes = MARKERS[families.get(backend, "toolkit")]
    marker = shapes[marked.get((backend, framework, transport), 0) % len(shapes)]
    return Style("ink" if number is None else f"c{number % COLOURS}", marker, dash)


def _styles(lines: Sequence[Line], names: Sequence[tuple[str, ...]]) -> list[Style]:
    """A backend on a framework has one colour, and over a transport one marker, on every page and every system.

    Systems differ in their dashes, and publications are hollow. A curve that deviates from the usual terms has a marker of
    its own.
    """
    colours, marked = _known()
    points: dict[bool, Counter[tuple[str, ...]]] = {True: Counter(), False: Counter()}  # of systems, published or not
    looks = []
    for line, name in zip(lines, names, strict=True):
        facets, family = line.facets, str(line.curve.facets["family"])
        contender = facets.backend[-1], facets.framework[0], facets.transport[0]
        # The usual terms choose first.
        looks.append((line.published, len(name), len(facets.backend), name, family, contender))
        points[line.published][facets.system] += len(line.curve.points)
    drawn: dict[Any, tuple[str, str]] = {}
    for look in sorted(set(looks)):
        published, _, joined, _, family, contender = look
        others = zlib.crc32("".join(contender[:2]).encode())  # of backends that are not installed
        colour = f"c{colours.get(contender[:2], others) % COLOURS}"
        shapes = MARKERS.get(family, MARKERS["toolkit"])
        first = marked.get(contender, others) if joined == 1 else len(shapes) - 1
        markers = [*shapes[first % len(shapes) :], *shapes[: first % len(shapes)]]
        used = {marker for other, (its, marker) in drawn.items() if its == colour and other[0] == published}
        drawn[look] = colour, next((marker for marker in markers if marker not in used), markers[0])
    # The system with most points has solid lines.
    dashes = {
        (published, system): (DASHES[::-1] if published else DASHES)[number % len(DASHES)]
        for published, counted in points.items()
        for number, (system, _) in enumerate(counted.most_common())
    }
    return [
        Style(*drawn[look], dashes[line.published, line.facets.system], hollow=line.published)
        for look, line in zip(looks, lines, strict=True)
    ]

"""Names that tell specs apart, and differences between the environments of two groups of runs."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import kernels
from harness.core.text import plural
from harness.records.kernel import size_text

NOTHING, NONE = "nothing that the records hold differs", "none"
_NAMES = 6  # nodes that are named; a run on 512 nodes has too many to read

# The first suspects when throughput differs: the hardware, what computes, what is below it, and what is next to it.
_ORDER = [
    re.compile(pattern)
    for pattern in (
        r"site|machine (cpu|gpu (name|throttled by)|architecture|cores|usable_cores)",
        r"package (tensorflow|torch|horovod|caffe2?|jax|keras)([-_].*)?",
        r"machine .*|gradients|(warm-up|measured) steps|dilation",
        r"package (mpi|mpich|openmpi|nccl|nvidia|cuda|cudnn|numpy|intel|mkl|onednn|grpcio|gloo|ucx|libfabric).*",
        r"package .*|python|harness",
        r"variable .*",
        r".*",
    )
]
_PORT = re.compile(r"(?<=[\d\]]):\d+")
# Parts of every name of a spec.
_ALWAYS = ("backend", "framework", "transport", "model", "kernel", "size", "nodes", "devices_per_node")
# Taken from the machine unless somebody chose: an upgrade changes it without anybody's wish.
_FROM_THE_MACHINE = {"threads", "data_threads", "data"}
_ALIKE = ("backend", "kernel")  # specs that differ in these are not similar
RunFacts = Mapping[str, str]
_COMPARED = 200  # specs without a partner for which the closest one is looked up, on either side


@dataclass(frozen=True)
class Difference:
    """One thing that differs. Several values, as several runs have them, are joined by commas; "" is none."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        if self.name != "nodes":
            return f"{self.name} {self.old or NONE} → {self.new or NONE}"
        parts = []
        for since, text in (("new", self.new), ("no longer", self.old)):
            nodes = text.split(", ")
            more = f" and {len(nodes) - _NAMES} more" if len(nodes) > _NAMES else ""
            parts += [f"{since} {', '.join(nodes[:_NAMES])}{more}"] if text else []
        return f"nodes: {'; '.join(parts)}"


def environments(old: Sequence[RunFacts], new: Sequence[RunFacts]) -> tuple[Difference, ...]:
    """The differences between the environments of two groups of runs, the most relevant first.

    ``nodes`` are those that the other side did not use. A whole group of names that one side lacks, such as the packages of
    a run that failed before it could tell them, is not a difference but not known.
    """
    before, after = _values(old), _values(new)
    known = {name.split(" ")[0] for name in before} & {name.split(" ")[0] for name in after}  # "package torch"
    differences = []
    for name in {**before, **after}:
        here, there = before[name], after[name]
        if name.split(" ")[0] in known and here != there:
            both = here & there if name == "nodes" else set()
            differences.append(Difference(name, ", ".join(sorted(here - both)), ", ".join(sorted(there - both))))
    return tuple(sorted(differences, key=_relevance))


def _relevance(difference: Difference) -> tuple[int, str]:
    """The place of a difference in a list: the number of its pattern in ``_ORDER``, then its name."""
    return next(n for n, pattern in enumerate(_ORDER) if pattern.fullmatch(difference.name)), difference.name


def _values(environments: Sequence[RunFacts]) -> dict[str, set[str]]:
    values: dict[str, set[str]] = defaultdict(set)
    for environment in environments:
        for name, value in environment.items():
            if name == "gradients":
                value = _PORT.sub("", value)  # every run finds free ports of its own
            values[name].update(value.split(", ") if name == "nodes" else [value])
    return values


def spec_names(specs: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """A short name for each spec, by its key: what it is, its servers, and whatever else tells it from the others.

    A field that all specs have tells all of them apart, an option of one backend that backend's.
    """
    fields = {text: _flat(spec) for text, spec in specs.items()}
    by_backend: dict[str, list[dict[str, object]]] = defaultdict(list)
    for spec in fields.values():
        by_backend[spec["backend"]].append(spec)
    of_backend = {backend: _varying(alike) for backend, alike in by_backend.items()}
    of_all = _varying(list(fields.values())) & {name for spec in specs.values() for name in spec}
    names = {}
    for text, spec in fields.items():
        backend = spec["backend"]
        devices = f" × {spec['devices_per_node']}" if spec["devices_per_node"] > 1 else ""
        nodes = plural(spec["nodes"], "node") + devices
        main = [backend, spec["framework"], spec["transport"], _subject(spec), nodes]
        telling = (of_backend[backend] | of_all | {"ps"}) - {*_ALWAYS}
        known = dict.fromkeys(name for alike in by_backend[backend] for name in alike)
        others = [f"{name}={_shown(spec[name])}" for name in known if name in telling and name in spec]
        names[text] = " ".join([*(str(part) for part in main if part), *others])
    return names


def _subject(spec: Mapping[str, Any]) -> str:
    if "kernel" not in spec:
        return str(spec["model"])
    return f"{spec['kernel']} of {size_text(kernels.specification(spec['kernel']), spec['size'])}"


def _varying(specs: Sequence[Mapping[str, object]]) -> set[str]:
    names = {name for spec in specs for name in spec}
    return {name for name in names if len({str(spec.get(name)) for spec in specs}) > 1}


def _flat(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A spec with the backend's own options beside its fields."""
    return {**{name: value for name, value in spec.items() if name != "options"}, **spec["options"]}


def _shown(value: object) -> str:
    return NONE if value is None else str(value)


def closest(specs: Mapping[str, Mapping[str, object]], others: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """By key, how each spec (of the first ``_COMPARED``) differs from the most similar of ``others``: ``threads 12 → 16``.

    A field that a spec gets from its machine counts less than one that somebody chose. Another backend is not similar, nor
    is another kernel.
    """

    def changed(spec: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
        both = ((name, spec.get(name, NONE), other.get(name, NONE)) for name in {**spec, **other})
        return {name: f"{name} {here} → {there}" for name, here, there in both if here != there}

    def distance(changes: Mapping[str, str]) -> int:
        return sum(1 if name in _FROM_THE_MACHINE else 10 for name in changes)

    def shown(spec: Mapping[str, object]) -> dict[str, str]:
        return {name: _shown(value) for name, value in _flat(spec).items()}

    known = [*map(shown, others)]
    nearest = {}
    for text, fields in zip(specs, map(shown, [*specs.values()][:_COMPARED]), strict=False):
        alike = (other for other in known if all(fields.get(name) == other.get(name) for name in _ALIKE))
        similar = (changed(fields, other) for other in alike)
        if changes := min(similar, key=distance, default=None):
            nearest[text] = ", ".join(changes.values())
    return nearest

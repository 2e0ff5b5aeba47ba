"""Results of two systems, or published ones beside measured ones, made comparable: equal in all that both sides know.

Their specs are never equal texts: another machine has other cores, a publication does not say how many steps it took. They
are matched by the fields that define the training and its size (``MATCHED``), as far as these are known of every run of
both sides. All other fields may differ, and are named.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean

from harness.core.text import plural
from harness.errors import InvalidInput
from harness.results.result import LENGTH, Result

# Fields that have to be equal, if they are known.
MATCHED = (
    *("backend", "framework", "transport", "model", "nodes", "devices_per_node", "ps", "batch_size"),
    *("image_size", "data", "precision", "training", "options"),
)
# Fields that may explain a difference, too, beside the environment of records.
_NAMED = ("processor", "device", "software", "mpi", "threads")
_UNKNOWN = ("", 0)
_ALWAYS = ("backend", "nodes", "devices_per_node", "training")  # a published table knows them, too


def matched(old: Sequence[Result], new: Sequence[Result]) -> tuple[list[Result], list[Result], list[str]]:
    """Both sides with ``spec`` reduced to the fields that both know, and notes of the fields that this leaves open.

    Where several configurations of a side are one measurement then, such as several numbers of parameter servers of which
    the other side does not say how many it had, the fastest counts: intervals do not allow for that choice, the note says
    it. Raises InvalidInput for a side with several systems, or without throughputs.
    """
    sides = {"OLD": _with_a_number(old), "NEW": _with_a_number(new)}
    for name, side in sides.items():
        if not side:
            raise InvalidInput(f"{name} holds no number in img/s: efficiencies and failed runs cannot be compared")
        if len(systems := sorted({run.system for run in side})) > 1:
            raise InvalidInput(
                f"{name} holds results of {len(systems)} systems ({', '.join(systems)}); give those of one"
            )
    names = [name for name in MATCHED if name in _ALWAYS or all(_known(side, name) for side in sides.values())]
    runs = [*chain(*sides.values())]
    unmatched = [
        name for name in MATCHED if name not in names and any(_value(run, name) not in _UNKNOWN for run in runs)
    ]
    notes, reduced = [], []
    if unmatched:
        unknown = ", ".join(name.replace("_", " ") for name in unmatched)
        notes.append(f"not known on both sides, so not matched: {unknown}")
    for name, side in sides.items():
        known = [replace(run, spec=_spec(run, names), environment=_environment(run, unmatched)) for run in side]
        fastest, more = _fastest(known)
        reduced.append(fastest)
        if more:
            configurations = plural(more, "more configuration")
            notes.append(f"{name} has {configurations} of these measurements; the fastest counts, which flatters it")
    return reduced[0], reduced[1], notes


def _with_a_number(results: Sequence[Result]) -> list[Result]:
    """The runs with a throughput, each with an id and its repeats; a published mean counts as one."""
    having = [run for run in results if run.completed and not math.isnan(run.img_per_s)]
    return [
        replace(run, id=run.id or f"{run.source} {number}", values=run.values or (run.rate,))
        for number, run in enumerate(having)
    ]


def _value(run: Result, name: str) -> object:
    return ("" if not run.options else run.tuned) if name == "options" else getattr(run, name)


def _known(side: Sequence[Result], name: str) -> bool:
    if name == "ps":  # toolkits have none
        return all(run.ps > 0 for run in side if run.family == "parameter_servers")
    if name == "options":  # which backends without options have not
        return all(run.measured for run in side)
    return all(getattr(run, name) not in _UNKNOWN for run in side)


def _spec(run: Result, names: Sequence[str]) -> dict[str, object]:
    spec: dict[str, object] = {name: getattr(run, name) if name in names else "" for name in MATCHED if name != "ps"}
    ps = {"ps": run.ps} if run.ps and "ps" in names else {}
    return spec | {"options": {**(run.options if "options" in names else {}), **ps}}


def _environment(run: Result, unmatched: Sequence[str]) -> dict[str, str]:
    names = {name: name.replace("_", " ") for name in (*_NAMED, *unmatched)} | LENGTH
    known = {name: value for field, name in names.items() if (value := _value(run, field)) not in _UNKNOWN}
    facts = {name: str(value) for name, value in known.items() if value == value}  # NaN is not known either
    if run.processor == run.system:  # as of published results, which name no other
        del facts["processor"]
    return {**run.environment, **facts}


def _fastest(side: Sequence[Result]) -> tuple[list[Result], int]:
    """The runs of the fastest configuration of each spec, and the number of other configurations."""
    ways: dict[str, dict[tuple[object, ...], list[Result]]] = defaultdict(lambda: defaultdict(list))
    for run in side:
        way = tuple(_value(run, name) for name in (*MATCHED, *_NAMED) if name != "processor")
        ways[run.key][way].append(run)
    fastest = (max(each.values(), key=lambda runs: fmean(run.rate for run in runs)) for each in ways.values())
    kept = {*chain(*fastest)}
    return [run for run in side if run in kept], sum(len(each) - 1 for each in ways.values())

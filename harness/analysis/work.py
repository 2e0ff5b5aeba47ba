"""Is it the same work? Fingerprints of runs of one spec (``harness.core.fingerprint``), where the software is the same.

Software may change the arithmetic of a spec rightly. It is all packages, the processor or the GPU with its driver, the
carrier of gradients, and the variables of libraries that compute; not harness itself, nor the nodes, nor the kernel.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

from harness.analysis.differences import RunFacts, environments
from harness.core.fingerprint import Fingerprint, LossGroup, Parting, allowed, odd_repeats, parting, spread
from harness.core.text import listed, plural
from harness.results.result import Result

WorkAnswer = Literal["other work", "other bits", "same work", "cannot say"]
ANSWERS: tuple[WorkAnswer, ...] = get_args(WorkAnswer)  # the most important first
CHANGED: tuple[WorkAnswer, ...] = ("other work", "other bits")
# Names in a result's environment.
_SOFTWARE = re.compile(
    r"package (?!harness$).*|machine (cpu|architecture|gpu (name|driver))|gradients|"
    r"variable ((MKL|ONEDNN|DNNL|OPENBLAS|XLA)_\w+|TF_(?!CONFIG)\w+|NCCL_(ALGO|PROTO)|NVIDIA_TF32_OVERRIDE|"
    r"LD_PRELOAD|LD_LIBRARY_PATH|LOADEDMODULES)"
)
_WHERE = re.compile(r" (on|to|with) [^;]*")  # interfaces and addresses of the carrier of gradients


@dataclass(frozen=True)
class Work:
    """The answer whether two runs, or the repeats of one, have done the same work; ``text`` says how not, or why."""

    answer: WorkAnswer
    text: str = ""


@dataclass(frozen=True)
class WorkChange:
    """A run in a series that has done other work than the last one ``before`` it on its software ("": than itself).

    Both are ids; ``started`` is of the run.
    """

    before: str
    after: str
    started: str
    work: Work


def between(old: Sequence[Result], new: Sequence[Result]) -> Work:
    """The answer whether ``new`` runs have done the work of ``old`` ones of the same spec: the first of ``ANSWERS``.

    A new run is compared with the last old one on its software.
    """
    latest = {_key(run): run for run in old if run.fingerprint.outcomes}
    answers = []
    for run in new:
        answers += [Work("other work", f"{run.id}: {text}") for text in _odd_repeats(run)]
        if not run.fingerprint.outcomes or not latest:
            notes = (each.fingerprint.note for each in chain([run], old))
            answers.append(Work("cannot say", next(filter(None, notes))))
        elif before := latest.get(_key(run)):
            answers.append(_compared(before, run))
        else:
            answers.append(Work("cannot say", _other_software(old[-1], run)))
    return min(answers, key=lambda work: ANSWERS.index(work.answer))


def changes(runs: Iterable[Result]) -> Iterator[WorkChange]:
    """The changes of the work, or of the software, in runs of one spec and system, in their order."""
    latest: dict[_Key, Result] = {}
    before: Result | None = None
    for run in runs:
        if not run.fingerprint.outcomes:
            continue
        for text in _odd_repeats(run):
            yield WorkChange("", run.id, run.started, Work("other work", text))
        key = _key(run)
        if key in latest:
            work = _compared(latest[key], run)
            if work.answer in CHANGED:
                yield WorkChange(latest[key].id, run.id, run.started, work)
        elif before:
            yield WorkChange(before.id, run.id, run.started, Work("cannot say", _other_software(before, run)))
        latest[key] = before = run


def of_one(fingerprint: Fingerprint, precision: str, device: str) -> list[str]:
    """Lines about the repeats of one run, compared with each other; what nobody should overlook is in capitals."""
    if fingerprint.note:
        return [f"no fingerprint: {fingerprint.note}"]
    usual, repeats = fingerprint.usual, sum(len(outcome.repeats) for outcome in fingerprint.outcomes)
    losses = f"losses {usual.losses[0]:.6g} to {usual.losses[-1]:.6g} in the first {plural(len(usual.losses), 'step')}"
    if repeats == 1:
        return [f"{losses}; one repeat, with nothing to compare"]
    if fingerprint.exact:
        alike = f"{len(usual.repeats)} of {plural(repeats, 'repeat')} the same bit for bit"
    else:
        alike = f"{plural(repeats, 'repeat')}, whose losses there differ by {spread(fingerprint):.1e} at most"
    lines = [f"{losses}; {alike}"]
    for outcome, apart in odd_repeats(fingerprint, allowed(precision, device)):
        lines.append(
            f"OTHER {'WORK' if apart.beyond else 'BITS'} in {_both(fingerprint, outcome)}: {_described(apart)}"
        )
    return lines


def software(environment: RunFacts) -> dict[str, str]:
    """The part of an ``environment`` that two runs must have in common, with the carrier of gradients."""
    facts = {name: value for name, value in environment.items() if _SOFTWARE.fullmatch(name)}
    libraries = sorted(set(_WHERE.sub("", facts.get("gradients", "")).split("; ")))
    return facts | {"gradients": "; ".join(libraries)}


_Key = frozenset[tuple[str, str]]


def _key(run: Result) -> _Key:
    return frozenset(software(run.environment).items())


def _compared(old: Result, new: Result) -> Work:
    apart = parting(old.fingerprint, new.fingerprint, allowed(new.precision, new.device))
    if apart is None:
        return Work("same work")
    if apart.beyond:
        text = f"same software, other losses: {_described(apart)}; results of these two are not of the same work"
        return Work("other work", text)
    text = f"same software, other bits: {_described(apart)}; repeats of either are the same bit for bit"
    return Work("other bits", text)


def _odd_repeats(run: Result) -> Iterator[str]:
    """The differences between repeats of one run that are more than rounding explains."""
    for outcome, apart in odd_repeats(run.fingerprint, allowed(run.precision, run.device)):
        if apart.beyond:
            yield f"other work in {_both(run.fingerprint, outcome)}: {_described(apart)}"


def _both(fingerprint: Fingerprint, odd: LossGroup) -> str:
    """``repeat 3 than in repeats 1, 2, 4 and 5``."""
    groups = (odd.repeats, fingerprint.usual.repeats)
    return " than in ".join(f"repeat{'s' * (len(repeats) > 1)} {listed(repeats)}" for repeats in groups)


def _described(apart: Parting) -> str:
    """``from step 3 on, 2.31 against 2.35``, with as many digits as tell them apart."""
    if apart.step == 0:
        return "after the first steps, in losses or in the parameters"
    for digits in range(3, 18):
        old, new = f"{apart.old:.{digits}g}", f"{apart.new:.{digits}g}"
        if old != new:
            break
    return f"from step {apart.step} on, {old} against {new}"


def _other_software(old: Result, new: Result) -> str:
    differing = environments([software(old.environment)], [software(new.environment)])
    more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
    which = f" ({differing[0]}{more})" if differing else ""
    return f"the software differs{which}, so losses cannot be compared"

"""The page that answers the suite's question from published measurements: docs/answers.md. Every figure in it is computed.

``page`` is a pure function of a DataFrame of ``results.load`` and of what experiments found. Each sentence has a footnote
with the command that gives its figures. ``same`` tells whether a page is what would be written today.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis import verdict as verdicts
from harness.analysis.verdict import Verdict
from harness.core.placement import bytes_per_server, place
from harness.core.text import plural
from harness.errors import InvalidInput
from harness.experiments import ANALYSIS, LIMITED, UNLIMITED, parted
from harness.models import specification
from harness.predict import curves, fitting, forecast
from harness.predict.basis import basis
from harness.predict.explain import HELPS, explain, partitioned, seconds, sentences, size
from harness.predict.fitting import Fit, mean_error
from harness.predict.forecast import Basis, Prediction, What
from harness.predict.holdout import HeldOut, condition, hold_out
from harness.predict.observations import Group, Observation, groups, informative
from harness.report.text import verdict as verdict_report

if TYPE_CHECKING:
    import pandas

COMMAND = "harness answers -o docs/answers.md"
MODEL = "inception3"
BATCH = 64
DAINT, XLARGE, EIGHT, CORI = "Piz Daint XC50 P100", "EC2 p2.xlarge K80", "EC2 p2.8xlarge K80", "Cori KNL"
TF_2017 = "TensorFlow 1.1.0"
LARGE = (128, 256, 512)
SEARCHED = (8, 16, 32, 64, 128)
HELD_OUT = "workers>32"
SLICE_BYTES = 2**20
COUNTS = (1, 2, 3, 4, 8, 12, 40, 116)
SERVERS, REPLICATED, HOROVOD = (
    What(backend, MODEL, BATCH) for backend in ("parameter_server", "distributed_replicated", "horovod")
)
# What is wanted of the law: the mean error on all sizes, and on those above 32 workers from the others.
GOAL_ALL, GOAL_UNSEEN = 0.03, 0.05
RISING = 0.6  # correlation of errors with the logarithm of the size


@dataclass
class Notes:
    """Footnotes: the commands that give the figures, each once, in the order of their first use."""

    commands: list[str] = field(default_factory=list)

    def __call__(self, *commands: str) -> str:
        """The marks of ``commands``."""
        marks = ""
        for command in commands:
            if command not in self.commands:
                self.commands.append(command)
            marks += f"[^{self.commands.index(command) + 1}]"
        return marks

    def lines(self) -> list[str]:
        """The notes themselves."""
        return [f"[^{number}]: `{command}`" for number, command in enumerate(self.commands, start=1)]


class Facts:
    """What the page is made of: fits, starts of predictions, and published figures. Computed once, when first asked for."""

    def __init__(self, frame: pandas.DataFrame) -> None:
        self.frame = frame
        self.note = Notes()
        self._fits: dict[tuple[str, str], Fit] = {}

    @cached_property
    def groups(self) -> dict[tuple[str, str], Group]:
        """By system and software."""
        return {(one.key.system, one.key.software): one for one in groups(self.frame)[0]}

    @cached_property
    def verdict(self) -> Verdict:
        """On Daint."""
        return verdicts.verdict(self.frame[self.frame["system"] == DAINT])

    def group(self, system: str, software: str = TF_2017) -> Group:
        """Raises InvalidInput where the results do not have it."""
        if (system, software) not in self.groups:
            raise InvalidInput(f"no results of {system} with {software}, which the page is about; `reference` has them")
        return self.groups[system, software]

    def fit(self, system: str, software: str = TF_2017) -> Fit:
        """The fit to all runs of a system and software."""
        key = system, software
        if key not in self._fits:
            self._fits[key] = fitting.fit(self.group(*key))
        return self._fits[key]

    def unseen(self, system: str, software: str = TF_2017, which: str = HELD_OUT) -> HeldOut:
        """The fit without the runs that meet a condition, and these."""
        found = hold_out(self.group(system, software), condition(which))
        if found is None:
            raise InvalidInput(f"{system}, {software}: {which} leaves nothing to fit, or nothing to test")
        return found

    def software(self, transport: str) -> str:
        """That of the Horovod runs over ``transport`` on Daint."""
        found = [
            one
            for one in self.groups.values()
            if (one.key.system, one.key.transport, one.key.mechanism) == (DAINT, transport, "allreduce")
        ]
        if not found:
            raise InvalidInput(f"no results of Horovod over {transport} on {DAINT}; `reference` has them")
        return found[0].key.software

    def start(self, what: What, transport: str | None = None, system: str = DAINT) -> Basis:
        """What predictions for ``what`` start from."""
        return basis(self.frame[self.frame["system"] == system], what, transport)

    def measured(self, workers: int, system: str = DAINT) -> Observation:
        """The published run of 2017 on so many workers."""
        return next(one for one in self.group(system).observations if one.workers == workers)

    def efficiency(self, workers: int, system: str = DAINT) -> float:
        """The measured one, relative to one worker."""
        one = self.measured(workers, system)
        assert one.single_s is not None
        return one.single_s / one.step_s


def page(frame: pandas.DataFrame, experiments: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The page as Markdown, from published results and from analyses of ``harness experiment`` (see ``analyses``).

    Raises InvalidInput where ``frame`` lacks results that the page is about.
    """
    facts = Facts(frame)
    sections = [
        _short(facts),
        _toolkits(facts),
        _drop(facts),
        _servers(facts),
        _what_to_do(facts),
        _elsewhere(facts),
        _limits(facts),
    ]
    if experiments:
        sections.append(_experiments(facts, experiments))
    head = [
        "# Answers",
        "",
        f"Written by `{COMMAND}`; do not edit. *Measured* figures are published ones (`results/reference`), *predicted*",
        "ones come from the [scaling model](scaling-model.md). A footnote names the command that gives the figures of its",
        f"sentence. Brackets hold {fitting.LEVEL:.0%} intervals.",
    ]
    body = "\n".join([*head, *(line for section in sections for line in ("", *section))])
    return "\n".join([re.sub(r"(?<=\d)%", " %", body), "", *facts.note.lines(), ""])


def same(one: str, other: str) -> bool:
    """Whether two pages say the same: equal words, and numbers equal to a unit of their last digit or half a per cent.

    Least squares and random draws differ in their last digits from processor to processor.
    """
    words = _NUMBER.sub("#", one) == _NUMBER.sub("#", other)
    return words and all(map(_close, _NUMBER.findall(one), _NUMBER.findall(other)))


_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def _close(one: str, other: str) -> bool:
    digits = max(len(text.partition(".")[2]) for text in (one, other))
    values = [float(text.replace(",", "")) for text in (one, other)]
    return bool(abs(values[0] - values[1]) <= max(1.01 * 10**-digits, 0.005 * max(values)))


def analyses(folders: Sequence[str], default: Path) -> dict[str, dict[str, Any]]:
    """What `harness experiment` found, by what it is told to find it again; of all in ``default`` if none are given.

    Raises InvalidInput for a folder without an analysis.
    """
    named = {folder: Path(folder) for folder in folders}
    if not named:
        named = {
            f"results/experiments/{path.parent.name}": path.parent for path in sorted(default.glob(f"*/{ANALYSIS}"))
        }
    found = {}
    for name, folder in named.items():
        from_ = f"{name}/{LIMITED} --control {name}/{UNLIMITED}" if parted(folder) else name
        try:
            analysis = json.loads((folder / ANALYSIS).read_text(encoding="utf-8"))
            assert analysis["experiment"] and all(map(str, analysis["findings"]))
            found[from_] = analysis
        except OSError as error:
            raise InvalidInput(f"{folder / ANALYSIS}: {error.strerror}; `harness experiment` writes it") from None
        except (ValueError, LookupError, TypeError, AssertionError):
            raise InvalidInput(f"{folder / ANALYSIS}: is not what `harness experiment` writes") from None
    return found


# --- sections -------------------------------------------------------------------------------------


def _short(facts: Facts) -> list[str]:
    largest, servers, mpi = facts.measured(128), *_best_at(facts, 128)
    tensor = _largest()
    gained = _gain(facts, SERVERS, partitioned(SERVERS), 128)
    return [
        "## In short",
        "",
        f"- Do MPI toolkits scale better? {_published(facts)} Predicted for the same model on 128 nodes: "
        f"{_k(mpi.img_per_s)} img/s with Horovod over MPI, {_k(servers.img_per_s)} with the best number of parameter "
        f"servers: {_between(forecast.gain(*_pair(facts, servers, mpi), 128))}.",
        f"- Why do parameter servers fall to {facts.efficiency(128):.0%} on 128 nodes? All workers fetch the largest "
        f"tensor, {size(tensor.bytes)} that are never split, from one node, and send its gradient there. "
        f"{largest.ps} servers do not change that.",
        f"- What helps: cutting tensors into slices of 1 MiB. Predicted on 128 nodes: {_between(gained)} as many img/s.",
        *_contradicted(facts),
    ]


def _contradicted(facts: Facts) -> list[str]:
    """What the reader must know first: systems whose measurements contradict the law."""
    fits = [facts.fit(*system) for system in _systems(facts)]
    return [
        f"- **Misfit**: on {one.group.key.system}, {one.misfit.told}.{facts.note('harness fit reference')}"
        for one in fits
        if one.misfit.contradicts
    ]


def _systems(facts: Facts) -> list[tuple[str, str]]:
    """What the page rests on: systems with their software."""
    servers = [(system, TF_2017) for system in (DAINT, XLARGE, EIGHT)]
    return [*servers, (DAINT, facts.software("mpi")), (DAINT, facts.software("nccl"))]


def _pair(
    facts: Facts, servers: Prediction, mpi: Prediction
) -> tuple[tuple[What, Basis, int], tuple[What, Basis, int]]:
    """Parameter servers and Horovod over MPI, to be compared."""
    return (SERVERS, facts.start(SERVERS), servers.ps), (HOROVOD, facts.start(HOROVOD, "mpi"), mpi.ps)


def _gain(facts: Facts, old: What, new: What, nodes: int) -> tuple[float, float, float]:
    """How much faster ``new`` is on Daint, each with its best number of servers."""
    start = facts.start(SERVERS)
    first, second = (forecast.best(what, start, [nodes])[0].ps for what in (old, new))
    return forecast.gain((old, start, first), (new, start, second), nodes)


def _toolkits(facts: Facts) -> list[str]:
    note = facts.note
    found = facts.verdict
    verdict = note("harness verdict reference:daint")
    said = verdict_report.sentences(found)
    lines = ["## Do MPI toolkits scale better than parameter servers on Piz Daint?", "", "Measured:", ""]
    lines.append(f"- {said.headline}{verdict}")
    for one in found.comparisons:
        if one.sizes:
            last = one.sizes[-1]
            own = f"{last.toolkit.best.sample.mean:,.0f}"
            lines.append(
                f"- On {last.workers} nodes {verdict_report.contender(one.facets)} trains {own} img/s, the best "
                f"parameter servers {last.servers.best.sample.mean:,.0f}: "
                f"{_times(last.throughput_ratio)}. Nobody measured how much of that is the younger TensorFlow.{verdict}"
            )
    lines += [f"- An indication only: {text}.{verdict}" for text in said.indications]
    lines += ["", f"Predicted for {MODEL}, {BATCH} images per node and step, img/s:", ""]
    starts = _ways(facts)
    sizes = (8, 32, 64, *LARGE)
    measured = {one.workers: one for one in facts.group(DAINT).observations}
    lines += [
        f"| nodes | servers, measured | servers, best number{note(_predict('parameter_server', sizes))} "
        f"| Horovod over MPI{note(_predict('horovod', sizes, '--transport mpi'))} "
        f"| Horovod over NCCL{note(_predict('horovod', sizes, '--transport nccl'))} |",
        "|---|---|---|---|---|",
    ]
    for nodes in sizes:
        own = f"{measured[nodes].img_per_s:,.0f} ({measured[nodes].ps} PS)" if nodes in measured else "–"
        cells = [_cell(_fastest(what, start, nodes)) for what, start in starts.values()]
        lines.append(f"| {nodes} | {own} | {' | '.join(cells)} |")
    lines.append("")
    for nodes in LARGE:
        servers, mpi, nccl = (_fastest(what, start, nodes) for what, start in starts.values())
        gained = _between(forecast.gain(*_pair(facts, servers, mpi), nodes))
        lines.append(
            f"- On {nodes} nodes, predicted: over MPI {gained} what the best parameter servers train, over NCCL "
            f"{_times(nccl.img_per_s / servers.img_per_s)}. Of a single worker's throughput servers keep "
            f"{servers.efficiency:.0%}, MPI {mpi.efficiency:.0%}, NCCL {nccl.efficiency:.0%}."
        )
    faster = starts["servers"][1].single_s / starts["nccl"][1].single_s
    lines.append(
        f"- The ratios over NCCL include that one worker alone is {_times(faster)} as fast there: a younger TensorFlow, no "
        "better scaling."
    )
    over_mpi, over_nccl = facts.fit(DAINT, facts.software("mpi")), facts.fit(DAINT, facts.software("nccl"))
    fits = note("harness fit reference:daint")
    lines += [
        "",
        "What the predictions were fitted on:",
        "",
        f"- Parameter servers: {_fitted_on(facts.fit(DAINT))}{fits}",
        f"- Over MPI: {_fitted_on(over_mpi)} Another model, and a younger TensorFlow, than is predicted. One worker's "
        f"step is taken from {TF_2017}, as for the servers.{fits}",
        f"- Over NCCL: {_fitted_on(over_nccl)}{_hardly_known(over_nccl)} One worker's step was never measured, and is "
        f"fitted, too.{fits}",
    ]
    return lines


def _drop(facts: Facts) -> list[str]:
    note, fit, unseen = facts.note, facts.fit(DAINT), facts.unseen(DAINT)
    start = facts.start(SERVERS)
    before, after = facts.measured(64), facts.measured(128)
    table = note("harness table reference:daint --style report2017")
    tensor = _largest()
    told = {one.workers: explain(SERVERS, start, one.nodes, one.ps) for one in (before, after)}
    lines = [
        f"## Why does efficiency drop from {facts.efficiency(64):.0%} on 64 to {facts.efficiency(128):.0%} on 128 nodes?",
        "",
        f"- Measured: {before.img_per_s:,.0f} img/s on 64 nodes with {before.ps} servers ({facts.efficiency(64):.1%}), "
        f"{after.img_per_s:,.0f} on 128 with {after.ps} ({facts.efficiency(128):.1%}).{table}",
        f"- The largest tensor, `{tensor.name}`, has {size(tensor.bytes)}. It is never split, so one node sends it to, and "
        f"receives its gradient from, all other workers in every step, however many servers there are.",
    ]
    for workers, one in told.items():
        lines.append(f"- {workers} nodes: {sentences(one)[0]}.{note(_explain(workers, one.prediction.ps))}")
    waits = {workers: sum(each.seconds for each in one.prediction.bounds) for workers, one in told.items()}
    lines.append(
        f"- A worker alone computes for {seconds(start.single_s)}. Forward and backward take {seconds(waits[64])} on 64 "
        f"nodes and {seconds(waits[128])} on 128: on 64 compute hides most of the network, on 128 it cannot."
        f"{note(_explain(64, before.ps), _explain(128, after.ps))}"
    )
    lines.append(
        f"- The law fits {plural(len(fit.errors), 'run')}, which determine {fit.fitted:.1f} numbers, to "
        f"{mean_error(fit.errors):.1%} on average ({fit.misfit.chances}). Fitted up to 32 nodes only, it errs by "
        f"{_listed(unseen)}. It was chosen with these runs in sight."
        f"{note(f'harness fit reference:daint --hold-out {HELD_OUT!r}')}"
    )
    return lines


def _servers(facts: Facts) -> list[str]:
    note, tensor = facts.note, _largest()
    tensors = specification(MODEL).tensors
    total = sum(one.bytes for one in tensors)
    greedy, dealt = (
        {ps: bytes_per_server(place(tensors, ps, strategy, SLICE_BYTES), ps) for ps in range(1, len(tensors) + 1)}
        for strategy in ("greedy", "round_robin")
    )
    plan = f"harness run --backend parameter_server --model {MODEL} --nodes 116 --ps 116 --dry-run"
    dealt_plan = f"harness run --backend distributed_replicated --model {MODEL} --nodes 8 --ps 8 --dry-run"
    lines = [
        "## Why does the number of parameter servers matter as it does?",
        "",
        f"Bytes on the fullest server, of {size(total)} in all; greedy is what `parameter_server` did in 2017, round robin "
        f"what `distributed_replicated` did:{note(plan, dealt_plan)}",
        "",
        f"| servers | {' | '.join(map(str, COUNTS))} |",
        f"|---|{'---|' * len(COUNTS)}",
        f"| greedy | {' | '.join(size(max(greedy[ps])) for ps in COUNTS)} |",
        f"| round robin | {' | '.join(size(max(dealt[ps])) for ps in COUNTS)} |",
        "",
    ]
    near = next(ps for ps in greedy if max(greedy[ps]) <= 1.1 * tensor.bytes)
    half = next(ps for ps in greedy if max(greedy[ps]) <= 2 * tensor.bytes)
    even = [ps for ps in range(2, 13, 2)]
    least = min(max(sum(dealt[ps][0::2]), sum(dealt[ps][1::2])) / total for ps in even)
    most, mean = max(greedy[116]), total / 116
    lines += [
        f"- The floor is the largest tensor. From {half} servers on the fullest holds no more than twice that, from {near} "
        f"on a tenth more at most. With 116 it holds {most / mean:.0f} times the mean.{note(plan)}",
        f"- Round robin and even numbers do not go together: {MODEL} creates kernels and small vectors in turn, so with an "
        f"even number of servers (2 to {even[-1]}) half of them hold all kernels, at least {least:.1%} of the bytes."
        f"{note(dealt_plan)}",
    ]
    start = facts.start(REPLICATED)
    pairs = ", ".join(f"{_k(_at(REPLICATED, start, 128, ps))} img/s with {ps} servers" for ps in (3, 4, 7, 8))
    lines.append(
        f"- Predicted for `distributed_replicated` on 128 nodes: {pairs}."
        f"{note(_predict('distributed_replicated', (128,), '--ps 3,4,7,8'))}"
    )
    lines += ["", "The whole search, predicted for every possible number of servers:", ""]
    lines += [
        f"| nodes | best number, predicted | as good as that, to {HELPS - 1:.0%} | published number | predicted for it "
        "| short of the best by | measured |",
        "|---|---|---|---|---|---|---|",
    ]
    for nodes in SEARCHED:
        lines.append(_search(facts, nodes))
    searched = note(_predict("parameter_server", SEARCHED, "--ps all"))
    lines += ["", f"- Where many numbers are as good, the law cannot say which one a search will find.{searched}"]
    lines += [_against(facts, nodes) + searched for nodes in SEARCHED if _short_of_best(facts, nodes) > HELPS - 1]
    won = [(one, longer) for system in (DAINT, XLARGE, EIGHT) for one, longer in facts.fit(system).searches]
    agreed = sum(longer > 1 for _, longer in won)
    lines.append(
        f"- Which strategy won was searched, too. With the number of servers that won, the law has the other one slower in "
        f"{agreed} of {len(won)} searches; it was fitted to that as well.{note('harness fit reference')}"
    )
    return lines


def _against(facts: Facts, nodes: int) -> str:
    one, best = facts.measured(nodes), forecast.best(SERVERS, facts.start(SERVERS), [nodes])[0]
    return (
        f"- This contradicts the law, or the search of 2017 was coarse: on {nodes} nodes {one.ps} servers were found best, "
        f"and the law gives {_k(best.img_per_s)} img/s for {best.ps}, which is {best.img_per_s / one.img_per_s - 1:.0%} "
        "more than was measured. Which numbers were tried is in a table that its authors link to and we do not have."
    )


def _short_of_best(facts: Facts, nodes: int) -> float:
    """By which share the published number of servers falls short of the best one, as predicted."""
    counts, steps = forecast.sweep(SERVERS, facts.start(SERVERS), [nodes])
    step = float(steps[counts.index(facts.measured(nodes).ps), 0])
    return 1 - float(steps.min()) / step


def _search(facts: Facts, nodes: int) -> str:
    start, one = facts.start(SERVERS), facts.measured(nodes)
    counts, steps = forecast.sweep(SERVERS, start, [nodes])
    rates = nodes * BATCH / steps[:, 0]
    best = forecast.best(SERVERS, start, [nodes])[0]
    good = [ps for ps, rate in zip(counts, rates, strict=True) if rate * HELPS >= rates.max()]
    at = float(rates[counts.index(one.ps)])
    return (
        f"| {nodes} | {best.ps} ({_k(best.img_per_s)} img/s) | {len(good)} of {len(counts)}, from {min(good)} on "
        f"| {one.ps} | {_k(at)} img/s | {_short_of_best(facts, nodes):.1%} | {one.img_per_s:,.0f} img/s |"
    )


def _what_to_do(facts: Facts) -> list[str]:
    note = facts.note
    ways = {
        "whole tensors, greedy": (SERVERS, _predict("parameter_server", LARGE)),
        "slices of 1 MiB": (partitioned(SERVERS), _predict("parameter_server", LARGE, "--placement partitioned")),
        "`distributed_replicated`, round robin": (REPLICATED, _predict("distributed_replicated", LARGE)),
        "`distributed_replicated`, slices of 1 MiB": (
            partitioned(REPLICATED),
            _predict("distributed_replicated", LARGE, "--placement partitioned"),
        ),
    }
    found = {name: [_fastest(what, facts.start(what), nodes) for nodes in LARGE] for name, (what, _) in ways.items()}
    lines = [
        "## What to do about it",
        "",
        "Predicted for Piz Daint with the network of 2017, img/s with the best number of servers each:",
        "",
        f"| | {' | '.join(f'{nodes} nodes' for nodes in LARGE)} |",
        f"|---|{'---|' * len(LARGE)}",
    ]
    for name, predictions in found.items():
        lines.append(f"| {name}{note(ways[name][1])} | {' | '.join(map(_cell, predictions))} |")
    for transport, label in (
        ("mpi", "allreduce, Horovod over MPI"),
        ("nccl", "allreduce, Horovod over NCCL (see above)"),
    ):
        start = facts.start(HOROVOD, transport)
        command = _predict("horovod", (8, 32, 64, *LARGE), f"--transport {transport}")
        cells = [_cell(_fastest(HOROVOD, start, nodes)) for nodes in LARGE]
        lines.append(f"| {label}{note(command)} | {' | '.join(cells)} |")
    lines += [
        "",
        f"- **Cut tensors into slices**, instead of the first line: {_gains(facts, partitioned(SERVERS))} Where several "
        "numbers of servers are as good, take one below the number of nodes: with a server on every node, slices took 1.4 "
        "to 1.7 times as long as the links allow ([scaling-model.md](scaling-model.md)). That parameters come in the order "
        "of their use was decided for the TensorFlow of 2017. If they came in no order, as in a newer one on emulated "
        f"devices: {_unordered(facts)}",
        f"- **Copying replicas back** (`distributed_replicated`), instead of the first line: {_gains(facts, REPLICATED)} "
        "One run of it was published from Daint; where an interval holds 1 it is no advice.",
        f"- **Fewer servers.** {_fewer(facts)}",
        "- **An odd number of servers** wherever variables are dealt round robin (see above).",
        "- **Allreduce** has no fullest node. Over MPI its cost grew with the nodes all the same: "
        f"{_kept(facts.fit(DAINT, facts.software('mpi')))}.{note('harness table reference:daint')}",
    ]
    return lines


def _elsewhere(facts: Facts) -> list[str]:
    note = facts.note
    lines = ["## The other systems", ""]
    for system, source in ((XLARGE, "reference:p2.xlarge"), (EIGHT, "reference:p2.8xlarge")):
        fit, unseen, last = facts.fit(system), facts.unseen(system), facts.measured(128, system)
        per_node = last.workers // last.nodes
        what = replace(SERVERS if last.backend == SERVERS.backend else REPLICATED, devices_per_node=per_node)
        start = facts.start(what, system=system)
        devices = f" --devices-per-node {per_node}" if per_node > 1 else ""
        options = (
            f"--from {source} --backend {what.backend} --model {MODEL}{devices} --nodes {last.nodes} --ps {last.ps}"
        )
        lines += [
            f"- **{system}** keeps {facts.efficiency(128, system):.1%} on 128 devices ({last.nodes} nodes), measured. "
            f"{_rate(fit)}. The law fits to {mean_error(fit.errors):.1%} on average ({fit.misfit.chances}), and from 32 "
            f"devices errs by {_listed(unseen)}; {unseen.covered} of these are in their intervals."
            f"{note(f'harness fit {source} --hold-out {HELD_OUT!r}')}",
            f"  {_capital(sentences(explain(what, start, last.nodes, last.ps))[0])}.{note(f'harness explain {options}')}",
        ]
    cori = next((software for system, software in facts.groups if system == CORI), "")
    held = facts.unseen(CORI, cori, "workers=128")
    (one,) = held.unseen
    seen = held.seen[0]
    lines.append(
        f"- **{CORI}** (ResNet-50, only efficiencies were published): {1 / seen.step_s:.0%} on {seen.workers} nodes, and "
        f"more than {1 / one.step_s:.0%} on {one.workers}. Fitted to the {seen.workers}-node point alone, the law says "
        f"{1 / held.fit.step_s(one):.1%} on {one.workers}.{note('harness fit reference:Cori --hold-out workers=128')}"
    )
    return lines


def _limits(facts: Facts) -> list[str]:
    note = facts.note
    fitted = note(f"harness fit reference --hold-out {HELD_OUT!r}")
    lines = [
        "## How far to trust this",
        "",
        f"Errors are predicted over measured throughput, minus 1. All of these measurements were in sight when the law was "
        f"chosen: the last columns are *selected on*, not held out. χ² takes measurement errors alone.{fitted}",
        "",
        "| system | software | runs | numbers | mean error | worst | χ² (degrees of freedom) | p | left one out "
        "| above 32, from ≤ 32 | worst | in 90 % | least mean error, all runs; above 32 |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for system, software in _systems(facts):
        lines.append(_accuracy(facts, system, software))
    servers = [facts.fit(system) for system in (DAINT, XLARGE, EIGHT)]
    unseen = [facts.unseen(system) for system in (DAINT, XLARGE, EIGHT)]
    met = [mean_error(one.errors) <= GOAL_ALL for one in servers]
    errors = [error for one in unseen for error in one.errors]
    lines += [
        "",
        f"- The goal of {GOAL_ALL:.0%} on average, on all sizes, is met by {sum(met)} of {len(met)} systems with parameter "
        f"servers. The goal of {GOAL_UNSEEN:.0%} above 32 workers, fitted to the others, is "
        f"{'met' if mean_error(errors) <= GOAL_UNSEEN else '**missed**'}: {mean_error(errors):.1%} on average, "
        f"{_signed(max(errors, key=abs))} at worst.{fitted}",
    ]
    for system in (DAINT, XLARGE, EIGHT):
        fit = facts.fit(system)
        told = ", ".join(
            f"{_signed(error)} on {one.workers}"
            for one, error in zip(informative(fit.group.observations), fit.errors, strict=True)
        )
        lines.append(f"- What remains on {system}, by workers: {told}.{_trend(fit)}{fitted}")
    assumed = [
        f"{', '.join(one.quantity.name.replace('_', ' ') for one in fit.estimates if not one.identified)} ({name})"
        for name, fit in (
            ("servers on Daint", facts.fit(DAINT)),
            ("Horovod over MPI", facts.fit(DAINT, facts.software("mpi"))),
            ("Horovod over NCCL", facts.fit(DAINT, facts.software("nccl"))),
        )
    ]
    share = facts.fit(DAINT).problems[0].share.typical
    lines += [
        f"- Not identified by these measurements, and mostly assumed: {'; '.join(assumed)}.{fitted} So is the share of "
        f"forward in a step, {share:.2f}.",
        "- Tables of throughput cannot tell whether pull and push overlap, nor a slow network from slow servers: that "
        "takes runs made for the question ([experiments](experiments.md)).",
        "- Each published number of servers is the best of a search whose other results we do not have. A fit to winners "
        "flatters servers a little.",
        _barrier(facts),
        "- No published figure of servers has a spread, so no interval here knows how much runs differ from day to day.",
        "- Intervals know the law's parameters and what the law left out where it was measured. How often they hold, and "
        "which wrong laws would go unnoticed, was simulated: [scaling-model.md](scaling-model.md) has the table, and "
        "variants of the law that were tried and rejected. A throughput that falls only beyond the measured sizes cannot "
        "be seen.",
    ]
    return lines


def _experiments(facts: Facts, found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Findings of ``harness experiment``, as it wrote them."""
    lines = ["## What experiments on this question found", ""]
    for told, analysis in found.items():
        name = analysis["experiment"]
        mark = facts.note(f"harness experiment {name} --analyse-only {told}")
        lines += [
            f"- {one['question']} **{_capital(one['answer'])}.** {one['because']}{mark}" for one in analysis["findings"]
        ]
    return lines


# --- parts of sections ----------------------------------------------------------------------------


def _ways(facts: Facts) -> dict[str, tuple[What, Basis]]:
    return {
        "servers": (SERVERS, facts.start(SERVERS)),
        "mpi": (HOROVOD, facts.start(HOROVOD, "mpi")),
        "nccl": (HOROVOD, facts.start(HOROVOD, "nccl")),
    }


def _best_at(facts: Facts, nodes: int) -> tuple[Prediction, Prediction]:
    servers, mpi, _ = (_fastest(what, start, nodes) for what, start in _ways(facts).values())
    return servers, mpi


def _fastest(what: What, start: Basis, nodes: int) -> Prediction:
    return forecast.best(what, start, [nodes])[0] if what.has_servers else forecast.at(what, start, nodes, 0)


def _at(what: What, start: Basis, nodes: int, ps: int) -> float:
    return forecast.at(what, start, nodes, ps).img_per_s


def _published(facts: Facts) -> str:
    if facts.verdict.answer == "cannot say":
        return "The published measurements cannot say, like for like."
    return f"What was published says, like for like: {facts.verdict.answer}."


def _barrier(facts: Facts) -> str:
    """What the runs of 2017 had besides."""
    start, fit = facts.start(SERVERS), facts.fit(DAINT)
    one = facts.measured(128)
    without = forecast.at(SERVERS, start, one.nodes, one.ps).law_s
    return (
        f"- Predictions are for servers without the barrier of 2017, in which all workers sent each other tokens. The fit "
        f"allows for it: on 128 nodes it is {seconds(fit.step_s(one) - without)} of a step of {seconds(fit.step_s(one))}."
        f"{facts.note('harness fit reference:daint')}"
    )


def _largest() -> Any:
    return max(specification(MODEL).tensors, key=lambda tensor: tensor.bytes)


def _fitted_on(fit: Fit) -> str:
    runs = fit.group.observations
    models = " and ".join(sorted({one.model for one in runs}))
    sizes = [one.workers for one in runs]
    return f"{plural(len(runs), 'run')} of {models} on {min(sizes)} to {max(sizes)} nodes, {fit.group.key.software}."


def _hardly_known(fit: Fit) -> str:
    """A warning where the measurements do not tell the throughput."""
    throughput = fit.estimates[0]
    if throughput.identified:
        return ""
    low, high = (value * throughput.quantity.scale for value in (throughput.low, throughput.high))
    runs = plural(len(fit.group.observations), "point")
    return (
        f" **{runs} only, and compute hides the network in them: what a node sends is hardly known ({low:.2g} to "
        f"{high:.2g} GB/s). Beyond those sizes this is little more than an assumption.**"
    )


def _rate(fit: Fit) -> str:
    one = fit.estimates[0]
    value, low, high = (each * one.quantity.scale for each in (one.value, one.low, one.high))
    how = "Fitted" if one.identified else "Not identified"
    return f"{how}: a node sends {value:.2g} GB/s ({low:.2g} – {high:.2g})"


def _gains(facts: Facts, new: What) -> str:
    told = [f"{_between(_gain(facts, SERVERS, new, nodes))} on {nodes} nodes" for nodes in LARGE]
    return f"{', '.join(told)}."


def _unordered(facts: Facts) -> str:
    """What slices would give if parameters were pulled in no order, with the network as it was fitted."""
    start = facts.start(SERVERS)
    late = replace(start, parameters=replace(start.parameters, ordered=0.0), draws=None)
    rates = [forecast.best(partitioned(SERVERS), late, [nodes])[0] for nodes in LARGE]
    return f"{', '.join(f'{_k(one.img_per_s)} img/s on {one.nodes} nodes' for one in rates)}."


def _kept(fit: Fit) -> str:
    """What the largest of several sizes keeps of the smallest's throughput per worker, as measured."""
    runs = fit.group.observations
    first, last = runs[0], runs[-1]
    kept = last.img_per_s / last.workers / (first.img_per_s / first.workers)
    return f"measured with {first.model}, {last.workers} nodes keep {kept:.1%} of what {first.workers} train per node"


def _fewer(facts: Facts) -> str:
    start = facts.start(SERVERS)
    told = []
    for nodes in (32, 64, 128):
        counts, steps = forecast.sweep(SERVERS, start, [nodes])
        enough = next(ps for ps, step in zip(counts, steps[:, 0], strict=True) if step <= HELPS * steps.min())
        told.append(f"{enough} on {nodes} nodes, where {facts.measured(nodes).ps} were published as best")
    return f"Predicted, the smallest number within {HELPS - 1:.0%} of the best is {'; '.join(told)}."


def _accuracy(facts: Facts, system: str, software: str) -> str:
    fit = facts.fit(system, software)
    alone = fitting.left_one_out(fit)
    held = hold_out(fit.group, condition(HELD_OUT))
    unseen = "– | – | –"
    best = _least(fit.errors, fit.group.observations, informative(fit.group.observations))
    if held:
        inside = f"{held.covered} of {len(held.unseen)}"
        unseen = f"{mean_error(held.errors):.1%} | {_signed(max(held.errors, key=abs))} | {inside}"
        best += f"; {_least(held.errors, held.seen, held.unseen)}"
    p_value = "–" if fit.misfit.p_value is None else f"{fit.misfit.p_value:.2g}"
    return (
        f"| {system} | {software} | {len(fit.errors)} | {fit.fitted:.1f} | {mean_error(fit.errors):.1%} | "
        f"{_signed(max(fit.errors, key=abs))} | {fit.misfit.chi2:.1f} ({fit.misfit.freedom:.1f}) | {p_value} "
        f"| {mean_error(alone):.1%} | {unseen} | {best} |"
    )


def _least(law: Sequence[float], seen: Sequence[Observation], tests: Sequence[Observation]) -> str:
    """Which errs least: the law, or a curve that knows nothing of networks."""
    means = curves.beside(law, seen, tests)
    name = min(means, key=lambda each: means[each])
    return f"{name}, {means[name]:.1%}"


def _trend(fit: Fit) -> str:
    """A word on errors that rise with the size, which is what a missing term looks like."""
    sizes = [math.log2(one.workers) for one in informative(fit.group.observations)]
    if statistics.correlation(sizes, fit.errors) > RISING:
        return " They rise with the size: something is missing in the law there."
    return ""


def _listed(held: HeldOut) -> str:
    told = [f"{_signed(error)} on {one.workers}" for one, error in zip(held.unseen, held.errors, strict=True)]
    return " and ".join(told)


def _signed(share: float) -> str:
    return f"{share:+.1%}".replace("-", "−")


def _times(ratio: float) -> str:
    return f"{ratio:.2f} ×"


def _between(ratio: tuple[float, float, float]) -> str:
    value, low, high = ratio
    return f"{value:.2f} × ({low:.2f} – {high:.2f})"


def _k(img_per_s: float) -> str:
    """Three digits: nobody predicts more."""
    digits = 2 - math.floor(math.log10(img_per_s))
    return f"{round(img_per_s, digits):,.0f}"


def _cell(one: Prediction) -> str:
    servers = f", {one.ps} PS" if one.ps else ""
    return f"{_k(one.img_per_s)} ({_k(one.low)} – {_k(one.high)}{servers})"


def _capital(text: str) -> str:
    return text if text[:2].isupper() else f"{text[0].upper()}{text[1:]}"


# --- commands -------------------------------------------------------------------------------------


def _predict(backend: str, nodes: Sequence[int], more: str = "") -> str:
    sizes = ",".join(map(str, nodes))
    return (
        f"harness predict --site daint --model {MODEL} --backend {backend} --nodes {sizes}{f' {more}' if more else ''}"
    )


def _explain(nodes: int, ps: int) -> str:
    return f"harness explain --site daint --model {MODEL} --backend parameter_server --nodes {nodes} --ps {ps}"

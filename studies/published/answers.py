"""The page that answers the suite's question from published measurements: docs/answers.md.

    .venv/bin/python studies/published/answers.py -o docs/answers.md
    .venv/bin/python studies/published/answers.py --check docs/answers.md

``answers.md.j2`` is the page; every figure in it is computed here. Each sentence has a footnote with the command that gives
its figures. FOLDERS are those in which analyses of experiments were written, by default those in results/experiments.
"""

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from harness import results
from harness.analysis import verdict as verdicts
from harness.core.exchange import bytes_per_server, place
from harness.core.text import template
from harness.errors import HarnessError, InvalidInput
from harness.files import write_atomically
from harness.models import specification
from harness.prediction import fitting, forecast
from harness.prediction.basis import StartingPoint, basis
from harness.prediction.explain import HELPS, explain, partitioned, seconds, sentences, size
from harness.prediction.fitting import Fit, mean_error
from harness.prediction.forecast import Basis, Prediction, What
from harness.prediction.holdout import HeldOut, condition, hold_out
from harness.prediction.observations import Observation, groups, informative
from harness.report.text import verdict as verdict_report
from harness.results import Result

ROOT = Path(__file__).parents[2]
STEADY = "results/experiments/steady"
COMMAND = ".venv/bin/python studies/published/answers.py -o docs/answers.md"
MODEL, BATCH = "inception3", 64
DAINT, XLARGE, EIGHT, CORI = "Piz Daint XC50 P100", "EC2 p2.xlarge K80", "EC2 p2.8xlarge K80", "Cori KNL"
SYSTEMS = (DAINT, XLARGE, EIGHT)
TF_2017 = "TensorFlow 1.1.0"
LARGE = (128, 256, 512)
SEARCHED = (8, 16, 32, 64, 128)
HELD_OUT = "workers>32"
SLICE_BYTES = 2**20
SERVERS, REPLICATED, HOROVOD = (
    What(backend, MODEL, BATCH) for backend in ("parameter_server", "distributed_replicated", "horovod")
)
# What is compared on Daint, with the transport that its network is taken from.
WAYS: dict[str, tuple[What, str | None]] = {
    "servers": (SERVERS, None),
    "slices": (partitioned(SERVERS), None),
    "replicas": (REPLICATED, None),
    "sliced replicas": (partitioned(REPLICATED), None),
    "mpi": (HOROVOD, "mpi"),
    "nccl": (HOROVOD, "nccl"),
}
# What is wanted of the law: the mean error on all sizes. The page has the goal above 32 workers.
GOAL_ALL = 0.03
RISING = 0.6  # correlation of errors with the logarithm of the size


def page(published: Sequence[Result], experiments: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The page as Markdown, from published results and from analyses of experiments (see ``analyses``)."""
    commands: list[str] = []

    def note(command: str) -> str:
        """The mark of the footnote with a command, which stands there once, in the order of first use."""
        if command not in commands:
            commands.append(command)
        return f"[^{commands.index(command) + 1}]"

    known = {(group.key.system, group.key.software): group for group in groups(published)[0]}

    @cache
    def fit(system: str, software: str = TF_2017) -> Fit:
        return fitting.fit(known[system, software])

    def fit_over(transport: str) -> Fit:
        """That of the Horovod runs over ``transport`` on Daint."""
        keys = [group.key for group in known.values() if group.key.mechanism == "allreduce"]
        return next(fit(key.system, key.software) for key in keys if (key.system, key.transport) == (DAINT, transport))

    @cache
    def start_on(system: str, what: What, transport: str | None = None) -> Basis:
        return basis([run for run in published if run.system == system], what, StartingPoint(transport))

    def start(way: str) -> Basis:
        return start_on(DAINT, *WAYS[way])

    def held_out(fitted: Fit) -> HeldOut | None:
        return hold_out(fitted.group, condition(HELD_OUT))

    def measured(workers: int, system: str = DAINT) -> Observation:
        """The published run of 2017 on so many workers."""
        return next(run for run in fit(system).group.observations if run.workers == workers)

    def efficiency(workers: int, system: str = DAINT) -> float:
        """The measured one, relative to one worker."""
        run = measured(workers, system)
        assert run.single_s is not None
        return run.single_s / run.step_s

    @cache
    def best(way: str, nodes: int) -> Prediction:
        return forecast.best(WAYS[way][0], start(way), [nodes])[0]

    def at(way: str, nodes: int, ps: int) -> Prediction:
        return forecast.at(WAYS[way][0], start(way), nodes, ps)

    def gain(old: str, new: str, nodes: int) -> tuple[float, float, float]:
        """How much faster ``new`` is, with its interval, each with its best number of servers."""
        sides = [(WAYS[way][0], start(way), best(way, nodes).ps) for way in (old, new)]
        return forecast.gain(sides[0], sides[1], nodes)

    def search(nodes: int) -> dict[str, Any]:
        """A published search for the number of servers, and what the law says of all numbers. ``good`` are within 2 %."""
        counts, steps = forecast.sweep(SERVERS, start("servers"), [nodes])
        rates = nodes * BATCH / steps[:, 0]
        published = measured(nodes)
        predicted = float(rates[counts.index(published.ps)])
        return {
            "nodes": nodes,
            "published": published,
            "best": best("servers", nodes),
            "good": [ps for ps, rate in zip(counts, rates, strict=True) if rate * HELPS >= rates.max()],
            "tried": len(counts),
            "predicted": predicted,
            "short_by": 1 - predicted / float(rates.max()),
        }

    def binding(nodes: int) -> str:
        return sentences(explain(SERVERS, start("servers"), nodes, measured(nodes).ps))[0]

    def explained(system: str) -> str:
        """What binds the step on most devices, as a sentence."""
        last = measured(128, system)
        backend = SERVERS if last.backend == SERVERS.backend else REPLICATED
        what = replace(backend, devices_per_node=last.workers // last.nodes)
        text = sentences(explain(what, start_on(system, what), last.nodes, last.ps))[0]
        return text if text[:2].isupper() else f"{text[0].upper()}{text[1:]}"

    def remains(system: str) -> list[tuple[Observation, float]]:
        return list(zip(informative(fit(system).group.observations), fit(system).errors, strict=True))

    def rises(system: str) -> bool:
        """Whether errors rise with the size, which is what a missing term looks like."""
        sizes, errors = zip(*((math.log2(run.workers), error) for run, error in remains(system)), strict=True)
        return statistics.correlation(sizes, errors) > RISING

    tensors = specification(MODEL).tensors
    total, tensor = sum(each.bytes for each in tensors), max(tensors, key=lambda each: each.bytes)
    greedy, dealt = (
        {ps: bytes_per_server(place(tensors, ps, strategy, SLICE_BYTES), ps) for ps in range(1, len(tensors) + 1)}
        for strategy in ("greedy", "round_robin")
    )
    of_servers, over_mpi, over_nccl = [fit(system) for system in SYSTEMS], fit_over("mpi"), fit_over("nccl")
    verdict = verdicts.verdict([run for run in published if run.system == DAINT])
    cori = next(group for group in known.values() if group.key.system == CORI)
    in_no_order = replace(start("servers"), draws=None)
    in_no_order = replace(in_no_order, parameters=replace(in_no_order.parameters, ordered=0.0))
    functions = (
        *(note, fit, held_out, measured, efficiency, start, best, at, gain, binding, explained, remains, rises),
        *(two_lines, worst, mean_error, size, seconds, fitting.left_one_out),
    )
    text = template(Path(__file__).with_name("answers.md.j2")).render(
        {function.__name__: function for function in functions},
        commands=commands,
        command=COMMAND.split()[1],
        level=fitting.LEVEL,
        helps=HELPS,
        model=MODEL,
        batch=BATCH,
        large=LARGE,
        systems=SYSTEMS,
        tf_2017=TF_2017,
        goal_all=GOAL_ALL,
        verdict=verdict,
        headline=verdict_report.headline(verdict),
        indications=verdict_report.lists(verdict)[verdict_report.INDICATIONS],
        contender=verdict_report.contender,
        fit_mpi=over_mpi,
        fit_nccl=over_nccl,
        fits=[*of_servers, over_mpi, over_nccl],
        met=sum(mean_error(fitted.errors) <= GOAL_ALL for fitted in of_servers),
        cori=hold_out(fit(CORI, cori.key.software).group, condition("workers=128")),
        tensor=tensor,
        total_bytes=total,
        greedy=greedy,
        dealt=dealt,
        enough_for=lambda factor: next(ps for ps in greedy if max(greedy[ps]) <= factor * tensor.bytes),
        kernels_half=min(max(sum(dealt[ps][0::2]), sum(dealt[ps][1::2])) / total for ps in range(2, 13, 2)),
        searches=[search(nodes) for nodes in SEARCHED],
        lost=[longer for fitted in of_servers for _, longer in fitted.searches],
        unordered=[forecast.best(partitioned(SERVERS), in_no_order, [nodes])[0] for nodes in LARGE],
        experiments=experiments,
        steady=(experiments or {}).get(STEADY),
        steady_folder=STEADY,
    )
    body, mark, notes = text.partition("\n[^1]: ")
    return re.sub(r"(?<=\d)%", " %", body) + mark + notes


def two_lines(fit: Fit, tests: Sequence[Observation] | None = None) -> str:
    """The mean error of two lines on ``tests``, by default on what was fitted."""
    return f"{fit.two_lines(informative(fit.group.observations) if tests is None else tests):.1%}"


def worst(errors: Sequence[float]) -> float:
    return max(errors, key=abs)


# --- files ---


def analyses(folders: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What experiments found, by the folder that their pages are in; of all in results/experiments if none are given.

    Raises InvalidInput for a folder without an analysis.
    """
    kept = [str(path.parent.relative_to(ROOT)) for path in ROOT.glob("results/experiments/*/analysis.json")]
    known = {}
    for folder in folders or sorted(kept):
        file = ROOT / folder / "analysis.json"
        try:
            known[folder] = json.loads(file.read_text(encoding="utf-8"))
            assert known[folder]["experiment"] and known[folder]["script"] and all(map(str, known[folder]["findings"]))
        except OSError as error:
            raise InvalidInput(f"{file}: {error.strerror}; the experiment's script writes it") from None
        except (ValueError, LookupError, TypeError, AssertionError):
            raise InvalidInput(f"{file}: is not what an experiment's script writes") from None
    return known


def same(one: str, other: str) -> bool:
    """Whether two pages say the same: equal words, and numbers equal to a unit of their last digit or half a per cent.

    Least squares and random draws differ in their last digits from processor to processor.
    """

    def close(one: str, other: str) -> bool:
        digits = max(len(text.partition(".")[2]) for text in (one, other))
        values = [float(text.replace(",", "")) for text in (one, other)]
        return bool(abs(values[0] - values[1]) <= max(1.01 * 10**-digits, 0.005 * max(values)))

    number = re.compile(r"\d[\d,]*(?:\.\d+)?")
    words = number.sub("#", one) == number.sub("#", other)
    return words and all(map(close, number.findall(one), number.findall(other)))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="with the analysis of an experiment")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("-o", "--output", type=Path, metavar="FILE", help="file to write  [default: print]")
    action.add_argument("--check", type=Path, metavar="FILE", help="exit with 1 if FILE is not what would be written")
    options = parser.parse_args(argv)
    text = page(results.load(["reference"]), analyses(options.folders))
    if options.check:
        if not same(options.check.read_text(encoding="utf-8"), text):
            raise HarnessError(f"{options.check}: is out of date; `{COMMAND}` writes it anew")
    elif options.output:
        write_atomically(options.output, text)
    else:
        print(text, end="")


if __name__ == "__main__":
    try:
        main()
    except (HarnessError, OSError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))

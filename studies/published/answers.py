"""The page that answers the questions of 2017, docs/answers.md, and its figure, docs/images/efficiency.svg.

    .venv/bin/python studies/published/answers.py -o docs/answers.md

``answers.md.j2`` is the page; every figure in it is computed here or by the scripts of results/experiments. Each sentence
has a footnote with the command that gives its figures.
"""

import argparse
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas
from pydantic import BaseModel

from harness import results
from harness.analysis import verdict as verdicts
from harness.analysis.scaling import Overhead, curves, io_overheads
from harness.core.emulation import profile
from harness.core.exchange import bytes_per_server, place
from harness.core.text import template
from harness.files import write_atomically
from harness.models import specification
from harness.prediction import fitting, forecast
from harness.prediction.basis import StartingPoint, basis
from harness.prediction.explain import HELPS, explain, seconds, sentences, size
from harness.prediction.fitting import Fit, mean_error
from harness.prediction.forecast import Basis, Prediction
from harness.prediction.holdout import HeldOut, condition, hold_out
from harness.prediction.observations import Observation, groups, informative
from harness.prediction.workload import Workload
from harness.report.page import static
from harness.report.page.figures import Axis, Figure, Series, Spot, Style
from harness.results import Result

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "results" / "experiments"
FOLDERS = ("steady", "caffe2", "causes")
COMMAND = ".venv/bin/python studies/published/answers.py -o docs/answers.md"
MODEL, BATCH = "inception3", 64
TENSORS = specification(MODEL).tensors
LARGEST = max(TENSORS, key=lambda tensor: tensor.bytes)
TOTAL_BYTES = sum(tensor.bytes for tensor in TENSORS)
DAINT, XLARGE, EIGHT, CORI = "Piz Daint XC50 P100", "EC2 p2.xlarge K80", "EC2 p2.8xlarge K80", "Cori KNL"
SYSTEMS = (DAINT, XLARGE, EIGHT)
# Of these one publication has servers and a toolkit, with the same TensorFlow.
ALIKE = ("64 Pascal, 16 servers x 4, 40 Gbit/s TCP (Uber)", "16 Pascal, 4 servers x 4, 25 Gbit/s RoCE (Uber)")
HELD_OUT = "workers>32"
SLICE_BYTES = 2**20
SERVERS, REPLICATED, HOROVOD, CAFFE2 = (
    Workload(backend, MODEL, BATCH) for backend in ("parameter_server", "distributed_replicated", "horovod", "caffe2")
)
# The contenders on Daint, each with the transport that its network is taken from.
WAYS: dict[str, tuple[Workload, str | None]] = {
    "servers": (SERVERS, None),
    "slices": (SERVERS.sliced(), None),
    "replicas": (REPLICATED, None),
    "sliced replicas": (REPLICATED.sliced(), None),
    "mpi": (HOROVOD, "mpi"),
    "nccl": (HOROVOD, "nccl"),
    "caffe2": (CAFFE2, None),
}
# The goal of the law's mean error on all sizes. The page has the goal above 32 workers.
GOAL_ALL = 0.03
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # of the figure


def page() -> str:
    """The page as Markdown. ``answers.md.j2`` may use all that this module has, by the same names."""
    notes: dict[str, int] = {}

    def note(command: str) -> str:
        """The mark of the footnote with ``command``, which stands there once, in the order of first use."""
        return f"[^{notes.setdefault(command, len(notes) + 1)}]"

    text = template(Path(__file__).with_name("answers.md.j2")).render(
        globals() | {"seconds": seconds, "size": size}, note=note, commands=notes
    )
    body, mark, footnotes = text.partition("\n[^1]: ")
    return re.sub(r"(?<=\d)%", " %", body) + mark + footnotes


# --- measurements, and fits to them ---


@cache
def published() -> list[Result]:
    return results.load(["reference"])


@cache
def fit(system: str, transport: str = "grpc") -> Fit:
    """The fit to the results that were published about ``system`` over ``transport``, with the software of most points."""
    every, _ = groups([run for run in published() if run.system == system])
    alike = [group for group in every if group.key.transport == transport and informative(group.observations)]
    return fitting.fit(max(alike, key=lambda group: len(group.observations)))


def held_out(fitted: Fit, unseen: str = HELD_OUT) -> HeldOut | None:
    return hold_out(fitted.group, condition(unseen))


def measured(workers: int, system: str = DAINT) -> Observation:
    """The published run of 2017 on so many workers."""
    return next(run for run in fit(system).group.observations if run.workers == workers)


def efficiency(workers: int, system: str = DAINT) -> float:
    """The measured one, relative to one worker."""
    run = measured(workers, system)
    assert run.single_s is not None
    return run.single_s / run.step_s


@cache
def verdict_on(system: str) -> verdicts.Verdict:
    return verdicts.verdict([run for run in published() if run.system == system])


def newer(nodes: int) -> verdicts.AtSize:
    """On so many nodes of Daint servers beside the fastest toolkit, which had a younger TensorFlow."""
    sizes = [size for toolkit in verdict_on(DAINT).comparisons for size in toolkit.sizes if size.workers == nodes]
    return max(sizes, key=lambda size: size.throughput_ratio.value)


def kept_by_mpi() -> float:
    """The share of throughput per node on 2 nodes that Horovod over MPI keeps on 128."""
    few, *_, many = fit(DAINT, "mpi").group.observations
    return many.img_per_s / many.workers / (few.img_per_s / few.workers)


def alike() -> list[tuple[str, verdicts.ComparedContender]]:
    """Toolkits that were published beside servers, and their system."""
    return [(system, toolkit) for system in ALIKE for toolkit in verdict_on(system).comparisons if toolkit.sizes]


def ahead(transport: str) -> list[float]:
    """The ratio of the img/s of each such toolkit over ``transport`` to those of servers, at its largest size."""
    toolkits = [toolkit for _, toolkit in alike() if toolkit.facets["transport"] == transport]
    return [toolkit.sizes[-1].throughput_ratio.value for toolkit in toolkits]


def searches_lost() -> list[float]:
    """The ratio, by the law, of the step that lost each published search to the one that won it."""
    return [longer for system in SYSTEMS for _, longer in fit(system).searches]


def met() -> int:
    """The number of systems with servers on which the law errs by no more than the goal."""
    return sum(mean_error(fit(system).errors) <= GOAL_ALL for system in SYSTEMS)


def worst(errors: Sequence[float]) -> float:
    return max(errors, key=abs)


# --- predictions from them ---


@cache
def start_on(system: str, workload: Workload, transport: str | None = None) -> Basis:
    return basis([run for run in published() if run.system == system], workload, StartingPoint(transport))


def start(way: str) -> Basis:
    return start_on(DAINT, *WAYS[way])


@cache
def best(way: str, nodes: int) -> Prediction:
    return forecast.best(WAYS[way][0], start(way), [nodes])[0]


def at(way: str, nodes: int, ps: int) -> Prediction:
    return forecast.at(WAYS[way][0], start(way), nodes, ps)


def gain(old: str, new: str, nodes: int) -> tuple[float, float, float]:
    """The ratio of the img/s of ``new`` to those of ``old``, with its interval, each with its best number of servers."""
    before, after = ((WAYS[way][0], start(way), best(way, nodes).ps) for way in (old, new))
    return forecast.gain(before, after, nodes)


def slices_in_no_order(nodes: int) -> Prediction:
    """Slices on the best number of servers, if parameters came in no order."""
    ordered = start("servers")
    unordered = replace(ordered, draws=None, parameters=replace(ordered.parameters, ordered=0.0))
    return forecast.best(SERVERS.sliced(), unordered, [nodes])[0]


def binding(workers: int, system: str = DAINT) -> str:
    """The cause that binds the step that was published for so many workers, as the beginning of a sentence."""
    run = measured(workers, system)
    workload = replace(run.workload, as_in_2017=False)
    return sentences(explain(workload, start_on(system, workload), run.nodes, run.ps))[0]


@cache
def search(nodes: int) -> dict[int, float]:
    """The predicted img/s on so many nodes, by all possible numbers of servers."""
    counts, steps = forecast.sweep(SERVERS, start("servers"), [nodes])
    return dict(zip(counts, (nodes * BATCH / steps[:, 0]).tolist(), strict=True))


def good(nodes: int) -> list[int]:
    """The numbers of servers that are within 2 % of the best."""
    rates = search(nodes)
    return [ps for ps, rate in rates.items() if rate * HELPS >= max(rates.values())]


# --- bytes on servers ---


@cache
def held(strategy: str, ps: int) -> list[int]:
    """Bytes on each of so many servers."""
    return bytes_per_server(place(TENSORS, ps, strategy, SLICE_BYTES), ps)


def enough_for(factor: float) -> int:
    """The fewest servers of which the fullest holds no more than ``factor`` times the largest tensor."""
    return next(ps for ps in range(1, len(TENSORS) + 1) if max(held("greedy", ps)) <= factor * LARGEST.bytes)


def share_of_kernels() -> float:
    """The least share of all bytes that half of the servers hold, dealt in turn to an even number of up to 12."""
    dealt = [held("round_robin", ps) for ps in range(2, 13, 2)]
    return min(max(sum(servers[0::2]), sum(servers[1::2])) for servers in dealt) / TOTAL_BYTES


# --- real images ---


@cache
def overheads() -> dict[int, Overhead]:
    """The share of the synthetic img/s that real images cost servers on Daint, by nodes."""
    software = fit(DAINT).group.key.software
    runs = [run for run in published() if (run.system, run.software) == (DAINT, software)]
    ((_, sizes),) = io_overheads(curves(runs, by="family"))
    return {size.workers: size for size in sizes}


def slower_workers() -> float:
    """The median share of one worker's step by which real images make a step longer on 8 to 64 nodes."""
    sizes = overheads()
    added = [
        nodes / sizes[nodes].real.img_per_s - nodes / sizes[nodes].synthetic.img_per_s for nodes in (8, 16, 32, 64)
    ]
    return statistics.median(added) * sizes[1].synthetic.img_per_s


# --- experiments ---


class Finding(BaseModel):
    """The answer to a question, and the figures that it rests on: ratios with their intervals, or shares."""

    name: str
    question: str
    answer: str
    figures: dict[str, float | tuple[float, float, float]]


class Analysis(BaseModel):
    """An experiment's findings, and the script that writes them."""

    experiment: str
    script: str
    findings: list[Finding]


@cache
def analysis(folder: str) -> Analysis:
    return Analysis.model_validate_json((EXPERIMENTS / folder / "analysis.json").read_text(encoding="utf-8"))


def figures(folder: str, finding: str) -> dict[str, float | tuple[float, float, float]]:
    return next(known.figures for known in analysis(folder).findings if known.name == finding)


def ratios(folder: str, finding: str) -> dict[str, str]:
    """The ratios of a finding by their names, each with its interval."""
    values = {name: value for name, value in figures(folder, finding).items() if isinstance(value, tuple)}
    return {name: f"{value:.2f} × [{low:.2f}, {high:.2f}]" for name, (value, low, high) in values.items()}


def ratio(folder: str, finding: str, begins: str) -> str:
    """The figure of a finding whose name begins so."""
    return next(text for name, text in ratios(folder, finding).items() if name.startswith(begins))


@cache
def steps_s(ways: str) -> dict[int, float]:
    """The shortest steady step by nodes, of points of the model whose way matches a pattern, on links of 2.25 GB/s."""
    points = pandas.concat([pandas.read_csv(EXPERIMENTS / folder / "points.csv") for folder in FOLDERS])
    alike = points[(points["links"] == 2.25) & (points["model"] == MODEL) & points["way"].str.contains(ways)]
    shortest = alike.groupby("nodes")["step_s"].min()
    return dict(zip(shortest.index, shortest, strict=True))


def device_s() -> float:
    """Seconds that the emulated device computes in a step."""
    device = profile("p100").steps[MODEL]
    assert device.batch_size == BATCH
    return device.batch_size / device.img_per_s


def emulated(ways: str) -> list[Spot]:
    return [Spot(nodes, device_s() / seconds) for nodes, seconds in steps_s(ways).items()]


def efficiencies() -> Figure:
    """The figure: efficiency on 1 to 512 nodes, published, emulated and predicted."""
    published = [Spot(nodes, efficiency(nodes)) for nodes in (2, 4, 8, 16, 32, 64, 128)]
    servers, mpi = ([Spot(nodes, best(way, nodes).efficiency) for nodes in SIZES] for way in ("servers", "mpi"))
    series = [
        Series("servers in 2017, published", "curve", published, Style("c7")),
        Series(
            "whole tensors, settings of 2017, emulated",
            "curve",
            emulated("whole, 2017's number, in order"),
            Style("c0", "circle"),
        ),
        Series("slices on servers, emulated", "curve", emulated("slices, in order"), Style("c2", "diamond")),
        Series("allreduce, emulated", "curve", emulated("^(?:pytorch|caffe2|horovod)"), Style("c5", "triangle-up")),
        Series("servers with whole tensors, predicted", "line", servers, Style("c0", dash="dash")),
        Series("Horovod over MPI, predicted", "line", mpi, Style("c5", dash="dot")),
    ]
    ticks = tuple((float(nodes), str(nodes)) for nodes in SIZES)
    x, y = Axis("nodes", "log", ticks), Axis("scaling efficiency", "linear", percent=True, from_zero=True)
    return Figure("efficiency", "", "", x, y, series)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "answers.md", help="file to write")
    file = parser.parse_args().output
    write_atomically(file, page())
    static.write([efficiencies()], file.parent / "images", ["svg"])


if __name__ == "__main__":
    main()

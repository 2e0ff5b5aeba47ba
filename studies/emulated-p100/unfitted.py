"""What kernels on 4 nodes, and one worker alone, predict of trainings: no parameter is fitted to any training.

    .venv/bin/python studies/emulated-p100/unfitted.py networks     # kernels over links of 50 and 100 MB/s
    .venv/bin/python studies/emulated-p100/unfitted.py predict      # unfitted.csv, committed before the next line is run
    .venv/bin/python studies/emulated-p100/measure.py studies/emulated-p100/unfitted.toml -o runs/unfitted
    .venv/bin/python studies/emulated-p100/unfitted.py analyse > results/experiments/unfitted/index.md

Predictions are those of `harness predict --network`, at the dilation of each point. One worker alone is that of the same
backend in results/experiments/emulated-p100; docs/scaling-model.md has what came of it.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from measure import CLUSTER, HARNESS, MEASURED, ROOT, Part, parts, without_names
from predictions import complete, of_row, points

from harness import results
from harness.core.spec import RunSpec
from harness.prediction import basis, forecast
from harness.records.kernel import KernelRecord
from harness.results import kernels

HERE = Path(__file__).parent
STUDY, PREDICTIONS = HERE / "unfitted.toml", HERE / "unfitted.csv"
RECORDS = ROOT / "results" / "experiments" / "unfitted"
NETWORKS = RECORDS / "networks"
MEGABYTES = (50, 100)  # per second of the cluster's own time
OVER = (
    "pytorch:mpi,pytorch:gloo,horovod:torch:mpi,multi_worker_mirrored,parameter_server,"
    "torch_parameter_server:gloo,torch_parameter_server:mpi"
)
FIELDS = ("links_gb_per_s", "dilation", "model", "nodes", "point", "id", "step_s", "low_s", "high_s", "single_s")


def networks(output: Path) -> int:
    """Measure the kernels on 4 nodes over links of each rate, and keep the records."""
    for rate in MEGABYTES:
        state = ["--state", "/tmp/harness-unfitted"]  # noqa: S108
        folder = output / f"{rate}MBps"
        call = [*HARNESS, "network", "--nodes", "4", "--site", f"{state[1]}/site.toml", "--backends", OVER]
        call += ["--bytes", "4KiB,32MiB", "--warmup", "1", "--steps", "4", "--repeats", "2", "--threads", "1"]
        try:
            subprocess.run([*CLUSTER, "up", *state, "--nodes", "4", "--rate", f"{rate * 8}mbit"], check=True)
            subprocess.run([*call, "--output", str(folder)], check=True)
        finally:
            subprocess.run([*CLUSTER, "down", *state], check=True)
        for file in folder.glob("*/kernel.json"):
            kept = NETWORKS / folder.name / file.parent.name
            kept.mkdir(parents=True, exist_ok=True)
            KernelRecord.model_validate_json(without_names(file.read_text(), output)).write(kept)
    return 0


def asked() -> Iterator[tuple[Part, str, RunSpec]]:
    """Every point: its part, its id, and its complete spec."""
    for part in parts(STUDY):
        for point in points(part.name, part.tables):
            yield part, point.id, complete(point.spec)


def named(spec: RunSpec) -> str:
    options = (f" {name} {spec.options[name]}" for name in ("ps", "order") if name in spec.options)
    return f"{spec.backend}:{spec.framework}:{spec.transport}{''.join(options)}"


@cache
def carried(rate: float) -> Any:
    return kernels.load([NETWORKS / f"{rate:g}MBps"])


@cache
def alone() -> Any:
    """Runs that were measured for another study, some of them on one worker, with the ``window`` of each."""
    runs = results.load([MEASURED / "whole"])
    return runs.assign(window=[json.loads(options).get("window") for options in runs["options"]])


def predicted(part: Part, spec: RunSpec) -> tuple[forecast.Prediction, float]:
    """What `harness predict` says, and one worker's step (s)."""
    what, ones = forecast.described(spec.model_copy(update={"device": "auto"})), alone()
    alike = (ones["backend"] == spec.backend) & (ones["transport"] == spec.transport)
    if "window" in spec.options:
        alike &= ones["window"] == spec.options["window"]
    single, *_ = basis.alone(ones[alike], what)
    links, dilation = part.links.rate, part.links.dilation
    start = basis.Start(
        spec.transport, spec.device, single, kernels=carried(links / dilation * 1000), dilation=dilation
    )
    found = basis.chosen(what, start, None)
    return forecast.at(what, found, spec.nodes, spec.options.get("ps", 0)), spec.batch_size / single


def predict(where: Path) -> int:
    with where.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(FIELDS)
        for part, identity, spec in asked():
            found, single_s = predicted(part, spec)
            images = spec.nodes * spec.batch_size
            steps = (f"{each:.4f}" for each in (found.step_s, images / found.high, images / found.low, single_s))
            rows.writerow(
                [part.links.rate, f"{part.links.dilation:g}", spec.model, spec.nodes, named(spec), identity, *steps]
            )
    return 0


def analyse(records: Path) -> int:
    """Print the page: errors, coverage, what it costs to follow the predictions, and rivals' errors."""
    found = measured(records)
    points = [each for each in found if each["measured_s"]]
    lines = [
        "# Predicted from kernels and one worker, with nothing fitted",
        "",
        f"Made by `studies/emulated-p100/unfitted.py analyse` from {len(points)} of {len(found)} trainings on **emulated** "
        "P100s, all predicted before they were run (`studies/emulated-p100/unfitted.csv`).",
        "",
        "| predicted by | trainings | mean error | 95th percentile | worst | in the 90 % interval |",
        "|---|---|---|---|---|---|",
        error_row("`harness predict --network --single`", points),
        *(error_row(f"the same, {name}", chosen) for name, chosen in groups(points)),
        error_row("linear: the step of one worker", points, "single_s"),
    ]
    again = rivals(points)
    for name, which in (
        ("`harness predict`, where 4 nodes were measured, too", "step_s"),
        ("a + b · log2 N, from 1 and 4 nodes", "logarithmic_s"),
        ("the universal scalability law, from 1 and 4 nodes", "scalability_s"),
    ):
        lines.append(error_row(name, again, which))
    lost = regret(points)
    lines += [
        "",
        "- Whoever takes the way and the number of servers that are predicted to be fastest loses "
        f"{fmean(lost):.1%} on average and {max(lost):.1%} at most against the fastest that was measured "
        f"({len(lost)} choices).",
        "",
        "| links, GB/s | dilation | model | nodes | training | predicted, s | 90 % interval | measured, s | error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        told = [f"{each['measured_s']:.3f}", f"{off(each):+.1%}"] if each["measured_s"] else ["–", "–"]
        about = [f"{each['links_gb_per_s']:g}", each["dilation"], each["model"], str(each["nodes"]), each["point"]]
        interval = f"{each['low_s']:.3f} – {each['high_s']:.3f}"
        lines.append("| " + " | ".join([*about, f"{each['step_s']:.3f}", interval, *told]) + " |")
    print("\n".join(lines))
    return 0


def measured(records: Path) -> list[dict[str, Any]]:
    """Every prediction with the step that was measured, None where there is none."""
    steps = {}
    run: Any
    for run in results.load([records]).itertuples():
        spec, rate = of_row(run)
        at = (rate, f"{spec.dilation:g}", spec.model, spec.nodes, named(spec))
        steps[at] = spec.workers * spec.batch_size / run.img_per_s
    found = []
    for said in csv.DictReader(PREDICTIONS.open()):
        each: dict[str, Any] = {**said, "nodes": int(said["nodes"])}
        each |= {name: float(said[name]) for name in ("links_gb_per_s", "step_s", "low_s", "high_s", "single_s")}
        at = (each["links_gb_per_s"], each["dilation"], each["model"], each["nodes"], each["point"])
        found.append(each | {"measured_s": steps.get(at)})
    return found


def error_row(name: str, points: Sequence[dict[str, Any]], which: str = "step_s") -> str:
    errors = [off(each, which) for each in points]
    mean, p95 = fmean(map(abs, errors)), float(np.quantile(np.abs(errors), 0.95))
    inside = fmean(each["low_s"] <= each["measured_s"] <= each["high_s"] for each in points)
    covered = f"{inside:.0%}" if which == "step_s" else "–"
    return f"| {name} | {len(points)} | {mean:.1%} | {p95:.1%} | {max(errors, key=abs):+.1%} | {covered} |"


def off(each: dict[str, Any], which: str = "step_s") -> float:
    return float(each[which] / each["measured_s"] - 1)


def groups(points: Sequence[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Points by their backend."""
    alike = defaultdict(list)
    for each in points:
        alike[each["point"].partition(":")[0]].append(each)
    return sorted(alike.items())


def rivals(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points on 8 nodes of which 4 were measured, with what two curves through 1 and 4 nodes say of them."""
    few = {(each["model"], each["links_gb_per_s"], each["point"]): each for each in points if each["nodes"] == 4}
    found = []
    for each in points:
        if each["nodes"] == 8 and (other := few.get((each["model"], each["links_gb_per_s"], each["point"]))):
            more = other["measured_s"] - (one := each["single_s"])
            found.append(each | {"logarithmic_s": one + more / 2 * 3, "scalability_s": one + more / 3 * 7})
    return found


def regret(points: Sequence[dict[str, Any]]) -> list[float]:
    """By how much longer the step of the predicted best is than that of the fastest, where several were measured."""
    alike = defaultdict(list)
    for each in points:
        alike[each["model"], each["links_gb_per_s"], each["nodes"]].append(each)
    return [
        min(those, key=lambda one: one["step_s"])["measured_s"] / min(one["measured_s"] for one in those) - 1
        for those in alike.values()
        if len(those) > 1
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("networks", "predict", "analyse"))
    parser.add_argument(
        "where", nargs="?", type=Path, help="of records to analyse, for those of kernels, or for predictions"
    )
    options = parser.parse_args()
    if options.what == "predict":
        return predict(options.where or PREDICTIONS)
    if options.what == "networks":
        return networks((options.where or ROOT / "runs" / "unfitted").resolve())
    return analyse(options.where or RECORDS)


if __name__ == "__main__":
    sys.exit(main())

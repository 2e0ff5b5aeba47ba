"""What kernels on 4 nodes, and one worker alone, predict of trainings: no parameter is fitted to any training.

    .venv/bin/python studies/emulated-p100/unfitted.py networks     # kernels over links of 50 and 100 MB/s
    .venv/bin/python studies/emulated-p100/unfitted.py predict      # unfitted.csv, committed before the next line is run
    .venv/bin/python studies/emulated-p100/measure.py studies/emulated-p100/unfitted.toml -o runs/unfitted
    .venv/bin/python studies/emulated-p100/unfitted.py analyse > results/experiments/unfitted/index.md

Predictions are those of `harness predict --network`, at the dilation of each point. One worker alone was measured before
(results/experiments/unfitted/alone). docs/scaling-model.md has what came of it.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from measure import CLUSTER, EXPERIMENTS, HARNESS, ROOT, Part, parts, without_names
from predictions import complete, of_run, points

from harness import results
from harness.core.emulation import emulation
from harness.core.spec import RunSpec
from harness.prediction import basis, forecast
from harness.prediction.parameters import PAYLOAD
from harness.records.kernel import KernelRecord
from harness.results import Result

HERE = Path(__file__).parent
STUDY, PREDICTIONS = HERE / "unfitted.toml", HERE / "unfitted.csv"
KEPT = EXPERIMENTS / "unfitted"
ALONE, NETWORKS, RECORDS = KEPT / "alone", KEPT / "networks", KEPT / "trainings"
MEGABYTES = (50, 100)  # per second of the cluster's own time
OVER = (
    "pytorch:mpi,pytorch:gloo,horovod:torch:mpi,multi_worker_mirrored,parameter_server,"
    "torch_parameter_server:gloo,torch_parameter_server:mpi"
)
BINDS = 1.05  # times the device's own step: up to that compute hides the network
LINES = "two_lines_s"
FIELDS = ("links_gb_per_s", "dilation", "model", "nodes", "point", "id", "step_s", "low_s", "high_s", "single_s")


def networks(output: Path) -> int:
    """Measure the kernels on 4 nodes over links of each rate, and keep the records."""
    for rate in MEGABYTES:
        state = ["--state", "/tmp/harness-unfitted"]  # noqa: S108
        folder = output / f"{rate}MBps"
        call = [*HARNESS, "kernel", "network", "--nodes", "4", "--site", f"{state[1]}/site.toml", "--backend", OVER]
        call += ["--bytes", "4KiB,32MiB", "--warmup", "1", "--steps", "4", "--repeats", "2", "--threads", "1"]
        try:
            subprocess.run([*CLUSTER, "up", *state, "--nodes", "4", "--rate", f"{rate * 8}mbit"], check=True)
            subprocess.run([*call, "--output", str(folder)], check=True)
        finally:
            subprocess.run([*CLUSTER, "down", *state], check=True)
        for file in folder.glob("*/kernel.json"):
            kept = NETWORKS / folder.name / file.parent.name
            kept.mkdir(parents=True, exist_ok=True)
            without_names(KernelRecord.read(file), output).write(kept)
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
def carried(rate: float) -> Sequence[Result]:
    return results.load([NETWORKS / f"{rate:g}MBps"])


@cache
def alone() -> Sequence[Result]:
    """Runs on one worker."""
    return results.load([ALONE])


def predicted(part: Part, spec: RunSpec) -> tuple[forecast.Prediction, float]:
    """What `harness predict` says, and one worker's step (s)."""
    what = forecast.described(spec.model_copy(update={"device": "auto"}))
    # Without an order nobody ran alone: the run with a window of 8 pieces, in order, stands in for it.
    window = 8 if spec.options.get("order") == "none" else spec.options.get("window")
    way = (spec.backend, spec.transport, window)
    alike = [run for run in alone() if (run.backend, run.transport, run.options.get("window")) == way]
    single, *_ = basis.alone(alike, what)
    links, dilation = part.links.rate, part.links.dilation
    start = basis.StartingPoint(
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
    """Print the page: errors beside those of two lines, coverage, and what it costs to follow the predictions."""
    found = measured(records)
    points = [each for each in found if each["measured_s"]]
    hidden = [each for each in points if each["measured_s"] <= BINDS * each["device_s"]]
    servers, rings = ([each for each in points if (" ps " in each["point"]) == with_ps] for with_ps in (True, False))
    kinds = {
        "all": points,
        "parameter servers": servers,
        "an allreduce": rings,
        f"at most {BINDS:g} × the device's own step": hidden,
        "longer": [each for each in points if each not in hidden],
    }
    lines = [
        "# Predicted from kernels and one worker, with nothing fitted",
        "",
        f"Made by `studies/emulated-p100/unfitted.py analyse` from {len(points)} of {len(found)} trainings on **emulated** "
        "P100s, all predicted before they were run (`studies/emulated-p100/unfitted.csv`).",
        "",
        "These are new trainings, but not a new law. All 61 configurations had been measured the day before, on links that "
        "connections shared unevenly (commit 5d16b15). After 27 of those trainings the cost of a message was removed from "
        "the law, because it made predictions too slow. So these points are no independent test of that choice.",
        "",
        "Beside each prediction stands that of two lines: max(forward, b / R) + max(backward, b / R) with servers, and "
        "max(step, forward + 2 (n − 1) / n · B / R) around a ring. They know one worker's step and the links' nominal rate "
        "R, without the headers of frames. The fullest server exchanges b bytes with other nodes; a model has B bytes.",
        "",
        "| trainings | number | law | mean error | 95th percentile | worst | in the 90 % interval |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, chosen in kinds.items():
        lines += [error_row(name, "`harness predict`", chosen), error_row(name, "two lines", chosen, LINES)]
    lost, by_lines = (regret(points, which) for which in ("step_s", LINES))
    lines += [
        "",
        f"- With servers `harness predict` hardly adds to two lines: its mean error is {mean(servers)} where theirs is "
        f"{mean(servers, LINES)}. They are closer in {closer(servers)} of {len(servers)} trainings, and in "
        f"{closer(points)} of all {len(points)}.",
        f"- For an allreduce it errs by {mean(rings)} where two lines err by {mean(rings, LINES)}. It starts from what "
        "kernels measured of each transport, and from when each layer's gradient exists.",
        f"- Of {len(points)} trainings {len(hidden)} take at most {BINDS:g} times as long as the device by itself. Any law "
        f"that says that compute binds is right there: two lines err by {mean(hidden, LINES)}.",
        "- `harness predict` also gives intervals, and names the server and the tensor that a step waits for.",
        "- Whoever takes the way and the number of servers that are predicted to be fastest loses "
        f"{fmean(lost):.1%} on average and {max(lost):.1%} at most against the fastest that was measured "
        f"({len(lost)} choices); by two lines {fmean(by_lines):.1%} and {max(by_lines):.1%}.",
        "",
        "| links, GB/s | dilation | model | nodes | training | predicted, s | 90 % interval | measured, s | error | "
        "two lines, s | error |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        told = [f"{each['measured_s']:.3f}", f"{off(each):+.1%}"] if each["measured_s"] else ["–", "–"]
        told += [f"{each[LINES]:.3f}", f"{off(each, LINES):+.1%}" if each["measured_s"] else "–"]
        about = [f"{each['links_gb_per_s']:g}", each["dilation"], each["model"], str(each["nodes"]), each["point"]]
        interval = f"{each['low_s']:.3f} – {each['high_s']:.3f}"
        lines.append("| " + " | ".join([*about, f"{each['step_s']:.3f}", interval, *told]) + " |")
    print("\n".join(lines))
    return 0


def measured(records: Path) -> list[dict[str, Any]]:
    """Every prediction with that of two lines, and with the step that was measured, None where there is none."""
    steps = {}
    for run in results.load([records]):
        spec, rate = of_run(run)
        at = (rate, f"{spec.dilation:g}", spec.model, spec.nodes, named(spec))
        steps[at] = spec.workers * spec.batch_size / run.img_per_s
    specs = {(part.links.rate, identity): spec for part, identity, spec in asked()}
    found = []
    for said in csv.DictReader(PREDICTIONS.open()):
        each: dict[str, Any] = {**said, "nodes": int(said["nodes"])}
        each |= {name: float(said[name]) for name in ("links_gb_per_s", "step_s", "low_s", "high_s", "single_s")}
        at = (each["links_gb_per_s"], each["dilation"], each["model"], each["nodes"], each["point"])
        spec = specs[each["links_gb_per_s"], each["id"]]
        law = forecast.described(spec.model_copy(update={"device": "auto"})).law(spec.options.get("ps", 0))
        device, rate = emulation(spec), each["links_gb_per_s"] * 1e9 * PAYLOAD
        assert device
        two_lines_s = law.two_lines_s(spec.nodes, each["single_s"], device.forward_share, rate)
        found.append(each | {"measured_s": steps.get(at), "device_s": device.step_s, LINES: two_lines_s})
    return found


def error_row(name: str, law: str, points: Sequence[dict[str, Any]], which: str = "step_s") -> str:
    errors = [off(each, which) for each in points]
    p95 = float(np.quantile(np.abs(errors), 0.95))
    inside = fmean(each["low_s"] <= each["measured_s"] <= each["high_s"] for each in points)
    covered = f"{inside:.0%}" if which == "step_s" else "–"
    worst = max(errors, key=abs)
    return f"| {name} | {len(points)} | {law} | {mean(points, which)} | {p95:.1%} | {worst:+.1%} | {covered} |"


def off(each: dict[str, Any], which: str = "step_s") -> float:
    return float(each[which] / each["measured_s"] - 1)


def mean(points: Sequence[dict[str, Any]], which: str = "step_s") -> str:
    return f"{fmean(abs(off(each, which)) for each in points):.1%}"


def closer(points: Sequence[dict[str, Any]]) -> int:
    """In how many points two lines err less."""
    return sum(abs(off(each, LINES)) < abs(off(each)) for each in points)


def regret(points: Sequence[dict[str, Any]], which: str) -> list[float]:
    """By how much longer the step of the predicted best is than that of the fastest, where several were measured."""
    alike = defaultdict(list)
    for each in points:
        alike[each["model"], each["links_gb_per_s"], each["nodes"]].append(each)
    return [
        min(those, key=lambda one: one[which])["measured_s"] / min(one["measured_s"] for one in those) - 1
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

"""What would be done, or was submitted to be done later: specs, launch plans, studies."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.plan import Process
from harness.core.spec import SYNTHETIC, RunSpec
from harness.core.text import plural
from harness.launch.script import BatchJob, Step
from harness.report.text.table import table
from harness.running.run import Run

if TYPE_CHECKING:
    from harness.running import campaign


def describe(spec: RunSpec) -> str:
    """A completed spec in one line."""
    options = " ".join(f"{name}={value}" for name, value in spec.options.items())
    return (
        f"{spec.backend} ({spec.framework}) · {spec.model} · {plural(spec.nodes, 'node')} × {spec.devices_per_node} "
        f"{spec.device} · batch {spec.batch_size} per device · {spec.image_size} px · {_data(spec)} · "
        f"{spec.transport} · {spec.precision} · {spec.threads} threads · {options}"
    )


def equal_terms(spec: RunSpec) -> str:
    """What is the same for all runs of a comparison, in one line."""
    return (
        f"{spec.model}, {_data(spec)}, {spec.image_size} px, batch {spec.batch_size} per device, "
        f"{spec.precision}, {spec.device}; "
        f"{spec.warmup_steps} warm-up and {spec.steps} measured steps, {spec.repeats} repeats in fresh processes"
    )


def _data(spec: RunSpec) -> str:
    return "synthetic data" if spec.data == SYNTHETIC else f"images from {spec.data}"


def plan(run: Run) -> str:
    """A launch plan for people: the common environment once, then every process with what is its own."""
    launch = run.plan
    first = launch.processes[0].env
    common = {k: v for k, v in first.items() if all(process.env.get(k) == v for process in launch.processes)}
    lines = [
        describe(run.spec),
        f"run directory: {run.folder}",
        "environment of every process: " + shlex.join(f"{name}={value}" for name, value in common.items()),
        "",
        f"{'index':>5}  {'role':6} {'rank':>4}  {'node':>4}  {'host':12} {'listens on':21} command (with --repeat K)",
        *(_process(process, common) for process in launch.processes),
    ]
    if servers := launch.details.get("servers"):
        lines += ["", "parameters on each parameter server:"]
        lines += [
            f"{'ps':>9} {server['ps']:>4}  {server['bytes'] / 1e6:10.3f} MB in {server['pieces']} pieces"
            for server in servers
        ]
    return "\n".join(lines)


def _process(process: Process, common: dict[str, str]) -> str:
    own = [f"{name}={value}" for name, value in process.env.items() if name not in common]
    where = f"{process.role:6} {process.rank:>4}  {process.node:>4}  {process.host:12}"
    listens = f"{process.address}:{process.port}"
    return f"{process.index:>5}  {where} {listens:21} {shlex.join([*own, *process.argv])}"


def submitted(jobs: Sequence[tuple[Path, str]], by_hand: bool) -> str:
    """What was submitted, and how to go on."""
    if by_hand:
        return "\n".join(f"sbatch {path}" for path, _ in jobs)
    lines = [f"job {number}: {path}" for path, number in jobs]
    return "\n".join([*lines, "harness status, harness collect and harness cancel take its run directories"])


def study(points: Sequence[campaign.PointStatus], jobs: Sequence[BatchJob], lanes: int, script: str) -> str:
    """What a study would do: its points, the jobs in their lanes, the first job's script."""
    parts = [table([("point", "state"), *((point.label, point.state) for point in points)]), counts(points)]
    if jobs:
        rows = [
            (str(number % lanes + 1), job.name, str(job.nodes), _repeats(job.steps)) for number, job in enumerate(jobs)
        ]
        queue = f"{plural(len(jobs), 'job')} in {plural(min(lanes, len(jobs)), 'lane')}, one at a time in each:"
        parts += [queue, table([("lane", "job", "nodes", "repeats"), *rows], right={0, 2})]
        parts += [f"the script of {jobs[0].name}:", script]
    return "\n\n".join(parts)


def counts(points: Sequence[campaign.PointStatus]) -> str:
    """``12 points: 8 completed, 3 queued, 1 failed``."""
    states = [point.state for point in points]
    of_each = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"{plural(len(points), 'point')}: {of_each}"


def _repeats(steps: Sequence[Step]) -> str:
    """Which repeats, of how many runs."""
    runs = len({step.run_dir for step in steps})
    numbers = sorted({step.repeat for step in steps})
    text = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
    return text + (f" of {runs} runs in turn" if runs > 1 else "")

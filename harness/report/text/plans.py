"""Plans as text: specs, launch plans, submitted jobs and studies."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.plan import Process
from harness.core.spec import SYNTHETIC, RunSpec
from harness.core.text import plural
from harness.report.text import launches
from harness.report.text.launches import SHOWN
from harness.report.text.table import table
from harness.running.run import Run

if TYPE_CHECKING:
    from harness.running import campaign


def describe(spec: RunSpec) -> str:
    options = " ".join(f"{name}={value}" for name, value in spec.options.items())
    scale = f", {spec.bytes_scale:g} of the bytes" if spec.bytes_scale != 1 else ""
    dilated = f" (dilation {spec.dilation:g}{scale})" if spec.emulated else ""
    nodes = f"{plural(spec.nodes, 'node')} × {spec.devices_per_node} {spec.device}{dilated}"
    threads = plural(spec.threads or 1, "thread")
    rest = " · ".join(filter(None, (spec.data_format.removeprefix("auto"), threads, options)))  # mpi4py has no options
    if spec.program:
        return f"{shlex.join(spec.program.command)} · {nodes} · {threads}"
    if spec.kernel:
        return f"{spec.subject} of {spec.backend} ({spec.framework}) · {nodes} · {spec.carrier} · {rest}"
    data = "synthetic data" if spec.data == SYNTHETIC else f"images from {spec.data}"
    return (
        f"{spec.backend} ({spec.framework}) · {spec.model} · {nodes} · batch {spec.batch_size} per device · "
        f"{spec.image_size} px · {data} · {spec.carrier} · {spec.precision} · {rest}"
    )


def plan(run: Run) -> str:
    """A launch plan for people: commands and common environment once, then processes with their own variables.

    ``SHOWN`` processes of each role are listed, and the fullest servers.
    """
    if run.spec.program:
        return launches.plan(run)
    launch = run.plan
    common, in_common = launches.common_environment([process.env for process in launch.processes])
    by_role: dict[str, list[Process]] = defaultdict(list)
    for process in launch.processes:
        by_role[process.role].append(process)
    commands: dict[str, list[str]] = defaultdict(list)  # without the index, that is: the roles that have each
    for role, processes in by_role.items():
        for command in dict.fromkeys(map(_command, processes)):
            commands[command].append(role)
    lines = [
        describe(run.spec),
        f"run directory: {run.folder}",
        *([f"checked before: {describe(run.preflight.spec)}"] if run.preflight else []),
        in_common,
    ]
    lines += [f"command of every {' and every '.join(roles)}: {command}" for command, roles in commands.items()]
    heading = f"{'index':>5}  {'role':6} {'rank':>4}  {'node':>4}  {'host':12} {'listens on':21}"
    lines += ["", f"{heading} environment of its own"]
    for role, processes in by_role.items():
        for process in processes[:SHOWN]:
            place = f"{process.index:>5}  {process.role:6} {process.rank:>4}  {process.node:>4}  {process.host:12}"
            listens, variables = f"{process.address}:{process.port}", launches.assignments(process.env, common)
            lines.append(f"{place} {listens:21} {variables}".rstrip())
        lines += _more(len(processes), role)
    if servers := launch.details.get("servers"):
        lines += ["", "parameters on the fullest parameter servers:"]
        for each in sorted(servers, key=lambda server: server["bytes"], reverse=True)[:SHOWN]:
            lines.append(f"{'ps':>9} {each['ps']:>4}  {each['bytes'] / 1e6:10.3f} MB in {each['pieces']} pieces")
        lines += _more(len(servers), "ps")
    return "\n".join(lines)


def _command(process: Process) -> str:
    """The command of a process, with words in capitals for its index and for the repeat."""
    before = ("", *process.argv)
    words = ["INDEX" if option == "--index" else word for option, word in zip(before, process.argv, strict=False)]
    return shlex.join([*words, "--repeat", "K"])


def _more(count: int, role: str) -> list[str]:
    return [] if count <= SHOWN else [f"{'…':>5}  {role:6} {count - SHOWN:,} more, in --json"]


def submitted(jobs: Sequence[tuple[Path, str]], by_hand: bool) -> str:
    if by_hand:
        return "\n".join(f"sbatch {path}" for path, _ in jobs)
    lines = [f"job {number}: {path}" for path, number in jobs]
    return "\n".join(
        [*lines, "harness jobs status, harness jobs collect and harness jobs cancel take its run directories"]
    )


def study_plan(points: Sequence[campaign.PointStatus], runs: Mapping[str, Run], queue: str) -> str:
    """The plan of a study: a line for each point, with the run of ``runs`` that is to measure it (by the point's id).

    ``queue`` says how they are queued, if they are.
    """
    rows = []
    for point in points:
        run = runs.get(point.entry.id)
        sizes = (str(run.plan.nodes), str(len(run.plan.processes))) if run else ("", "")
        rows.append((point.label, point.state, *sizes))
    return f"{table([('point', 'state', 'nodes', 'processes'), *rows], right={2, 3})}\n\n{counts(points)}{queue}"


def counts(points: Sequence[campaign.PointStatus]) -> str:
    """``12 points: 8 completed, 3 queued, 1 failed``."""
    states = Counter(point.state for point in points)
    return f"{plural(len(points), 'point')}: {', '.join(f'{count} {state}' for state, count in states.items())}"

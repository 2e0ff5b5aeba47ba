"""Programs that are not ours: the plan of their launch, and its outcome."""

import shlex
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from harness.core.text import duration, listed
from harness.records.launch import LaunchRecord, moved
from harness.running.run import Run
from harness.worker.agent import seating

SHOWN = 5  # processes of each role in a dry run


def processes(run: Run) -> list[dict[str, Any]]:
    """Each process of a launch with its host, role, arguments and the variables that tell it its place.

    On a batch system hosts and addresses stand for those that the job will get.
    """
    plan = run.plan.as_dict()
    return [
        {name: process[name] for name in ("index", "role", "rank", "host")}
        | {"argv": seating.arguments(plan, process), "env": process["env"] | seating.variables(plan, process)}
        for process in plan["processes"]
    ]


def common_environment(environments: Sequence[Mapping[str, str]]) -> tuple[Mapping[str, str], str]:
    """The variables that all have in common, and the line that says so."""
    first, *others = environments
    common = {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}
    return common, f"environment of every process: {assignments(common)}"


def assignments(environment: Mapping[str, str], left_out: Container[str] = ()) -> str:
    return shlex.join(f"{name}={value}" for name, value in environment.items() if name not in left_out)


def plan(run: Run) -> str:
    """The processes for people, ``SHOWN`` of each role; their common environment stands there once."""
    started = processes(run)
    common, in_common = common_environment([each["env"] for each in started])
    folders = [f"run directory: {run.folder}", f"folder of every process: {run.plan.details['folder']}"]
    lines = [*folders, in_common]
    counts: Counter[str] = Counter()
    for process in started:
        counts[process["role"]] += 1
        if counts[process["role"]] <= SHOWN:
            command = f"{process['role']} {process['rank']} on {process['host']}: {shlex.join(process['argv'])}"
            lines += ["", command, f"    {assignments(process['env'], common)}"]
    more = [f"{count - SHOWN:,} more of {role}" for role, count in counts.items() if count > SHOWN]
    return "\n".join([*lines, *(["", f"{listed(more)}, in --json"] if more else [])])


def summary(record: LaunchRecord, path: object) -> str:
    """The end of a program, and the img/s that it has printed, if those were asked for."""
    ranks = record.repeats[-1].ranks
    seconds = max(rank.seconds or 0.0 for repeat in record.repeats for rank in repeat.ranks)
    stopped = sum(rank.stopped for rank in ranks)
    ended = f"{len(ranks) - stopped} of {len(ranks)} processes with exit code 0, after {duration(seconds)}"
    ended += f"; {stopped} had to be ended then" if stopped else ""
    lines = [shlex.join(record.spec.program.command if record.spec.program else ()), f"  ended      {ended}"]
    for host, interface, counts in moved(ranks):
        both = f"{counts.sent / 1e6:.3f} MB sent, {counts.received / 1e6:.3f} MB received"
        lines.append(f"  carried    {host} {interface}: {both}")
    if figures := record.img_per_s:
        spread = f" ± {figures.ci95:.2f} (95 % CI)" if figures.ci95 is not None else ""
        clock = "by the program's own clock: not to be compared with `harness run`"
        lines.append(f"  img/s      {figures.mean:.2f}{spread} {clock}")
    return "\n".join([*lines, f"  record     {path}"])

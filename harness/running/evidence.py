"""What the processes of a repeat have reported, as parts of a record: what the kinds of work have in common."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from harness.errors import RunFailed
from harness.launch.watch import Followed, Watch
from harness.worker import machine
from harness.worker.agent.seating import Hosts


def reported(worker: Followed, *names: str) -> list[dict[str, Any]]:
    """A worker's reports of these ``names``, without what every report has.

    The worker has ended with code 0, so if a report is missing its trainer has a defect. Raises RunFailed.
    """
    if missing := set(names) - set(worker.events):
        raise RunFailed(f"worker rank {worker.process.rank} ended without reporting {', '.join(sorted(missing))}")
    return [content(worker.events[name]) for name in names]


def content(event: Mapping[str, Any]) -> dict[str, Any]:
    """A report without what every report has."""
    return {name: value for name, value in event.items() if name not in ("event", "time")}


def allotted(hosts: Hosts | None) -> dict[str, Any]:
    """The batch job that has carried a repeat out and its nodes, as fields of a record."""
    if hosts is None:
        return {}
    return {"job": hosts.job, "restart": hosts.restart, "nodes": [name for name, _ in hosts.nodes]}


def surroundings(watch: Watch | None, here: bool) -> dict[str, Any]:
    """Machine, software and variables as the first process has reported them, as fields of a record.

    Without a report they are those of this machine, if the run was to take place ``here``.
    """
    report = watch.followed[0].events["software"] if watch else {}
    return {
        "machine": report.get("machine") or (machine.describe() if here else {}),
        "software": {name: report[name] for name in ("python", "packages") if name in report},
        "variables": report.get("variables") or machine.relevant_variables(os.environ),
    }

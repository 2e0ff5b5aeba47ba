"""Which hosts the nodes of a plan turned out to be.

A plan for a batch system is made before there is an allocation, and numbers its nodes. Once a repeat has its hosts they are
written to ``repeat-K/hosts.json``, and whoever reads the plan for that repeat reads it through here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from harness.files import write_atomically

# Files of a run directory.
SPEC = "spec.json"  # is locked by whoever carries out the run here
PLAN = "plan.json"
SUBMISSION = "submission.json"  # its jobs, and what its record is called


@dataclass(frozen=True)
class Hosts:
    """The hosts of one repeat: (name, address) by the plan's node numbers, and the batch job that got them.

    ``restart`` counts how often the job was requeued before. ``started`` is ISO 8601 in UTC.
    """

    nodes: List[Tuple[str, str]]
    started: str
    job: Optional[str] = None
    restart: int = 0

    def write(self, repeat_dir: Path) -> None:
        write_atomically(repeat_dir / "hosts.json", json.dumps(vars(self)))

    @classmethod
    def read(cls, repeat_dir: Path) -> Optional[Hosts]:
        """The hosts of a repeat, None where the plan itself names them."""
        try:
            fields = json.loads((repeat_dir / "hosts.json").read_text())
        except FileNotFoundError:
            return None
        return cls(**{**fields, "nodes": [(name, address) for name, address in fields["nodes"]]})


def seated(plan: Dict[str, Any], hosts: Optional[Hosts]) -> Dict[str, Any]:
    """``plan`` (the JSON of ``plan.json``) with every process on its host."""
    if hosts is None:
        return plan
    processes = []
    for process in plan["processes"]:
        name, address = hosts.nodes[process["node"]]
        processes.append({**process, "host": name, "address": address})
    return {**plan, "processes": processes}


def folder_of(run_dir: Path, repeat: int) -> Path:
    return run_dir / f"repeat-{repeat}"


def plan_of(run_dir: Path, repeat: int) -> Dict[str, Any]:
    """The plan of a run directory, with every process on its host in this repeat."""
    return seated(json.loads((run_dir / PLAN).read_text()), Hosts.read(folder_of(run_dir, repeat)))


def name_of(process: Dict[str, Any]) -> str:
    """What the files of a process of the plan are called, for example ``worker-0``."""
    return f"{process['role']}-{process['rank']}"


def host_file(plan: Dict[str, Any]) -> str:
    """The host of every process of a seated plan, one per line: what Slurm's ``arbitrary`` distribution reads."""
    return "".join(process["host"] + "\n" for process in plan["processes"])

"""``harness run --site`` on the virtual cluster, as users type it, and what happens to it there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import FEW_STEPS, PATIENCE_S, SMALLEST, SOONEST, Finished
from tests.made import content

from .virtual import VirtualCluster

TINY = [*SMALLEST, "--threads", "1", "--timeout", "240"]
LONG = ["--warmup", "1", "--steps", "100000", "--repeats", "2"]

SITE = """
[[systems]]
name = "virtual"
modules_system = "nomod"

[[systems.partitions]]
name = "normal"
scheduler = "{scheduler}"
launcher = "srun"
access = ["--partition=normal"]
# MPICH's UCX is slow over plain TCP.
env_vars = [["MPIR_CVAR_CH4_NETMOD", "ofi"], ["FI_PROVIDER", "tcp"]]
processor = {{ num_cpus = 2 }}
resources = [{{ name = "gpu", options = ["--gres=gpu:{{num_gpus_per_node}}"] }}]
"""


class User:
    """A person at the head node, in a folder of their own."""

    def __init__(self, cluster: VirtualCluster, folder: Path, scheduler: str = "squeue") -> None:
        self.cluster, self.folder = cluster, folder
        self.site = folder / "site.toml"
        self.site.write_text(SITE.format(scheduler=scheduler))
        self.output = folder / "runs"

    def _argv(self, command: str, *arguments: str) -> list[str]:
        begins = command in ("run", "train", "kernel", "launch", "ab")
        at = ["--site", str(self.site), "--output", str(self.output)] if begins else []
        return [sys.executable, "-m", "harness", command, *at, *arguments]

    def harness(self, command: str, *arguments: str, timeout: float = PATIENCE_S, **environ: str) -> Finished:
        """A command, to its end."""
        return self.cluster.run(*self._argv(command, *arguments), timeout=timeout, **environ)

    def run(self, backend: str, *arguments: str) -> Finished:
        """``harness run`` with few steps; later arguments win."""
        return self.harness("run", "--backend", *backend.split(), *TINY, *FEW_STEPS, "--repeats", "1", *arguments)

    def begin(self, *arguments: str, steps: Sequence[str] = LONG) -> Waiting:
        """``harness run`` that somebody waits for, while it measures for long."""
        argv = self._argv("run", "--backend", SOONEST, "--nodes", "2", *TINY, *steps, *arguments)
        return Waiting(self, argv)

    def record(self) -> dict[str, Any]:
        """The only record that there is."""
        (path,) = self.output.glob("*/record.json")
        return content(path)


class Waiting:
    """A ``harness run`` that waits for its job."""

    def __init__(self, user: User, argv: Sequence[str]) -> None:
        self.user = user
        self.process = user.cluster.popen(
            *argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )

    @property
    def folder(self) -> Path:
        """Its run directory."""
        (folder,) = [path.parent for path in self.user.output.glob("*/submission.json")]
        return folder

    @property
    def job(self) -> str:
        """Its job's id."""
        return str(json.loads((self.folder / "submission.json").read_text())["jobs"][0][0])

    def reaches(self, process: str, phase: str, repeat: int = 1) -> None:
        """Wait until a process has reported a phase; a run that ends before it does, or keeps still, says why."""

        def reached() -> bool:
            files = self.user.output.glob(f"*/repeat-{repeat}/events/{process}.jsonl")
            if any(f'"event": "{phase}"' in file.read_text() for file in files):
                return True
            assert self.process.poll() is None, f"ended before {process} reached {phase}: {self.process.communicate()}"
            return False

        try:
            self.user.cluster.wait(reached, f"{process} reaches {phase}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._state()}") from None

    def _state(self) -> str:
        """What the processes and the logs say: the only witnesses once the cluster is gone."""
        logs = [
            path for path in sorted(self.user.output.rglob("*")) if path.suffix in (".log", ".out", ".jsonl", ".json")
        ]
        tails = [f"{path}: {path.read_text(errors='replace')[-600:]}" for path in logs]
        return "\n".join([str(self.user.cluster.processes()), *tails])

    def pid(self, process: str, repeat: int = 1) -> str:
        """The process's number within its node."""
        events = (self.folder / f"repeat-{repeat}" / "events" / f"{process}.jsonl").read_text().splitlines()
        return str(json.loads(events[0])["pid"])

    def end(self, timeout: float = PATIENCE_S) -> Finished:
        """Wait for its own end."""
        stdout, stderr = self.process.communicate(timeout=timeout)
        return Finished(self.process.returncode, stdout, stderr)


def nothing_is_left(cluster: VirtualCluster) -> None:
    """No process of any job is left on any node, nor a job in the queue."""
    cluster.settle()
    cluster.wait(lambda: not any(cluster.processes().values()), "no process is left")

"""The virtual Slurm cluster of ``cluster/cluster.py``, as tests use it: through its command line, like everybody."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import PATIENCE_S, Finished

PROGRAM = Path(__file__).parents[2] / "cluster" / "cluster.py"
# Reads a command, waits for the end of whoever sent it, and runs it: pytest-xdist kills its processes ten seconds after it
# is interrupted, which may be before a cluster is down. (As an argument the command would be taken for what is left of it.)
AFTERWARDS = "import json, subprocess, sys; sys.exit(subprocess.run(json.loads(sys.stdin.read())).returncode)"


class VirtualCluster:
    """One cluster, with a short state directory of its own under /tmp (unix sockets live in it)."""

    def __init__(self, *options: str) -> None:
        self.options = options
        self.rated = False  # whether somebody has changed the rate of links
        self.state = Path(tempfile.mkdtemp(prefix="hc-", dir="/tmp"))

    def up(self) -> None:
        """Start it; a test run without it would prove nothing, so that it cannot start is an error, never a skip."""
        self.guard = subprocess.Popen(
            [sys.executable, "-c", AFTERWARDS],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # out of reach of Ctrl-C
            text=True,
        )
        assert self.guard.stdin
        self.guard.stdin.write(json.dumps(self.argv("down")))
        self.guard.stdin.flush()
        started = self.control("up", *self.options)
        if started.code:
            raise RuntimeError(f"no virtual cluster: {started.stderr.strip()}")

    def down(self) -> None:
        self.control("down").succeeded()
        self.guard.communicate()
        shutil.rmtree(self.state, ignore_errors=True)

    def control(self, verb: str, *arguments: str, timeout: float = PATIENCE_S, **environ: str) -> Finished:
        """``cluster.py VERB``."""
        done = subprocess.run(
            self.argv(verb, *arguments), env={**os.environ, **environ}, capture_output=True, text=True, timeout=timeout
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def argv(self, verb: str, *arguments: str) -> list[str]:
        return [sys.executable, str(PROGRAM), verb, "--state", str(self.state), *arguments]

    def run(self, *argv: str, timeout: float = PATIENCE_S, **environ: str) -> Finished:
        """Run a command on the head node, in this process's directory."""
        return self.control("run", "--", *argv, timeout=timeout, **environ)

    def popen(self, *argv: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command on the head node: the process returned is the command itself."""
        return subprocess.Popen(self.argv("run", "--", *argv), text=True, **options)

    def exec(self, node: str, *argv: str, timeout: float = PATIENCE_S) -> Finished:
        """Run a command inside a node, behind Slurm's back."""
        return self.control("exec", node, "--", *argv, timeout=timeout)

    def popen_in(self, node: str, *argv: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command inside a node."""
        return subprocess.Popen(self.argv("exec", node, "--", *argv), text=True, **options)

    def bytes(self) -> dict[str, tuple[int, int]]:
        """What each node's link sent and received since the node was booted."""
        counted = self.control("bytes", "--json").succeeded().json
        return {node: (sent, received) for node, (sent, received) in counted.items()}

    def fail(self, *nodes: str) -> None:
        self.control("fail", *nodes).succeeded()

    def boot(self, *nodes: str) -> None:
        self.control("boot", *nodes).succeeded()

    def cut(self, *nodes: str) -> None:
        self.control("cut", *nodes).succeeded()

    def join(self, *nodes: str) -> None:
        self.control("join", *nodes).succeeded()

    def rate(self, rate: str, *more: str) -> None:
        """Change the rate of some nodes' links or of all, and what else the command has options for."""
        self.control("rate", rate, *more).succeeded()
        self.rated = True

    def processes(self) -> dict[str, list[tuple[int, str]]]:
        """What runs in each node besides its daemons, and on ``head`` what was started there: PID inside, command line."""
        found = self.control("processes", "--json").succeeded().json
        return {node: [(pid, line) for pid, line in entries] for node, entries in found.items()}

    def states(self) -> dict[str, str]:
        """Slurm's opinion of each node: ``idle``, ``allocated``, ``down``, with a star if the node does not answer."""
        lines = self.run("sinfo", "-hN", "-p", "normal", "-o", "%N %T").succeeded().stdout.splitlines()
        return dict(line.split() for line in lines)

    def queue(self) -> str:
        """What waits or runs."""
        return self.run("squeue", "-ho", "%i %T").succeeded().stdout.strip()

    def settle(self) -> None:
        """Wait until no job is left and every node is idle."""
        ask = ("sh", "-c", "squeue -ho %T; sinfo -hN -p normal -o %T")  # at once: each look starts processes
        self.wait(lambda: set(self.run(*ask).succeeded().stdout.split()) == {"idle"}, "all done, all idle")

    def wait(self, true: Callable[[], bool], what: str, timeout: float = PATIENCE_S) -> None:
        """Wait for something to become true."""
        deadline = time.monotonic() + timeout
        while not true():
            assert time.monotonic() < deadline, f"{what}: not within {timeout} s; {self.queue()!r}, {self.states()}"
            time.sleep(0.2)

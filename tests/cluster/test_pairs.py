"""What befalls a rank under Slurm and over ssh: the part of ``tests.faults.matrix`` that needs a cluster."""

import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.conftest import PATIENCE_S
from tests.faults.matrix import DEATHS, each
from tests.faults.running import LONG
from tests.parity.conftest import Way

from .submitted import User, nothing_is_left
from .test_ssh import Site
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster
LAUNCHERS = ("slurm", "ssh")
WARMUP = ["--warmup", LONG, "--steps", "3", "--repeats", "1"]
WINDOW = ["--warmup", "1", "--steps", LONG, "--repeats", "1"]
FEW = ["--warmup", "2", "--steps", "3", "--repeats", "1"]
STEPS = {"joining": FEW, "warmup": WARMUP, "window": WINDOW, "closing": FEW, "bad image": WINDOW, "divergence": FEW}


class OnTwoNodes(ABC):
    """A run with one worker, and where there are servers one of those, on each of two nodes."""

    def __init__(self, cluster: VirtualCluster, output: Path, controller: subprocess.Popen[str]) -> None:
        self.cluster, self.output, self.controller = cluster, output, controller

    @abstractmethod
    def host(self, process: str) -> str:
        """Its node's name in messages."""

    @abstractmethod
    def failed_saying(self, *fragments: str) -> None:
        """Wait for the end: one error that says what and where, and no number."""

    def reaches(self, process: str, phase: str) -> None:
        """Wait until a process has reported a phase; looks often enough to disturb the next one."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(
            f'"event": "{phase}"' in file.read_text() for file in self.output.glob(f"*/repeat-1/events/{process}.jsonl")
        ):
            assert self.controller.poll() is None, self.controller.communicate()
            assert time.monotonic() < deadline, f"{process} has not reported {phase}"
            time.sleep(0.005)

    def find(self, process: str) -> psutil.Process:
        """A process as this machine sees it, from outside of its node: signals take no time on their way."""
        self.reaches(process, "started")
        role, rank = process.split("-")
        (plan,) = self.output.glob("*/plan.json")
        seats = [(seat["role"], str(seat["rank"])) for seat in json.loads(plan.read_text())["processes"]]
        words = ("worker/main.py", f"--run {plan.parent}", f"--index {seats.index((role, rank))}")
        lines = {one: " ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])}
        (found,) = [one for one, line in lines.items() if all(word in line for word in words)]
        return found


class UnderSlurm(OnTwoNodes):
    def __init__(self, cluster: VirtualCluster, folder: Path, way: Way, arguments: Sequence[str]) -> None:
        self.user = User(cluster, folder)
        self.run = self.user.begin(*way.arguments, steps=arguments)
        super().__init__(cluster, self.user.output, self.run.process)

    def host(self, process: str) -> str:
        """As the process itself saw it: Slurm need not give a job its first nodes."""
        (events,) = self.output.glob(f"*/repeat-1/events/{process}.jsonl")
        host: str = json.loads(events.read_text().splitlines()[0])["host"]
        return host

    def failed_saying(self, *fragments: str) -> None:
        done = self.run.end()
        record = self.user.record()
        assert done.code == 1 and "total images/sec" not in done.stdout
        assert (record["status"], record["derived"]) == ("failed", None)
        for fragment in fragments:
            assert fragment in record["reason"] and fragment in done.stderr, done.stderr
        nothing_is_left(self.cluster)


class OverSsh(OnTwoNodes):
    def __init__(self, cluster: VirtualCluster, folder: Path, way: Way, arguments: Sequence[str]) -> None:
        self.site = Site(cluster, folder)
        self.run = self.site.begin(*way.arguments, *arguments)
        super().__init__(cluster, self.run.output, self.run.process)

    def host(self, process: str) -> str:
        return f"public-{int(process[-1]) + 1}"

    def failed_saying(self, *fragments: str) -> None:
        self.run.end().failed_saying(*fragments)
        self.site.nothing_is_left()


LAUNCHED: dict[str, type[UnderSlurm] | type[OverSsh]] = {"slurm": UnderSlurm, "ssh": OverSsh}
Begin = Callable[..., OnTwoNodes]


@pytest.fixture
def begin(cluster: VirtualCluster, tmp_path: Path, environment: Callable[..., Path]) -> Iterator[Begin]:
    """Start a run in some way under a launcher. What a failing test leaves is removed."""
    runs: list[OnTwoNodes] = []

    def start(launcher: str, way: Way, *arguments: str) -> OnTwoNodes:
        environment(way.backend, way.framework)
        servers = ["--ps", "2"] if way.has_servers else []
        runs.append(LAUNCHED[launcher](cluster, tmp_path, way, [*arguments, *servers]))
        return runs[-1]

    yield start
    for run in runs:
        if run.controller.poll() is None:
            run.controller.kill()
            run.controller.communicate()
    cluster.run("scancel", "--me")


@each("way, fault, launcher, victim", LAUNCHERS, *DEATHS)
def test_a_process_that_is_killed_fails_the_run_and_is_named(
    begin: Begin, way: Way, fault: str, launcher: str, victim: str
) -> None:
    run = begin(launcher, way, *STEPS[fault])
    killed = run.find(victim)
    if fault in ("warmup", "window"):
        for worker in ("worker-0", "worker-1"):
            run.reaches(worker, fault)
    if fault == "closing":  # a stopped worker keeps the others from leaving before the kill
        stopped = victim if victim.startswith("worker") else "worker-0"
        process = run.find(stopped)
        run.reaches(stopped, "measured")
        process.suspend()
    killed.kill()
    role, rank = victim.split("-")
    run.failed_saying(f"{role} rank {rank} on {run.host(victim)} was killed by SIGKILL")


@each("way, launcher", LAUNCHERS, "bad image")
def test_a_corrupted_image_fails_the_run_and_is_named(begin: Begin, images: Path, way: Way, launcher: str) -> None:
    (bad,) = images.glob("train/n00000002/*_3.JPEG")
    bad.write_bytes(b"\xff\xd8 this was an image once")
    run = begin(launcher, way, *STEPS["bad image"], "--data", str(images))
    run.failed_saying(" failed: BadImage: bad image", str(bad), "worker rank ")


@each("way, launcher", LAUNCHERS, "divergence")
def test_a_training_that_diverges_gives_no_number(begin: Begin, way: Way, launcher: str) -> None:
    run = begin(launcher, way, *STEPS["divergence"], "--learning-rate", "1e30")
    run.failed_saying("repeat 1 does not count: finite: ")

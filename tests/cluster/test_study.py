"""Studies on a cluster: in every allocation mode, with a controller that dies, with points that fail or are refused."""

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records.measurement import Record
from tests.conftest import SOONEST, Finished, shell_program

from .submitted import SITE
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster
TINY = """
[common]
model = "pointwise"
batch-size = 2
image-size = 32
warmup = 1
steps = 3
repeats = 2
threads = 1
timeout = 200
"""


class Studied:
    """A study file in a folder of its own, on the cluster."""

    def __init__(self, cluster: VirtualCluster, folder: Path, head: str, tables: str) -> None:
        self.cluster, self.folder = cluster, folder
        self.site, self.file = folder / "site.toml", folder / "trial.toml"
        self.site.write_text(SITE.format(scheduler="squeue"))
        self.file.write_text(head + TINY + tables)

    def argv(self, verb: str, *options: str) -> list[str]:
        where = ["--site", str(self.site), "--output", str(self.folder / "runs")]
        return [sys.executable, "-m", "harness", "study", verb, str(self.file), *where, *options]

    def __call__(self, verb: str, *options: str, **environ: str) -> Finished:
        return self.cluster.run(*self.argv(verb, *options), timeout=600, **environ)

    def records(self) -> list[Record]:
        return [Record.read(file) for file in sorted(self.folder.glob("runs/trial/*/record.json"))]

    def spans(self) -> list[tuple[str, str, Record]]:
        """When each repeat began and ended, in the order of time."""
        return sorted(
            ((one.started, one.ended, record) for record in self.records() for one in record.repeats),
            key=lambda span: span[0],
        )


def states(told: Finished) -> list[Any]:
    return [one["state"] for one in told.json]


def backends_in_turn(spans: list[tuple[str, str, Record]], nodes: int) -> list[str]:
    return [record.spec.backend for _, _, record in spans if record.spec.nodes == nodes]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("allocation", "backends"), [("run", [SOONEST]), ("nodes", ["torch_parameter_server", SOONEST])]
)
def test_every_allocation_measures_every_point(
    cluster: VirtualCluster, tmp_path: Path, allocation: str, backends: list[str]
) -> None:
    """That of each repeat, the default, is below."""
    tables = f"[[matrix]]\nbackend = {backends}\nnodes = [1, 2]\n"
    trial = Studied(cluster, tmp_path, f'allocation = "{allocation}"\n', tables)
    done = trial("run", "--json")
    points = 2 * len(backends)
    assert states(done) == ["completed"] * points, done.stderr
    assert len({one.job for record in trial.records() for one in record.repeats}) == 2
    if allocation == "run":
        assert all(len({one.job for one in record.repeats}) == 1 for record in trial.records())
    if allocation == "nodes":
        for nodes in (1, 2):
            alike = [one for record in trial.records() if record.spec.nodes == nodes for one in record.repeats]
            assert len({tuple(one.nodes) for one in alike}) == 1
            assert backends_in_turn(trial.spans(), nodes) == [*backends, *reversed(backends)]  # there and back
    again = trial("run", "--json")
    assert (again.code, again.json) == (0, done.json)
    assert len(trial.records()) == points


@pytest.mark.slow
def test_jobs_go_on_one_at_a_time_when_the_controller_is_killed(cluster: VirtualCluster, tmp_path: Path) -> None:
    tables = f'[[matrix]]\nbackend = "{SOONEST}"\nnodes = [1, 2]\n'
    trial = Studied(cluster, tmp_path, "max_jobs = 1\n", tables)
    controller = cluster.popen(*trial.argv("run"))
    cluster.wait(lambda: bool(list(tmp_path.glob("runs/trial/*/repeat-1/hosts.json"))), "the first repeat")
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    assert set(states(trial("status", "--json"))) <= {"running", "queued"}
    assert trial.records() == []
    cluster.settle()
    collected = trial("collect", "--json")
    assert (collected.code, states(collected)) == (0, ["completed", "completed"])
    spans = trial.spans()
    assert all(ended <= started for (_, ended, _), (started, _, _) in itertools.pairwise(spans))
    assert [record.spec.nodes for _, _, record in spans] == [1, 2, 1, 2]  # the repeats take turns
    assert len({one.job for record in trial.records() for one in record.repeats}) == 4
    again = trial("run", "--json")
    assert (again.code, again.json) == (0, collected.json)
    assert trial.spans() == spans  # nothing was measured again


@pytest.mark.slow
def test_a_point_that_fails_does_not_stop_the_others_and_is_retried_when_asked(
    cluster: VirtualCluster, tmp_path: Path
) -> None:
    tables = '[[matrix]]\nbackend = "pytorch"\nrepeats = 1\nbatch-size = 2\n'
    tables += '[[matrix]]\nbackend = "pytorch"\nrepeats = 1\nbatch-size = 1\ntimeout = 1\n'
    trial = Studied(cluster, tmp_path, "", tables)
    done = trial("run", "--json")
    assert (done.code, states(done)) == (1, ["completed", "failed"])
    assert "--timeout" in done.json[1]["reason"]
    assert trial("run", "--json").json == done.json
    retried = trial("run", "--retry-failed", "--json").json
    assert retried[0] == done.json[0]
    assert retried[1]["state"] == "failed" and retried[1]["run"] != done.json[1]["run"]
    assert len(trial.records()) == 3


def test_what_slurm_refuses_is_told_in_its_words_and_can_be_cancelled_when_it_is_not(
    cluster: VirtualCluster, tmp_path: Path
) -> None:
    # So many steps that nothing is measured before it is cancelled, however busy this machine is.
    table = '[[matrix]]\nbackend = "pytorch"\nnodes = [1, 2]\nsteps = 1000000\n'
    trial = Studied(cluster, tmp_path, "", table)
    refused = trial("run", "-J", "partition=nonsense", "--json")
    assert (refused.code, states(refused)) == (2, ["refused", "refused"])
    assert (
        "Slurm refuses all 2 points that were to be measured: invalid partition specified: nonsense" in refused.stderr
    )
    assert sorted(path.name for path in (tmp_path / "runs" / "trial").iterdir()) == ["study.json", "study.lock"]
    submitted = trial("run", "--no-wait", "--json")
    assert (submitted.code, len(submitted.json)) == (0, 2)
    assert set(states(submitted)) <= {"queued", "running"}
    assert trial("cancel").stdout.startswith("cancelled: ")
    cluster.settle()
    collected = trial("collect", "--json")
    assert (collected.code, states(collected)) == (1, ["interrupted", "interrupted"])


@pytest.fixture
def closed(accounting_cluster: VirtualCluster) -> Iterator[VirtualCluster]:
    """A cluster that takes jobs and starts none."""
    accounting_cluster.run("scontrol", "update", "PartitionName=normal", "State=DOWN").succeeded()
    yield accounting_cluster
    accounting_cluster.run("scancel", "--me")
    limit_jobs(accounting_cluster, -1)
    accounting_cluster.run("scontrol", "update", "PartitionName=normal", "State=UP").succeeded()
    accounting_cluster.settle()


def limit_jobs(cluster: VirtualCluster, most: int) -> None:
    """How many jobs a user may have in the queue; -1: any number."""
    cluster.run("sacctmgr", "-i", "modify", "user", "root", "set", f"MaxSubmitJobs={most}").succeeded()


def lanes(cluster: VirtualCluster) -> list[int]:
    """The lane of each job in the queue, in the order of submission: of the jobs of one name only one runs at a time."""
    lines = cluster.run("squeue", "-h", "-o", "%i %j %E").succeeded().stdout.splitlines()
    rows = sorted((int(job), name, after) for job, name, after in (line.split() for line in lines))
    names = list(dict.fromkeys(name for _, name, _ in rows))
    for lane in names:
        _, *later = [after for _, name, after in rows if name == lane]
        assert all(after.startswith("singleton(unfulfilled") for after in later), rows
    return [names.index(name) for _, name, _ in rows]


def test_jobs_wait_for_the_one_before_them_in_their_lane(closed: VirtualCluster, tmp_path: Path) -> None:
    trial = Studied(closed, tmp_path, "max_jobs = 2\n", '[[matrix]]\nbackend = "pytorch"\nnodes = [1, 2]\n')
    submitted = trial("run", "--no-wait", "--json")
    assert (submitted.code, states(submitted)) == (0, ["queued", "queued"]), submitted.stderr
    assert lanes(closed) == [0, 1, 0, 1]
    trial.file.write_text(trial.file.read_text().replace("[1, 2]", "[1, 2]\ndata-threads = [1, 2]"))
    assert trial("run", "--no-wait", "--json").code == 0
    assert sorted(lanes(closed)) == [0] * 6 + [1] * 6
    elsewhere = closed.run(*trial.argv("status"), "--site", "generic-slurm")
    assert elsewhere.code == 2 and "was begun at virtual:normal, not at generic-slurm" in elsewhere.stderr


def test_points_that_slurm_refuses_are_tried_again_with_the_repeats_that_are_missing(
    closed: VirtualCluster, tmp_path: Path
) -> None:
    limit_jobs(closed, 3)
    trial = Studied(closed, tmp_path, "", '[[matrix]]\nbackend = "pytorch"\nnodes = [1, 2]\n')
    first = trial("run", "--no-wait", "--json")
    assert (first.code, states(first)) == (1, ["queued", "refused"]), first.stderr
    assert first.json[1]["reason"].startswith("repeats 2: ") and "job submit limit" in first.json[1]["reason"]
    limit_jobs(closed, -1)
    second = trial("run", "--no-wait", "--json")
    assert (second.code, states(second)) == (0, ["queued", "queued"]), second.stderr
    assert len(lanes(closed)) == 4
    assert len(list((tmp_path / "runs" / "trial").glob("2*"))) == 2


def test_a_controller_that_dies_while_it_submits_leaves_nothing_behind_that_is_lost(
    closed: VirtualCluster, tmp_path: Path
) -> None:
    trial = Studied(closed, tmp_path, "", '[[matrix]]\nbackend = "pytorch"\nnodes = [1, 2]\n')
    third = 'echo >> "$0.calls"\n[ $(wc -l < "$0.calls") = 3 ] && kill -9 $PPID'  # whoever calls it then
    deadly = shell_program(tmp_path / "bin" / "sbatch", f'{third}\nexec /usr/bin/sbatch "$@"')
    died = trial("run", "--no-wait", PATH=f"{deadly.parent}:{os.environ['PATH']}")
    assert died.code in (-9, 137)
    assert states(trial("status", "--json")) == ["unfinished", "unfinished"]
    again = trial("run", "--no-wait", "--json")
    assert (again.code, states(again)) == (0, ["queued", "queued"]), again.stderr

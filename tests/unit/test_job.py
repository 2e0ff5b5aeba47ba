"""The batch script: one template for all backends, readable, and right for 512 nodes."""

import dataclasses
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.launch.script import WORKER, scheduler_option, slurm_time
from harness.running.prepare import Place
from harness.running.request import jobs_of
from harness.running.run import Run
from harness.worker.agent.seating import Hosts, host_file, seated
from tests.conftest import Clock, shell_program
from tests.parity.conftest import WAYS
from tests.wording import Case, Wording, cases, same_as_golden

GENERIC = Place("generic-slurm", output=Path("/scratch/runs"))
DAINT = Place("daint", account="s123", time_limit="1h30m", output=Path("/scratch/runs"), port=20000)


def prepared(backend: str, nodes: int, place: Place = DAINT, **fields: object) -> Run:
    options = {name: fields.pop(name) for name in ("ps", "ps_nodes", "ps_per_node") if name in fields}
    return place.prepare(RunSpec.validated(backend=backend, nodes=nodes, options=options, **fields))


def script(one: Run, place: Place = DAINT) -> str:
    ((_, text),) = jobs_of([one], place.options)
    return text


def without_values(text: str, one: Run) -> str:
    """A script with what may differ from run to run replaced by its name."""
    for value, name in (
        (str(one.folder), "RUN_DIR"),
        (one.python, "PYTHON"),
        (str(WORKER), "WORKER"),
        (one.folder.name.rpartition("-")[2], "TAG"),
    ):
        text = text.replace(value, name)
    return text


def test_the_scripts_of_all_backends_differ_only_in_values() -> None:
    shapes = set()
    for way in WAYS:
        one = prepared(way.backend, 8, framework=way.framework, device="cpu")
        text = without_values(script(one), one).replace(way.backend, "BACKEND")
        mpi = "pmi2" if one.plan.mpi else "none"
        shapes.add(re.sub(rf" 8 {len(one.plan.processes)} {mpi} PYTHON", " NODES TASKS MPI PYTHON", text))
    assert len(shapes) == 1


def test_the_script_is_valid_bash() -> None:
    text = script(prepared("horovod", 4))
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).stderr == ""


def files(backend: str, nodes: int, options: dict[str, object]) -> dict[str, str]:
    """The script of a run, and the host file and the plan that a job makes on its nodes, by the golden file's ending."""
    one = prepared(backend, nodes, **options)
    names = [f"nid{number:05}" for number in range(1, one.plan.nodes + 1)]
    hosts = Hosts([(host, f"10.0.{k // 256}.{k % 256}") for k, host in enumerate(names)], "2026-01-01T00:00:00+00:00")
    placed = seated(one.plan.as_dict(), hosts)
    plan = "".join(
        "{index} {role} {rank} {host} {address}:{port} gpus={gpus}\n".format(
            gpus=process["env"]["CUDA_VISIBLE_DEVICES"] or "none", **process
        )
        for process in placed["processes"]
    )
    return {"sh": without_values(script(one), one), "hosts": host_file(placed), "plan": plan}


SERVERS_OF_512 = ("parameter_server", 512, {"ps": 64, "ps_nodes": "dedicated"})


@pytest.mark.parametrize(
    ("name", "backend", "nodes", "options"),
    [("horovod-n128", "horovod", 128, {}), ("parameter_server-n512-ps64-dedicated", *SERVERS_OF_512)],
)
def test_plan_host_file_and_script_are_as_they_were_when_somebody_last_looked(
    name: str, backend: str, nodes: int, options: dict[str, object]
) -> None:
    for ending, text in files(backend, nodes, options).items():
        same_as_golden(f"{name}.{ending}", text)


def test_plan_host_file_and_script_of_512_nodes_take_less_than_a_second(clock: Clock) -> None:
    began = time.process_time()
    files(*SERVERS_OF_512)
    clock("plan, host file and script of 512 nodes", time.process_time() - began, 1.0)


def test_512_nodes_hold_a_worker_each_and_64_of_them_a_server_that_sees_no_gpu() -> None:
    one = prepared("parameter_server", 512, ps=64)
    workers = [process for process in one.plan.processes if process.role == "worker"]
    servers = [process for process in one.plan.processes if process.role == "ps"]
    assert sorted(process.node for process in workers) == list(range(512))
    assert len({process.node for process in servers}) == len(servers) == 64
    assert {process.env["CUDA_VISIBLE_DEVICES"] for process in workers} == {"0"}
    assert {process.env["CUDA_VISIBLE_DEVICES"] for process in servers} == {""}


def test_two_servers_of_a_node_are_two_tasks_on_it() -> None:
    one = prepared("parameter_server", 2, ps=3, ps_per_node=2)
    assert host_file(one.plan.as_dict()).split() == ["node0", "node1", "node0", "node0", "node1"]
    assert " 2 5 none " in script(one)


def test_work_and_size_grow_linearly_with_the_nodes() -> None:
    def cost(nodes: int) -> tuple[int, int]:
        one = prepared("parameter_server", nodes, ps=64)
        return len(one.plan.to_json()), len(script(one))

    plan, text = cost(512)
    plan_of_twice, text_of_twice = cost(1024)
    # The number of servers is the same, so twice the workers are less than twice the plan; the script does not grow.
    assert plan_of_twice < 2.1 * plan and text_of_twice < text + 50


def test_runs_that_are_compared_take_turns_there_and_back_within_one_job() -> None:
    runs = [prepared(name, 4, repeats=2) for name in ("horovod", "pytorch")]
    ((job, _),) = jobs_of(runs, DAINT.options, "nodes")
    order = [(Path(step.run_dir), step.repeat) for step in job.steps]
    one, other = (each.folder for each in runs)
    assert order == [(one, 1), (other, 1), (other, 2), (one, 2)]


def test_every_repeat_can_be_a_job() -> None:
    runs = [prepared(name, 4, repeats=2) for name in ("horovod", "pytorch")]
    jobs = jobs_of(runs, DAINT.options, "repeat")
    assert [[step.repeat for step in job.steps] for job, _ in jobs] == [[1], [1], [2], [2]]


def test_gpus_are_asked_for_where_the_site_says_how() -> None:
    one = prepared("pytorch", 2, GENERIC, device="cuda", devices_per_node=4, threads=8)
    assert "#SBATCH --gres=gpu:4\n" in script(one, GENERIC)
    assert "gres" not in script(prepared("pytorch", 2, GENERIC, device="cpu", threads=8), GENERIC)


def test_a_site_that_does_not_say_how_many_cores_it_has_needs_threads(wording: Wording) -> None:
    with wording("generic-slurm").raises(InvalidInput):
        prepared("pytorch", 2, GENERIC)


@pytest.fixture
def sinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Slurm with three partitions, of which ``normal`` is the default one."""
    program = shell_program(
        tmp_path / "bin" / "sinfo",
        """
        while read -r line; do echo "$line"; done <<END
debug|up|4|30:00|16|2|(null)|2|4
normal*|up|90|6:00:00|32|2|(null)|2|8
large|up|9|1-00:00:00|64|2|(null)|2+|16
END
        """,
    )
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


@pytest.mark.parametrize(("option", "dry_run"), [("partition=debug", False), ("p debug", True)])
def test_a_job_asks_for_no_more_time_than_the_partition_that_a_person_chooses_has(
    sinfo: None, option: str, dry_run: bool
) -> None:
    daint = Place("daint", output=Path("/scratch/runs"), dry_run=dry_run)
    assert "#SBATCH --time=0-02:00:00\n" in script(prepared("pytorch", 2, daint), daint)
    debug = dataclasses.replace(daint, job_options=(option,))
    assert "#SBATCH --time=0-00:30:00\n" in script(prepared("pytorch", 2, debug), debug)
    longer = dataclasses.replace(debug, time_limit="45m")
    assert "#SBATCH --time=0-00:45:00\n" in script(prepared("pytorch", 2, longer), longer), "a person knows better"


def test_a_site_has_no_more_time_where_the_chosen_partition_has_more(sinfo: None) -> None:
    assert Place("daint", job_options=("partition=large",)).profile.time_limit_s == 2 * 3600.0  # type: ignore[union-attr]


def test_nodes_have_the_cores_of_the_chosen_partition_where_the_profile_does_not_say(sinfo: None) -> None:
    debug = Place("generic-slurm", job_options=("partition=debug",), output=Path("/scratch/runs"))
    assert prepared("pytorch", 2, debug, device="cpu").spec.threads == 8


def test_without_a_partition_it_is_the_default_one_that_gives_cores_and_time(sinfo: None) -> None:
    profile = Place("generic-slurm").profile
    assert profile is not None and (profile.cores_per_node, profile.time_limit_s) == (16, 6 * 3600.0)


@cases
def test_scheduler_options_as_reframe_takes_them(case: Case) -> None:
    case.answered(scheduler_option(case.request))


@cases
def test_options_that_could_be_more_than_options_are_refused(case: Case) -> None:
    with case.raises(InvalidInput):
        scheduler_option(eval(case.request))


@cases
def test_options_that_are_the_job_scripts_or_make_it_no_job_are_refused(case: Case) -> None:
    with case.raises(InvalidInput):
        Place("daint", job_options=(case.request,))


def test_folders_that_slurm_cannot_name_are_refused(wording: Wording) -> None:
    odd = Place("daint", output=Path("/scratch/my runs"))
    with wording("/scratch/my runs").raises(InvalidInput):
        script(prepared("pytorch", 2, odd), odd)


def test_time_limits_are_rounded_up_to_minutes() -> None:
    assert [slurm_time(seconds) for seconds in (1, 60, 61, 5400, 90000)] == [
        "0-00:01:00",
        "0-00:01:00",
        "0-00:02:00",
        "0-01:30:00",
        "1-01:00:00",
    ]


@pytest.mark.parametrize("name", ["::1", "no-such-node.invalid"])
def test_a_node_without_an_ipv4_address_is_refused_in_plain_words(wording: Wording, name: str) -> None:
    code = f"from harness.worker.agent.seat import address_of; address_of({name!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    wording(name).answered(done.stderr.rstrip())

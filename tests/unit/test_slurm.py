"""Slurm's words, as clusters of many kinds were seen to say them: each form is a line of a table here."""

import os
from pathlib import Path

import pytest

from harness.core.spec import RunSpec
from harness.errors import HarnessError, InvalidInput
from harness.launch import describe, slurm
from harness.running.notes import Submission
from harness.running.prepare import place_of_runs
from tests.conftest import Harness, shell_program
from tests.wording import Wording

SCRIPT = Path("/scratch/run/job.sh")


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What Slurm's programs do; nothing of this machine's is on PATH, and nobody waits."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(slurm, "FATE_S", 0.0)
    monkeypatch.setattr(slurm, "PAUSE_S", 0.0)

    class Programs(dict[str, str]):
        def __setitem__(self, name: str, body: str) -> None:
            shell_program(tmp_path / name, body)

    programs = Programs()
    programs["squeue"] = ""
    return programs


SAID = "echo '{}' >&2; exit 1"
TIMED_OUT = SAID.format("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")


@pytest.mark.parametrize(
    ("sbatch", "queue", "outcome"),
    [
        ("echo 4711", "", "4711"),
        ("echo '4711;alps'", "", "4711"),
        ("echo '-- Welcome to 2 clusters --'; echo 4711", "", "4711"),
        ("echo 4711; echo 'Your project has 123.4 of 500 node hours left'", "", "4711"),
        ("echo Submitted", f"4711|{SCRIPT}", "4711"),
        ("", "", slurm.FateUnknown),
        (TIMED_OUT, f"12|/scratch/other/job.sh\n4711|{SCRIPT}", "4711"),
        (TIMED_OUT, "12|/scratch/other/job.sh", slurm.FateUnknown),
        (SAID.format("sbatch: error: Unable to contact slurm controller (connect failure)"), "", slurm.SlurmSilent),
        (SAID.format("sbatch: error: invalid partition specified: gpu"), "", slurm.JobRefused),
        ("printf 'sbatch: error: Kontingent ersch\\366pft\\n' >&2; exit 1", "", slurm.JobRefused),
    ],
)
def test_a_job_has_the_id_that_slurm_knows_it_by(
    answers: dict[str, str], sbatch: str, queue: str, outcome: str | type[HarnessError]
) -> None:
    answers["sbatch"], answers["squeue"] = sbatch, f"echo '{queue}'"
    if isinstance(outcome, str):
        assert slurm.submit(SCRIPT) == outcome
    else:
        with pytest.raises(outcome):
            slurm.submit(SCRIPT)


def test_a_silent_sbatch_may_have_submitted_the_job(answers: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers["sbatch"] = "exec /bin/sleep 30"
    answers["squeue"] = f"echo '4711|{SCRIPT}'"
    monkeypatch.setattr(slurm.ask, "__kwdefaults__", {**(slurm.ask.__kwdefaults__ or {}), "limit_s": 0.5})
    assert slurm.submit(SCRIPT) == "4711"


@pytest.mark.parametrize("queue", ["", "4711|$(echo {}/*/job-1.sh)"])
def test_nothing_of_a_job_is_removed_while_nobody_knows_whether_it_will_run(
    answers: dict[str, str], refused: Harness, tmp_path: Path, queue: str, wording: Wording
) -> None:
    answers["sbatch"], answers["squeue"] = TIMED_OUT, f'echo "{queue.format(tmp_path / "runs")}"'
    answers["scancel"] = f"echo cancelled > {tmp_path / 'cancelled'}"
    launch = ("launch", "--site", "daint", "--nodes", "2", "--no-wait", "--output", tmp_path / "runs", "--", "true")
    done = refused(*map(str, launch))
    (script,) = (tmp_path / "runs").glob("*/job-1.sh")
    assert not (tmp_path / "cancelled").exists()
    if queue:
        assert Submission.read(script.parent).jobs == [("4711", [1])], done
    else:
        wording("launch").answered(done.stderr.rstrip(), SCRIPT=script)
        assert done.code == 1
        known = refused("jobs", "status", str(tmp_path / "runs"))
        assert " unknown " in known.stdout and "look with squeue" in known.stdout, known
        assert refused("jobs", "collect", str(tmp_path / "runs")).code == 0  # it may still run


def test_the_shells_own_job_and_its_habits_are_kept_from_ours(
    answers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SBATCH_EXPORT", "SBATCH_ARRAY_INX", "SLURM_MEM_PER_CPU", "SLURM_JOB_ID", "SQUEUE_STATES"):
        monkeypatch.setenv(name, "of the shell")
    for name in ("SLURM_CONF", "SBATCH_ACCOUNT", "HOME"):
        monkeypatch.setenv(name, "of the site")
    answers["sinfo"] = "/usr/bin/env"
    seen = dict(line.partition("=")[::2] for line in slurm.ask("sinfo").stdout.splitlines())
    assert "of the shell" not in seen.values()
    assert seen["SLURM_CONF"] == seen["SBATCH_ACCOUNT"] == seen["HOME"] == "of the site"


def test_a_queue_is_asked_in_words_of_every_version(answers: dict[str, str]) -> None:
    """Slurm 17.02 does not know `--me`."""
    answers["squeue"] = (
        """case "$*" in *--me*) echo "squeue: unrecognized option '--me'" >&2; exit 1;; """
        f"""*"-u {os.getuid()}"*) echo "7|PENDING|Priority||N/A";; esac"""
    )
    assert slurm.states(["7"])["7"].queued


@pytest.mark.parametrize("said", ["squeue: unrecognized option '--states=all'", "squeue: invalid option -- 'u'"])
def test_a_wrong_usage_is_no_silence(answers: dict[str, str], said: str) -> None:
    answers["squeue"] = f'echo "{said}" >&2; exit 1'
    with pytest.raises(InvalidInput):
        slurm.states(["7"])


def test_a_job_waits_only_if_the_queue_confirms_it(answers: dict[str, str]) -> None:
    answers["sacct"] = "echo '7|REQUEUED|None|'; echo '8|COMPLETED|None|node[1-2]'; echo '9|CANCELLED by 1000|None|'"
    states = slurm.states(["7", "8", "9"])
    assert [states[job].state for job in "789"] == ["UNKNOWN", "COMPLETED", "CANCELLED"]


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ("gpu:a100:4(S:0-1)", (4, "a100")),
        ("gpu:4(S:0-1)", (4, "")),
        ("gpu:3090:8(S:0-1)", (8, "3090")),
        ("gpu:2080ti:4", (4, "2080ti")),
        ("gpu:3g.20gb:8", (8, "3g.20gb")),
        ("gpu:(null):4(IDX:0-3)", (4, "")),
        ("gpu:1080ti:8,bandwidth:1", (8, "1080ti")),
        ("gpu:a100:2(S:0),gpu:3g.20gb:4(S:1)", (6, "")),
        ("gpu:A100-SXM4-40GB:8(S:0-7)", (8, "A100-SXM4-40GB")),
        ("craynetwork:4,gpu:1", (1, "")),
        ("gpu:l40s:4(S:0,1),shard:l40s:40(S:0-1)", (4, "l40s")),
        ("gpumem:80G,gpu:h100:4", (4, "h100")),
        ("gpu_mem:no_consume:32G,gpu:v100s:2(S:0,1)", (2, "v100s")),
        ("gres/gpu:a100=4", (4, "a100")),
        ("gpu:tesla", (1, "tesla")),
        ("gpu", (1, "")),
        ("sharedgpu:p100:8", (0, "")),
        ("(null)", (0, "")),
    ],
)
def test_gpus_are_read_by_the_grammar_of_generic_resources(resources: str, gpus: tuple[int, str]) -> None:
    assert describe.gpus_of(resources) == gpus


@pytest.mark.parametrize(
    ("columns", "nodes_and_cores"),
    [
        ("8|1-00:00:00|64|2|(null)|2|16", (8, 32)),
        ("8|1-00:00:00|64|2|(null)|2|32", (8, 64)),  # CPUs are cores, though they have two threads
        ("8|1-00:00:00|63|2|(null)|2|16", (8, 32)),  # a core is set aside
        ("8|1-00:00:00|64|2|(null)", (8, 32)),
        ("8|1-00:00:00|24+|1+|(null)|2+|12+", (8, 24)),
        ("1.2K|1-00:00:00|48|2|(null)|2|12", (1200, 24)),
        ("0|1-00:00:00|0|0|(null)|0|0", None),
        ("0|n/a|0+|0+||0|0", None),
        ("n/a|n/a|n/a|n/a|n/a|n/a|n/a", None),
    ],
)
def test_nodes_and_cores_are_read_as_sinfo_of_any_site_says_them(
    columns: str, nodes_and_cores: tuple[int, int] | None
) -> None:
    found = [(partition.nodes, partition.cores) for partition in describe.described(f"p*|up|{columns}\n")]
    assert found == ([nodes_and_cores] if nodes_and_cores else [])


GPU_AND_CPU = "gpu{}|up|200|1-00:00:00|64|2|gpu:v100:2|2|16\ncpu|up|1|30:00|96|2|(null)|2|24\n"


def test_a_cluster_without_a_profile_says_what_it_has_and_what_to_type(
    answers: dict[str, str], monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    for name in ("SLURM_JOB_ID", "HARNESS_SITE"):
        monkeypatch.delenv(name, raising=False)
    answers["sbatch"], answers["sinfo"] = "", f"printf '{GPU_AND_CPU.format('*')}'"
    lines: list[str] = []
    place = place_of_runs(None, None, lines.append)
    wording("unused").answered(lines[-1])
    assert place.profile and (place.profile.cores_per_node, place.profile.time_limit_s) == (32, 86_400)
    chosen = place_of_runs(None, None, lines.append, job_options=("p cpu",)).profile
    assert lines[-1].startswith("harness: Slurm has gpu") and "-J partition" not in lines[-1]
    assert chosen and (chosen.cores_per_node, chosen.time_limit_s) == (48, 1800)
    answers["sinfo"] = f"printf '{GPU_AND_CPU.format('')}'"
    with wording("no default").raises(InvalidInput):
        place_of_runs(None, None).prepare(RunSpec.validated(backend="pytorch"))


def test_a_run_on_one_node_of_an_allocation_says_that_others_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"JOB_ID": "7", "JOB_NUM_NODES": "3", "D_NODENAME": "n1"}.items():
        monkeypatch.setenv(f"SLURM{'' if name.startswith('D_') else '_'}{name}", value)
    lines: list[str] = []
    place_of_runs(None, None, lines.append)
    assert lines == ["harness: runs on this node of the job 7 alone; its 2 other nodes idle"]


HOPELESS = """AssocMaxCpuPerJobLimit AssocMaxNodePerJobLimit AssocMaxWallDurationPerJobLimit QOSMaxMemoryPerJob
QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit QOSMinCpuNotSatisfied QOSMinGRES PartitionNodeLimit
PartitionTimeLimit AccountNotAllowed InvalidAccount BadConstraints ReservationDeleted JobHoldMaxRequeue MaxMemPerLimit"""
MAY_START = """Priority Resources ReqNodeNotAvail, QOSMaxJobsPerUserLimit QOSGrpNodeLimit AssocGrpCPUMinutesLimit
AssocMaxJobsLimit QOSMaxNodePerUserLimit Dependency BeginTime Reservation PartitionDown JobHeldUser Licenses"""


@pytest.mark.parametrize(
    ("reasons", "hopeless"),
    [([*HOPELESS.split(), "launch failed requeued held"], True), (MAY_START.split(), False)],
)
def test_limits_of_a_job_are_hopeless_and_those_of_a_user_or_group_are_not(reasons: list[str], hopeless: bool) -> None:
    wrong = [reason for reason in reasons if slurm.JobState("7", "PENDING", reason).hopeless != hopeless]
    assert not wrong

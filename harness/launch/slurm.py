"""A client of Slurm, 17.02 to 25.05: submit a job, ask for its state, cancel it. All commands to Slurm pass here.

``squeue`` knows the jobs of the last minutes; ``sacct``, where the site has accounting, all of them. A job that neither
knows is ``UNKNOWN``, and then the run directory has to say it.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError, InvalidInput, RunFailed

ANSWER_S = 60  # a busy controller takes its time
QUICK_S = 5  # the time that a person who has not named a cluster waits for one
QUEUED = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
CANCELLED = frozenset({"CANCELLED", "PREEMPTED", "REVOKED"})
PASSED_ON = re.compile(r"^(?:(?:sbatch|scancel|sinfo|squeue|srun|allocation failure|error|fatal): )+")
HELP = re.compile(r"^Try .*--help")
# Slurm has no job, may have it, or has not understood.
UNREACHED = re.compile("[Uu]nable to contact slurm|Connection refused")
TIMED_OUT = re.compile("[Tt]imed? ?out|Zero Bytes were transmitted")
WRONG_USAGE = re.compile("(?:unrecogni[sz]ed|invalid|unknown) option|[Uu]sage:")
_OURS = ("-u", str(os.getuid()))  # `--me` is of 20.02
NEVER = "NEVER"  # our own word for a job that we cancelled because it could not start
# A job that waits for one of these waits for ever. Limits per job end with no other job, limits per user or group do.
HOPELESS = re.compile(
    "AccountNotAllowed|BadConstraints|DependencyNeverSatisfied|InvalidAccount|InvalidQOS|JobHoldMaxRequeue|MaxMemPerLimit|"
    "PartitionConfig|PartitionNodeLimit|PartitionTimeLimit|QOSNotAllowed|ReservationDeleted|launch failed requeued held|"
    r"(?:QOS|Assoc)(?:Max\w*PerJob|Min)\w*"
)
# Variables by which a job's shell, or a site, changes Slurm's commands. A job of ours has its own options, and questions
# about it must not leave it out. The kept ones say which Slurm is meant, and who pays where.
VARIABLES = re.compile("(?:SLURM|SBATCH|SALLOC|SRUN|SQUEUE|SACCT|SINFO|SCANCEL)_")
KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS"}) | {
    f"SBATCH_{name}" for name in ("ACCOUNT", "CONSTRAINT", "PARTITION", "QOS", "RESERVATION")
}
FATE_S, PAUSE_S = 60.0, 5.0  # how long a job is looked for that may have been submitted, and between two looks
# Remedies where a job asks for more than its partition allows, or for too little.
REMEDIES = {
    "PartitionConfig": "fewer --nodes or a shorter --time-limit may help",
    "PartitionTimeLimit": "a shorter --time-limit may help",
    "OUT_OF_MEMORY": "-J mem=0 asks for all memory of a node, which --exclusive does not everywhere",
}


class SlurmSilent(HarnessError):
    """Slurm's controller does not answer. Nothing is known about any job, and nothing is lost."""


class FateUnknown(RunFailed):
    """Nobody knows whether Slurm has a job. Its run directories must stay where they are."""


class JobRefused(InvalidInput):
    """Slurm does not take a job. ``words`` are its own."""

    def __init__(self, script: Path, words: str) -> None:
        super().__init__(f"Slurm refuses the job {script}: {words}")
        self.words = words


@dataclass(frozen=True)
class JobState:
    """The state of a job in Slurm. ``reason`` is why it waits or ended, "" for none; ``starts`` is Slurm's guess."""

    id: str
    state: str
    reason: str = ""
    nodes: str = ""
    starts: str = ""

    @property
    def queued(self) -> bool:
        return self.state in QUEUED

    @property
    def running(self) -> bool:
        return self.state in RUNNING

    @property
    def ended(self) -> bool:
        return not self.queued and not self.running

    @property
    def hopeless(self) -> bool:
        return self.queued and HOPELESS.fullmatch(self.reason) is not None


def submit(script: Path, lane: str | None = None) -> str:
    """Submit a job, and return its id. One job of a ``lane`` runs at a time.

    Raises JobRefused, SlurmSilent if there is no job, InvalidInput, and FateUnknown.
    """
    options = ["--dependency=singleton", f"--job-name={lane}"] if lane else []
    try:
        done = ask("sbatch", "--parsable", *options, str(script))
    except SlurmSilent as error:
        return _submitted(script, str(error))
    if done.returncode == 0:
        ids = re.findall(r"^(\d+)(?:;\S+)?$", done.stdout, re.MULTILINE)  # sites print more, before and after
        return ids[-1] if ids else _submitted(script, "sbatch has named no job")
    complaint = words(done.stderr)
    if UNREACHED.search(complaint):
        raise SlurmSilent(f"sbatch: {complaint}")
    if TIMED_OUT.search(complaint):
        return _submitted(script, f"sbatch: {complaint}")
    raise JobRefused(script, complaint)


def _submitted(script: Path, complaint: str) -> str:
    """The id of the job of a ``script`` that Slurm may have taken, as its queue knows it. Raises FateUnknown."""
    deadline = time.monotonic() + FATE_S
    while True:
        try:
            done = ask("squeue", *_OURS, "-h", "--states=all", "-o", "%i|%o")
            ids = [line.partition("|")[0] for line in done.stdout.splitlines() if line.endswith(f"|{script}")]
            if done.returncode == 0 and ids:
                return ids[-1]
        except SlurmSilent:
            pass
        if time.monotonic() > deadline:
            unknown = f"whether Slurm has a job for {script} is not known: look with squeue before you submit again"
            raise FateUnknown(f"{complaint}; {unknown}")
        time.sleep(PAUSE_S)


def states(ids: Collection[str]) -> dict[str, JobState]:
    """The state of every job in ``ids``. Raises SlurmSilent when the controller does not answer."""
    if not ids:
        return {}
    known = _queue(*_OURS)
    if (missing := sorted(set(ids) - known.keys())) and shutil.which("sacct"):
        done = ask("sacct", "-n", "-P", "-X", "-D", "-j", ",".join(missing), "-o", "JobID,State,Reason,NodeList")
        accounts = {} if done.returncode else _jobs(done.stdout)  # some sites keep no accounts
        known |= {job: state for job, state in accounts.items() if not state.queued}  # the queue knows jobs that wait
    if missing := sorted(set(ids) - known.keys()):  # somebody else's, perhaps
        known |= _queue("-j", ",".join(missing))
    return {job: known.get(job, JobState(job, "UNKNOWN")) for job in ids}


def cancel(ids: Collection[str]) -> None:
    """Cancel jobs, whether they have ended already or not. Raises SlurmSilent when the controller does not answer."""
    if not ids:
        return
    done = ask("scancel", *sorted(ids))
    complaint = words(done.stderr)
    if done.returncode != 0 and (UNREACHED.search(complaint) or TIMED_OUT.search(complaint)):
        raise SlurmSilent(f"scancel: {complaint}")


def dead_nodes(names: Collection[str]) -> list[str]:
    """The nodes among ``names`` that Slurm calls down; none when it does not answer."""
    try:
        done = ask("sinfo", "-h", "-N", "-n", ",".join(names), "-o", "%N %t")
    except HarnessError:
        return []
    rows = [line.split() for line in done.stdout.splitlines()]
    return sorted({row[0] for row in rows if len(row) == 2 and row[1].startswith(("down", "fail"))})


def partitions_in(options: Sequence[str]) -> list[str]:
    """The partitions that the last of ``options`` for one chooses, which is the one that counts for sbatch."""
    chosen = [match[1] for option in options if (match := re.fullmatch(r"(?:--partition[= ]|-p\s*)(\S+)", option))]
    return chosen[-1].strip("\"'").split(",") if chosen else []


def limit_s(text: str) -> float | None:
    """Seconds in sinfo's ``days-hours:minutes:seconds``; None for "infinite" and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def _queue(*options: str) -> dict[str, JobState]:
    done = ask("squeue", *options, "-h", "--states=all", "-o", "%i|%T|%r|%N|%S")
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        kind = InvalidInput if WRONG_USAGE.search(done.stderr) else SlurmSilent
        raise kind(f"squeue: {words(done.stderr)}")
    return _jobs(done.stdout)


def _jobs(lines: str) -> dict[str, JobState]:
    """The jobs of lines ``id|state|reason|nodes``, or with ``|start``. Of the lines of a requeued job the last counts."""
    known = {}
    for job, state, reason, nodes, *start in (line.split("|") for line in lines.splitlines() if line.count("|") > 2):
        state = state.partition(" ")[0] or "UNKNOWN"  # "CANCELLED by 1000"
        reason = "" if reason in ("None", "(null)") else reason
        known[job] = JobState(job, state, reason, nodes, "" if start in ([], ["N/A"]) else start[0])
    return known


def answers() -> bool:
    """True if a Slurm here takes jobs: ``sbatch`` is on PATH, and the controller answers within seconds."""
    try:
        return shutil.which("sbatch") is not None and ask("sinfo", "-h", "-o", "%P", limit_s=QUICK_S).returncode == 0
    except HarnessError:
        return False


def ask(*argv: str, text: str = "", limit_s: float = ANSWER_S) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm's, with ``text`` to read. Raises SlurmSilent, InvalidInput if it is not on PATH."""
    env = {name: value for name, value in os.environ.items() if name in KEPT or not VARIABLES.match(name)}
    try:
        return subprocess.run(
            argv, input=text, capture_output=True, text=True, errors="replace", timeout=limit_s, env=env
        )
    except FileNotFoundError:
        instead = "run this where Slurm is, or use --dry-run to see the job script"
        raise InvalidInput(f"{argv[0]} is not on PATH: {instead}") from None
    except subprocess.TimeoutExpired:
        raise SlurmSilent(f"{argv[0]}: no answer in {limit_s} s") from None


def words(stderr: str) -> str:
    """Slurm's complaint in one line, without the names of those who passed it on."""
    lines = [PASSED_ON.sub("", line.strip()) for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line and not HELP.match(line))) or "no reason given"

"""Slurm as a client: submit a job, ask what became of it, cancel it.

``squeue`` knows the jobs of the last minutes; ``sacct``, where the site has accounting, all of them. What neither knows is
``UNKNOWN``, and then the run directory has to say it.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError, InvalidInput, RunFailed
from harness.sites.site import Site

ANSWER_S = 60  # a busy controller takes its time
QUICK_S = 5  # what a person who has not named a cluster waits for one
QUEUED = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
CANCELLED = frozenset({"CANCELLED", "PREEMPTED", "REVOKED"})
PASSED_ON = re.compile(r"^(?:(?:sbatch|scancel|sinfo|squeue|srun|allocation failure|error|fatal): )+")
HELP = re.compile(r"^Try .*--help")
NEVER = "NEVER"  # our own word for a job that we cancelled because it could not start
# A job that waits for one of these waits for ever.
HOPELESS = re.compile(
    "AccountNotAllowed|BadConstraints|DependencyNeverSatisfied|InvalidAccount|InvalidQOS|"
    "PartitionConfig|PartitionNodeLimit|PartitionTimeLimit|QOSNotAllowed"
)
# What may help where a job asks for more than its partition allows.
REMEDIES = {
    "PartitionConfig": "fewer --nodes or a shorter --time-limit may help",
    "PartitionTimeLimit": "a shorter --time-limit may help",
}


class SlurmSilent(HarnessError):
    """Slurm's controller does not answer. Nothing is known about any job, and nothing is lost."""


class JobRefused(InvalidInput):
    """Slurm does not take a job. ``words`` are its own."""

    def __init__(self, script: Path, words: str) -> None:
        super().__init__(f"Slurm refuses the job {script}: {words}")
        self.words = words


@dataclass(frozen=True)
class JobState:
    """What Slurm says of a job. ``reason`` is why it waits or ended, "" for none; ``starts`` is Slurm's guess."""

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
    """Submit a job, return its id. Of a ``lane``'s one runs at a time.

    Raises JobRefused, SlurmSilent, InvalidInput, and RunFailed when it is not known whether there is a job.
    """
    options = ["--dependency=singleton", f"--job-name={lane}"] if lane else []
    done = ask("sbatch", "--parsable", *options, str(script))
    if done.returncode != 0:
        complaint = words(done.stderr)
        if _no_answer(complaint):
            raise SlurmSilent(f"sbatch: {complaint}")
        raise JobRefused(script, complaint)
    if not done.stdout.strip():
        raise RunFailed(f"sbatch has named no job for {script}: see with squeue whether there is one, and scancel it")
    return done.stdout.strip().splitlines()[-1].partition(";")[0]


def states(ids: Collection[str]) -> dict[str, JobState]:
    """The state of every job in ``ids``. Raises SlurmSilent when the controller does not answer."""
    if not ids:
        return {}
    known = _queue("--me")
    if (missing := sorted(set(ids) - known.keys())) and shutil.which("sacct"):
        done = ask("sacct", "-n", "-P", "-X", "-D", "-j", ",".join(missing), "-o", "JobID,State,Reason,NodeList")
        known |= {} if done.returncode else _jobs(done.stdout)  # some sites keep no accounts
    if missing := sorted(set(ids) - known.keys()):  # somebody else's, perhaps
        known |= _queue("-j", ",".join(missing))
    return {job: known.get(job, JobState(job, "UNKNOWN")) for job in ids}


def cancel(ids: Collection[str]) -> None:
    """Cancel jobs; those that have ended already do not matter. Raises SlurmSilent when the controller does not answer."""
    if not ids:
        return
    done = ask("scancel", *sorted(ids))
    if done.returncode != 0 and _no_answer(complaint := words(done.stderr)):
        raise SlurmSilent(f"scancel: {complaint}")


def dead_nodes(names: Collection[str]) -> list[str]:
    """Those of the nodes that Slurm calls down; none when it does not say."""
    try:
        done = ask("sinfo", "-h", "-N", "-n", ",".join(names), "-o", "%N %t")
    except HarnessError:
        return []
    rows = [line.split() for line in done.stdout.splitlines()]
    return sorted({row[0] for row in rows if len(row) == 2 and row[1].startswith(("down", "fail"))})


def asked_about(site: Site, options: Sequence[str] = ()) -> Site:
    """``site`` with the cores that its profile leaves open and the longest time limit, as Slurm, where it is, knows them.

    They are those of the partition among a person's own ``options``, else of the site's, else of Slurm's default one.
    """
    chosen = _partition(options)  # of several the last one counts, as for sbatch
    if (site.cores_per_node and site.time_limit_s and not chosen) or not shutil.which("sinfo"):
        return site
    partition = [*_partition(site.access), *chosen]
    try:
        done = ask("sinfo", "-h", *partition, "-o", "%P %X %Y %l")
    except SlurmSilent:
        return site
    rows = re.findall(r"^\S+?(\*?) (\d+)\+? (\d+)\+? (\S+)$", done.stdout, re.MULTILINE)
    used = [row for usual, *row in rows if partition or usual]
    cores = min((int(sockets) * int(per_socket) for sockets, per_socket, _ in used), default=None)
    longest_s = max((seconds for _, _, text in used if (seconds := limit_s(text))), default=None)
    limits_s = [seconds for seconds in (site.time_limit_s, longest_s) if seconds]
    known = {"cores_per_node": site.cores_per_node or cores, "time_limit_s": min(limits_s, default=None)}
    return site.model_copy(update=known)


def _partition(options: Sequence[str]) -> list[str]:
    """The words of those of ``options`` that choose a partition."""
    return [word for option in options if option.startswith(("--partition", "-p")) for word in shlex.split(option)]


def limit_s(text: str) -> float | None:
    """Seconds in sinfo's ``days-hours:minutes:seconds``; None for "infinite" and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not match:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def _queue(*whose: str) -> dict[str, JobState]:
    done = ask("squeue", *whose, "-h", "--states=all", "-o", "%i|%T|%r|%N|%S")
    if done.returncode != 0 and "Invalid job id" not in done.stderr:
        raise SlurmSilent(f"squeue: {words(done.stderr)}")
    return _jobs(done.stdout)


def _jobs(lines: str) -> dict[str, JobState]:
    """The jobs of lines ``id|state|reason|nodes``, or with ``|start``. Of the lines of a requeued job the last counts."""
    known = {}
    for job, state, reason, nodes, *start in (line.split("|") for line in lines.splitlines() if line.count("|") > 2):
        why = "" if reason in ("None", "(null)") else reason
        starts = "" if start in ([], ["N/A"]) else start[0]
        known[job] = JobState(job, state.partition(" ")[0] or "UNKNOWN", why, nodes, starts)  # "CANCELLED by 1000"
    return known


def answers() -> bool:
    """There is a Slurm here that takes jobs: ``sbatch`` on PATH and, within seconds, an answer of the controller."""
    try:
        return shutil.which("sbatch") is not None and ask("sinfo", "-h", "-o", "%P", limit_s=QUICK_S).returncode == 0
    except HarnessError:
        return False


def ask(*argv: str, text: str = "", limit_s: float = ANSWER_S) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm's, with ``text`` to read. Raises SlurmSilent, InvalidInput if it is not on PATH."""
    try:
        return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=limit_s)
    except FileNotFoundError:
        raise InvalidInput(
            f"{argv[0]} is not on PATH: run this where Slurm is, or use --dry-run to see the job script"
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmSilent(f"{argv[0]}: no answer in {limit_s} s") from None


def words(stderr: str) -> str:
    """Slurm's complaint in one line, without the names of those who passed it on."""
    lines = [PASSED_ON.sub("", line.strip()) for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line and not HELP.match(line))) or "no reason given"


def _no_answer(complaint: str) -> bool:
    return bool(re.search(r"[Uu]nable to contact slurm|timed? ?out|Connection refused", complaint))

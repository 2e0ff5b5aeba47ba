"""Runs in a batch job, before and after each repeat: gives the plan's nodes their hosts, and notes how the repeat ended.

It runs outside an image, where there may be no other Python than the system's: 3.6.

    python seat.py --run DIR --repeat K              writes repeat-K/hosts.json and repeat-K/hostfile
    python seat.py --run DIR --repeat K --ended 0    writes repeat-K/ended.json with srun's exit code

Exits with code 3 when the repeat must not be measured: the run has its record already, an earlier repeat of the job
failed, or another job has measured it or is about it.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bootstrap  # noqa: F401

from harness.files import write_atomically
from harness.worker.agent.seating import PLAN, SUBMISSION, Hosts, digest_of, folder_of, host_file, seated

NOT_MEASURED = 3


def _main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--run", type=Path, required=True)
    options.add_argument("--repeat", type=int, required=True)
    options.add_argument("--address", default="{host}", help="the name by which nodes reach each other")
    options.add_argument(
        "--promised", default="", metavar="NAMES", help="variables that every task has as the job does"
    )
    options.add_argument("--cpus", type=int, default=0, help="of a node, 0 if not known")
    options.add_argument("--ended", type=int)
    arguments = options.parse_args()
    run_dir, repeat_dir = arguments.run, folder_of(arguments.run, arguments.repeat)
    # The number of this job, and how often it was requeued.
    job = os.environ["SLURM_JOB_ID"], int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    if arguments.ended is not None:
        hosts = Hosts.read(repeat_dir)
        if hosts is not None and (hosts.job, hosts.restart) == job:  # else another job has taken it over
            end = {"code": arguments.ended, "ended": _now()}
            write_atomically(repeat_dir / "ended.json", json.dumps(end))
        return 0
    reason = _reason_to_leave_out(run_dir, repeat_dir, job)
    names = [name for name in arguments.promised.split(",") if name in os.environ]
    promised = {"promised": {name: os.environ[name] for name in names}, "cpus": arguments.cpus}
    if not reason and not _seat(run_dir, repeat_dir, job, arguments.address, promised):
        reason = "another job was faster"
    if reason:
        print(f"repeat {arguments.repeat} is left out: {reason}")
        return NOT_MEASURED
    return 0


def _reason_to_leave_out(run_dir: Path, repeat_dir: Path, job: Tuple[str, int]) -> str:
    """Why this repeat is left out, "" if it is not. Another job may have it: somebody may submit a script twice."""
    submission = json.loads((run_dir / SUBMISSION).read_text())
    if (run_dir / submission.get("record", "record.json")).exists():
        return "the run has its record already"
    hosts = Hosts.read(repeat_dir)
    if hosts is not None and hosts.job != job[0]:
        code = _code(repeat_dir)
        if code == 0:
            return f"job {hosts.job} has measured it already"
        # A job that Slurm has forgotten is not running.
        states = _answer("squeue", "-h", "-o", "%T", "-j", str(hosts.job), check=False)
        if code is None and states and states[0] in ("RUNNING", "COMPLETING", "SUSPENDED"):
            return f"job {hosts.job} is measuring it"
    for earlier in sorted(run_dir.glob("repeat-*")):
        hosts = Hosts.read(earlier)
        if hosts is not None and (hosts.job, hosts.restart) == job and _code(earlier) not in (0, None):
            return f"{earlier.name} failed"
    return ""


def _code(repeat_dir: Path) -> Optional[int]:
    """The exit code that a repeat ended with, None if it has not ended."""
    with suppress(FileNotFoundError):
        return int(json.loads((repeat_dir / "ended.json").read_text())["code"])
    return None


def _seat(run_dir: Path, repeat_dir: Path, job: Tuple[str, int], pattern: str, promised: Dict[str, Any]) -> bool:
    """Give the repeat its folder and its hosts; False if another job was faster."""
    # Files of a failed job, or of this one before it was requeued, are set aside: they must not be mixed with these.
    for earlier in run_dir.glob("repeat-*"):
        hosts = Hosts.read(earlier)
        if earlier == repeat_dir or (hosts is not None and hosts.job == job[0] and hosts.restart != job[1]):
            target = run_dir / "set-aside" / (f"{hosts.job}.{hosts.restart}" if hosts is not None else "unfinished")
            while (target / earlier.name).exists():
                target = target.with_name(target.name + "+")
            target.mkdir(parents=True, exist_ok=True)
            earlier.rename(target / earlier.name)
    plan = json.loads((run_dir / PLAN).read_text())
    needed = 1 + max(process["node"] for process in plan["processes"])
    names = _answer("scontrol", "show", "hostnames")
    if len(names) < needed:
        raise SystemExit(f"the plan needs {needed} nodes, the job has {len(names)}")
    digest = digest_of(plan["container"]) if plan.get("container") else ""
    hosts = Hosts(list(zip(names, _addresses(names[:needed], pattern))), _now(), *job, digest=digest, **promised)
    # The folder appears with all that is in it, or not at all: of two jobs that begin at the same moment one gets it.
    ours = run_dir / f".{repeat_dir.name}-{job[0]}.{job[1]}"
    for folder in ("events", "logs"):
        (ours / folder).mkdir(parents=True, exist_ok=True)
    (ours / "hostfile").write_text(host_file(seated(plan, hosts)))
    hosts.write(ours)
    try:
        ours.rename(repeat_dir)
    except OSError:
        shutil.rmtree(ours)
        return False
    return True


def _addresses(names: List[str], pattern: str) -> List[str]:
    """The IPv4 address of every node as the others see it. A name may mean 127.0.1.1 to its host; then Slurm is asked."""
    addresses: List[str] = []
    for name in names:
        address = address_of(pattern.replace("{host}", name))
        if address.startswith("127.") and len(names) > 1:
            shown = _answer("scontrol", "show", "node", "-o", name)
            known = [word.partition("=")[2] for word in shown if word.startswith("NodeAddr=")]
            address = address_of(known[0]) if known else address
            if address.startswith("127."):
                raise SystemExit(f"{name} is known here only as {address} (see extras.address of the site)")
        addresses.append(address)
    return addresses


def address_of(name: str) -> str:
    """The IPv4 address of a host, as this host sees it. Raises SystemExit where there is none."""
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        with suppress(OSError):
            (*_, (address, *_)), *_ = socket.getaddrinfo(name, None, socket.AF_INET6)
            raise SystemExit(
                f"{name} has only IPv6 addresses ({address}), and the backends need IPv4: give the names of these "
                "nodes on a network with IPv4 by extras.address of the site"
            ) from None
        raise SystemExit(f"the address of {name} is not known here: {error} (see extras.address of the site)") from None


def _answer(*command: str, check: bool = True) -> List[str]:
    return subprocess.run(command, stdout=subprocess.PIPE, check=check).stdout.decode(errors="replace").split()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    sys.exit(_main())

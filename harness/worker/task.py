"""One process of a run on a host that the controller cannot see: starts it, waits for it, and notes how it ended.

    python task.py --run DIR --repeat K [--index I]

Slurm starts one per task, and its number in the job step is the number of the process in the plan. The task itself sleeps
while the process works. When the process ends, or does not end in time, an ``exit`` event says how, so that whoever reads
the run directory can tell which rank failed, on which host, and why. A task that dies takes its process with it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bootstrap  # noqa: F401

from harness.worker.events import Events
from harness.worker.seating import Hosts, seated

GRACE_S = 3.0  # between asking a process to end and killing it
SAME_MOMENT_S = 0.5  # a batch system signals the task and its process; either may be told first
TIMED_OUT = 124  # as coreutils' timeout


class Ended(Exception):
    """The launcher asked this task to end."""


def _main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--repeat", type=int, required=True)
    parser.add_argument("--index", type=int, default=os.environ.get("SLURM_PROCID"))
    arguments = parser.parse_args()
    if arguments.index is None:
        parser.error("--index is needed where there is no SLURM_PROCID")
    repeat_dir = arguments.run / f"repeat-{arguments.repeat}"
    plan = seated(json.loads((arguments.run / "plan.json").read_text()), Hosts.read(repeat_dir))
    process = plan["processes"][arguments.index]
    name = f"{process['role']}-{process['rank']}"
    events = Events(repeat_dir / "events" / f"{name}.jsonl")
    log = repeat_dir / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    argv = [*process["argv"], "--repeat", str(arguments.repeat)]
    timeout_s = json.loads((arguments.run / "spec.json").read_text())["timeout_s"]
    if (here := os.environ.get("SLURMD_NODENAME", process["host"])) != process["host"]:
        events.emit("exit", how=f"was started on {here}, planned on {process['host']}", code=1)
        return 1
    with log.open("wb") as output:
        return _attend(argv, _environment(process), output, events, timeout_s)


def _attend(argv: List[str], env: Dict[str, str], output: Any, events: Events, timeout_s: float) -> int:
    def end(number: int, frame: object) -> None:
        raise Ended(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    try:
        # What PMI has opened for this task (close_fds) belongs to the process.
        child = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, close_fds=False
        )
    except OSError as error:
        events.emit("exit", how=f"cannot be started: {argv[0]}: {error.strerror}", code=1)
        return 1
    try:
        code = child.wait(timeout_s)
        if code == -signal.SIGTERM:
            time.sleep(SAME_MOMENT_S)
    except subprocess.TimeoutExpired:
        stopped = _is_stopped(child.pid)
        _end(child)
        events.emit("exit", how="timeout", stopped=stopped, code=TIMED_OUT)
        return TIMED_OUT
    except Ended as asked:
        _end(child)
        with suppress(OSError):
            events.emit("exit", how="ended by the launcher", asked=str(asked), code=143)
        return 143
    if code < 0:
        events.emit("exit", how=f"was killed by {signal.Signals(-code).name}", code=code)
        return 128 - code
    with suppress(OSError):  # a full disk; the exit code has to do
        events.emit("exit", how=f"exited with code {code}", code=code)
    return code


def _environment(process: Dict[str, Any]) -> Dict[str, str]:
    """The plan's variables over this host's. A batch system may have handed out other GPUs than the first ones."""
    env = {**os.environ, **process["env"], "HARNESS_LAUNCHER_PID": str(os.getpid())}
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    planned = [int(number) for number in process["env"].get("CUDA_VISIBLE_DEVICES", "").split(",") if number]
    if planned and max(planned) < len(given) and all(given):
        env["CUDA_VISIBLE_DEVICES"] = ",".join(given[number] for number in planned)
    return env


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask the process to end, wait a little, kill it. A stopped one is killed too."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    child.kill()
    child.wait()


def _is_stopped(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


if __name__ == "__main__":
    sys.exit(_main())

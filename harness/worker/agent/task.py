"""One process of a run on a host that the controller cannot see: starts it, waits for it, and notes how it ended.

    python task.py --run DIR --repeat K [--index I] [--channel]

Slurm starts one per task, and its number in the job step is the number of the process in the plan. The task itself sleeps
while the process works. When the process ends, or does not end in time, an ``exit`` event says how, so that whoever reads
the run directory can tell which rank failed, on which host, and why. A task that dies takes its process with it.

Where there is no batch system, ssh starts each task with ``--channel``: then its stdin and stdout are its line to the
controller (see ``channel.py``), and when that breaks the process ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bootstrap  # noqa: F401

from harness.errors import signal_name
from harness.worker import gpus, network, proc
from harness.worker.agent.channel import Channel, Ended
from harness.worker.agent.seating import SPEC, Hosts, folder_of, name_of, plan_of
from harness.worker.process import LAUNCHER, Events, parser

GRACE_S = 3.0  # between asking a process to end and killing it
TIDYING_S = 0.2  # between its end and killing what it has started, which may tidy up meanwhile (``remove_sockets``)
PAUSE_S = 0.05  # between two looks, as long as those of Popen are apart
SKEW_S = 3.0  # between the starts of tasks: each sees its own timeout before the first one ends its process
SAME_MOMENT_S = 0.5  # a batch system signals the task and its process; either may get it first
TIMED_OUT = 124  # as coreutils' timeout
MOST = 0.75  # of a node's CPUs: some sites set a few aside for the system
ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM)  # the last: the channel has been silent


def _main() -> int:
    options = parser()
    number = os.environ.get("SLURM_PROCID")
    options.add_argument("--index", type=int, default=number, required=number is None)
    options.add_argument("--channel", action="store_true", help="stdin and stdout lead to the controller")
    arguments = options.parse_args()
    run_dir, repeat = arguments.run, arguments.repeat
    try:
        channel = Channel(run_dir, repeat) if arguments.channel else None
    except Ended:
        return 1
    repeat_dir = folder_of(run_dir, repeat)
    plan = plan_of(run_dir, repeat)
    processes = plan["processes"]
    process = processes[arguments.index]
    sharing = [each["env"].get("CUDA_VISIBLE_DEVICES", "") for each in processes if each["node"] == process["node"]]
    timeout_s = json.loads((run_dir / SPEC).read_text())["timeout_s"]
    name = name_of(process)
    log, events_file = repeat_dir / "logs" / f"{name}.log", repeat_dir / "events" / f"{name}.jsonl"
    events = Events(events_file)
    log.parent.mkdir(parents=True, exist_ok=True)
    end: Optional[Dict[str, Any]] = None
    if channel:
        channel.follow(log=log, events=events_file, parameters=repeat_dir / f"parameters-{process['rank']}.npz")
    elif (here := os.environ.get("SLURMD_NODENAME", process["host"])) != process["host"]:
        events.emit("exit", how=f"was started on {here}, planned on {process['host']}", code=1)
        return 1
    elif broken := _broken_promise(Hosts.read(repeat_dir), process["address"], "container" in plan):
        events.emit("exit", how=f"cannot be started: {broken}", code=1)
        return 1
    try:
        with log.open("wb") as output:
            argv = [*process["argv"], "--repeat", str(repeat)]
            end = _attend(argv, process, sharing, output, timeout_s, channel)
        with suppress(OSError):  # a full disk; the exit code has to do
            events.emit("exit", **end)
    finally:
        if channel:
            channel.close(end)
    code: int = end["code"]
    return code if code >= 0 else 128 - code


def _broken_promise(hosts: Optional[Hosts], address: str, in_image: bool) -> str:
    """The difference of this task from the job that its site has set up, "" for none. An image may set paths of its own."""
    if hosts is None:
        return ""
    promised = hosts.promised or {}
    for name, value in promised.items():
        here = os.environ.get(name)
        if here != value and not (in_image and (name == "LOADEDMODULES" or name.endswith("PATH"))):
            is_here = "is not set" if here is None else f"is {here!r}"
            return f"{name} {is_here} here, and {value!r} in the job: srun has not passed it on, or the node changes it"
    cards = promised.get("NCCL_SOCKET_IFNAME", "").lstrip("=")
    if cards and not cards.startswith("^"):
        names = [name for _, name in socket.if_nameindex()]
        if not any(name.startswith(card.strip()) for card in cards.split(",") for name in names):
            return f"no interface here is called {cards} (NCCL_SOCKET_IFNAME); there are {', '.join(names)}"
    cpus = len(os.sched_getaffinity(0))
    if cpus < MOST * hosts.cpus:
        return f"this task may use {cpus} of the {hosts.cpus} CPUs that the site's profile gives a node"
    try:
        network.interface_of(address)
    except RuntimeError as error:
        return str(error)
    return ""


def _attend(
    argv: List[str],
    process: Dict[str, Any],
    sharing: List[str],
    output: Any,
    timeout_s: float,
    channel: Optional[Channel],
) -> Dict[str, Any]:
    """Start the process and wait for its end. Returns how it ended, and its exit code as ``Popen`` has it.

    ``sharing`` are the planned GPUs of each process of its node.
    """
    starting = True
    asked_early: List[str] = []

    def end(number: int, frame: object) -> None:
        if starting:  # a process that is just being made would be lost, and so would the event of its end
            asked_early.append(signal.Signals(number).name)
        else:
            raise Ended(signal.Signals(number).name)

    for number in ASKING:
        signal.signal(number, end)
    try:
        env = _environment(process, sharing)
        if channel:
            env = channel.variables(process, env)
        # Files that PMI has opened for this task (close_fds) belong to the process.
        child = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            close_fds=False,
            start_new_session=channel is not None,
        )
    except (OSError, RuntimeError) as error:
        why = f"{argv[0]}: {error.strerror}" if isinstance(error, OSError) else error
        return {"how": f"cannot be started: {why}", "code": 1}
    try:
        starting = False
        if asked_early:
            raise Ended(asked_early[0])
        try:
            code = channel.wait(child, timeout_s) if channel else _wait(child, timeout_s)
        except Ended:
            code = child.poll() or 0
            if code >= 0 or -code in ASKING:
                raise
            # Killed a moment ago: another rank has failed of it already, and for that the launcher ends this task.
        if code == -signal.SIGTERM:
            time.sleep(SAME_MOMENT_S)
    except subprocess.TimeoutExpired:
        state = proc.stat(child.pid)[0]
        _end(child, after_s=SKEW_S)
        return {"how": "timeout", "stopped": state == "T", "code": TIMED_OUT}
    except Ended as signalled:
        _end(child)
        return {"how": "ended by the launcher", "asked": str(signalled), "code": 143}
    finally:
        _heed_nobody()  # how the process ended is still to be noted
        if channel:  # whatever it has forked was in its group, here without a batch system that would clear it away
            if child.returncode:
                time.sleep(TIDYING_S)
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
    return {"how": how, "code": code}


def _wait(child: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Do as ``child.wait(timeout_s)``; a signal that interrupts it does not lose how the process ended."""
    deadline = time.monotonic() + timeout_s
    while proc.exit_code(child.pid) is None:
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(child.args, timeout_s)
        time.sleep(PAUSE_S)
    return child.wait()


def _environment(process: Dict[str, Any], sharing: List[str]) -> Dict[str, str]:
    """The plan's variables over this host's. A batch system may have handed out other GPUs than the first ones.

    Raises RuntimeError if it has handed out none, or not as many as the processes of the node are to have.
    """
    env = {**os.environ, **process["env"], LAUNCHER: str(os.getpid())}
    planned, handed_out = process["env"].get("CUDA_VISIBLE_DEVICES", ""), os.environ.get("CUDA_VISIBLE_DEVICES", "")
    bound = "SLURM_GPUS_PER_TASK" in os.environ or "gpu" in os.environ.get("SLURM_TRES_PER_TASK", "")
    devices = gpus.visible(planned, handed_out)
    if bound and devices is None and len(handed_out.split(",")) == len(planned.split(",")):
        devices = handed_out  # each task has been handed its own
    elif planned and devices != planned:
        least = 1 + max((int(name) for names in sharing for name in names.split(",") if name.isdigit()), default=0)
        count = 0 if handed_out in gpus.NONE else len(handed_out.split(","))
        if count < least:
            raise RuntimeError(
                f"the batch system gave this task {count or 'no'} GPUs (CUDA_VISIBLE_DEVICES={handed_out}), and the "
                f"processes of its node are to have {least}"
            )
    return {**env, "CUDA_VISIBLE_DEVICES": devices or "", gpus.HANDED_OUT: handed_out}


def _end(child: subprocess.Popen[bytes], after_s: float = 0.0) -> None:
    """Ask the process to end, wait a little, kill it. A stopped one is killed too."""
    _heed_nobody()
    time.sleep(after_s)
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    child.kill()
    child.wait()


def _heed_nobody() -> None:
    """Ignore all signals that ask this task to end."""
    for number in ASKING:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(_main())

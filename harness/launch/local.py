"""The local launcher: every process of the plan on this machine, the nodes side by side.

Its promise is that nothing outlives it. Each process leads a process group of its own, so that whatever it forks goes with
it; processes ask Linux to be killed when this launcher dies (``HARNESS_LAUNCHER_PID``); and every way out of ``run`` ends
the groups that are left.
"""

import ctypes
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from itertools import takewhile
from pathlib import Path

import psutil

from harness import kernels, models
from harness.core.plan import LAST_PORT, Allocation, LaunchPlan, Node
from harness.core.spec import RunSpec
from harness.core.text import plural
from harness.errors import InvalidInput, RunFailed
from harness.launch import apart, forked, pmi
from harness.launch.forked import Started, StartRequest
from harness.launch.watch import Followed, Progress, Watch, exit_failure, supervise
from harness.sites.site import Site
from harness.worker import gpus, proc
from harness.worker.network import listen
from harness.worker.process import LAUNCHER, PR_GET_CHILD_SUBREAPER, PR_SET_CHILD_SUBREAPER, ending_with_this

ADDRESS = "127.0.0.1"
ROOT = Path("/")  # where /proc and /sys are
MOST_PER_CORE = 16  # processes: more of them wait for one another most of the time
LEAST_BYTES = 100e6  # of memory that a process with a framework takes for itself, before it has a model
# Of a control group, in versions 1 and 2: its limit, what it uses, and what of that are files that are not in use.
CGROUP_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
CGROUP_2 = ("memory.max", "memory.current", "inactive_file")
GRACE_S = 3.0  # between asking a process to end and killing it
TIDYING_S = 0.5  # between its end and killing what it has started, at most
GPU = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")  # what CUDA_VISIBLE_DEVICES may name: a number, a UUID, a MIG instance
PORTS = range(20000, 30000)  # below the ephemeral ports that the kernel hands out

# MPI's ranks on different "nodes" talk TCP over the loopback interface, as every other transport does here. MPICH uses
# libfabric for it: with UCX's TCP an allreduce of 16 MB between two ranks took 1.5 s here, with libfabric's 16 ms.
MPI_ENV = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "lo"}
MARK = "HARNESS_REPEAT"  # the variable by which whatever a repeat has started is known, in sessions of its own too
SEGMENTS = Path("/dev/shm")  # noqa: S108 - where MPICH's processes of a node share memory
OLD_S = 60.0  # from which on nobody is about to map it
# PMI's and PMIx's variables, where harness itself was started as a rank of somebody else's world.
OF_OTHER_WORLDS = "PMI"


def allocation(nodes: int, processes: int, port: int | None) -> Allocation:
    """Nodes that share the cores and GPUs of this machine, and ports from ``port`` on or free ones. Raises InvalidInput."""
    cores = len(os.sched_getaffinity(0))
    devices = local_gpus()
    share = len(devices) // nodes
    return Allocation(
        nodes=tuple(Node(f"node{i}", ADDRESS, tuple(devices[i * share : (i + 1) * share])) for i in range(nodes)),
        cores_per_node=max(1, cores // nodes),
        base_port=_free_ports(processes, port),
        mpi_env=MPI_ENV,
    )


def shortage(plan: LaunchPlan, spec: RunSpec) -> str:
    """The reason why this machine cannot hold the processes of ``plan`` and the data of ``spec``, "" if it can.

    It says what would fit. The memory is a lower bound: the parameters and gradients of every replica and of the servers,
    and, on CPUs, the output of each convolution, which the backward pass needs.
    """
    cores, processes = len(os.sched_getaffinity(0)), len(plan.processes)
    elsewhere = "give --site NAME of a cluster (see `harness list sites`), or --force"
    if apart.is_open(plan.backend) and (people := apart.others()) and not apart.possible():
        return (
            f"--backend {plan.backend}: its servers let in whoever reaches them, who could read and write your files, and "
            f"this machine has other users ({', '.join(people[:3])}) and no network of its own for a run: {elsewhere}"
        )
    if processes > (most := cores * MOST_PER_CORE):
        fewer = most * spec.nodes // processes
        smaller = f"--nodes {fewer} would fit; else " if fewer else ""
        problem = f"this machine's {plural(cores, 'core')} can hold {most} processes, the run has {processes:,}"
        return f"{problem}: {smaller}{elsewhere}"
    if spec.program:
        return ""  # nobody knows the memory that a program needs
    needed, free = processes * LEAST_BYTES, free_memory()
    if spec.kernel:
        kernel = kernels.specification(spec.kernel.name)
        needed += spec.workers * kernel.memory(max(spec.kernel.sizes), spec.workers)
        smaller = f"a smaller {kernel.option} may fit; else "
    else:
        model = models.specification(spec.model, spec.bytes_scale)
        pixels = model.pixels(spec.image_size or model.image_size)
        outputs = sum(convolution.outputs * count for convolution, count in pixels.items())
        image = 0 if spec.device == "cuda" or spec.emulated else outputs * (4 if spec.precision == "fp32" else 2)
        needed += (spec.workers + any(process.role == "ps" for process in plan.processes)) * 2 * model.bytes
        batch = int((free - needed) // (spec.workers * image)) if image else 0
        smaller = f"--batch-size {batch} may fit; else " if batch > 0 else ""
        needed += spec.global_batch * image
    sizes = f"{needed / 1e9:.0f} GB of memory or more, and this machine has {free / 1e9:.0f} GB free"
    return f"this run needs {sizes}: {smaller}{elsewhere}" if needed > free else ""


def free_memory() -> int:
    """Bytes of memory that processes started from here may still take: those that are free, or fewer in a control group.

    The smallest limit counts. Memory that holds files only is given back when it is needed.
    """
    free: list[int] = [psutil.virtual_memory().available]
    with suppress(OSError):
        for version, group in proc.control_groups("memory", ROOT):
            limit, usage, files = CGROUP_1 if version == 1 else CGROUP_2
            with suppress(OSError, ValueError):  # it is not seen from within a container, or its limit is "max"
                most, used = int((group / limit).read_text()), int((group / usage).read_text())
                held = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                free.append(most - used + int(held.get(files, 0)))
    return max(0, min(free))


def local_gpus() -> list[str]:
    """The NVIDIA GPUs and MIG instances that CUDA_VISIBLE_DEVICES leaves visible here, as it names them.

    Without it they are all that nvidia-smi lists, by UUID, or else the driver's, by number. No framework is loaded.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return _listed_gpus()
    names = (name.strip() for name in visible.split(","))
    return list(takewhile(GPU.fullmatch, names))  # as CUDA does: the first name that is wrong hides those after it


@cache  # it may take a second, and a table asks for every backend
def _listed_gpus() -> list[str]:
    listed = gpus.devices(gpus.ask("-L"))
    return listed or [str(number) for number, _ in enumerate(gpus.listed_by_driver())]


def run(watch: Watch, on_progress: Callable[[Progress], None], site: Site | None) -> None:
    """Run one repeat to its end, and follow its events.

    A ``site`` of namespaces has nodes on this machine with a network and a host name of their own. Where a device is
    emulated, processes are forked from one that has imported the framework, if that has no threads.

    Raises RunFailed naming the process, its host and the last lines of its log when a process fails or hangs; by then
    no process is left. Other interruptions, such as Ctrl-C, leave no process either.
    """
    plan, running = watch.plan, dict[int, Started]()
    opening = ending_with_this(plan.container["command"]) if plan.container else []  # the image
    if plan.mpi:
        remove_segments()
    with ExitStack() as stack:
        stack.enter_context(_nothing_is_left(watch.repeat_dir))
        network = stack.enter_context(apart.network()) if site is None and apart.is_open(plan.backend) else []
        world = pmi.world(plan)
        if world:
            stack.callback(world.close)
        with ExitStack() as inherited:  # sockets, which are closed here once those who need them have them
            starts = [_start(followed, watch, world, site, inherited) for followed in watch.followed]
            if plan.emulation and not opening:
                nursery = forked.Nursery(watch, starts, network)
                stack.callback(nursery.close)
                running |= nursery.start(starts)
            stack.callback(lambda: _end(list(running.values())))
            for start in starts if not running else []:
                running[start.followed.process.index] = _started(start, watch.repeat, [*network, *opening])
        supervise(
            watch,
            lambda index: running[index].poll(),
            lambda codes: exit_failure(watch, codes),
            on_progress,
            is_stopped=lambda index: running[index].status() == psutil.STATUS_STOPPED,
        )


def _start(
    followed: Followed, watch: Watch, world: pmi.MpiWorld | None, site: Site | None, inherited: ExitStack
) -> StartRequest:
    process = followed.process
    env = {**(site.environment(os.environ) if site else os.environ), **process.env, LAUNCHER: str(os.getpid())}
    env[MARK] = str(watch.repeat_dir)
    if watch.plan.container:  # what opens the image is between the process and this launcher, which ends with it
        del env[LAUNCHER]
    fds: tuple[int, ...] = ()
    if world:
        env = {name: value for name, value in env.items() if not name.startswith(OF_OTHER_WORLDS)}
        variables, end = world.member(process.index)
        env |= variables
        fds = (inherited.enter_context(end).fileno(),)
    namespaces = site.namespaces_of(process.host) if site else None
    return StartRequest(followed, env, fds, namespaces)


def _started(start: StartRequest, repeat: int, opening: Sequence[str]) -> Started:
    process = start.followed.process
    inside = ["nsenter", f"--target={start.namespaces}", "--net", "--uts", "--"] if start.namespaces else []
    try:
        with start.followed.log.open("wb") as log:
            popen = subprocess.Popen(
                [*inside, *opening, *process.argv, "--repeat", str(repeat)],
                env=start.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=start.fds,
            )
        poll = partial(proc.exit_code, popen.pid)
        return Started(popen.pid, poll, lambda: popen.returncode is None, reap=popen.poll)
    except OSError as error:
        where = f"{process.role} rank {process.rank} on {process.host}"
        raise RunFailed(f"{where} cannot be started: {process.argv[0]}: {error.strerror}") from None


def _end(processes: Sequence[Started]) -> None:
    """End every process group that is left: ask, wait a little, kill. Stopped processes are killed too.

    Children of a process are not asked: decoders see that it is gone, and remove the temporary files that both share.
    """

    def send(kill: Callable[[int, int], None], number: signal.Signals) -> None:
        for process in processes:
            if process.is_held():
                with suppress(ProcessLookupError):  # it, or the whole group, is gone
                    kill(process.pid, number)
        _wait(lambda: all(process.poll() is not None for process in processes), GRACE_S)

    try:
        send(os.kill, signal.SIGTERM)
        groups = {process.pid for process in processes if process.is_held()}
        _wait(lambda: not _others_in(groups), TIDYING_S)
    finally:  # also when Ctrl-C comes while we wait
        send(os.killpg, signal.SIGKILL)
        for process in processes:
            process.reap()


@contextmanager
def _nothing_is_left(repeat_dir: Path) -> Iterator[None]:
    """End all processes of a repeat in the end. Children of a process that somebody has killed become ours."""
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    mark = f"{MARK}={repeat_dir}".encode()
    try:
        yield
    finally:
        while left := [pid for pid in proc.descendants() if mark in _variables(pid)]:
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                with suppress(OSError):
                    os.waitpid(pid, 0)
        prctl(PR_SET_CHILD_SUBREAPER, before.value)


def _variables(pid: int) -> list[bytes]:
    """The variables that a process was started with, as NAME=VALUE; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def remove_segments() -> None:
    """Remove this user's shared memory of MPICH that nobody maps: its processes were killed with their launcher."""
    old = []
    for segment in SEGMENTS.glob("mpich*"):
        with suppress(OSError):
            status = segment.stat()
            old += [segment] if status.st_uid == os.getuid() and time.time() - status.st_mtime > OLD_S else []
    if not old:
        return
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            mapped += maps.read_text(errors="replace")
    for segment in old:
        if str(segment) not in mapped:
            segment.unlink(missing_ok=True)


def _wait(is_over: Callable[[], bool], longest_s: float) -> None:
    deadline = time.monotonic() + longest_s
    while not is_over() and time.monotonic() < deadline:
        time.sleep(0.02)


def _others_in(groups: Set[int]) -> bool:
    """True if there are other processes in ``groups`` than those that lead them."""
    for pid in psutil.pids():
        with suppress(ProcessLookupError):
            if pid not in groups and os.getpgid(pid) in groups:
                return True
    return False


def random_ports(count: int) -> int:
    """The first of ``count`` adjacent ports at a random place, so that concurrent runs keep apart; they may be in use."""
    return random.randrange(PORTS.start, PORTS.stop - min(count, len(PORTS) - 1))  # noqa: S311 - not a secret


def _free_ports(count: int, typed: int | None) -> int:
    """The first of ``count`` adjacent free ports: the one that was ``typed``, or else one at a random place."""
    for first in [typed] if typed is not None else (random_ports(count) for _ in range(100)):
        try:
            for port in range(first, min(first + count, LAST_PORT + 1)):
                listen(ADDRESS, port).close()
        except RuntimeError:
            continue
        return first
    if typed is None:
        ports = f"between {PORTS.start} and {PORTS.stop}"
        raise InvalidInput(f"no {count} adjacent free ports {ports}; give one with --port")
    needs = f"the run needs {typed}..{typed + count - 1}"
    raise InvalidInput(f"--port {typed}: port {port} is in use on this machine; {needs}")

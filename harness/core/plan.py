"""LaunchPlan: the processes of a run, from a spec and an allocation. Pure: nothing here touches a machine.

The plan is what ``--dry-run`` shows, what launchers execute and what workers read, so a 512-node job can be checked on a
laptop. Its size grows linearly with the processes: workers look each other up in the plan, not in their own arguments.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from harness import kernels, models
from harness.core.backend import Backend, Seat, working
from harness.core.emulation import emulation
from harness.core.program import PROGRAM_MAIN
from harness.core.spec import SYNTHETIC, RunSpec, variant_of
from harness.core.validation import checked
from harness.errors import InvalidInput
from harness.worker.steady import FEWEST

SCHEMA = "harness.plan/1"
WORKER_MAIN = Path(__file__).parents[1] / "worker" / "main.py"
LAST_PORT = 65535
MIG = "MIG-"  # what names of an NVIDIA GPU's instances begin with

# Workers talk to each other, never to the web. gRPC obeys these variables even for compute nodes.
NO_PROXY = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "")

# glibc returns every large block to the kernel at once: each of PyTorch's steps would fault its activations in again, and
# TensorFlow's input pipeline its images. With these thresholds the comparison measures frameworks, not page faults.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}


@dataclass(frozen=True)
class Node:
    """A host of the allocation."""

    name: str  # for people
    address: str  # for the other processes
    gpus: tuple[str, ...] = ()  # as in CUDA_VISIBLE_DEVICES: numbers, UUIDs ("GPU-…") or MIG instances ("MIG-…")


@dataclass(frozen=True)
class Allocation:
    """The hosts that a run gets, all alike."""

    nodes: tuple[Node, ...]
    cores_per_node: int
    base_port: int  # the first port that it may listen on
    # These name the MPI library that is meant, and how the hosts reach each other, where libraries need to know.
    mpi_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus_per_node(self) -> int:
        return min(len(node.gpus) for node in self.nodes)


@dataclass(frozen=True, kw_only=True)
class Process(Seat):
    """One process of the plan: a seat with its host. ``index`` is its place in the plan (under Slurm: its SLURM_PROCID)."""

    index: int
    host: str
    address: str
    port: int
    argv: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.role}-{self.rank}"


@dataclass(frozen=True)
class LaunchPlan:
    """All processes of one repeat."""

    backend: str
    trainer: str
    world_size: int  # worker processes
    mpi: bool  # all processes are the ranks of one MPI world
    processes: tuple[Process, ...]  # workers first and by rank
    details: Mapping[str, Any] = field(default_factory=dict)  # the backend's, see ``Arrangement``
    schema: str = SCHEMA
    emulation: Mapping[str, object] | None = None  # the fields of an ``Emulation``
    data_format: str | None = None  # of a training, if it is known
    container: Mapping[str, Any] | None = None  # an image that all processes run in, see ``launch.containers.within``

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1) + "\n"

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The plan that ``as_dict`` was called on. Raises InvalidInput for the plan of another version of harness."""
        if fields.get("schema") != SCHEMA:
            raise InvalidInput(f"plan.json has the schema {fields.get('schema')}; this harness reads {SCHEMA}")
        processes = tuple(Process(**process | {"argv": tuple(process["argv"])}) for process in fields["processes"])
        return cls(**{**fields, "processes": processes})

    @property
    def nodes(self) -> int:
        return hosts_of(self.processes)


def hosts_of(placed: Sequence[Seat] | Sequence[Process]) -> int:
    return 1 + max(seat.node for seat in placed)


def with_options(spec: RunSpec, backend: Backend) -> RunSpec:
    """``spec`` with all of the backend's own options, checked. Raises InvalidInput naming the first wrong one."""
    return spec.model_copy(update={"options": checked(backend.options, spec.options).model_dump()})


def complete(spec: RunSpec, backend: Backend, allocation: Allocation) -> RunSpec:
    """``spec`` (from ``with_options``) with every default made explicit, and checked against what the backend can do.

    Raises InvalidInput with one line for a combination that cannot run.
    """
    model = models.specification(spec.model)
    gpus = allocation.gpus_per_node and "cuda" in backend.devices
    device = spec.device if spec.device != "auto" else ("cuda" if gpus else "cpu")
    # Device processes of one node share its cores; parameter servers get what is left over, as on real nodes.
    threads = spec.threads or max(1, allocation.cores_per_node // spec.devices_per_node)
    image_size, transports = spec.image_size or model.image_size, backend.transports_on(device)
    carriers = (*transports, *backend.brought) if device == "cuda" else transports
    framework = spec.framework or backend.frameworks[0]
    formats = backend.data_formats(framework, device)
    full = spec.model_copy(
        update={
            "framework": framework,
            "data_format": "auto" if spec.data_format in formats[:1] else spec.data_format,
            "image_size": image_size,
            "transport": spec.transport or transports[0],
            "device": device,
            "threads": threads,
            "data_threads": spec.data_threads or threads,
        }
    )
    for option, value, choices, which in (
        ("--framework", full.framework, backend.frameworks, ""),
        ("--device", variant_of(device), backend.devices, ""),
        ("--transport", full.transport, carriers, f" on --device {device}"),
        ("--precision", full.precision, backend.precisions, ""),
    ):
        if value not in choices:
            raise InvalidInput(f"{option} {value}: {backend.name}{which} supports {', '.join(choices)}")
    if spec.data_format not in ("auto", *formats):
        has = " or ".join(formats).upper() or "a format of its own"
        where = f" on --device {device}" if spec.data_format in backend.data_formats(framework, "cuda") else ""
        raise InvalidInput(f"--data-format {spec.data_format}: {framework} computes in {has}{where}")
    if spec.data == SYNTHETIC and spec.data_cache != "as_found":
        raise InvalidInput(f"--data-cache {spec.data_cache}: synthetic images are not read; give --data PATH")
    if image_size < model.smallest_image:
        raise InvalidInput(f"--image-size {image_size}: {model.name} needs at least {model.smallest_image}")
    fewest = spec.batch_size * min(model.pixels(image_size).values(), default=2)
    if model.norm and not (spec.kernel or full.emulated) and fewest < 2:
        raise InvalidInput(
            f"--batch-size {spec.batch_size}: at --image-size {image_size} batch norms see one value; give 2"
        )
    if device != "cuda" and full.precision == "tf32":
        raise InvalidInput("--precision tf32 needs --device cuda; on CPUs use fp32")
    if device == "cuda" and allocation.gpus_per_node < spec.devices_per_node:
        raise InvalidInput(
            f"--device cuda: the nodes have {allocation.gpus_per_node} GPUs each, "
            f"--devices-per-node asks for {spec.devices_per_node}; --device cpu takes none"
        )
    driven = [(node.address, gpu) for node in allocation.nodes for gpu in node.gpus[: spec.devices_per_node]]
    # Names of MIG instances do not tell their GPUs. To NCCL those of one GPU are one device.
    boards = [(host, MIG if gpu.startswith(MIG) else gpu) for host, gpu in driven]
    if device == "cuda" and full.transport == "nccl" and len(set(boards)) < len(boards):
        instead = ", ".join(f"--transport {each}" for each in transports if each != "nccl") or "another backend"
        twice = "two are instances of divided ones" if len(set(driven)) == len(driven) else "a GPU is there twice"
        raise InvalidInput(f"--transport nccl: it takes one process per GPU, and {twice}; give {instead}")
    if not (spec.kernel or backend.trains):
        raise InvalidInput(f"--backend {backend.name}: it trains nothing; `harness kernel` measures with it")
    if spec.kernel and spec.kernel.name not in backend.kernels:
        has = ", ".join(each.name for each in working() if spec.kernel.name in each.kernels)
        raise InvalidInput(f"--backend {backend.name}: {spec.kernel.name} is measured with {has}")
    if spec.kernel and len(backend.seats(full)) < (least := kernels.specification(spec.kernel.name).processes):
        raise InvalidInput(f"--nodes {spec.nodes}: {spec.kernel.name} needs {least} workers or more")
    emulation(full)
    if full.emulated and full.steps <= FEWEST:
        raise InvalidInput(
            f"--steps {full.steps} with --device {full.device}: give {FEWEST + 1} or more; the first step is left out, "
            "and fewer than three others do not tell whether they are steady"
        )
    backend.validate(full)
    if spec.mpi and not backend.arrange(full).mpi:
        instead = "give --transport mpi" if "mpi" in transports else "leave it out"
        raise InvalidInput(f"--mpi {spec.mpi}: {backend.name} over {full.transport} uses no MPI; {instead}")
    return full


def launch_plan(
    spec: RunSpec,
    backend: Backend,
    seats: Sequence[Seat],
    allocation: Allocation,
    python: str,
    run_dir: str,
    isolated: bool = True,
    variables: Mapping[str, str] | None = None,
) -> LaunchPlan:
    """Put the ``seats`` of a completed ``spec`` on the allocation's hosts, which all share the folder ``run_dir``.

    With ``isolated`` nothing of the user's is mixed into the environment of ``python``: harness has built it. ``variables``
    take precedence over all others. Raises InvalidInput when the ports do not suffice.
    """
    arrangement = backend.arrange(spec)
    formats = () if spec.kernel else backend.data_formats(str(spec.framework), spec.device)
    entry = PROGRAM_MAIN if spec.program else WORKER_MAIN
    last_port = allocation.base_port + len(seats) * (2 if spec.trace_steps else 1) - 1  # for the clocks of a trace, too
    if last_port > LAST_PORT:
        raise InvalidInput(
            f"--port {allocation.base_port}: the last port would be {last_port}; the highest is {LAST_PORT}"
        )
    isolation = {"PYTHONNOUSERSITE": "1", "PYTHONPATH": "", "PYTHONHOME": ""} if isolated else {}
    mpi = dict(allocation.mpi_env) if arrangement.mpi else {}
    common = NO_PROXY | isolation | KEEP_MEMORY | {"PYTHONUNBUFFERED": "1"} | mpi | dict(arrangement.env)

    def seated(index: int, seat: Seat) -> Process:
        node = allocation.nodes[seat.node]
        # A worker sees the GPUs that it drives. Parameter servers and CPU runs see none.
        gpus = node.gpus[seat.local_rank : seat.local_rank + seat.devices]
        visible = gpus if spec.device == "cuda" and seat.role == "worker" else ()
        if len(visible) > 1 and any(name.startswith(MIG) for name in visible):
            raise InvalidInput(
                f"--devices-per-node {spec.devices_per_node}: a worker of {backend.name} drives all GPUs of its node, "
                "and CUDA gives a process one MIG instance; give more nodes instead"
            )
        assert spec.threads
        limits = {"OMP_NUM_THREADS": str(spec.threads * seat.devices), "CUDA_VISIBLE_DEVICES": ",".join(visible)}
        env = common | limits | dict(seat.env) | dict(variables or {})
        return Process(
            index=index,
            host=node.name,
            address=node.address,
            port=allocation.base_port + index,
            argv=(python, str(entry), "--run", run_dir, "--index", str(index)),
            **vars(seat) | {"env": env},
        )

    return LaunchPlan(
        backend=backend.name,
        trainer=str(entry if spec.program else backend.fabric if spec.kernel else backend.trainer),
        world_size=sum(seat.role == "worker" for seat in seats),
        mpi=arrangement.mpi,
        processes=tuple(seated(index, seat) for index, seat in enumerate(seats)),
        details=arrangement.details,
        emulation=emulated.model_dump() if (emulated := emulation(spec)) else None,
        data_format=next((each for each in formats if spec.data_format in ("auto", each)), None),
    )

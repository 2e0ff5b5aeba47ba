"""The description of a backend for the controller, and the search for backends.

A backend is a folder under ``backends`` with a ``backend.py`` that defines ``BACKEND``, and a trainer that runs beside the
framework (see ``Backend.trainer``). Other packages announce theirs through the entry point group ``harness.backends``.
"""

import importlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from harness.core.exchange import Exchange
from harness.core.parts import part
from harness.core.spec import (
    COMPOSED,
    EMULATED,
    OTHER_TRAINING,
    UNUSED_BY_KERNELS,
    Frozen,
    Options,
    Program,
    RunSpec,
    Training,
    variant_of,
)
from harness.core.text import did_you_mean
from harness.core.validation import mistakes, option_name
from harness.environments import EnvironmentSpec, Variant
from harness.errors import InvalidInput, error_in_one_line

EVERY = "all"  # in place of the names of backends
Role = Literal["worker", "ps"]

# The side of a backend in the suite's question: do MPI-based toolkits scale better than parameter servers? A framework's
# own collectives are neither; they tell the strategy's share of an answer from the framework's.
Family = Literal["parameter_servers", "toolkit", "collectives"]


@dataclass(frozen=True)
class Seat:
    """One process of a run, before it has a host."""

    role: Role
    rank: int  # within the role
    node: int
    local_rank: int = 0  # the number of a worker's first device on its node
    devices: int = 1  # that a worker drives
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Arrangement:
    """Settings for the processes of a completed spec."""

    mpi: bool = False  # start all processes as the ranks of one MPI world, workers first
    env: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, object] = field(default_factory=dict)  # for the trainer: JSON types only


def data_formats(framework: str, device: str) -> tuple[str, ...]:
    """The orders of images in memory that trainers on a framework have, the usual one on the ``device`` first."""
    of_tensorflow = ("nchw", "nhwc") if device == "cuda" else ("nhwc",)  # on CPUs it cannot train ResNets in NCHW
    known = {"tensorflow": of_tensorflow, "torch": ("nhwc", "nchw"), "jax": ("nhwc",), "caffe2": ("nchw",)}
    return known.get(framework, ())[: 1 if device.startswith(EMULATED) else None]


@dataclass(frozen=True)
class Backend:
    """A way of distributing training. Everything that sets one backend apart from another is in here and its trainer.

    The first of ``frameworks`` and of the transports is the default.
    """

    name: str
    family: Family
    frameworks: tuple[str, ...]
    strategy: str
    folder: Path
    transports: tuple[str, ...]
    precisions: tuple[str, ...]
    environment: Callable[[str, Variant], EnvironmentSpec]  # of a framework on a kind of device
    # Seats depend on the nodes, devices per node and options of a request alone, the arrangement on the completed spec.
    seats: Callable[[RunSpec], tuple[Seat, ...]] = lambda spec: workers_and_servers(spec, spec.devices_per_node)
    arrange: Callable[[RunSpec], Arrangement] = lambda spec: Arrangement(mpi=spec.transport == "mpi")
    devices: tuple[Variant, ...] = ("cpu", "cuda")  # that it trains on
    compiled_for: tuple[Variant, ...] = ()  # other variants of its environments
    cuda_transports: tuple[str, ...] = ()  # between GPUs, where they differ from those between CPUs
    brought: tuple[str, ...] = ()  # other transports, which an environment that users bring may have
    data_formats: Callable[[str, str], tuple[str, ...]] = data_formats  # of a framework on a device
    options: type[Options] = Options
    validate: Callable[[RunSpec], None] = lambda spec: None
    expected_updates: Callable[[RunSpec], int] = lambda spec: spec.warmup_steps + spec.steps
    exchange: Callable[[RunSpec], Exchange] | None = None  # of a step, for predictions; without it there are none
    kernels: tuple[str, ...] = ()  # for which its ``fabric`` has the operations
    trains: bool = True  # if not, it has kernels only

    def transports_on(self, device: str) -> tuple[str, ...]:
        """The carriers of gradients between ``cpu`` or ``cuda`` devices; the first is the default."""
        return self.cuda_transports if device == "cuda" and self.cuda_transports else self.transports

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The kinds of device and of MPI that it has environments for."""
        return (*self.devices, *self.compiled_for)

    def variant(self, spec: RunSpec) -> Variant:
        """The one of ``variants`` that a completed ``spec`` takes."""
        return "openmpi" if spec.mpi == "openmpi" and "openmpi" in self.compiled_for else variant_of(spec.device)

    def environments(self, variant: Variant, framework: str | None = None) -> list[EnvironmentSpec]:
        if variant not in self.variants:
            raise InvalidInput(f"{self.name} has no environment for {variant}, only for {', '.join(self.variants)}")
        if framework not in (None, *self.frameworks):
            raise InvalidInput(f"--framework {framework}: {self.name} supports {', '.join(self.frameworks)}")
        return [self.environment(name, variant) for name in ([framework] if framework else self.frameworks)]

    @property
    def trainer(self) -> Path:
        """The file that workers load; it runs on the Python of the backend's environment."""
        alone = self.folder / "trainer.py"
        return alone if alone.exists() else self.folder / "trainer" / "main.py"

    @property
    def fabric(self) -> Path:
        """The file with its transports' operations by themselves, beside the trainer; there if it has ``kernels``."""
        return self.folder / "trainer" / "fabric.py"


@cache
def _builtin() -> frozenset[str]:
    return frozenset(folder.name for folder in part("backends").iterdir() if (folder / "backend.py").is_file())


@cache
def _announced() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="harness.backends")}


def names() -> list[str]:
    return sorted({*_builtin(), *_announced()})


@cache
def backend(name: str) -> Backend:
    """The backend called ``name`` (``-`` counts as ``_``). Raises InvalidInput with the known names."""
    name = name.replace("-", "_")
    if name in _builtin():
        loaded = importlib.import_module(f"harness.backends.{name}.backend").BACKEND
    elif name in _announced():
        try:
            loaded = _announced()[name].load()
        except Exception as error:  # whatever somebody else's module does when it is imported
            raise InvalidInput(f"backend '{name}' does not load: {error_in_one_line(error)}") from None
    elif (alone := name.partition(":")[0]) in names():
        raise InvalidInput(f"unknown backend '{name}'; give '{alone}', and the rest with --framework and --transport")
    else:
        close = did_you_mean(name, names())
        raise InvalidInput(
            f"unknown backend '{name}'; {close}{' ' if close else ''}known backends are {', '.join(names())}"
        )
    if not isinstance(loaded, Backend):
        raise InvalidInput(f"backend '{name}' is announced as {loaded!r}, which is no harness.core.backend.Backend")
    return loaded


def working() -> list[Backend]:
    """All backends that load. One that another package announces may not; it must not take the others with it."""
    loaded = []
    for name in names():
        with suppress(InvalidInput):
            loaded.append(backend(name))
    return loaded


def option_owners() -> dict[str, list[str]]:
    """Backend options by name, with the backends that have them."""
    owners: dict[str, list[str]] = defaultdict(list)
    for owner in working():
        for option in owner.options.model_fields:
            owners[option].append(owner.name)
    return dict(owners)


def option_fields() -> dict[str, str]:
    """The fields of a spec and of the backends' options, by the names that files have for them, with ``_``."""
    names = [*(name for name in RunSpec.model_fields if name not in COMPOSED), *option_owners()]
    return {option_name(name)[2:].replace("-", "_"): name for name in names} | {name: name for name in names}


def unused_by_kernels() -> set[str]:
    """Options that mean nothing to a kernel: those of all backends, and those that their backend declares so."""
    fields = [field for owner in working() for field in owner.options.model_fields.items()]
    extras = [(name, info.json_schema_extra) for name, info in fields]
    marked = (name for name, extra in extras if isinstance(extra, dict) and OTHER_TRAINING in extra)
    return {*UNUSED_BY_KERNELS, *marked}


def differing(spec: Mapping[str, Any], ignored: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a spec and of its ``options`` that differ from their defaults, without those to be ``ignored``.

    They are equal for specs of the same measurement, and a new option changes none. Options of a backend that is not
    installed have no known defaults.
    """
    try:
        options = backend(spec["backend"]).options
    except InvalidInput:
        options = Options
    fields = {name: value for name, value in _chosen(RunSpec, spec).items() if name not in ignored}
    for name, model in (("training", Training), ("program", Program)):
        if isinstance(parts := fields.get(name), Mapping):
            fields[name] = _chosen(model, parts)
    return fields | {"options": _chosen(options, spec["options"])}


def wrong_option(spec: RunSpec) -> str:
    """The complaint of its backend about an option of ``spec``; "" if there is none, or the backend is not known here."""
    try:
        options = backend(spec.backend).options
    except InvalidInput:
        return ""
    try:
        options.model_validate({name: spec.options[name] for name in spec.options.keys() & options.model_fields.keys()})
    except ValidationError as error:
        wrong = [each for each in mistakes(error) if each[0] in spec.options]
        return " ".join(("spec.options." + wrong[0][0], wrong[0][1])) if wrong else ""
    return ""


def _chosen(model: type[Frozen], values: Mapping[str, object]) -> dict[str, object]:
    """The ``values`` that are not the defaults of a model's fields."""
    known = model.model_fields
    return {name: value for name, value in values.items() if name not in known or value != known[name].default}


def check_owners(options: Iterable[str], chosen: Collection[str], optional: Collection[str] = ()) -> None:
    """Raise InvalidInput for a backend's option that none of the ``chosen`` backends has, unless it is ``optional``."""
    for name, owners in option_owners().items():
        if name in options and name not in optional and not {*owners} & {*chosen}:
            others = ", ".join(sorted({*chosen}))
            raise InvalidInput(f"{option_name(name)} is an option of {', '.join(owners)}, not of {others}")


def contenders(
    names: Sequence[str], device: str, condition: Callable[[Backend], object] = lambda backend: backend.trains
) -> list[dict[str, str]]:
    """The fields of a spec that ``names`` such as ``parameter_server`` or ``horovod:torch:gloo`` stand for, in their order.

    ``all`` is every backend that meets the ``condition``, on each of its frameworks, over each transport there is between
    ``device``s ("cpu" or "cuda"). A field that was not chosen is left out. Raises InvalidInput for what is unknown or named
    twice, and for what does not train on the ``device``.
    """
    if [*names] == [EVERY]:
        return [
            {"backend": each.name, "framework": framework, "transport": transport}
            for each in working()
            if device in each.devices and condition(each)
            for framework in each.frameworks
            for transport in each.transports_on(device)
        ]
    chosen: list[dict[str, str]] = []
    for text in names:
        name, *qualifiers = text.split(":")
        named = backend(name)
        if device not in named.devices:
            raise InvalidInput(
                f"--backend {text}: the device is {device}, and {named.name} trains on {', '.join(named.devices)} only"
            )
        transports = named.transports_on(device)
        kinds = dict.fromkeys(transports, "transport") | dict.fromkeys(named.frameworks, "framework")
        fields = {"backend": named.name}
        for qualifier in qualifiers:
            if (kind := kinds.get(qualifier)) is None:
                raise InvalidInput(
                    f"--backend {text}: '{qualifier}' is neither a framework ({', '.join(named.frameworks)}) nor, "
                    f"between {device} devices, a transport ({', '.join(transports)}) of {named.name}"
                )
            if kind in fields:
                raise InvalidInput(f"--backend {text}: two {kind}s, {fields[kind]} and {qualifier}")
            fields[kind] = qualifier
        if fields in chosen:
            raise InvalidInput(f"--backend: '{text}' is there twice")
        chosen.append(fields)
    return chosen


def workers_and_servers(
    spec: RunSpec, workers_per_node: int, ps: int = 0, ps_per_node: int = 1, dedicated: bool = False
) -> tuple[Seat, ...]:
    """The seats of workers that share the devices of their node, and of parameter servers. Both fill node after node.

    As many workers as devices, and no servers, are the ranks of an allreduce. ``dedicated`` servers have nodes of their
    own. Raises InvalidInput for servers without a place, and for devices that the workers cannot share.
    """
    devices, left = divmod(spec.devices_per_node, workers_per_node)
    if left:
        raise InvalidInput(
            f"--devices-per-node {spec.devices_per_node}: the {workers_per_node} workers of a node must have equally many; "
            f"give a multiple of {workers_per_node}"
        )
    if ps > (most := spec.nodes * ps_per_node) and not dedicated:
        elsewhere = "" if spec.program else ", or --ps-nodes dedicated"
        raise InvalidInput(
            f"--ps {ps} with --nodes {spec.nodes}: a node holds at most {ps_per_node} (--ps-per-node); "
            f"use --ps 1..{most}{elsewhere}"
        )
    workers = [
        Seat("worker", rank, rank // workers_per_node, rank % workers_per_node * devices, devices)
        for rank in range(spec.nodes * workers_per_node)
    ]
    first, no_gpu = spec.nodes if dedicated else 0, {"CUDA_VISIBLE_DEVICES": ""}
    return (*workers, *(Seat("ps", rank, first + rank // ps_per_node, env=no_gpu) for rank in range(ps)))

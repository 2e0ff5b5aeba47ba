"""The subject of a measurement: a training, a kernel, or somebody's own program; and the options that say more of it.

The command line and Python both come here, with options by the names of fields: they refuse the same in the same words.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import kernels
from harness.core import backend as backends
from harness.core.program import NAME, OF_PROGRAM, UNUSED
from harness.core.spec import COMPOSED, KernelSizes, Program, RunSpec
from harness.core.text import did_you_mean
from harness.core.validation import checked, option_name
from harness.errors import InvalidInput


@dataclass(frozen=True)
class Subject:
    """A ``kernel``, the ``command`` of a program that is started in the working folder, or else a training."""

    kernel: KernelSizes | None = None
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kernel and self.command:
            raise InvalidInput(f"--kernel {self.kernel.name}: is for backends; leave it out, or the command")

    @property
    def names(self) -> dict[str, str]:
        """The fields that are options for it, by the names that files have for them, with ``_``."""
        fields = backends.option_fields()
        if self.command:
            known = (RunSpec.model_fields.keys() - COMPOSED - {*UNUSED}) | OF_PROGRAM
            fields |= {name: name for name in OF_PROGRAM}
        else:
            known = set(fields.values()) - (backends.unused_by_kernels() if self.kernel else set())
        return {name: field for name, field in fields.items() if field in known}

    def check(self, names: Iterable[str]) -> None:
        """Raise InvalidInput for the first of the fields ``names`` that is no option for it."""
        known, others = {*self.names.values()}, {*TRAINING.names.values(), *OF_PROGRAM}
        for name in names:
            if name in others - known:
                subject = "program" if self.command else "kernel" if self.kernel else "training"
                raise InvalidInput(f"{option_name(name)}: is not for a {subject}")
            if name not in known:
                instead = did_you_mean(name, known) or "`harness run --help` lists the options"
                raise InvalidInput(f"unknown field '{name}'; {instead}")

    def specs(
        self, options: Mapping[str, Any], device: str = "cpu", optional: Collection[str] = (), /, **usual: Any
    ) -> list[RunSpec]:
        """A spec for each backend on each number of nodes under each MPI library: there may be a list of each of these.

        Backends are the ``contenders`` between ``device``s. An option of a backend is for those that have it, a library for
        those that go over MPI; it is refused if it is for none of them, unless it is ``optional``. None counts as left
        out; then the ``usual`` value is taken, if there is one. Raises InvalidInput.
        """
        known = {*self.names.values()}
        options = {name: value for name, value in options.items() if name in known and value is not None}
        if self.command:
            return [self._of_program(usual | options)]
        if "backend" not in options:
            raise InvalidInput("--backend is required; see `harness list backends`")
        names, counts, libraries = (_several(options.pop(name, None)) for name in ("backend", "nodes", "mpi"))
        if len(names) == 1 and names[0] != backends.EVERY:  # by itself it may train on what it can
            devices = backends.backend(names[0].partition(":")[0]).devices
            device = device if device in devices else devices[0]
        chosen = backends.contenders(names, device, self._is_measured)
        backends.check_owners(options, [contender["backend"] for contender in chosen], optional)
        if len({*libraries}) < len(libraries):
            raise InvalidInput(f"--mpi {','.join(libraries)}: a library is there twice")
        runs = [(contender, count) for contender in chosen for count in counts or [1]]
        single, specs = len(runs) == 1, list[RunSpec]()
        for contender, count in runs:
            backend = backends.backend(contender["backend"])
            fields = {name: value for name, value in options.items() if name in RunSpec.model_fields}
            fields |= {"options": {name: options[name] for name in backend.options.model_fields if name in options}}
            fields = usual | fields | {"kernel": self.kernel, "nodes": count, **contender}
            over_mpi = (fields.get("transport") or backend.transports_on(device)[0]) == "mpi"
            # The plan of a single run says whether it uses MPI.
            for library in libraries if libraries and (over_mpi or (single and "mpi" not in optional)) else [None]:
                specs.append(RunSpec.validated(**fields, mpi=library))
        if "mpi" not in optional:
            check_mpi(specs, libraries)
        return specs

    def spec(self, options: Mapping[str, Any], device: str = "cpu", /, **usual: Any) -> RunSpec:
        """The spec that ``specs`` gives. Raises InvalidInput if there are several."""
        spec, *others = self.specs(options, device, **usual)
        if others:
            raise InvalidInput("--backend, --nodes, --mpi: must be one each; `harness run` measures several")
        return spec

    @property
    def protocol(self) -> dict[str, object]:
        """The fields of a spec whose usual values are others for it."""
        return dict(kernels.specification(self.kernel.name).protocol) if self.kernel else {}

    def _is_measured(self, backend: backends.Backend) -> bool:
        return self.kernel.name in backend.kernels if self.kernel else backend.trains

    def _of_program(self, options: Mapping[str, object]) -> RunSpec:
        of_program = {name: options[name] for name in OF_PROGRAM if name in options}
        program = checked(Program, of_program | {"command": self.command, "folder": str(Path.cwd())})
        fields = {name: value for name, value in options.items() if name in RunSpec.model_fields.keys() - {*UNUSED}}
        spec = RunSpec.validated(
            **{"devices_per_node": program.workers_per_node} | fields, backend=NAME, program=program
        )
        if program.sum_workers and spec.devices_per_node > program.workers_per_node:
            raise InvalidInput(
                "--sum-workers: the program starts several workers itself, whose lines are in one output"
            )
        return spec


def check_mpi(specs: Iterable[RunSpec], libraries: Sequence[str]) -> None:
    """Raise InvalidInput for MPI ``libraries`` if none of the ``specs`` goes over MPI."""
    if libraries and not any(spec.mpi for spec in specs):
        option = f"--mpi {','.join(libraries)}"
        raise InvalidInput(f"{option}: nothing here goes over MPI; name a backend over mpi, or leave it out")


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [] if value is None else [value]


TRAINING = Subject()

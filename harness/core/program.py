"""Somebody's own program in the place of a backend: its processes get seats, roles and an MPI world as ours do.

It is no backend that measures: no list has it, and nothing compares it with backends.
"""

from pathlib import Path

from harness.core.backend import Arrangement, Backend, Seat, backend, workers_and_servers
from harness.core.spec import OF_STEPS, OF_TRAINING, Program, RunSpec
from harness.environments import EnvironmentSpec
from harness.errors import InvalidInput

NAME = "launch"
PROGRAM_MAIN = Path(__file__).parents[1] / "worker" / "program.py"
UNUSED = (*OF_TRAINING, *OF_STEPS, "backend", "dilation", "bytes_scale")  # fields of a spec without a meaning for it
OF_PROGRAM = Program.model_fields.keys() - {"command", "folder"}  # fields that are options


def program_of(spec: RunSpec) -> Program:
    assert spec.program
    return spec.program


def backend_of(spec: RunSpec) -> Backend:
    """The backend that plans a run of ``spec``. Raises InvalidInput for a backend that does not exist."""
    return LAUNCHED if spec.program else backend(spec.backend)


def _seats(spec: RunSpec) -> tuple[Seat, ...]:
    program = program_of(spec)
    if spec.emulated:
        raise InvalidInput(f"--device {spec.device}: a program that is not ours computes; give auto, cpu or cuda")
    return workers_and_servers(spec, program.workers_per_node, program.ps, program.ps_per_node)


def _arrange(spec: RunSpec) -> Arrangement:
    program = program_of(spec)
    details = {"command": list(program.command), "folder": program.folder, "once": program.once}
    return Arrangement(mpi=program.mpi, details=details)


LAUNCHED = Backend(
    name=NAME,
    family="collectives",  # what it is, only its author knows; nothing asks
    frameworks=("its own",),
    strategy="a program's own",
    folder=PROGRAM_MAIN.parent,
    transports=("its own",),
    precisions=("fp32",),
    environment=lambda framework, variant: EnvironmentSpec(NAME, variant, Path(), ()),
    seats=_seats,
    arrange=_arrange,
)

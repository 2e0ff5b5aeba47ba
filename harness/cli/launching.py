"""Starting programs that are not ours."""

import click

from harness.cli.options import GroupedCommand, field_options, grouped, place_of, spec_options, specs_of
from harness.cli.runs import RUNNING, measure
from harness.core.program import OF_PROGRAM, UNUSED
from harness.core.spec import Program
from harness.core.subject import Subject
from harness.report.text import launches


def program_options(*left_out: str) -> list[click.Option]:
    """An option for each field of a program that is not given as a command."""
    every = field_options(Program, {"pattern": ("REGEX", click.STRING)})
    return [option for option in every if option.name in OF_PROGRAM - {*left_out}]


DEFAULTS = {"repeats": 1}


@click.command(
    "launch",
    cls=GroupedCommand,
    context_settings={"allow_interspersed_args": False},
    params=[
        click.Argument(["command"], nargs=-1, required=True, metavar="-- COMMAND...", type=click.UNPROCESSED),
        *grouped(
            "What to start",
            *program_options(),
            *spec_options(UNUSED, DEFAULTS, wanted=lambda backend: False, emulated=False),
        ),
        *(option for option in RUNNING if option.name != "environment"),
    ],
)
def launch(command: tuple[str, ...], **given: object) -> None:
    """Start COMMAND on every node as our own processes are started, and wait until all of them have ended.

    Each process finds its place in TF_CONFIG, or MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK, or as a rank of
    MPI (--mpi), or in its arguments, where {rank}, {task_index}, {job_name}, {ps_hosts}, {worker_hosts} and others are
    replaced (docs/launch.md). Exits with 1 if a process fails.

    `harness launch --nodes 2 --pattern 'total images/sec: ([0-9.]+)' -- python train.py --lr 0.1`
    """
    place = place_of(given)
    measure(specs_of(given, place, Subject(command=command), **DEFAULTS), place, given, launches.summary)

"""Starting programs that are not ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from harness.cli.config import of_config
from harness.cli.options import MeasuringCommand, field_options, grouped, place_of, spec_options
from harness.cli.runs import RUNNING, carried_out
from harness.core.program import OF_PROGRAM, UNUSED, program_spec
from harness.core.spec import Program
from harness.records.launch import LaunchRecord
from harness.report.text import launches


def program_options(*left_out: str) -> list[click.Option]:
    """An option for each field of a program that is not given as a command."""
    every = field_options(Program, {"pattern": ("REGEX", click.STRING)})
    return [option for option in every if option.name in OF_PROGRAM - {*left_out}]


DEFAULTS = {"repeats": 1}


def without_config(given: Mapping[str, object]) -> dict[str, object]:
    """``given`` less what the config has for backends' options of the same names as a program's."""
    return {name: None if name in Program.model_fields and of_config(name) else value for name, value in given.items()}


@click.command(
    "launch",
    cls=MeasuringCommand,
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
def launch(command: tuple[str, ...], **given: Any) -> None:
    """Start COMMAND on every node as our own processes are started, and wait until all of them have ended.

    Each process finds its place in TF_CONFIG, or MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK, or as a rank of
    MPI (--mpi), or in its arguments, where {rank}, {task_index}, {job_name}, {ps_hosts}, {worker_hosts} and others are
    replaced (docs/launch.md). Exits with 1 if a process fails.

    `harness launch --nodes 2 --pattern 'total images/sec: ([0-9.]+)' -- python train.py --lr 0.1`
    """
    spec = program_spec(command, Path.cwd(), without_config(given), **DEFAULTS)
    outcome = carried_out([spec], place_of(given), given)
    for record, run in zip(outcome.records, outcome.runs, strict=False):
        assert isinstance(record, LaunchRecord)
        if given["as_json"]:
            click.echo(record.to_json())
        elif record.status == "completed":
            click.echo(launches.summary(record, run.record_file))
    outcome.check()

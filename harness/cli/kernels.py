"""Measuring kernels: what a transport does by itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from harness import kernels
from harness.cli.common import Written, completing
from harness.cli.config import without_strangers
from harness.cli.options import (
    HOW_TO_RUN,
    WHERE_TO_RUN,
    MeasuringCommand,
    grouped,
    option,
    place_of,
    spec_of,
    spec_options,
)
from harness.cli.runs import BACKENDS, IN_FULL, carried_out, check
from harness.core import backend as backends
from harness.core.spec import OF_TRAINING, KernelSizes
from harness.core.text import listed, sizes
from harness.core.validation import checked
from harness.errors import InvalidInput
from harness.records.kernel import KernelRecord
from harness.report.text import kernels as texts

SIZES = grouped(
    "What to measure",
    option(
        "--bytes",
        "sizes of the message: a range, of which each is twice the last, or a list",
        "1KiB..64MiB|A,B,…",
        Written(sizes),
        default="1KiB..64MiB",
    ),
)


OF_KERNELS = partial(spec_options, wanted=lambda backend: backend.kernels)
UNUSED = (*OF_TRAINING, "precision", "dilation", "bytes_scale")
FEW: dict[str, Any] = {"nodes": 2, "steps": 50, "repeats": 3}  # of each transport, as they are many
SAID_BY_ALL = ("pingpong", "allreduce")  # what `harness network` measures, where a transport has it


@click.command(
    "kernel",
    cls=MeasuringCommand,
    params=[
        click.Argument(["name"], metavar="KERNEL", shell_complete=completing(kernels.names)),
        *SIZES,
        *OF_KERNELS(UNUSED),
        *WHERE_TO_RUN,
        *HOW_TO_RUN,
        *IN_FULL,
    ],
)
def kernel(name: str, **given: Any) -> None:
    """Measure KERNEL over a transport that a backend trains with: allgather, allreduce, alltoall, pingpong or push.

    Prints latency (median, 99th percentile) and bandwidth for each size, and writes a record. A wrong result has no number.

    `harness kernel allreduce --backend pytorch --transport mpi --nodes 2 --bytes 1KiB..1MiB`
    """
    kernels.specification(name)
    spec = spec_of(given, kernel=checked(KernelSizes, {"name": name, "bytes": given.pop("bytes")}))
    outcome = carried_out([spec], place_of(given), given)
    check(outcome)
    for record, run in zip(outcome.records, outcome.runs, strict=False):
        assert isinstance(record, KernelRecord)
        click.echo(record.to_json() if given["as_json"] else texts.kernel(record, run.record_file))


@click.command(
    "network",
    cls=MeasuringCommand,
    params=[
        option(
            "--backends",
            "backends, each with :FRAMEWORK and :TRANSPORT if wanted  [default: all of all that have kernels]",
            "A,B:C,…",
            BACKENDS,
            shell_complete=completing(backends.names),
        ),
        *SIZES,
        *OF_KERNELS((*UNUSED, "backend", "framework", "transport"), FEW),
        *WHERE_TO_RUN,
        *HOW_TO_RUN,
        *IN_FULL,
    ],
)
def network(**given: Any) -> None:
    """Compare what carries gradients here: latency and bandwidth of every transport, repeats interleaved.

    A ping-pong between the first and the last node, where a backend has one, and an allreduce among all.

    `harness network --nodes 4 --site mycluster`
    """
    place, named, wanted = place_of(given), given.pop("backends"), given.pop("bytes")
    chosen = backends.contenders(named, place.device(given["device"] or "auto"))
    having = {name: [one for one in chosen if name in backends.backend(one["backend"]).kernels] for name in SAID_BY_ALL}
    without = [one["backend"] for one in chosen if not any(one in those for those in having.values())]
    if named and without:
        raise InvalidInput(f"--backends {without[0]}: it has no {listed(SAID_BY_ALL, 'and no')} (docs/kernels.md)")
    fitting = without_strangers(given, [one["backend"] for one in chosen])
    specs = [
        spec
        for name, those in having.items()
        for spec in backends.specs_for(those, fitting, kernel=KernelSizes(name=name, bytes=wanted), **FEW)
    ]
    outcome = carried_out(specs, place, given)
    records = [record for record in outcome.records if isinstance(record, KernelRecord)]
    if records and given["as_json"]:
        click.echo("[" + ",".join(record.to_json() for record in records) + "]")
    elif records:
        click.echo(f"{texts.network(records)}\n\nrecords: {place.folder}/*/kernel.json")
    check(outcome)

"""Measuring kernels: what a transport does by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from harness import kernels
from harness.cli.common import ParsedText, completing
from harness.cli.config import of_config, without_strangers
from harness.cli.options import MeasuringCommand, grouped, option, place_of, spec_of, spec_options
from harness.cli.runs import RUNNING, UNDER_EACH, backends_option, carried_out
from harness.core import backend as backends
from harness.core.spec import KernelSizes
from harness.core.text import LARGEST_SIZE, listed, sizes
from harness.core.validation import checked
from harness.errors import InvalidInput
from harness.records.kernel import KernelRecord
from harness.report.text import kernels as texts

BYTES = option(
    "--bytes",
    "sizes of the message: a range, of which each is twice the last, or a list  [default: 1KiB..64MiB; of pairs 1MiB]",
    "1KiB..64MiB|A,B,…",
    ParsedText(sizes),
)
SIZE = option(
    "--size",
    "sizes N of what is computed: rows of a matrix, numbers of a transform  [default: the kernel's own]",
    "1024..4096|A,B,…",
    ParsedText(
        partial(sizes, right=f"numbers such as 1024..4096 (each twice the last) or 1000,3000, at most {LARGEST_SIZE:,}")
    ),
)


OF_KERNELS = partial(spec_options, wanted=lambda backend: backend.kernels, emulated=False)
FEW: dict[str, Any] = {"nodes": 2, "steps": 50, "repeats": 3}  # of each transport, as they are many
OF_NETWORK = sizes("1KiB..64MiB")
PAIRS = kernels.specification("pairs")
OF_PAIRS = KernelSizes(name="pairs", sizes=PAIRS.usual)
OF_SERVERS = ("incast", "outcast")
SAID_BY_ALL = ("pingpong", "allreduce", *OF_SERVERS)  # what `harness network` measures, where a transport has it


def kernel_of(name: str, given: dict[str, object]) -> KernelSizes:
    """The kernel with its sizes, which are taken from what is ``given``, or with its usual ones. Raises InvalidInput."""
    wanted = kernels.specification(name)
    in_bytes, in_numbers = given.pop("bytes"), given.pop("size")
    chosen, other, wrong = (in_bytes, in_numbers, "size") if wanted.in_bytes else (in_numbers, in_bytes, "bytes")
    if other and not of_config(wrong):
        raise InvalidInput(f"--{wrong} is not for {name}: its sizes are given with {wanted.option}")
    return checked(KernelSizes, {"name": name, "sizes": chosen or wanted.usual})


@click.command(
    "kernel",
    cls=MeasuringCommand,
    params=[
        click.Argument(["name"], metavar="KERNEL", shell_complete=completing(kernels.names)),
        *grouped("What to measure", BYTES, SIZE),
        *OF_KERNELS(backends.unused_by_kernels()),
        *RUNNING,
    ],
)
def kernel(name: str, **given: Any) -> None:
    """Measure KERNEL over a transport that a backend trains with (see `harness list kernels`).

    Prints latency (median, 99th percentile) and bandwidth, or Gflop/s, for each size, and writes a record. A wrong result
    has no number.

    `harness kernel allreduce --backend pytorch --transport mpi --nodes 2 --bytes 1KiB..1MiB`

    `harness kernel cg --backend mpi4py --nodes 2 --size 1024..4096`
    """
    spec = spec_of(given, **kernels.specification(name).protocol, kernel=kernel_of(name, given))
    outcome = carried_out([spec], place_of(given), given)
    outcome.check()
    for record, run in zip(outcome.records, outcome.runs, strict=False):
        assert isinstance(record, KernelRecord)
        click.echo(record.to_json() if given["as_json"] else texts.kernel(record, run.record_file))


@click.command(
    "network",
    cls=MeasuringCommand,
    params=[
        backends_option("every backend that has kernels, over every transport"),
        *grouped("What to measure", BYTES),
        *grouped("What to measure", UNDER_EACH),
        *OF_KERNELS({*backends.unused_by_kernels(), "backend", "framework", "transport", "mpi"}, FEW),
        *RUNNING,
    ],
)
def network(**given: Any) -> None:
    """Compare what carries gradients here: latency and bandwidth of every transport, repeats interleaved.

    A ping-pong between the first and the last node, where a backend has one, an allreduce among all, and what all send to
    one parameter server or to one on every node, and read from there. Over one transport, MPI's if there is one, each node
    is paired with each other one: slow nodes and links are named. `harness predict --network` starts from the records.

    `harness network --nodes 4 --site mycluster`
    """
    place, named, wanted = place_of(given), given.pop("backends"), given.pop("bytes") or OF_NETWORK
    libraries, device = given.pop("mpi"), place.device(given["device"] or "auto")
    chosen = backends.contenders(named, device, lambda backend: backend.kernels)
    having = {name: [one for one in chosen if name in backends.backend(one["backend"]).kernels] for name in SAID_BY_ALL}
    without = [one["backend"] for one in chosen if not any(one in those for those in having.values())]
    if named and without:
        raise InvalidInput(f"--backends {without[0]}: it has no {listed(SAID_BY_ALL, 'and no')} (docs/kernels.md)")
    fitting = without_strangers(given, [one["backend"] for one in chosen])
    one_and_all = dict.fromkeys((1, fitting.get("nodes") or FEW["nodes"]))
    servers = [fitting["ps"]] if fitting.get("ps") else list(one_and_all)
    specs_for = partial(backends.specs_for, among=chosen)
    specs = [
        spec
        for name, those in having.items()
        if those
        for ps in (servers if name in OF_SERVERS else [fitting.get("ps")])
        for spec in specs_for(those, fitting | {"ps": ps}, kernel=KernelSizes(name=name, sizes=wanted), **FEW)
    ]
    specs += specs_for(_comparing_nodes(chosen), fitting, **FEW | dict(PAIRS.protocol), kernel=OF_PAIRS)
    outcome = carried_out(backends.under_each(specs, libraries, device), place, given)
    records = [record for record in outcome.records if isinstance(record, KernelRecord)]
    if records and given["as_json"]:
        click.echo("[" + ",".join(record.to_json() for record in records) + "]")
    elif records:
        click.echo(f"{texts.network(records)}\n\nrecords: {place.folder}/*/kernel.json")
    outcome.check()


def _comparing_nodes(chosen: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Of what was chosen, what each node is to be paired with each other one over: one of them, MPI before others."""
    having = [each for each in chosen if "pairs" in backends.backend(each["backend"]).kernels]
    return sorted(having, key=lambda each: each.get("transport") != "mpi")[:1]

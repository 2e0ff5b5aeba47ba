"""Measuring kernels: what a transport, or several beside each other, do by themselves."""

from functools import partial
from itertools import chain, product

import click

from harness import kernels
from harness.cli.options import WHAT, GroupedCommand, grouped, option, place_of, spec_options, specs_of
from harness.cli.runs import RUNNING, measure, several_of_each
from harness.cli.values import Given, ParsedText, completing
from harness.core import backend as backends
from harness.core.spec import KernelSizes, RunSpec
from harness.core.subject import Subject, check_mpi
from harness.core.text import LARGEST_SIZE, listed, sizes
from harness.errors import InvalidInput
from harness.report.text import kernels as texts
from harness.report.text import outcomes
from harness.running.prepare import Place

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
NETWORK = "network"  # in place of a kernel: several of them over every transport
FEW: dict[str, object] = {"steps": 50, "repeats": 3}  # of each transport, as they are many
OF_NETWORK = sizes("1KiB..64MiB")
OF_SERVERS = ("incast", "outcast")
COMPARED = ("pingpong", "allreduce", *OF_SERVERS)  # of each transport that has it


def kernel_of(name: str, given: dict[str, object]) -> KernelSizes:
    """The kernel of this name with the sizes that are ``given``, by default its usual ones. Raises InvalidInput."""
    return KernelSizes.of(name, _sizes(name, kernels.specification(name).option, given))


def _sizes(name: str, fitting: str, given: Given) -> tuple[int, ...] | None:
    """The sizes that the ``fitting`` option gives. Raises InvalidInput if the other one is given."""
    typed: dict[str, tuple[int, ...]] = {f"--{option}": given[option] for option in ("bytes", "size") if given[option]}
    for option_name in typed.keys() - {fitting}:
        raise InvalidInput(f"{option_name} is not for {name}: its sizes are given with {fitting}")
    return typed.get(fitting)


@click.command(
    "kernel",
    cls=GroupedCommand,
    params=[
        click.Argument(
            ["name"], metavar="KERNEL|network", shell_complete=completing(lambda: [*kernels.names(), NETWORK])
        ),
        *several_of_each("every one that has the kernel, over every transport", "1; of network 2"),
        *grouped(WHAT, BYTES, SIZE),
        *spec_options(
            {*backends.unused_by_kernels(), "backend", "nodes", "mpi"},
            having=lambda backend: backend.kernels,
            emulated=False,
        ),
        *RUNNING,
    ],
)
def kernel(name: str, **given: object) -> None:
    """Measure KERNEL over a transport that a backend trains with (see `harness list kernels`).

    Prints latency (median, 99th percentile) and bandwidth, or Gflop/s, for each size, and writes a record. A wrong result
    has no number.

    With `network` in place of a KERNEL all transports are compared, 50 steps of 3 repeats each: a ping-pong between the
    first and the last node, where a backend has one, an allreduce among all, and what all send to one parameter server or
    to one on every node, and read from there. Over one transport, MPI's if there is one, each node is paired with each
    other one: slow nodes and links are named. `harness model predict --network` starts from the records.

    `harness kernel allreduce --backend pytorch --transport mpi --nodes 2 --bytes 1KiB..1MiB`

    `harness kernel cg --backend mpi4py,horovod:torch --nodes 2 --size 1024..4096`

    `harness kernel network --nodes 4 --site mycluster`
    """
    place = place_of(given)
    if name == NETWORK:
        specs, table = _of_network(given, place), texts.network
    else:
        specs, table = specs_of(given, place, Subject(kernel_of(name, given))), outcomes.comparison_of_kernels
    measure(specs, place, given, texts.kernel, lambda records: f"{table(records)}\n")


def _of_network(given: Given, place: Place) -> list[RunSpec]:
    """The specs that compare the transports of the backends that are ``given``, by default of all. Raises InvalidInput."""
    names, device = given["backend"] or [backends.EVERY], place.device(given["device"])
    in_bytes = _sizes(NETWORK, "--bytes", given) or OF_NETWORK
    chosen = backends.contenders(names, device, lambda backend: backend.kernels)
    typed = {name for name, value in given.items() if value is not None}
    backends.check_owners(typed, [contender["backend"] for contender in chosen])
    contenders = {":".join(each.values()): backends.backend(each["backend"]) for each in chosen}
    of_kernels = {
        kernel: [name for name, backend in contenders.items() if kernel in backend.kernels]
        for kernel in (*COMPARED, "pairs")
    }
    # Each node is paired with each other one over one transport only, MPI's before others.
    of_kernels["pairs"] = sorted(of_kernels["pairs"], key=lambda name: not name.endswith(":mpi"))[:1]
    without = contenders.keys() - {*chain(*of_kernels.values())}
    if without and names != [backends.EVERY]:
        raise InvalidInput(f"--backend {min(without)}: it has no {listed(COMPARED, 'and no')} (docs/kernels.md)")
    specs: list[RunSpec] = []
    for (kernel, having), nodes in product(of_kernels.items(), given["nodes"] or [2]):
        subject = Subject(KernelSizes.of(kernel, in_bytes if kernel in COMPARED else None))
        one_and_all = dict.fromkeys((1, nodes)) if kernel in OF_SERVERS else [None]
        for ps in [given["ps"]] if given["ps"] else one_and_all:
            options = {**given, "backend": having, "nodes": nodes, "ps": ps}
            specs += subject.specs(options, device, {*backends.option_owners(), "mpi"}, **FEW | subject.protocol)
    check_mpi(specs, given["mpi"] or ())
    return specs

"""Lists of backends, models, kernels, programs, environments, sites and published measurements."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, product
from typing import Any

import click

from harness import environments, kernels, models
from harness.cli.values import AS_JSON
from harness.core import known_logs
from harness.core.backend import backend, names, working
from harness.environments import mpi
from harness.environments.pythons import lacking
from harness.errors import InvalidInput
from harness.launch.local import local_gpus
from harness.report.text.table import table
from harness.sites import site as sites


@click.group("list")
def list_() -> None:
    """Show what there is."""


def _show(rows: Sequence[Mapping[str, object]], lines: Iterable[str], as_json: bool) -> None:
    click.echo(json.dumps(rows, indent=1) if as_json else "\n".join(lines))


@list_.command("backends", short_help="Backends, which of them can run here, and what others lack")
@AS_JSON
def list_backends(as_json: bool) -> None:
    """The backends, which of them can run here, and what the others lack."""
    rows, lines = survey(), list[str]()
    for (name, strategy), group in groupby(rows, key=lambda row: (row["backend"], row["strategy"])):
        lines.append(f"{name}: {strategy}")
        for row in group:
            state = f"lacks {', '.join(row['lacks'])}" if row["lacks"] else "can run"
            lines.append(f"    {row['framework']:11} {row['device']:5} {', '.join(row['transports']):16} {state}")
    _show(rows, lines, as_json)


def survey() -> list[dict[str, Any]]:
    """Every backend, also if it does not load, on each framework and device. It runs here if ``lacks`` is empty."""
    columns = ("backend", "strategy", "framework", "device", "transports", "lacks")
    rows: list[tuple[object, ...]] = []
    for name in names():
        try:
            each = backend(name)
        except InvalidInput as problem:
            rows.append((name, "announced by another package", "", "", (), (str(problem),)))
            continue
        for framework, device in product(each.frameworks, each.devices):
            gpu = ["an NVIDIA GPU"] if device == "cuda" and not local_gpus() else []
            lacks = (*gpu, *lacking(each.environment(framework, device)))
            rows.append((name, each.strategy, framework, device, each.transports_on(device), lacks))
    return [dict(zip(columns, row, strict=True)) for row in rows]


@list_.command("models", short_help="Models, with their parameters and sizes")
def list_models() -> None:
    """The models, with their parameters and sizes."""
    for name in models.names():
        model = models.specification(name)
        largest = max(model.tensors, key=lambda tensor: tensor.elements)
        click.echo(
            f"{name:12} {model.parameters / 1e6:6.2f} M parameters  "
            f"{model.bytes / 1e6:6.1f} MB in {len(model.tensors)} tensors, largest {largest.bytes / 1e6:.2f} MB  "
            f"{model.image_size} px  {model.description}"
        )


@list_.command("kernels", short_help="Kernels that `harness kernel` measures, and the backends that have them")
@AS_JSON
def list_kernels(as_json: bool) -> None:
    """The kernels of `harness kernel`, how their sizes are given, and the backends that have them."""
    rows, lines = [], []
    for name in kernels.names():
        kernel, having = kernels.specification(name), [each.name for each in working() if name in each.kernels]
        rows.append({"kernel": name, "summary": kernel.summary, "sizes": kernel.option, "backends": having})
        lines.append(f"{name}: {kernel.summary}\n    {kernel.option:7} {', '.join(having)}")
    _show(rows, lines, as_json)


@list_.command("programs", short_help="Programs whose output `harness launch --log` reads")
@AS_JSON
def list_programs(as_json: bool) -> None:
    """The programs that are not ours, and whose img/s `harness launch --log` reads: what they print, and in which unit.

    A program that prints steps needs --images-per-step, too.
    """
    rows = [{"name": name} | known_logs.read(name) for name in known_logs.names()]
    lines = [f"{row['name']:18} {row.get('unit', 'img/s'):6}  {row['title']}" for row in rows]
    _show(rows, lines, as_json)


@list_.command("environments", short_help="The backends' environments, with their state and folder")
def list_environments() -> None:
    """The backends' environments, for each kind of device that they train on, with their state and folder.

    Then those of the MPI libraries for --mpi.
    """
    every = [
        (each.name, framework, each.environment(framework, variant))
        for each in working()
        for framework in each.frameworks
        for variant in each.variants
    ]
    for name, framework, spec in [*every, *((library, "", mpi.environment(library)) for library in mpi.LIBRARIES)]:
        try:
            folder = str(environments.path(spec))
        except environments.EnvironmentProblem as problem:
            folder = str(problem)
        click.echo(f"{name:25} {framework:10} {spec.variant:7} {environments.status(spec):8} {folder}")


@list_.command("sites", short_help="Site profiles, built in and yours")
@AS_JSON
def list_sites(as_json: bool) -> None:
    """The site profiles, built in and yours: their partitions, schedulers and nodes."""
    rows, broken = sites.survey()
    width = max((len(row["name"]) for row in rows), default=0)
    line = "{name:{width}}  {scheduler:7}{origin:10}{node:24}  {descr}"
    _show(rows, (line.format(width=width, **row).rstrip() for row in rows), as_json)
    for file in broken:
        click.echo(f"harness: {file.path} is broken; see `harness site check`", err=True)


@list_.command("csv-template", short_help="A table for numbers that harness did not measure")
def list_csv_template() -> None:
    """A table (CSV) for numbers that harness did not measure: with every column, and rows to replace.

    A table needs the columns system, backend, nodes and img_per_s; the others may be left out or empty, and then are not
    known. Commands that read results read tables as well: `harness table mine.csv`.
    """
    from harness.results import published

    click.echo(published.TEMPLATE.read_text(encoding="utf-8"), nl=False)


@list_.command("references", short_help="Published measurements that come with harness")
@AS_JSON
def list_references(as_json: bool) -> None:
    """The published measurements that come with harness, by system, software and source."""
    from harness.results import published

    groups = published.groups(published.select())
    if as_json:
        click.echo(json.dumps(groups, indent=1))
        return
    lines = [("system", "software", "backends", "model", "figure", "data", "devices", "rows", "source")]
    for group in groups:
        sizes = group["workers"]
        devices = ", ".join(map(str, sizes)) if len(sizes) <= 3 else f"{sizes[0]}–{sizes[-1]}"
        toolkits, data = ", ".join(group["backends"]), ", ".join(group["data"])
        columns = group["system"], group["software"], toolkits, group["model"], group["what"], data
        lines.append((*columns, devices, str(group["rows"]), group["source"]))
    click.echo(
        f"{table(lines, right={7})}\n\n"
        "`reference` stands for all of them where a command takes results, `reference:TEXT` for those that name TEXT:\n"
        "    harness report reference:daint\n"
        "    harness results export reference --format csv"
    )

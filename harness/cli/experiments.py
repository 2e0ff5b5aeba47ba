"""Experiments: measure a study that is to answer questions, and answer them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.common import not_empty, path_of, reading, run_options, site_options
from harness.cli.options import GroupedCommand, grouped
from harness.cli.studies import NOWHERE, described, measured
from harness.errors import InvalidInput

if TYPE_CHECKING:
    from types import ModuleType

    from harness.errors import HarnessError
    from harness.running.where import Where

OWN = [
    click.Option(
        ["--analyse-only"], is_flag=True, help="measure nothing: RESULTS are records of earlier runs, files or folders"
    ),
    click.Option(
        ["--control"],
        metavar="DIR",
        callback=not_empty,
        help="records of the same points on links without a limit: what processors alone take",
    ),
    click.Option(
        ["--note"], metavar="TEXT", callback=not_empty, help="for the page, such as what the links' limit was"
    ),
    click.Option(["--retry-failed"], is_flag=True, help="measure failed and interrupted points again"),
]
LEFT_OUT = {"no_submit", "no_wait", "dry_run"}


def _experiment(**given: Any) -> None:
    """Measure what the experiment NAME needs, answer its questions, and write a page with figures into OUTPUT/NAME.

    What is measured already is not measured again. Exits with 1 if a run failed; the others are analysed all the same.
    """
    from harness import experiments

    chosen = experiments.find(given["name"])
    if given["analyse_only"] != bool(given["sources"]):
        raise InvalidInput(
            "--analyse-only: which RESULTS? give records, files or folders"
            if given["analyse_only"]
            else f"{given['sources'][0]}: RESULTS are for --analyse-only, which is missing"
        )
    if given["analyse_only"]:
        sources, control = _parted(given["sources"], given["control"])
        _answer(chosen, given | {"control": control}, sources, path_of(given["output"]))
        return
    problem, folder = _measure(chosen, given)
    _answer(chosen, given, [str(folder)], folder.parent)
    if problem:
        raise problem


def _parted(sources: tuple[str, ...], control: str | None) -> tuple[list[str], str | None]:
    """RESULTS and control. A folder such as those in ``results/experiments`` holds both, which must not be mixed."""
    from harness.experiments import parted

    if len(sources) == 1 and (both := parted(Path(sources[0]))):
        return [str(both[0])], control or str(both[1])
    return list(sources), control


def _measure(chosen: ModuleType, given: dict[str, Any]) -> tuple[HarnessError | None, Path]:
    """Run the experiment's study. Returns what went wrong, if anything did, and the study's folder."""
    from harness.running import campaign

    given = NOWHERE | given | {"file": chosen.STUDY, "max_jobs": None, "no_wait": False}
    if given["site"] is None:
        raise _no_nodes(given["name"], chosen.NODES, "no --site")
    study, where = described(given)
    if (there := _nodes(where)) is not None and there < chosen.NODES:
        raise _no_nodes(given["name"], chosen.NODES, f"--site {given['site']} has {there}")
    found, tried = measured(study, where, given)
    return campaign.problem(found, tried, str(chosen.STUDY)), campaign.folder_of(study, where)


def _nodes(where: Where) -> int | None:
    """How many nodes there are for one job, None if nobody knows."""
    from harness.launch import slurm

    return slurm.nodes(where.target) if where.target and where.queued else None


def _no_nodes(name: str, nodes: int, why: str) -> InvalidInput:
    return InvalidInput(
        f"experiment {name}: needs {nodes} nodes with network links of their own, but {why}; "
        f"`make cluster NODES={nodes} RATE=150mbit` starts such nodes on this machine, "
        f"and `python3 cluster/cluster.py run -- harness experiment {name} --site cluster/site.toml` uses them"
    )


def _answer(chosen: ModuleType, given: dict[str, Any], sources: list[str], output: Path | None) -> None:
    from harness import results
    from harness.experiments import page

    frame = results.load(sources, progress=reading())
    if frame.empty:
        raise InvalidInput(f"{', '.join(sources)}: no completed runs in there")
    control = results.load([given["control"]], progress=reading()) if given["control"] else None
    analysis = chosen.analysed(frame, control)
    written = page.write(analysis, frame, output / given["name"], given["note"]) if output else []
    if given["as_json"]:
        click.echo(json.dumps(analysis.as_dict() | {"files": [str(path) for path in written]}))
        return
    click.echo(page.text(analysis))
    for path in written:
        if path.name == page.INDEX:
            click.echo(f"\npage: {path}")


experiment = GroupedCommand(
    "experiment",
    params=[
        click.Argument(["name"], metavar="NAME"),
        click.Argument(["sources"], metavar="[RESULTS...]", nargs=-1),
        *grouped(OWN, "What to measure"),
        *(option for option in [*site_options(), *run_options()] if option.name not in LEFT_OUT),
    ],
    callback=_experiment,
    help=_experiment.__doc__,
)

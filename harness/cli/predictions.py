"""The scaling model: predict, explain and fit."""

import json
from pathlib import Path
from typing import Any

import click

from harness.cli.loading import RESULTS, any_of, leave_out, some_of
from harness.cli.options import GroupedCommand, grouped, option, spec_of, spec_options
from harness.cli.values import ANY_PATH, AS_JSON, SOURCE, ParsedText
from harness.core.progress import CountLine, ProgressLine
from harness.core.spec import MOST_WORKERS
from harness.core.text import plural
from harness.core.validation import option_name
from harness.core.written import numbers, servers
from harness.errors import InvalidInput, writing

MOST_LEFT_OUT = 40  # leaving out one of more runs after the other takes minutes
PREDICTED = ("backend", "model", "devices_per_node", "batch_size", "image_size", "transport", "device")


# --- options ---


def _workload_options(*sizes: click.Option) -> list[click.Option]:
    """The options of a workload: ``sizes``, and those of `harness run` that make a difference to the law."""
    options = [option for option in spec_options() if option.name != "ps"]
    of_backends = [option for option in options if getattr(option, "group", "").startswith("Options of")]
    shared = [option for option in options if option.name in PREDICTED]
    return [*grouped("What to predict", *sizes, *shared), *of_backends]


FORWARD_SHARE = option(
    "--forward-share",
    "share of one worker's step that is its forward pass  [default: 0.30 on GPUs, 0.37 on CPUs]",
    "SHARE",
    click.FloatRange(0.05, 0.95),
)
NETWORK = "its line rate, such as 9.5GB/s or rdma:25Gbit/s, or what `harness kernel network` measured; with --single"
READ_RATE = "how fast a node reads real images, as in 180img/s, or all nodes together, as in shared:9000img/s"
START = grouped(
    "What to start from",
    option("--site", "start from what was published about a site: daint, cori", "NAME"),
    option("--from sources", "start from these results; may be given several times", "RESULTS", SOURCE, multiple=True),
    option("--single", "throughput of one worker alone, or its record", "IMG_PER_S|RECORD", SOURCE),
    FORWARD_SHARE,
    option("--network", NETWORK, "RATE|RESULTS", SOURCE),
    option("--read-rate", READ_RATE, "RATE"),
)
NODES = option(
    "--nodes",
    "8, or 1,2,4, or 1..512 (doubling), or 1..512+1 (every number)",
    "SIZES",
    ParsedText(numbers),
    default="1..512",
)
PS = option("--ps", "numbers of parameter servers", "best|SIZES", ParsedText(servers), default="best")


# --- commands ---


@click.group("model")
def model() -> None:
    """Predict and explain img/s with the scaling model, or fit it (docs/scaling-model.md)."""


@model.command(
    "predict",
    short_help="Predict img/s for numbers of nodes",
    cls=GroupedCommand,
    params=[*_workload_options(NODES, PS), *START],
)
@AS_JSON
def predict(nodes: list[int], ps: list[int] | None, as_json: bool, **given: object) -> None:
    """Predict throughput at any size and number of parameter servers, with intervals and what bounds the step.

    `harness model predict --site daint --model inception3 --backend parameter_server --nodes 1..512 --ps best`
    """
    from harness.prediction import forecast
    from harness.prediction.basis import workload_and_basis
    from harness.report.text import prediction

    workload, basis = workload_and_basis(lambda fields: spec_of(given, **fields), given, some_of)
    predictions = forecast.predictions(workload, basis, nodes, ps)
    tell = prediction.predictions_as_json if as_json else prediction.predictions
    click.echo(tell(workload, basis, predictions, forecast.without_place(workload, nodes, ps)))


@model.command("fit", short_help="Fit the scaling model to results, and say how well it does", params=[FORWARD_SHARE])
@RESULTS
@click.option(
    "--hold-out", metavar="CONDITION", help="fit without these, and predict them: nodes>=64, or workers>32,ps=116"
)
@click.option("--data", type=click.Choice(["synthetic", "real"]), default="synthetic", help="which runs")
@AS_JSON
def fit(sources: tuple[str, ...], hold_out: str | None, data: str, forward_share: float | None, as_json: bool) -> None:
    """Fit the scaling model to RESULTS and say how well it does: whether the data contradict it, errors, also beside those
    of two lines, cross-validation, and parameters with intervals.
    """
    from harness import results
    from harness.prediction import fitting, holdout
    from harness.prediction.observations import groups, informative
    from harness.report.text import prediction
    from harness.results.sources import with_number

    condition = holdout.condition(hold_out) if hold_out else None
    loaded = results.load(sources, progress=CountLine("records").count, unreadable=leave_out())
    every, left_out = groups(with_number(loaded), data, forward_share)
    known = [group for group in every if informative(group.observations)]
    left_out += [f"{group.name}: one worker only" for group in every if group not in known]
    if not known:
        raise InvalidInput(f"{', '.join(sources)}: nothing to fit; {'; '.join(left_out) or 'no results'}")
    if condition and not any(holdout.parted(group, condition) for group in known):
        raise InvalidInput(f"--hold-out '{hold_out}': leaves nothing to fit, or nothing to test")
    line, fits = ProgressLine(), list[Any]()
    for group in known:
        line.show(f"fitting {group.name}, {len(fits) + 1} of {len(known)}")
        fitted = fitting.fit(group)
        alone = fitting.left_one_out(fitted) if 1 < len(fitted.errors) <= MOST_LEFT_OUT else ()
        fits.append((fitted, alone, holdout.hold_out(group, condition) if condition else None))
    line.clear()
    tell = prediction.fits_as_json if as_json else prediction.fits
    click.echo(tell(fits, left_out))


COUNT = click.IntRange(1, MOST_WORKERS)
EXPLAINED = _workload_options(
    option("--nodes", "the size to explain", "NUMBER", COUNT),
    option("--ps", "of parameter servers  [default: the best]", "NUMBER", COUNT),
)


TRACED = grouped(
    "Traced steps",
    option("--trace", "say what the steps of a run with --trace waited for, as they were traced", "RUN_DIR", ANY_PATH),
    option("--perfetto", "also write them for ui.perfetto.dev", "FILE", ANY_PATH),
)


def _traced(run_dir: Path, perfetto: Path | None, as_json: bool) -> str:
    from harness.report.text import traces
    from harness.tracing.exposed import exposed
    from harness.tracing.perfetto import perfetto as for_perfetto
    from harness.tracing.trace import read

    trace = read(run_dir)
    if perfetto:
        with writing(perfetto):
            perfetto.write_text(json.dumps(for_perfetto(trace)), encoding="utf-8")
    rows = exposed(trace)
    return traces.as_json(trace, rows) if as_json else traces.explanation(trace, rows)


@model.command(
    "explain",
    short_help="Say what limits a backend on so many nodes, and why",
    cls=GroupedCommand,
    params=[click.Argument(["record"], required=False, type=ANY_PATH), *EXPLAINED, *START, *TRACED],
)
@AS_JSON
def explain(
    record: Path | None,
    nodes: int | None,
    ps: int | None,
    trace: Path | None,
    perfetto: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Say what bounds a step: of the run in RECORD, or of one described with the options of `harness model predict`.
    With --single and --network, which say nothing of RECORD, also whether it is slower than they explain, and who was late.

    `harness model explain --site daint --model inception3 --backend parameter_server --nodes 128 --ps 116`
    """
    from harness.prediction import explain as explaining
    from harness.prediction import forecast
    from harness.prediction.basis import StartingPoint, workload_and_basis
    from harness.records.measurement import Record
    from harness.records.record import search
    from harness.report.text import prediction

    if trace is not None:
        click.echo(_traced(trace, perfetto, as_json))
        return
    measured = None
    if record is not None:
        describing = {"nodes": nodes, "ps": ps} | given
        names = ("nodes", "ps", "site", *PREDICTED)
        if twice := next((name for name in names if describing[name] is not None), None):
            raise InvalidInput(f"{option_name(twice)}: RECORD says it; give one of them")
        start = StartingPoint.of(given)
        if given["sources"] and start.network is not None:
            raise InvalidInput("--network: instead of --from, which says it itself")
        files = [Path(file) for file in search(record, (Record.file_name,))]
        if len(files) != 1:
            raise InvalidInput(f"{record}: has {plural(len(files), 'training')}; give the record of one, or its folder")
        explained, measured = explaining.explain_record(files[0], given["sources"], start, any_of)
    else:
        workload, basis = workload_and_basis(lambda fields: spec_of(given, **fields), given, some_of)
        if nodes is None:
            raise InvalidInput("--nodes is required: the one size that is to be explained, such as --nodes 128")
        forecast.check_sizes(workload, [nodes], ps)
        explained = explaining.explain(workload, basis, nodes, ps)
    tell = prediction.explanation_as_json if as_json else prediction.explanation
    click.echo(tell(explained, measured))

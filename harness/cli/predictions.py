"""The scaling model: predict, fit and explain."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.common import AS_JSON, RESULTS, reading
from harness.cli.options import GroupedCommand, grouped, spec_options
from harness.core.spec import MOST_WORKERS
from harness.errors import InvalidInput

if TYPE_CHECKING:
    import pandas

    from harness.predict.forecast import Basis, Prediction, What

MOST_LEFT_OUT = 40  # leaving out one of more runs after the other takes minutes
PREDICTED = ("backend", "model", "devices_per_node", "batch_size", "image_size", "transport", "device")


def _what_options(*sizes: click.Option) -> list[click.Option]:
    """Options that say what is predicted: ``sizes``, and those of `harness run` that make a difference to the law."""
    options = [one for one in spec_options() if one.name != "ps"]
    chosen = [one for one in options if one.name in PREDICTED]
    own = [one for one in options if getattr(one, "group", "").startswith("Options of")]
    return [*grouped([*sizes, *chosen], "What to predict"), *own]


def _finite(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """Ranges let NaN and infinity pass."""
    if value is not None and not math.isfinite(value):
        raise InvalidInput(f"{option.opts[0]} {value}: must be a finite number")
    return value


_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def _rate(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Bytes per second: 9.5GB/s, 25Gbit/s, 200 Mb/s. B is a byte, b and bit are a bit."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([kKMGT]?)(B|b|bit)(?:/s|ps)\s*", text)
    if not match or float(match[1]) <= 0:
        raise InvalidInput(f"{option.opts[0]} '{text}': must be a rate such as 9.5GB/s, 25Gbit/s or 200Mb/s")
    prefix = "k" if match[2] == "K" else match[2]
    return float(match[1]) * _PREFIXES[prefix] / (1 if match[3] == "B" else 8)


def _forward_share() -> click.Option:
    return click.Option(
        ["--forward-share"],
        type=click.FloatRange(0.05, 0.95),
        metavar="SHARE",
        help="of a step's compute, as `harness split` measures it  [default: 0.30 on GPUs, 0.37 on CPUs]",
    )


def _from_options() -> list[click.Option]:
    return grouped(
        [
            click.Option(["--site"], metavar="NAME", help="start from what was published about a site: daint, cori"),
            click.Option(
                ["--from", "sources"],
                metavar="RESULTS",
                multiple=True,
                help="start from these results; may be given several times",
            ),
            click.Option(
                ["--single"],
                type=click.FloatRange(min=0, min_open=True),
                callback=_finite,
                metavar="IMG_PER_S",
                help="what one worker trains alone",
            ),
            _forward_share(),
            click.Option(
                ["--throughput"],
                type=click.FloatRange(min=0, min_open=True),
                callback=_finite,
                metavar="GB/S",
                help="what a node sends and receives; with --single instead of results",
            ),
            click.Option(
                ["--network"],
                callback=_rate,
                metavar="RATE",
                help="the network's line rate, such as 9.5GB/s or 25Gbit/s; with --single instead of results",
            ),
            click.Option(
                ["--overhead"],
                type=click.FloatRange(min=0),
                callback=_finite,
                metavar="MS",
                help="of a step of several workers; with --throughput or --network",
            ),
        ],
        "What to start from",
    )


def _predict(**given: Any) -> None:
    """Predict throughput at any size and number of parameter servers, with intervals and what bounds the step.

    `harness predict --site daint --model inception3 --backend parameter_server --nodes 1..512 --ps best`
    """
    from harness.predict import forecast
    from harness.report.text import prediction

    what, basis = _asked(given)
    sizes = sizes_of(given["nodes"])
    if max(sizes) * what.devices_per_node > MOST_WORKERS:
        raise InvalidInput(f"--nodes {given['nodes']}: at most {MOST_WORKERS} workers")
    ps = given["ps"] or "best"
    if not what.has_servers:
        if given["ps"]:
            raise InvalidInput(f"--ps {ps}: {what.backend} has no parameter servers")
        found = [forecast.at(what, basis, size, 0) for size in sizes]
    elif ps == "best":
        found = forecast.best(what, basis, sizes)
    elif ps == "all":
        _every(what, basis, sizes, given["as_json"])
        return
    else:
        found = _chosen(what, basis, sizes, ps)
    tell = prediction.predictions_as_json if given["as_json"] else prediction.predictions
    click.echo(tell(what, basis, found))


def _chosen(what: What, basis: Basis, sizes: list[int], text: str) -> list[Prediction]:
    from harness.predict import forecast

    counts = sizes_of(text, "--ps", "best, all or numbers such as 4, 1,2,4 or 1..128")
    found = [forecast.at(what, basis, size, ps) for size in sizes for ps in counts if ps <= what.most_servers(size)]
    if not found:
        raise InvalidInput(
            f"--ps {text}: at most {what.most_servers(max(sizes))} servers have a place and a piece to hold"
        )
    return found


def _every(what: What, basis: Basis, sizes: list[int], as_json: bool) -> None:
    """Every possible number of servers at every size: too many for a table with intervals, so plain columns."""
    import numpy as np

    from harness.predict import forecast

    counts, steps = forecast.sweep(what, basis, sizes)
    rates = np.where(np.isfinite(steps), np.asarray(sizes) * what.devices_per_node * what.batch_size / steps, np.nan)
    if as_json:
        rows = [[None if np.isnan(rate) else round(float(rate), 2) for rate in row] for row in rates]
        click.echo(json.dumps({"nodes": sizes, "ps": counts, "img_per_s": rows, "made_from": list(basis.told)}))
        return
    lines = ["nodes,ps,img_per_s"]
    for column, size in enumerate(sizes):
        known = ~np.isnan(rates[:, column])
        lines += [
            f"{size},{ps},{rate:.1f}" for ps, rate in zip(np.asarray(counts)[known], rates[known, column], strict=True)
        ]
    click.echo("\n".join(lines))


def _asked(given: dict[str, Any]) -> tuple[What, Basis]:
    """What is to be predicted, and from what. Raises InvalidInput."""
    from harness.predict.basis import basis, checked_transport, from_little
    from harness.predict.parameters import FORWARD_SHARE

    what, device = what_of(given)
    options = [name for name in ("throughput", "network") if given[name] is not None]
    if options:
        if len(options) > 1:
            raise InvalidInput("--throughput: instead of --network; give one of them")
        if given["single"] is None:
            raise InvalidInput(f"--{options[0]}: needs --single, too: what one worker trains alone, in img/s")
        if given["site"] or given["sources"]:
            raise InvalidInput(f"--{options[0]}: instead of --site and --from, which say it themselves")
        checked_transport(what, given["transport"])
        return what, from_little(
            what,
            given["single"],
            given["forward_share"] or FORWARD_SHARE[device or "cuda"],
            given["transport"],
            line_rate=given["network"],
            throughput=None if given["throughput"] is None else given["throughput"] * 1e9,
            overhead=None if given["overhead"] is None else given["overhead"] / 1e3,
        )
    if given["overhead"] is not None:
        raise InvalidInput("--overhead: only with --throughput or --network; results say it themselves")
    start = (given["transport"], given["single"], given["forward_share"])
    return what, basis(_results(given), what, *start, device=device)


def what_of(given: dict[str, Any]) -> tuple[What, str | None]:
    """What the options say is to be predicted, and on which kind of device, if said. Raises InvalidInput as a run does."""
    from harness.core import backend as backends
    from harness.core.spec import RunSpec
    from harness.core.validation import checked
    from harness.predict.forecast import What
    from harness.results.columns import other_training

    if given["backend"] is None:
        raise InvalidInput("--backend is required; see `harness list backends`")
    fields, own = backends.spec_fields(
        {name: value for name, value in given.items() if name != "ps"}, [given["backend"]]
    )
    backend = backends.backend(given["backend"])
    if backend.exchange is None:
        raise InvalidInput(f"--backend {backend.name}: does not say what it exchanges, so nothing can be predicted")
    options = checked(backend.options, own[backend.name]).model_dump()
    fields = {name: value for name, value in fields.items() if name in PREDICTED}
    spec = RunSpec.validated(**fields)
    if other := other_training(backend, options):
        raise InvalidInput(
            f"--backend {backend.name} with {other}: the law is about synchronous steps of 32 bit gradients"
        )
    what = What(
        backend=backend.name,
        model=spec.model,
        batch_size=spec.batch_size,
        image_size=spec.image_size,
        devices_per_node=spec.devices_per_node,
        options=json.dumps({name: value for name, value in options.items() if name != "ps"}, sort_keys=True),
    )
    if spec.device not in ("auto", *backend.devices):
        raise InvalidInput(f"--device {spec.device}: {backend.name} supports {', '.join(backend.devices)}")
    return what, spec.device if spec.device != "auto" else (backend.devices[0] if len(backend.devices) == 1 else None)


def _results(given: dict[str, Any]) -> pandas.DataFrame:
    from harness import results
    from harness.predict.basis import of_site

    if given["sources"] and given["site"]:
        raise InvalidInput("--site: instead of --from; for both give --from reference, too")
    if given["sources"]:
        return results.load(given["sources"], progress=reading())
    if given["site"]:
        return of_site(given["site"])
    raise InvalidInput(
        "nothing to start from: give --site NAME, --from RESULTS, or --single with --network or --throughput"
    )


def sizes_of(
    text: str, option: str = "--nodes", right: str = "numbers such as 8, 1,2,4, 1..512 or 1..512+1"
) -> list[int]:
    """``1,2,4``; ``1..512``, which doubles; ``1..512+1``, which adds. In order, once each. Raises InvalidInput."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})\s*(?:\.\.\s*(\d{1,6})\s*(?:\+\s*(\d{1,6}))?)?\s*", part)
        if not match or int(match[1]) < 1 or (match[2] and int(match[2]) < int(match[1])) or match[3] == "0":
            raise InvalidInput(f"{option} '{text}': must be {right}")
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) > MOST_WORKERS:
            raise InvalidInput(f"{option} '{text}': at most {MOST_WORKERS}")
        if match[3]:
            found |= set(range(first, last + 1, int(match[3])))
        else:
            while first < last:
                found.add(first)
                first *= 2
            found.add(last)
    return sorted(found)


predict = GroupedCommand(
    "predict",
    params=[
        *_what_options(
            click.Option(
                ["--nodes"],
                default="1..512",
                show_default=True,
                metavar="SIZES",
                help="8, or 1,2,4, or 1..512 (doubling), or 1..512+1",
            ),
            click.Option(["--ps"], metavar="best|all|SIZES", help="numbers of parameter servers  [default: best]"),
        ),
        *_from_options(),
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON for scripts"),
    ],
    callback=_predict,
    help=_predict.__doc__,
)


@click.command("fit")
@RESULTS
@click.option(
    "--hold-out", metavar="CONDITION", help="fit without these, and predict them: nodes>=64, or workers>32,ps=116"
)
@click.option(
    "--data", type=click.Choice(["synthetic", "real"]), default="synthetic", show_default=True, help="which runs"
)
@AS_JSON
def fit(sources: tuple[str, ...], hold_out: str | None, data: str, forward_share: float | None, as_json: bool) -> None:
    """Fit the scaling model to RESULTS and say how well it does: whether the data contradict it, errors, also beside curves
    that know nothing of networks, cross-validation, and parameters with intervals.
    """
    from harness import results
    from harness.predict import fitting, holdout
    from harness.predict.observations import groups, informative
    from harness.report.text import prediction

    condition = holdout.condition(hold_out) if hold_out else None
    found, left_out = groups(results.load(sources, progress=reading()), data, forward_share)
    known = [one for one in found if informative(one.observations)]
    left_out += [f"{one.name}: one worker only" for one in found if one not in known]
    if not known:
        raise InvalidInput(f"{', '.join(sources)}: nothing to fit; {'; '.join(left_out) or 'no results'}")
    if condition and not any(holdout.parted(group, condition) for group in known):
        raise InvalidInput(f"--hold-out '{hold_out}': leaves nothing to fit, or nothing to test")
    fitted = []
    for group in known:
        one = fitting.fit(group)
        alone = fitting.left_one_out(one) if 1 < len(one.errors) <= MOST_LEFT_OUT else ()
        fitted.append((one, alone, holdout.hold_out(group, condition) if condition else None))
    tell = prediction.fits_as_json if as_json else prediction.fits
    click.echo(tell(fitted, left_out))


fit.params.append(_forward_share())


def _explain(**given: Any) -> None:
    """Say what bounds a step: of the run in RECORD, or of one that is described with the options of `harness predict`.

    `harness explain --site daint --model inception3 --backend parameter_server --nodes 128 --ps 116`
    """
    from harness.predict import explain as explaining
    from harness.report.text import prediction

    if given["record"] is not None:
        _explain_record(given)
        return
    what, basis = _asked(given)
    sizes = sizes_of(given["nodes"]) if given["nodes"] else []
    if len(sizes) != 1:
        raise InvalidInput("--nodes: one size is explained at a time; give one, such as --nodes 128")
    one = explaining.explain(what, basis, sizes[0], _one_ps(given["ps"], what, sizes[0]))
    click.echo(json.dumps(one.as_dict()) if given["as_json"] else prediction.explanation(one))


def _one_ps(text: str | None, what: What, nodes: int) -> int | None:
    if text is None or text == "best":
        return None
    if not what.has_servers:
        raise InvalidInput(f"--ps {text}: {what.backend} has no parameter servers")
    counts = sizes_of(text, "--ps", "best or one number")
    if len(counts) != 1 or counts[0] > what.most_servers(nodes):
        raise InvalidInput(f"--ps {text}: must be one number, at most {what.most_servers(nodes)} on {nodes} nodes")
    return counts[0]


def _explain_record(given: dict[str, Any]) -> None:
    from harness import results
    from harness.analysis import traffic
    from harness.predict import explain as explaining
    from harness.predict.basis import basis
    from harness.predict.forecast import What
    from harness.predict.observations import step_of
    from harness.records.measurement import FILE_NAME, read
    from harness.report.text import prediction

    describing = ("nodes", "ps", "backend", "site", "throughput", "network")
    if told := next((name for name in describing if given[name] is not None), None):
        raise InvalidInput(f"--{told}: RECORD says it; give one of them")
    path = Path(given["record"])
    path = path / FILE_NAME if path.is_dir() else path
    record = read(path)
    if record.derived is None:
        raise InvalidInput(f"{path}: this run has no number: {record.reason}")
    frame = results.load([path])
    # Python's numbers, not NumPy's.
    row: dict[str, Any] = {str(name): value for name, value in frame.to_dict("records")[0].items()}
    what = What(
        row["backend"],
        row["model"],
        row["batch_size"],
        row["image_size"] or None,
        row["devices_per_node"],
        row["options"],
    )
    around = list(given["sources"]) or [str(path.resolve().parent.parent)]
    beside = results.load([str(path), *around], progress=reading())
    for name in ("system", "device", "software"):  # another one's single worker would say nothing
        beside = beside[beside[name] == row[name]]
    one = explaining.explain(
        what,
        basis(beside, what, row["transport"], given["single"], given["forward_share"], strict=given["single"] is None),
        row["nodes"],
        row["ps"],
    )
    counted = [
        f"measured: PS {each.ps} sent {explaining.size(each.sent)} and received {explaining.size(each.received)} per step; "
        f"planned {explaining.size(each.planned)} each way"
        for each in sorted(traffic.of_servers(record), key=lambda each: -each.sent)[:1]
    ]
    measured = step_of(row)
    if given["as_json"]:
        click.echo(json.dumps(one.as_dict() | {"measured_step_s": measured}))
    else:
        click.echo(prediction.explanation(one, measured, counted))


explain = GroupedCommand(
    "explain",
    params=[
        click.Argument(["record"], required=False, metavar="[RECORD]"),
        *_what_options(
            click.Option(["--nodes"], metavar="NUMBER", help="the size to explain"),
            click.Option(["--ps"], metavar="NUMBER", help="of parameter servers  [default: the best]"),
        ),
        *_from_options(),
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON for scripts"),
    ],
    callback=_explain,
    help=_explain.__doc__,
)


def _split(**given: Any) -> None:
    """Measure on this machine which share of a training step is its forward pass, for --forward-share.

    `harness split --backend pytorch --model resnet50 --batch-size 64`
    """
    from harness.core.spec import RunSpec
    from harness.predict import split as splitting

    fields = {name: value for name, value in given.items() if name in SPLIT and value is not None}
    spec = RunSpec.validated(**{"backend": "pytorch", "warmup_steps": 3, "steps": 20} | fields)
    found = splitting.measure(spec)
    if given["as_json"]:
        click.echo(json.dumps(found.__dict__))
        return
    click.echo(
        f"forward {found.forward_s:.4g} s, step {found.step_s:.4g} s: share {found.share:.3f} ± {found.ci95:.3f} (95 % CI)"
    )


SPLIT = (
    *("backend", "framework", "model", "batch_size", "image_size", "device", "precision", "threads"),
    *("warmup_steps", "steps"),
)
split = GroupedCommand(
    "split",
    params=[
        *(one for one in spec_options() if one.name in SPLIT),
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON for scripts"),
    ],
    callback=_split,
    help=_split.__doc__,
)

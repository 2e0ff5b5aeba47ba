"""The scaling model: predict, fit and explain."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.common import AS_JSON, RESULTS, reading
from harness.cli.options import GroupedCommand, grouped, spec_of, spec_options
from harness.core.spec import MOST_WORKERS
from harness.errors import InvalidInput

if TYPE_CHECKING:
    from harness.prediction.basis import Start
    from harness.prediction.forecast import Basis, What

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


def _option(name: str, metavar: str, explained: str, **more: Any) -> click.Option:
    return click.Option(name.split(), metavar=metavar, help=explained, **more)


def _forward_share() -> click.Option:
    explained = "of a step's compute, as `harness split` measures it  [default: 0.30 on GPUs, 0.37 on CPUs]"
    return _option("--forward-share", "SHARE", explained, type=click.FloatRange(0.05, 0.95))


def _from_options() -> list[click.Option]:
    positive = {"type": click.FloatRange(min=0, min_open=True), "callback": _finite}
    instead = "with --single instead of results"
    options = [
        _option("--site", "NAME", "start from what was published about a site: daint, cori"),
        _option("--from sources", "RESULTS", "start from these results; may be given several times", multiple=True),
        _option("--single", "IMG_PER_S", "what one worker trains alone", **positive),
        _forward_share(),
        _option("--throughput", "GB/S", f"what a node sends and receives; {instead}", **positive),
        _option(
            "--network", "RATE", f"the network's line rate, such as 9.5GB/s or 25Gbit/s; {instead}", callback=_rate
        ),
        _option(
            *("--overhead", "MS", "of a step of several workers; with --throughput or --network"),
            type=click.FloatRange(min=0),
            callback=_finite,
        ),
    ]
    return grouped(options, "What to start from")


def _predict(**given: Any) -> None:
    """Predict throughput at any size and number of parameter servers, with intervals and what bounds the step.

    `harness predict --site daint --model inception3 --backend parameter_server --nodes 1..512 --ps best`
    """
    from harness.prediction import forecast
    from harness.report.text import prediction

    what, basis = _asked(given)
    sizes = sizes_of(given["nodes"])
    if max(sizes) * what.devices_per_node > MOST_WORKERS:
        raise InvalidInput(f"--nodes {given['nodes']}: at most {MOST_WORKERS} workers")
    if not what.has_servers or given["ps"] in (None, "best"):
        _no_servers(given["ps"], what)
        found = forecast.best(what, basis, sizes)
    elif given["ps"] == "all":
        _every(what, basis, sizes, given["as_json"])
        return
    else:
        counts = sizes_of(given["ps"], "--ps", "best, all or numbers such as 4, 1,2,4 or 1..128")
        most = {size: what.most_servers(size) for size in sizes}
        found = [forecast.at(what, basis, size, ps) for size in sizes for ps in counts if ps <= most[size]]
        if not found:
            raise InvalidInput(
                f"--ps {given['ps']}: at most {most[max(sizes)]} servers have a place and a piece to hold"
            )
    tell = prediction.predictions_as_json if given["as_json"] else prediction.predictions
    click.echo(tell(what, basis, found))


def _no_servers(text: str | None, what: What) -> None:
    if text and not what.has_servers:
        raise InvalidInput(f"--ps {text}: {what.backend} has no parameter servers")


def _every(what: What, basis: Basis, sizes: list[int], as_json: bool) -> None:
    """Every possible number of servers at every size: too many for a table with intervals, so plain columns."""
    import numpy as np
    import pandas

    from harness.prediction import forecast

    counts, steps = forecast.sweep(what, basis, sizes)
    rates = np.where(np.isfinite(steps), np.asarray(sizes) * what.devices_per_node * what.batch_size / steps, np.nan)
    if as_json:
        rows = [[None if np.isnan(rate) else round(float(rate), 2) for rate in row] for row in rates]
        click.echo(json.dumps({"nodes": sizes, "ps": counts, "img_per_s": rows, "made_from": list(basis.told)}))
        return
    table = pandas.DataFrame(rates.T, index=pandas.Index(sizes, name="nodes"), columns=pandas.Index(counts, name="ps"))
    click.echo(table.stack().dropna().to_csv(header=["img_per_s"], float_format="%.1f"), nl=False)


def _asked(given: dict[str, Any]) -> tuple[What, Basis]:
    """What is to be predicted, and from what. Raises InvalidInput."""
    from harness import results
    from harness.prediction import basis, forecast

    # --nodes and --ps are sizes here, of which there may be several.
    spec = spec_of({name: value for name, value in given.items() if name not in ("nodes", "ps")})
    what = forecast.described(spec)
    sources = given["sources"]
    load = (lambda: results.load(sources, progress=reading())) if sources else None
    return what, basis.chosen(what, _start(given), given["site"], load)


def _start(given: dict[str, Any]) -> Start:
    from harness.prediction.basis import Start

    return Start(
        transport=given["transport"],
        device=given["device"] or "auto",
        single=given["single"],
        forward_share=given["forward_share"],
        throughput=None if given["throughput"] is None else given["throughput"] * 1e9,
        line_rate=given["network"],
        overhead=None if given["overhead"] is None else given["overhead"] / 1e3,
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
    from harness.prediction import fitting, holdout
    from harness.prediction.observations import groups, informative
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
    from harness.prediction import explain as explaining
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
    _no_servers(text, what)
    counts = sizes_of(text, "--ps", "best or one number")
    if len(counts) != 1 or counts[0] > what.most_servers(nodes):
        raise InvalidInput(f"--ps {text}: must be one number, at most {what.most_servers(nodes)} on {nodes} nodes")
    return counts[0]


def _explain_record(given: dict[str, Any]) -> None:
    from harness.prediction import explain as explaining
    from harness.records.measurement import FILE_NAME
    from harness.report.text import prediction

    describing = ("nodes", "ps", "backend", "site", "throughput", "network")
    if option := next((name for name in describing if given[name] is not None), None):
        raise InvalidInput(f"--{option}: RECORD says it; give one of them")
    path = Path(given["record"])
    path = path / FILE_NAME if path.is_dir() else path
    one, step_s, counted = explaining.explain_record(path, given["sources"], _start(given), reading())
    if given["as_json"]:
        click.echo(json.dumps(one.as_dict() | {"measured_step_s": step_s}))
    else:
        click.echo(prediction.explanation(one, step_s, counted))


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
    from harness.prediction import split as splitting

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

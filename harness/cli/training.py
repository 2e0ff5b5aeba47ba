"""Training to an accuracy: train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.common import share_of
from harness.cli.options import (
    GroupedCommand,
    field_options,
    grouped,
    place_of,
    run_options,
    site_options,
    spec_of,
    spec_options,
)
from harness.cli.runs import carried_out
from harness.core.spec import SYNTHETIC, Accuracy, Training
from harness.core.validation import checked
from harness.errors import InvalidInput
from harness.records.training import TrainingRecord
from harness.report.text import outcomes
from harness.running.request import failed
from harness.running.train import find_checkpoint

# Fields of RunSpec that say nothing about a training.
MEASURING = frozenset({"data", "data_cache", "warmup_steps", "steps", "repeats", "straggler_limit"})
DEFAULTS = {"learning_rate": 0.1, "timeout_s": 7 * 86400.0}
METAVARS = {
    "until": "top1=0.76",
    "validation": "PATH",
    "decay_epochs": "N,M,…",
    "resume": "RUN_DIR|FILE",
}


def _train(**given: Any) -> None:
    """Train until the validation images are classified well enough, and print the time that took.

    SGD with momentum, linear scaling of the learning rate and a gradual warm-up (Goyal et al. 2017, arXiv:1706.02677).
    After each epoch the validation images are classified and a checkpoint is written; any backend can go on from it.
    Exits with 1 if the accuracy of --until is not reached.

    `harness train --backend pytorch --nodes 2 --data PATH --until top1=0.76`
    """
    if given["data"] in (None, SYNTHETIC):
        raise InvalidInput("--data PATH is required: nothing can be learned from synthetic images, which are noise")
    spec = spec_of(given, **DEFAULTS, repeats=1, training=checked(Training, _training(given)))
    outcome = carried_out([spec], place_of(given), given)
    for record, run in zip(outcome.records, outcome.runs, strict=False):
        assert isinstance(record, TrainingRecord)
        if record.status == "completed":
            click.echo(record.to_json() if given["as_json"] else outcomes.training(record, run.record_file))
        if record.problem:
            error, way = failed(record, run.folder), run.continuation()
            raise type(error)("\n".join([str(error), *([way] if way and record.status != "completed" else [])]))


def _training(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of ``Training`` from the command line."""
    fields = {name: given[name] for name in Training.model_fields if given[name] is not None}
    if "until" in fields:
        fields["until"] = _accuracy(fields["until"])
    if "decay_epochs" in fields:
        fields["decay_epochs"] = _epochs(fields["decay_epochs"])
    if "resume" in fields:
        fields["resume"] = str(find_checkpoint(Path(fields["resume"])))
    return {"validation": given["data"]} | fields


def _accuracy(text: str) -> Accuracy:
    metric, _, value = text.partition("=")
    if metric not in ("top1", "top5"):
        raise InvalidInput(f"--until {text}: must be an accuracy such as top1=0.76 or top5=93%")
    return checked(Accuracy, {"metric": metric, "value": share_of("--until", value, zero=False)})


def _epochs(text: str) -> list[int]:
    """``30,60,80``; ``none`` for a rate that never falls."""
    parts = [] if text == "none" else text.split(",")
    try:
        return [int(part) for part in parts]
    except ValueError:
        raise InvalidInput(f"--decay-epochs {text}: must be whole epochs such as 30,60,80, or none") from None


DATA = click.Option(
    ["--data"],
    metavar="PATH",
    help="images to learn from: a folder in ImageNet's layout, or of TFRecord shards  [required]",
)

train = GroupedCommand(
    "train",
    params=[
        *grouped([DATA, *field_options(Training, METAVARS)], "How to train"),
        *spec_options(leave_out=MEASURING, defaults=DEFAULTS),
        *site_options(),
        *run_options(),
    ],
    callback=_train,
    help=_train.__doc__,
)

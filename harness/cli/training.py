"""Training to an accuracy: train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.common import failed, run_options, share_of, site_options, where_of
from harness.cli.options import GroupedCommand, field_options, grouped, spec_fields, spec_options
from harness.cli.runs import carry_out, dry_run
from harness.core.spec import SYNTHETIC, RunSpec, Target, Training
from harness.core.validation import checked
from harness.errors import HarnessError, InvalidInput

if TYPE_CHECKING:
    from harness.records.training import TrainingRecord

# Fields of RunSpec that say nothing about a training.
MEASURING = frozenset({"data", "data_cache", "warmup_steps", "steps", "repeats", "straggler_limit"})
DEFAULTS = {"learning_rate": 0.1, "timeout_s": 7 * 86400.0}
METAVARS = {
    "until": "top1=0.76",
    "validation": "PATH",
    "decay_epochs": "N,M,…",
    "resume": "RUN_DIR|FILE",
}


class Interrupted(HarnessError):
    """The user has stopped a training. The message says how to go on."""

    exit_code = 130


def _train(**given: Any) -> None:
    """Train until the validation images are classified well enough, and print the time that took.

    SGD with momentum, linear scaling of the learning rate and a gradual warm-up (Goyal et al. 2017, arXiv:1706.02677).
    After each epoch the validation images are classified and a checkpoint is written; any backend can go on from it.
    Exits with 1 if the accuracy of --until is not reached.

    `harness train --backend pytorch --nodes 2 --data PATH --until top1=0.76`
    """
    from harness.records.training import FILE_NAME, TrainingRecord
    from harness.report.text import training as text
    from harness.running.training import TrainingRun

    spec = _spec(given)
    where = where_of(given)
    prepared = where.prepare(spec)
    if given["dry_run"]:
        click.echo(dry_run(prepared, where, given["as_json"]))
        return
    run = TrainingRun.checked(prepared)
    try:
        records = carry_out([run], where, given)
    except KeyboardInterrupt as signal_name:
        raise Interrupted(f"{signal_name or 'interrupted'}; no process is left running{_go_on(run.folder)}") from None
    if records is None:
        return
    record, path = records[0], run.folder / FILE_NAME
    assert isinstance(record, TrainingRecord)
    if record.status == "completed":
        click.echo(record.to_json() if given["as_json"] else text.summary(record, path))
    if record.problem:
        raise _failed(record, path)


def _spec(given: dict[str, Any]) -> RunSpec:
    """What is asked for. Raises InvalidInput."""
    if given["backend"] is None:
        raise InvalidInput("--backend is required; see `harness list backends`")
    if given["data"] in (None, SYNTHETIC):
        raise InvalidInput("--data PATH is required: nothing can be learned from synthetic images, which are noise")
    fields, own = spec_fields(given, [given["backend"]])
    options = own[given["backend"].replace("-", "_")]
    training = checked(Training, _training(given))
    return RunSpec.validated(**DEFAULTS | fields, repeats=1, training=training, options=options)


def _training(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of ``Training`` from the command line."""
    from harness.running.training import find_checkpoint

    fields = {name: given[name] for name in Training.model_fields if given[name] is not None}
    if "until" in fields:
        fields["until"] = _target(fields["until"])
    if "decay_epochs" in fields:
        fields["decay_epochs"] = _epochs(fields["decay_epochs"])
    if "resume" in fields:
        fields["resume"] = str(find_checkpoint(Path(fields["resume"])))
    return {"validation": given["data"]} | fields


def _target(text: str) -> Target:
    metric, _, value = text.partition("=")
    if metric not in ("top1", "top5"):
        raise InvalidInput(f"--until {text}: must be an accuracy such as top1=0.76 or top5=93%")
    return checked(Target, {"metric": metric, "value": share_of("--until", value, zero=False)})


def _epochs(text: str) -> list[int]:
    """``30,60,80``; ``none`` for a rate that never falls."""
    parts = [] if text == "none" else text.split(",")
    try:
        return [int(part) for part in parts]
    except ValueError:
        raise InvalidInput(f"--decay-epochs {text}: must be whole epochs such as 30,60,80, or none") from None


def _failed(record: TrainingRecord, path: Path) -> HarnessError:
    error = failed(record, path)
    return type(error)(f"{error}{_go_on(path.parent) if record.status != 'completed' else ''}")


def _go_on(folder: Path) -> str:
    from harness.running.training import checkpoints

    return f"\ngo on with the same command and --resume {folder}" if checkpoints(folder) else ""


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

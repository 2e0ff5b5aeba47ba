"""Data sets: made for trials, converted, checked."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import AS_JSON, signals_interrupt
from harness.cli.data_bench import data_bench
from harness.errors import HarnessError, InvalidInput, RunFailed

if TYPE_CHECKING:
    from harness.datasets.check import Findings
    from harness.datasets.manifest import Manifest

PIXELS = click.IntRange(1, 4096)
SEED = click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
SHARDS = click.IntRange(1, 99_999)  # five digits, in the world of these files
PATH = click.Path(path_type=Path)
WORKERS = click.option(
    "--workers", type=click.IntRange(1, 1024), metavar="NUMBER", help="processes  [default: one per core]"
)
QUIET = click.option("--quiet", is_flag=True, help="no progress")


class Interrupted(HarnessError):
    """The user has ended it, and it can go on."""

    exit_code = 130


@click.group()
def data() -> None:
    """Make, convert and check data sets, and measure how fast they are read."""


data.add_command(data_bench)


@data.command("make")
@click.argument("path", type=PATH)
@click.option("--images", type=int, default=256, show_default=True, help="number of JPEGs")
@click.option("--classes", type=int, default=8, show_default=True, help="number of classes, one folder each")
@click.option("--width", type=PIXELS, default=500, show_default=True, help="pixels")
@click.option("--height", type=PIXELS, default=375, show_default=True, help="pixels")
@SEED
def data_make(path: Path, images: int, classes: int, width: int, height: int, seed: int) -> None:
    """Write a small JPEG data set in ImageNet's layout to the new folder PATH."""
    from harness.datasets import make

    with _problems(path):
        written = make.make(path, images, classes, (width, height), seed)
    click.echo(f"{images} images of {classes} classes, {written / 1e6:.1f} MB, in {path}")


@data.command("convert")
@click.argument("source", type=PATH, metavar="SRC")
@click.argument("target", type=PATH, metavar="DST")
@click.option("--shards", type=SHARDS, required=True, help="for training; the TensorFlow world has 1024")
@click.option("--validation-shards", type=SHARDS, metavar="NUMBER", help="[default: an eighth of --shards]")
@click.option(
    "--validation-labels", type=PATH, metavar="FILE", help="the classes of the validation tar's images, in order"
)
@click.option("--class-names", type=PATH, metavar="FILE", help="lines `class<TAB>name` for image/class/text")
@click.option("--skip-bad", is_flag=True, help="leave out images that cannot be decoded, and list them in the manifest")
@SEED
@WORKERS
@AS_JSON
@QUIET
def data_convert(
    source: Path,
    target: Path,
    shards: int,
    validation_shards: int | None,
    validation_labels: Path | None,
    class_names: Path | None,
    skip_bad: bool,
    seed: int,
    workers: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Convert ImageNet at SRC, folders or tar files, to TFRecord shards in DST.

    SRC is a folder with train/<class>/*.JPEG and perhaps val/<class>/*.JPEG, one with <class>/*.JPEG, or one with
    ILSVRC2012_img_train.tar and perhaps ILSVRC2012_img_val.tar. What was interrupted goes on with the same command.
    """
    from harness.core.progress import CountLine
    from harness.datasets import convert, sources

    processes = workers or len(os.sched_getaffinity(0))
    classes, images = CountLine("classes listed", enabled=not quiet), CountLine("images", enabled=not quiet)
    with signals_interrupt(), _problems(source):
        try:
            found = sources.find(source, validation_labels, processes, classes.count)
            texts = sources.class_texts(class_names, found.classes) if class_names else {}
            plan = convert.plan(found, shards, validation_shards, seed, texts)
            manifest = convert.convert(plan, target, processes, skip_bad, images.count)
        except KeyboardInterrupt:
            raise Interrupted(
                "interrupted; no process is left running. Finished shards stay: the same command goes on with the others"
            ) from None
        finally:
            images.clear()
    if as_json:
        click.echo(json.dumps({"path": str(target)} | manifest.summary(), indent=1))
    else:
        click.echo(_converted(manifest, target))


def _converted(manifest: Manifest, target: Path) -> str:
    lines = [f"{len(manifest.classes)} classes in {target}"]
    for name, split in manifest.splits.items():
        told = f"{split.images:,} images in {len(split.shards)} shards, {split.bytes / 1e6:,.1f} MB"
        told += "".join(f"; {number} re-encoded from {was}" for was, number in split.reencoded.items())
        told += f"; {len(split.skipped)} skipped, listed in manifest.json" if split.skipped else ""
        lines.append(f"  {name:10} {told}")
    return "\n".join(lines)


@data.command("check")
@click.argument("path", type=PATH)
@click.option(
    "--decode", is_flag=True, help="decode every image in shards, which takes about as long as converting them"
)
@click.option(
    "--classes", type=click.IntRange(1), metavar="NUMBER", help="the highest label  [default: the manifest's, or 1000]"
)
@WORKERS
@AS_JSON
@QUIET
def data_check(path: Path, decode: bool, classes: int | None, workers: int | None, as_json: bool, quiet: bool) -> None:
    """Look for damage in PATH: TFRecord shards, from here or elsewhere, or folders of images.

    In shards every record's checksum and every example is checked, in folders every image is decoded. Exits with 1 if
    anything is wrong.
    """
    from harness.core.progress import CountLine
    from harness.datasets import check

    processes = workers or len(os.sched_getaffinity(0))
    with signals_interrupt(), _problems(path):
        subject = check.subject(path, classes, decode)
        unit, per = ("MB", 1_000_000) if subject.shards else ("images", 1)
        line = CountLine(unit, per, enabled=not quiet)
        try:
            findings = check.check(subject, processes, line.count)
        finally:
            line.clear()
    click.echo(json.dumps(findings.as_json(), indent=1) if as_json else _found(findings))
    if findings.problems:
        raise RunFailed(f"{findings.problems} problem{'s' * (findings.problems != 1)} in {path}")


def _found(findings: Findings) -> str:
    lines = [str(problem) for problem in findings.listed]
    if unlisted := findings.problems - len(lines):
        lines.append(f"… and {unlisted} more")
    shards = f" in {findings.shards} shards" if findings.shards else ""
    return "\n".join([*lines, f"{findings.images:,} images{shards} looked at"])


@contextmanager
def _problems(path: Path) -> Iterator[None]:
    """A data set that cannot be is a wrong request (2); a disk that does not do its part is a failed action (1)."""
    from harness.worker.inputs.errors import DataError

    try:
        yield
    except DataError as error:
        raise InvalidInput(str(error)) from None
    except OSError as error:
        raise RunFailed(f"cannot write {error.filename or path}: {error.strerror}") from None

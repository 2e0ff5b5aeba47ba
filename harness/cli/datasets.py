"""Data sets: made for trials, converted, checked, copied, and how fast they are read."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from harness.cli.interrupts import signals_interrupt
from harness.cli.values import ANY_PATH, AS_JSON, HOSTS, QUIET, SITE
from harness.core.plain import json_text
from harness.core.progress import CountLine, ProgressLine
from harness.core.text import plural
from harness.errors import Interrupted, InvalidInput, RunFailed
from harness.worker.inputs.errors import DataError

PIXELS = click.IntRange(1, 4096)
SEEDS = click.IntRange(min=0)
SHARDS = click.IntRange(1, 99_999)  # five digits, in the world of these files
CORES = len(os.sched_getaffinity(0))
DECODERS = click.IntRange(1, 1024)
PROCESSES = click.option(
    "--processes",
    type=DECODERS,
    default=CORES,
    show_default=False,
    metavar="NUMBER",
    help="that decode  [default: one per core]",
)


@contextmanager
def _work_on(path: Path, line: ProgressLine | None = None, reading: bool = False) -> Iterator[None]:
    """Raises InvalidInput for a wrong data set, or an unreadable one where it is only read; RunFailed for a bad disk."""
    try:
        with signals_interrupt():
            yield
    except DataError as error:
        raise InvalidInput(str(error)) from None
    except OSError as error:
        if reading:
            raise InvalidInput(f"cannot read {error.filename or path}: {error.strerror}") from None
        raise RunFailed(f"cannot write {error.filename or path}: {error.strerror}") from None
    finally:
        if line:
            line.clear()


@click.group()
def data() -> None:
    """Make, convert, check and copy data sets, and measure how fast they are read."""


@data.command("make", short_help="Write a small data set of JPEGs, for trials")
@click.argument("path", type=ANY_PATH)
@click.option("--images", type=int, default=256, help="number of JPEGs")
@click.option("--classes", type=int, default=8, help="number of classes, one folder each")
@click.option("--width", type=PIXELS, default=500, help="pixels")
@click.option("--height", type=PIXELS, default=375, help="pixels")
@click.option("--seed", type=SEEDS, default=1, help="of what the images show")
def data_make(path: Path, images: int, classes: int, width: int, height: int, seed: int) -> None:
    """Write a small JPEG data set in ImageNet's layout to the new folder PATH."""
    from harness.datasets import make

    line = CountLine("images")
    with _work_on(path, line):
        written = make.make(path, images, classes, (width, height), seed, line.count)
    click.echo(f"{images} images of {classes} classes, {written / 1e6:.1f} MB, in {path}")


@data.command("convert", short_help="Convert ImageNet to TFRecord shards")
@click.argument("source", type=ANY_PATH, metavar="SRC")
@click.argument("target", type=ANY_PATH, metavar="DST")
@click.option("--shards", type=SHARDS, required=True, help="for training; the TensorFlow world has 1024")
@click.option(
    "--validation-shards", type=SHARDS, metavar="NUMBER", help="for validation  [default: an eighth of --shards]"
)
@click.option(
    "--validation-labels",
    type=ANY_PATH,
    metavar="FILE",
    help="classes, in order, of validation images in a tar file or in a folder without classes",
)
@click.option("--class-names", type=ANY_PATH, metavar="FILE", help="lines `class<TAB>name` for image/class/text")
@click.option("--skip-bad", is_flag=True, help="leave out images that cannot be decoded, and list them in the manifest")
@click.option("--seed", type=SEEDS, default=1, help="of the order in which images are dealt to the shards")
@PROCESSES
@AS_JSON
@QUIET
def data_convert(source: Path, target: Path, processes: int, as_json: bool, quiet: bool, **given: Any) -> None:
    """Convert ImageNet at SRC, folders or tar files, to TFRecord shards in DST.

    SRC is a folder with train/<class>/*.JPEG and perhaps val/<class>/*.JPEG, one with <class>/*.JPEG, or one with
    ILSVRC2012_img_train.tar and perhaps ILSVRC2012_img_val.tar. What was interrupted goes on with the same command.
    """
    from harness.datasets import convert, sources

    classes, images = CountLine("classes listed", enabled=not quiet), CountLine("images", enabled=not quiet)
    with _work_on(target, images):
        try:
            origin = sources.find(source, given["validation_labels"], processes, classes.count)
            if origin.left_out:
                click.echo(f"left out: {origin.left_out}", err=True)
            texts = sources.class_texts(given["class_names"], origin.classes) if given["class_names"] else {}
            plan = convert.plan(origin, given["shards"], given["validation_shards"], given["seed"], texts)
            manifest = convert.convert(plan, target, processes, given["skip_bad"], images.count)
        except KeyboardInterrupt:
            raise Interrupted(
                "interrupted; no process is left running. Finished shards stay: the same command goes on with the others"
            ) from None
    click.echo(json.dumps({"path": str(target)} | manifest.summary(), indent=1) if as_json else manifest.text(target))


@data.command("check", short_help="Look for damage in shards or in folders of images")
@click.argument("path", type=ANY_PATH)
@click.option(
    "--decode", is_flag=True, help="decode every image in shards, which takes about as long as converting them"
)
@click.option(
    "--classes", type=click.IntRange(1), metavar="NUMBER", help="the highest label  [default: the manifest's, or 1000]"
)
@PROCESSES
@AS_JSON
@QUIET
def data_check(path: Path, decode: bool, classes: int | None, processes: int, as_json: bool, quiet: bool) -> None:
    """Look for damage in PATH: TFRecord shards, from here or elsewhere, or folders of images.

    In shards every record's checksum and every example is checked, in folders every image is decoded. Exits with 1 if
    anything is wrong.
    """
    from harness.datasets import check

    with _work_on(path, reading=True):
        subject = check.subject(path, classes, decode)
    if subject.left_out:
        click.echo(f"left out: {subject.left_out}", err=True)
    line = CountLine(*(("MB", 1_000_000) if subject.shards else ("images", 1)), enabled=not quiet)
    with _work_on(path, line, reading=True):
        findings = check.check(subject, processes, line.count)
    click.echo(json_text(findings) if as_json else findings)
    if findings.problems:
        raise RunFailed(f"{plural(findings.problems, 'problem')} in {path}")


@data.command("copy", short_help="Copy a data set to the machines of a host file")
@click.argument("path", type=ANY_PATH)
@HOSTS
@SITE
def data_copy(path: Path, hosts: Path | None, site: str) -> None:
    """Copy the data set at PATH to the same path on machines that ssh reaches. A machine gets only what it lacks."""
    from harness.running import copies

    with signals_interrupt():
        copies.copy([path.absolute()], True, ["true"], copies.Place(site=site, hosts=hosts), click.echo)


@data.command("bench", short_help="Measure how fast each framework reads images")
@click.argument("path", type=ANY_PATH)
@click.option("--pipeline", type=click.Choice(["all", "torch", "tensorflow"]), default="all", help="which to time")
@click.option(
    "--threads", type=DECODERS, default=CORES, show_default=False, help="that decode at once  [default: one per core]"
)
@click.option("--image-size", type=click.IntRange(16, 4096), default=224, help="pixels")
@click.option("--batch-size", type=click.IntRange(1, 65536), default=64, help="images")
@click.option("--seconds", type=click.FloatRange(0.5, 3600), default=5, help="of a turn")
@click.option("--rounds", type=click.IntRange(1, 1000), default=5, help="turns of each pipeline")
@AS_JSON
def data_bench(path: Path, pipeline: str, as_json: bool, threads: int, image_size: int, **given: Any) -> None:
    """Measure how fast each framework reads the images at PATH, shards or folders, without training.

    The pipelines take turns. What lies ready when a turn begins is not counted, and neither is a first turn of each.
    """
    from harness.datasets import bench
    from harness.report.text.table import table
    from harness.worker.inputs import index

    batch_size, seconds, rounds = given["batch_size"], given["seconds"], given["rounds"]
    frameworks = list(bench.FRAMEWORKS) if pipeline == "all" else [pipeline]
    line = ProgressLine()

    def show(name: str, turn: int) -> None:
        if line.due():
            line.show(f"{name}: turn {turn} of {rounds}" if turn else f"{name}: warming up")

    with _work_on(path, line, reading=True):
        images = index.find(path, "train")
        turns = bench.compare(images, frameworks, threads, batch_size, image_size, seconds, rounds, show)
    speeds = {name: bench.summary(readings) for name, readings in turns.items()}
    if as_json:
        settings = {"threads": threads, "image_size": image_size, "batch_size": batch_size}
        pipelines = {name: speeds[name] | {"turns": turns[name]} for name in turns}
        click.echo(json_text({"path": str(path), "images": len(images)} | settings | {"pipelines": pipelines}))
        return
    rows = [["pipeline", "img/s", "per core", "per core, lowest – highest", "processor time per image"]]
    for name, speed in speeds.items():
        ends = f"{speed['lowest_img_per_processor_s']:.0f} – {speed['highest_img_per_processor_s']:.0f}"
        per_image = f"{speed['processor_ms_per_image']:.2f} ms"
        rows.append([name, f"{speed['img_per_s']:.0f}", f"{speed['img_per_processor_s']:.0f}", ends, per_image])
    click.echo(f"{plural(len(images), 'image')}, {image_size} px, batches of {batch_size}, {plural(threads, 'thread')}")
    click.echo(table(rows, right={1, 2, 3, 4}))

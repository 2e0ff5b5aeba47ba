"""``harness data bench``: the input pipelines by themselves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import AS_JSON, signals_interrupt

if TYPE_CHECKING:
    from harness.datasets.bench import Turn


@click.command("bench")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--pipeline", type=click.Choice(["all", "torch", "tensorflow"]), default="all", show_default=True)
@click.option("--threads", type=click.IntRange(1, 1024), help="that decode at once  [default: one per core]")
@click.option("--image-size", type=click.IntRange(16, 4096), default=224, show_default=True, help="pixels")
@click.option("--batch-size", type=click.IntRange(1, 65536), default=64, show_default=True, help="images")
@click.option(
    "--seconds", type=click.FloatRange(0, 3600, min_open=True), default=5, show_default=True, help="of a turn"
)
@click.option("--rounds", type=click.IntRange(1, 1000), default=5, show_default=True, help="turns of each pipeline")
@AS_JSON
def data_bench(
    path: Path,
    pipeline: str,
    threads: int | None,
    image_size: int,
    batch_size: int,
    seconds: float,
    rounds: int,
    as_json: bool,
) -> None:
    """Measure how fast each framework reads the images at PATH, shards or folders, without training.

    The pipelines take turns. What lies ready when a turn begins is not counted, and neither is a first turn of each.
    """
    from harness.core.progress import ProgressLine
    from harness.datasets import bench
    from harness.errors import InvalidInput
    from harness.worker.inputs import index
    from harness.worker.inputs.errors import DataError

    chosen = list(bench.PIPELINES) if pipeline == "all" else [pipeline]
    threads = threads or len(os.sched_getaffinity(0))
    try:
        images = index.find(path, "train")
    except DataError as error:
        raise InvalidInput(str(error)) from None
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    line = ProgressLine()

    def show(pipeline: str, turn: int) -> None:
        if line.due():
            line.show(f"{pipeline}: turn {turn} of {rounds}" if turn else f"{pipeline}: warming up")

    with signals_interrupt():
        try:
            turns = bench.compare(images, chosen, threads, batch_size, image_size, seconds, rounds, show)
        finally:
            line.clear()
    if as_json:
        settings = {"path": str(path), "images": len(images), "threads": threads}
        settings |= {"image_size": image_size, "batch_size": batch_size, "pipelines": bench.as_json(turns)}
        click.echo(json.dumps(settings, indent=1))
    else:
        click.echo(f"{len(images):,} images, {image_size} px, batches of {batch_size}, {threads} threads")
        click.echo(_text(turns))


def _text(turns: dict[str, list[Turn]]) -> str:
    from harness.datasets.bench import Speed
    from harness.report.text.table import table

    head = ["pipeline", "img/s", "per core", "lowest – highest", "processor time per image"]
    rows = [
        [
            name,
            f"{speed.img_per_s:.0f}",
            f"{speed.img_per_processor_s:.0f}",
            f"{speed.lowest:.0f} – {speed.highest:.0f}",
            f"{speed.processor_ms_per_image:.2f} ms",
        ]
        for name, speed in ((name, Speed.of(found)) for name, found in turns.items())
    ]
    return table([head, *rows], right={1, 2, 3, 4})

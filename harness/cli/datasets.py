"""Data sets: made for trials, and copied."""

from pathlib import Path

import click

from harness.cli.interrupts import signals_interrupt
from harness.cli.values import ANY_PATH, HOSTS, SITE
from harness.core.progress import CountLine
from harness.errors import InvalidInput, RunFailed
from harness.worker.inputs.errors import DataError

PIXELS = click.IntRange(1, 4096)


@click.group()
def data() -> None:
    """Make a small data set, or copy one to other machines."""


@data.command("make", short_help="Write a small data set of JPEGs, for trials")
@click.argument("path", type=ANY_PATH)
@click.option("--images", type=int, default=256, help="number of JPEGs")
@click.option("--classes", type=int, default=8, help="number of classes, one folder each")
@click.option("--width", type=PIXELS, default=500, help="pixels")
@click.option("--height", type=PIXELS, default=375, help="pixels")
@click.option("--seed", type=click.IntRange(min=0), default=1, help="of what the images show")
def data_make(path: Path, images: int, classes: int, width: int, height: int, seed: int) -> None:
    """Write a small JPEG data set in ImageNet's layout to the new folder PATH."""
    from harness.datasets import make

    line = CountLine("images")
    try:
        with signals_interrupt():
            written = make.make(path, images, classes, (width, height), seed, line.count)
    except DataError as error:
        raise InvalidInput(str(error)) from None
    except OSError as error:
        raise RunFailed(f"cannot write {error.filename or path}: {error.strerror}") from None
    finally:
        line.clear()
    click.echo(f"{images} images of {classes} classes, {written / 1e6:.1f} MB, in {path}")


@data.command("copy", short_help="Copy a data set to the machines of a host file")
@click.argument("path", type=ANY_PATH)
@HOSTS
@SITE
def data_copy(path: Path, hosts: Path | None, site: str) -> None:
    """Copy the data set at PATH to the same path on machines that ssh reaches. A machine gets only what it lacks."""
    from harness.running import copies

    with signals_interrupt():
        copies.copy([path.absolute()], True, ["true"], copies.Place(site=site, hosts=hosts), click.echo)

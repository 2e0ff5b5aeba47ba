"""Many records on disk, fast: copies of a few made ones, with ids, times and figures of their own."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.records.measurement import Record
from harness.records.record import RAW, sealed
from tests import made

SETUPS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("pytorch", 1, {}),
    ("pytorch", 2, {}),
    ("pytorch", 4, {}),
    ("horovod", 2, {"transport": "gloo"}),
    ("parameter_server", 1, {"ps": 1}),
    ("parameter_server", 2, {"ps": 2}),
    ("parameter_server", 4, {"ps": 3, "sync": "none"}),
)


def save(
    folder: Path,
    count: int,
    *,
    steps: int = 1,
    repeats: int = 2,
    speeds: int = 20,
    prefix: str = "run",
) -> Path:
    """Write ``count`` records below ``folder``, which is returned: setups in turn, a run every 10 minutes.

    There are ``speeds`` different throughputs of each setup, by chance. A record is made, and checked, once for each;
    all its copies are valid, too, as no figure is changed. Ids begin with ``prefix``.
    """
    texts = [_template(setup, speed, steps, repeats) for speed in range(speeds) for setup in SETUPS]
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(count)
    for number in range(count):
        speed = chance.randrange(speeds)
        raw, before, between, after = texts[speed * len(SETUPS) + number % len(SETUPS)]
        started = made.FIRST + timedelta(minutes=10 * number)
        name = f"{prefix}-{number:06}"
        run = folder / f"{number // 1000:03}" / name
        run.mkdir(parents=True)
        text = f"{before}{name}{between}{started.isoformat(timespec='milliseconds')}{after}"
        (run / RAW).write_text(raw)
        (run / Record.file_name).write_bytes(sealed(text.encode()))
    return folder


def _template(setup: tuple[str, int, dict[str, Any]], speed: int, steps: int, repeats: int) -> tuple[str, ...]:
    """A raw file, and a record's JSON around its id and its start."""
    backend, nodes, options = setup
    images = [nodes * (100.0 + speed + repeat / 10) for repeat in range(repeats)]
    record: Record = made.record(backend, nodes, images, steps=steps, **options)
    with TemporaryDirectory() as folder:
        text = record.write(Path(folder)).read_text()
        raw = Path(folder, RAW).read_text()
    text = text.partition(',\n "seal"')[0]
    before, _, rest = text.partition(record.id)
    between, _, after = rest.partition(record.started)
    return raw, before, between, after

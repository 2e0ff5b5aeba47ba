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
SPEEDS = 20


def save(folder: Path, count: int, prefix: str = "run") -> Path:
    """Write ``count`` records below ``folder``, which is returned: setups in turn, a run every 10 minutes.

    There are ``SPEEDS`` different throughputs of each setup, by chance. A record is made, and checked, once for each;
    all its copies are valid, too, as no figure is changed. Ids begin with ``prefix``.
    """
    texts = [_template(*setup, speed) for speed in range(SPEEDS) for setup in SETUPS]
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(count)
    for number in range(count):
        raw, before, between, after = texts[chance.randrange(SPEEDS) * len(SETUPS) + number % len(SETUPS)]
        started = made.FIRST + timedelta(minutes=10 * number)
        name = f"{prefix}-{number:06}"
        run = folder / f"{number // 1000:03}" / name
        run.mkdir(parents=True)
        text = f"{before}{name}{between}{started.isoformat(timespec='milliseconds')}{after}"
        (run / RAW).write_text(raw)
        (run / Record.file_name).write_bytes(sealed(text.encode()))
    return folder


def _template(backend: str, nodes: int, options: dict[str, Any], speed: int) -> tuple[str, ...]:
    """A raw file, and a record's JSON around its id and its start."""
    images = [nodes * (100.0 + speed + repeat / 10) for repeat in range(2)]
    record: Record = made.record(backend, nodes, images, steps=1, **options)
    with TemporaryDirectory() as folder:
        text = record.write(Path(folder)).read_text()
        raw = Path(folder, RAW).read_text()
    text = text.partition(',\n "seal"')[0]
    before, _, rest = text.partition(record.id)
    between, _, after = rest.partition(record.started)
    return raw, before, between, after

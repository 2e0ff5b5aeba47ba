"""Images for tests, and TFRecord shards of them, with the features of ImageNet's that training reads."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from tests.scripts import script

_shards = script("benchmarks/shards.py")
record, image_record = _shards.record, _shards.image_record


def encoded(image: Image.Image, format: str = "JPEG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def write_shard(file: Path, images: Iterable[tuple[str, bytes, int]]) -> None:
    """A shard of images, given their names, bytes and labels."""
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(image_record(*image) for image in images))

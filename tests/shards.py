"""Images for tests, and TFRecord shards of them, with the features that ImageNet's have and training reads."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from harness.worker.inputs.tfrecord import example, record


def encoded(image: Image.Image, format: str = "JPEG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def image_record(name: str, encoded: bytes | None, label: int | None) -> bytes:
    """The record of an image; without a feature that is None."""
    features: dict[str, Any] = {"image/height": [60], "image/filename": [name.encode()]}
    features |= {"image/encoded": [encoded]} if encoded is not None else {}
    features |= {"image/class/label": [label]} if label is not None else {}
    return record(example(features))


def write_shard(file: Path, images: Iterable[tuple[str, bytes, int]]) -> None:
    """A shard of images, given their names, bytes and labels."""
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(image_record(*image) for image in images))

"""Shards that TensorFlow itself has written, as its programs for ImageNet do, are read without it."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from harness.worker.inputs.index import find
from harness.worker.inputs.tfrecord import HEADER, read_image
from tests.parity.conftest import inside
from tests.shards import encoded

PHOTOGRAPH = encoded(Image.effect_noise((200, 150), 50))
IMAGES = [("n01440764_1.JPEG", PHOTOGRAPH, 1), ("ö.JPEG", b"", 300), ("n15075141_9.JPEG", PHOTOGRAPH[:100], 1000)]


def test_every_record_is_found_with_its_image_label_and_name(environment: Callable[..., Path], tmp_path: Path) -> None:
    given = [(name, base64.b64encode(contents).decode(), label) for name, contents, label in IMAGES]
    shard = tmp_path / "train-00000-of-00001"
    inside(environment("parameter_server"), "write_shard.py", shard, stdin=json.dumps(given))
    index = find(tmp_path, "train")
    assert len(index) == len(IMAGES)
    for number, (name, contents, label) in enumerate(IMAGES):
        extent = index.extent(number)
        place = f"{shard} at byte {extent.offset - HEADER.size} ({name})"
        assert read_image(extent, 1001, verified=True) == (contents, label, place)

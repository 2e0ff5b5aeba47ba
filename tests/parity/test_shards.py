"""TensorFlow itself reads the shards that ``harness data convert`` writes, as it reads its own world's ImageNet."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from harness.datasets.make import make
from tests.conftest import run_harness
from tests.parity.conftest import inside

WIDTH, HEIGHT = 48, 32


def test_tensorflow_reads_every_image_with_the_usual_features(environment: Callable[..., Path], tmp_path: Path) -> None:
    make(tmp_path / "set", 11, 3, (WIDTH, HEIGHT), seed=0)
    files = sorted((tmp_path / "set").rglob("*.JPEG"))
    Image.new("CMYK", (WIDTH, HEIGHT)).save(files[0], "JPEG")
    Image.new("RGB", (WIDTH, HEIGHT)).save(files[1], "PNG")
    Image.new("L", (WIDTH, HEIGHT)).save(files[2], "JPEG")
    run_harness(tmp_path, "data", "convert", "set", "shards", "--shards", "3").succeeded()

    found = json.loads(inside(environment("parameter_server"), "read_shards.py", tmp_path / "shards" / "train-*"))
    examples = {base64.b64decode(one["image/filename"]).decode(): one for one in found}
    assert examples.keys() == {file.name for file in files}
    for file in files:
        one = examples[file.name]
        assert (one["image/height"], one["image/width"], one["image/channels"]) == (HEIGHT, WIDTH, 3)
        assert (one["decoded"], one["boxes"]) == ([HEIGHT, WIDTH, 3], 0)
        assert base64.b64decode(one["image/class/synset"]).decode() == file.parent.name
        assert one["image/class/label"] == int(file.parent.name[1:])
        same = base64.b64decode(one["image/encoded"]) == file.read_bytes()
        assert same == (file not in files[:2])
        for key, value in {"colorspace": b"RGB", "format": b"JPEG", "class/text": b""}.items():
            assert base64.b64decode(one[f"image/{key}"]) == value

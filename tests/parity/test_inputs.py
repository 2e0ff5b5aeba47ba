"""The same images, in the same order, through PyTorch's and through TensorFlow's pipeline; the same files refused."""

import io
import itertools
import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from harness.inputs.augmentation import MEAN, STD
from harness.inputs.index import ImageIndex, order, scan, write
from harness.inputs.make import make

REPOSITORY = Path(__file__).parents[2]
FRAMEWORKS = {"torch": "pytorch", "tensorflow": "parameter_server"}  # and a backend whose environment has it
COUNT = 11  # images, which neither two ranks nor batches of four divide
COLOUR = (200, 100, 50)

Seen = dict[str, Any]
Look = Callable[[str], Seen]


def encoded(image: Image.Image, format: str = "JPEG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


PLAIN = Image.new("RGB", (80, 60), COLOUR)
PHOTOGRAPH = encoded(Image.effect_noise((80, 60), 50).convert("RGB"))

GOOD = {
    "plain": encoded(PLAIN),
    "progressive": encoded(PLAIN, progressive=True),
    "grey": encoded(PLAIN.convert("L")),
    "cmyk": encoded(PLAIN.convert("CMYK")),
    "padded": encoded(PLAIN) + bytes(100),
    "png": encoded(PLAIN, "PNG"),
    "png with alpha": encoded(PLAIN.convert("RGBA"), "PNG"),
    "pixel": encoded(PLAIN.resize((1, 1))),
    "strip": encoded(PLAIN.resize((300, 2))),
    "ö ñ 図": encoded(PLAIN),
}
# What the file holds, and what the error must say besides the file's name; None is removed after indexing.
BAD = {
    "empty": (b"", "neither JPEG nor PNG"),
    "text": (b"not a photograph", "neither JPEG nor PNG"),
    "gif": (encoded(PLAIN, "GIF"), "neither JPEG nor PNG"),
    "truncated": (PHOTOGRAPH[: len(PHOTOGRAPH) * 9 // 10], "truncated"),
    "truncated at its last byte": (PHOTOGRAPH[:-1], "truncated"),
    "truncated png": (GOOD["png"][:60], ""),
    "header only": (PHOTOGRAPH[:4] + b"\xff\xd9", ""),
    "missing": (None, "No such file or directory"),
    "folder": (None, "directory"),
}


def case(index: Path, **changes: Any) -> dict[str, Any]:
    defaults = {"rank": 0, "world": 1, "batch_size": 4, "image_size": 24, "seed": 5, "workers": 0, "batches": 5}
    return {"index": str(index)} | defaults | changes


def one_image(root: Path, name: str, contents: bytes | None) -> Path:
    """The index of a data set with one good image and the given one."""
    folder = root / name / "class"
    folder.mkdir(parents=True)
    (folder / "good.JPEG").write_bytes(GOOD["plain"])
    (folder / f"{name}.JPEG").write_bytes(contents or b"")
    return indexed(scan(root / name), root / f"{name}.txt")


def indexed(index: ImageIndex, file: Path) -> Path:
    write(index, file)
    return file


@cache
def cases(root: Path) -> dict[str, dict[str, Any]]:
    """Everything that the tests below look at, read in one process per framework."""
    make(root / "set", COUNT, 3, (64, 48), seed=0)
    images = scan(root / "set")
    numbered = indexed(ImageIndex(images.root, images.paths, range(COUNT)), root / "set.txt")
    cases = {
        "rank 0": case(numbered, world=2),
        "rank 1": case(numbered, world=2, rank=1),
        "again": case(numbered, world=2, workers=2),
        "eager": case(numbered, world=2, eager=True),
        "other seed": case(numbered, world=2, seed=6),
        "whole": case(numbered, batches=3, batch_size=COUNT),
        "few": case(numbered, world=COUNT + 1),
    }
    for name, contents in GOOD.items():
        # two images, so that an epoch is half good.JPEG; sixteen crops and flips of the other
        cases[f"good {name}"] = case(one_image(root, name, contents), batch_size=2, batches=16)
    for name, (damaged, _) in BAD.items():
        cases[f"bad {name}"] = case(one_image(root, name, damaged), workers=1 if name == "truncated" else 0)
        if damaged is None:
            (root / name / "class" / f"{name}.JPEG").unlink()
    (root / "folder" / "class" / "folder.JPEG").mkdir()
    return cases


@cache
def seen(python: str, framework: str, root: Path) -> dict[str, Seen]:
    wanted = cases(root)
    if framework == "torch":
        wanted = {name: {key: value for key, value in case.items() if key != "eager"} for name, case in wanted.items()}
    done = subprocess.run(
        [python, REPOSITORY / "tests" / "parity" / "input_stream.py", framework],
        input=json.dumps(list(wanted.values())),
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(wanted, json.loads(done.stdout), strict=True))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def look(framework: str, environment: Callable[[str], Path], root: Path) -> Look:
    return lambda name: seen(str(environment(FRAMEWORKS[framework])), framework, root)[name]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_reads_its_shards_in_order_and_no_batch_is_short(look: Look, rank: int) -> None:
    expected = itertools.islice(order(COUNT, rank, world=2, seed=5), 5 * 4)
    assert look(f"rank {rank}")["labels"] == [image for _, image in expected]


def test_batches_are_normalised_and_in_the_frameworks_layout(look: Look, framework: str) -> None:
    batch = look("rank 0")
    if framework == "torch":
        assert batch["shape"] == [4, 3, 24, 24]
        assert batch["dtypes"] == ["torch.float32", "torch.int64"]
        assert batch["channels_last"]
    else:
        assert batch["shape"] == [4, 24, 24, 3]  # as the graph knows it
        assert batch["dtypes"] == ["float32", "int64"]
    low, high = batch["range"]
    assert -2.2 < low < -1
    assert 1 < high < 2.7
    assert all(abs(mean) < 1 for mean in batch["means"])


def test_crops_repeat_whoever_decodes(look: Look) -> None:
    assert look("again")["digests"] == look("rank 0")["digests"]
    assert look("eager")["digests"] == look("rank 0")["digests"]
    assert look("other seed")["digests"] != look("rank 0")["digests"]


def test_every_epoch_crops_anew(look: Look) -> None:
    assert len(set(look("whole")["digests"])) == 3


@pytest.mark.parametrize("name", GOOD)
def test_an_odd_but_intact_image_has_its_colours(look: Look, name: str) -> None:
    batch = look(f"good {name}")
    assert "error" not in batch
    assert batch.get("found") is None
    colour = (124, 124, 124) if name == "grey" else COLOUR
    pairs = zip(colour, COLOUR, MEAN, STD, strict=True)
    expected = [((odd + plain) / 2 - mean) / std for odd, plain, mean, std in pairs]  # the batch is that and good.JPEG
    assert batch["means"] == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_is_named(look: Look, framework: str, root: Path, name: str) -> None:
    batch = look(f"bad {name}")
    path, reason = str(root / name / "class" / f"{name}.JPEG"), BAD[name][1]
    if framework == "torch":
        assert batch["error"]["type"] == "BadImage"
        message = batch["error"]["message"]
    else:
        message = batch["found"]
    assert message.startswith(f"bad image {path}: ")
    assert reason in message
    assert message.count(name) == path.count(name) + reason.count(name)  # the reason does not repeat the path
    assert "\n" not in message


def test_fewer_images_than_ranks_are_refused(look: Look) -> None:
    assert look("few")["error"] == {
        "type": "DataError",
        "message": f"{COUNT} images for {COUNT + 1} ranks: every rank needs at least one",
    }

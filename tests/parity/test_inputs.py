"""The same images, in the same order, through PyTorch's and through TensorFlow's pipeline; the same files refused."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.datasets.make import make
from harness.worker.inputs.augmentation import MEAN, STD
from harness.worker.inputs.index import ImageIndex, Index, find, read, scan, write
from harness.worker.inputs.order import ReadingOrder
from harness.worker.inputs.tfrecord import OVERHEAD
from tests.parity.conftest import inside
from tests.shards import encoded, image_record, record, write_shard

# Backends, and which pipeline they read with. Caffe2's PyTorch is an old one on an old Python, with another Pillow.
PIPELINES = {"pytorch": "torch", "parameter_server": "tensorflow", "caffe2": "torch"}
COUNT = 11  # images, which neither two ranks nor batches of four divide
RECORDS = 100  # in three shards, which two ranks do not divide
LEVELS = 0.01
SIZES = (64, 224)  # of images: small ones are decoded at a half, a quarter or an eighth of their size
COLOUR = (200, 100, 50)

Seen = dict[str, Any]
Look = Callable[[str], Seen]


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


# In a record: the encoded image and the label, and what the error must say besides the record's place.
BAD_RECORDS = {
    "empty": (b"", 1, "neither JPEG nor PNG"),
    "text": (b"not a photograph", 1, "neither JPEG nor PNG"),
    "gif": (encoded(PLAIN, "GIF"), 1, "neither JPEG nor PNG"),
    "truncated": (PHOTOGRAPH[: len(PHOTOGRAPH) * 9 // 10], 1, "truncated"),
    "label": (GOOD["plain"], 1700, "label 1700, but the model has 1001 classes"),
    "negative label": (GOOD["plain"], -1, "label -1, but the model has 1001 classes"),
    "no label": (GOOD["plain"], None, "no image/class/label"),
    "no image": (None, 1, "no image/encoded"),
}
# What happens to a shard after it was indexed; its second record begins at byte ``at``.
BAD_SHARDS: dict[str, tuple[Callable[[bytes, int], bytes], str]] = {
    "cut": (lambda shard, at: shard[: at + 100], "cut short in a record"),
    "cut between": (lambda shard, at: shard[:at], "cut short"),
    "overwritten": (lambda shard, at: shard[:at] + b"Rar!" + shard[at + 4 :], "no TFRecord starts here"),
    "checksum": (
        lambda shard, at: shard[:at] + shard[at:].replace(b"\xff\xd8\xff", b"???"),
        "do not have its checksum",
    ),
    "other record": (lambda shard, at: shard[:at] + shard[:at] + shard[at:], "bytes, where one of"),
    "no example": (lambda shard, at: shard[:at] + record(b"x" * (len(shard) - at - OVERHEAD)), "no image/encoded"),
}


def case(index: Path, **changes: Any) -> dict[str, Any]:
    defaults = {"rank": 0, "world": 1, "batch_size": 4, "image_size": 24, "seed": 5, "decoders": 0, "batches": 5}
    return {"index": str(index)} | defaults | changes


def good_images(root: Path) -> Path:
    """The index of all good images, each with its place in GOOD for a label."""
    folder = root / "class"
    folder.mkdir(parents=True)
    for name, contents in GOOD.items():
        (folder / f"{name}.JPEG").write_bytes(contents)
    images = scan(root)
    labels = [list(GOOD).index(Path(path).stem) for path in images.paths]
    return indexed(ImageIndex(images.root, images.paths, labels), root / "good.txt")


def one_image(root: Path, name: str, contents: bytes | None) -> Path:
    """The index of a data set with one good image and the given one."""
    folder = root / name / "class"
    folder.mkdir(parents=True)
    (folder / "good.JPEG").write_bytes(GOOD["plain"])
    (folder / f"{name}.JPEG").write_bytes(contents or b"")
    return indexed(scan(root / name), root / f"{name}.txt")


GOOD_RECORD = image_record("good.JPEG", GOOD["plain"], 1)


def one_record(root: Path, name: str, bad: bytes) -> tuple[Path, Path]:
    """A shard with a good record and the given one, and its index."""
    root.mkdir(exist_ok=True)
    folder = root / name
    folder.mkdir()
    shard = folder / "train-00000-of-00001"
    shard.write_bytes(GOOD_RECORD + bad)
    return shard, indexed(find(folder, "train"), root / f"{name}.index")


def sharded(folder: Path, images: Sequence[bytes], shards: int) -> Path:
    """The index of a set whose images have their numbers for labels."""
    for shard in range(shards):
        part = range(len(images) * shard // shards, len(images) * (shard + 1) // shards)
        numbered = [(f"{number}.JPEG", images[number], number) for number in part]
        write_shard(folder / f"train-{shard:05}-of-{shards:05}", numbered)
    return indexed(find(folder, "train"), folder / "images.index")


def indexed(index: Index, file: Path) -> Path:
    write(index, file)
    return file


def photographs() -> list[bytes]:
    """Noise on smooth colours, as photographs are, in the ways that JPEGs are made, and sizes that nothing divides."""
    random = np.random.default_rng(0)
    made = []
    for size in [(500, 375), (375, 500), (333, 501), (97, 131), (1001, 755), (40, 30)]:
        for options in [
            {},
            {"subsampling": "4:4:4"},
            {"subsampling": "4:2:2"},
            {"progressive": True},
            {"quality": 30},
            {"mode": "L"},
        ]:
            smooth = Image.fromarray(random.integers(0, 256, (9, 9, 3), np.uint8)).resize(
                size, Image.Resampling.BICUBIC
            )
            pixels = (np.asarray(smooth) + random.normal(0, 16, (size[1], size[0], 3))).clip(0, 255).astype(np.uint8)
            made.append(encoded(Image.fromarray(pixels).convert(options.pop("mode", "RGB")), **options))
    return made


@cache
def cases(root: Path) -> dict[str, dict[str, Any]]:
    """Everything that the tests below look at, read in one process per framework."""
    make(root / "set", COUNT, 3, (64, 48), seed=0)
    images = scan(root / "set")
    numbered = indexed(ImageIndex(images.root, images.paths, range(COUNT)), root / "set.txt")
    cases = {
        "rank 0": case(numbered, world=2),
        "rank 1": case(numbered, world=2, rank=1),
        "again": case(numbered, world=2, decoders=2),
        "eager": case(numbered, world=2, eager=True),
        "other seed": case(numbered, world=2, seed=6),
        "whole": case(numbered, batches=3, batch_size=COUNT),
        "few": case(numbered, world=COUNT + 1),
    }
    sixteen_crops_of_each = {"batch_size": len(GOOD), "batches": 16}
    cases["good"] = case(good_images(root / "good"), **sixteen_crops_of_each, search=True)
    for name, (damaged, _) in BAD.items():
        decoders = 1 if name == "truncated" else 0
        cases[f"bad {name}"] = case(one_image(root, name, damaged), decoders=decoders, search=True)
        if damaged is None:
            (root / name / "class" / f"{name}.JPEG").unlink()
    (root / "folder" / "class" / "folder.JPEG").mkdir()
    return cases | shard_cases(root / "shards")


def shard_cases(root: Path) -> dict[str, dict[str, Any]]:
    images = [encoded(PLAIN.resize((20 + image, 20))) for image in range(RECORDS)]
    root.mkdir()
    plain = sharded(root / "plain", images, 3)
    cases = {
        "shards, rank 0": case(plain, world=2, batches=25, decoders=2),
        "shards, rank 1": case(plain, world=2, batches=25, rank=1),
        "shards, eager": case(plain, world=2, batches=25, eager=True),
        "shards, evaluation 0": case(plain, world=2, batches=99, batch_size=16, evaluation=True),
        "shards, evaluation 1": case(plain, world=2, batches=99, batch_size=16, rank=1, decoders=1, evaluation=True),
    }
    for name, (contents, label, _) in BAD_RECORDS.items():
        _, index = one_record(root / "records", name, image_record(f"{name}.JPEG", contents, label))
        cases[f"record {name}"] = case(index, num_classes=1001, search=True)
    for name, (change, _) in BAD_SHARDS.items():
        shard, index = one_record(root / "changed", name, image_record(f"{name}.JPEG", PHOTOGRAPH, 1))
        shard.write_bytes(change(shard.read_bytes(), len(GOOD_RECORD)))
        cases[f"shard {name}"] = case(index, num_classes=1001, search=True)
    pictures = photographs()
    kept = sharded(root / "photographs", pictures, 5)
    for size in SIZES:
        all_of_them = case(kept, batch_size=len(pictures), image_size=size, keep=True)
        cases[f"photographs {size}"] = all_of_them | {"batches": 3}
        cases[f"photographs evaluated {size}"] = all_of_them | {"evaluation": True}
    return cases


@cache
def seen(python: str, framework: str, root: Path) -> dict[str, Seen]:
    wanted = cases(root)
    for name in wanted:
        if "keep" in wanted[name]:
            wanted[name] = wanted[name] | {"keep": str(root / f"{name}, {Path(python).parents[1].name}.npy")}
    if framework == "torch":
        wanted = {name: {key: value for key, value in case.items() if key != "eager"} for name, case in wanted.items()}
    given = json.dumps(list(wanted.values()))
    found = inside(Path(python), "input_stream.py", framework, stdin=given, TF_CPP_MIN_LOG_LEVEL="2")
    return dict(zip(wanted, json.loads(found), strict=True))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


@pytest.fixture(params=PIPELINES)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def framework(backend: str) -> str:
    return PIPELINES[backend]


@pytest.fixture
def look(backend: str, framework: str, environment: Callable[[str], Path], root: Path) -> Look:
    return lambda name: seen(str(environment(backend)), framework, root)[name]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("name", "file", "images"), [("rank", "set.txt", 20), ("shards, rank", "shards/plain/images.index", RECORDS)]
)
def test_a_rank_reads_its_share_in_order_and_no_batch_is_short(
    look: Look, root: Path, name: str, file: str, images: int, rank: int
) -> None:
    """``tests/unit`` says that this order has every image once in an epoch."""
    found = look(f"{name} {rank}")["labels"]
    expected = list(islice(ReadingOrder(read(root / file), rank, 2, 4, 24, 0, seed=5).positions(), images))
    assert {epoch for epoch, _ in expected} >= {0, 1}
    assert found == [image for _, image in expected]


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
    assert look("shards, eager")["digests"] == look("shards, rank 0")["digests"]


def test_every_epoch_crops_anew(look: Look) -> None:
    assert len(set(look("whole")["digests"])) == 3


@pytest.mark.parametrize("name", GOOD)
def test_an_odd_but_intact_image_has_its_colours(look: Look, name: str) -> None:
    batches = look("good")
    assert "error" not in batches
    assert batches.get("found") is None
    assert sorted(batches["labels"]) == sorted(16 * list(range(len(GOOD))))
    colour = (124, 124, 124) if name == "grey" else COLOUR
    expected = [(level - mean) / std for level, mean, std in zip(colour, MEAN, STD, strict=True)]
    for colours in batches["colours"][str(list(GOOD).index(name))]:
        assert colours == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_is_named(look: Look, framework: str, root: Path, name: str) -> None:
    path, reason = str(root / name / "class" / f"{name}.JPEG"), BAD[name][1]
    message = named(look(f"bad {name}"), framework)
    assert message.startswith(f"bad image {path}: ")
    assert reason in message
    assert message.count(name) == path.count(name) + reason.count(name)  # the reason does not repeat the path


@pytest.mark.parametrize(("rank", "first"), [(0, 0), (1, 50)])
def test_evaluation_reads_every_image_once_and_fills_the_last_batch(look: Look, rank: int, first: int) -> None:
    batches = look(f"shards, evaluation {rank}")
    assert batches["labels"] == [*range(first, first + 50), *[-1] * 14]
    assert batches["range"][1] > 0 or batches["range"][0] < 0


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_bad_record_is_named(look: Look, framework: str, root: Path, name: str) -> None:
    shard, begin = root / "shards" / "records" / name / "train-00000-of-00001", len(GOOD_RECORD)
    message = named(look(f"record {name}"), framework)
    assert message.startswith(f"bad image {shard} at byte {begin} ({name}.JPEG): ")
    assert BAD_RECORDS[name][2] in message


@pytest.mark.parametrize("name", BAD_SHARDS)
def test_a_shard_that_was_changed_after_it_was_indexed_is_named(
    look: Look, framework: str, root: Path, name: str
) -> None:
    shard, begin = root / "shards" / "changed" / name / "train-00000-of-00001", len(GOOD_RECORD)
    message = named(look(f"shard {name}"), framework)
    assert message.startswith(f"bad image {shard} at byte {begin}")
    assert BAD_SHARDS[name][1] in message


def named(seen: Seen, framework: str) -> str:
    """The one line that a trainer would end with."""
    if framework == "torch":
        assert seen["error"]["type"] == "BadImage"
    assert "error" in seen
    message = str(seen["error"]["message"] if framework == "torch" else seen["found"])
    assert "\n" not in message
    return message


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("what", ["photographs", "photographs evaluated"])
def test_all_frameworks_see_the_same_pixels(
    environment: Callable[[str], Path], root: Path, what: str, size: int
) -> None:
    """In levels of 0–255. Labels are the images' numbers, so all of them trained on the same ones in the same order."""
    found = {
        backend: seen(str(environment(backend)), framework, root)[f"{what} {size}"]
        for backend, framework in PIPELINES.items()
    }
    ours = found.pop("pytorch")
    assert len(ours["labels"]) >= 36
    for theirs in found.values():
        assert theirs["labels"] == ours["labels"]
        difference = np.abs(np.load(theirs["kept"]) - np.load(ours["kept"])) * STD
        print(what, size, difference.max(), difference.mean())
        assert difference.max() < LEVELS


def test_fewer_images_than_ranks_are_refused(look: Look) -> None:
    assert look("few")["error"] == {
        "type": "DataError",
        "message": f"{COUNT} images for {COUNT + 1} ranks: every rank needs at least one",
    }

"""Converting images to TFRecord shards, and finding damage in data sets. ``tests/parity`` reads shards with TensorFlow."""

import fcntl
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import psutil
import pytest
from PIL import Image

from harness.datasets import check, convert, make, manifest, pool, sources
from harness.errors import HarnessError, InvalidInput
from harness.files import write_atomically
from harness.worker.inputs import tfrecord
from harness.worker.inputs.errors import DataError
from tests.conftest import PATIENCE_S, Harness, run_harness
from tests.shards import encoded
from tests.wording import Case, Wording, cases

COLOUR = (200, 100, 50)
PLAIN = Image.new("RGB", (60, 40), COLOUR)


def noise(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (30, 40, 3), np.uint8)
    return encoded(Image.fromarray(pixels))


PHOTOGRAPH = noise(0)
# What ImageNet holds besides ordinary JPEGs, and what becomes of it: stays as it is, or what it is re-encoded from.
ODD: dict[str, tuple[bytes, str | None]] = {
    "a/grey.JPEG": (encoded(PLAIN.convert("L")), None),
    "a/progressive.JPEG": (encoded(PLAIN, progressive=True), None),
    "b/cmyk.JPEG": (encoded(PLAIN.convert("CMYK")), "CMYK"),
    "b/png.JPEG": (encoded(PLAIN, "PNG"), "PNG"),
    "c/palette.JPEG": (encoded(PLAIN.quantize(), "PNG"), "PNG"),
}
TRAIN = {f"{name}/{name}_{image}.JPEG": noise(100 * ord(name) + image) for name in "abcd" for image in range(5)}
TRAIN |= {name: contents for name, (contents, _) in ODD.items()}
VALIDATION = {f"{name}/val_{image}.JPEG": noise(900 + image) for image, name in enumerate("dbdba", 1)}
TEXTS = {"a": "ant", "b": "bee", "c": "cat, kitten", "d": "dög"}
# What is no image, and why.
BAD = {
    "a/empty.JPEG": (b"", "the file is empty"),
    "b/text.JPEG": (b"not a photograph", "neither JPEG nor PNG"),
    "c/gif.JPEG": (encoded(PLAIN, "GIF"), "neither JPEG nor PNG"),
    "c/deep.JPEG": (encoded(Image.new("I;16", (9, 9), 7), "PNG"), "16 bits"),
    "d/truncated.JPEG": (PHOTOGRAPH[:-1], "truncated"),
}


def files(root: Path, contents: Mapping[str, bytes]) -> Path:
    for name, data in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def tar(file: Path, contents: Mapping[str, bytes]) -> bytes:
    with tarfile.open(file, "w") as archive:
        for name in sorted(contents, reverse=True):  # in another order than folders are listed in
            member = tarfile.TarInfo(name)
            member.size = len(contents[name])
            archive.addfile(member, io.BytesIO(contents[name]))
    return file.read_bytes()


def to_shards(source: Path, folder: Path, shards: int, *, processes: int = 1, **options: Any) -> manifest.Manifest:
    """Convert as the command does."""
    found = sources.find(source, options.pop("labels", None), processes)
    skip_bad = options.pop("skip_bad", False)
    plan = convert.plan(found, shards, None, options.pop("seed", 1), options.pop("texts", {}))
    return convert.convert(plan, folder, processes, skip_bad)


def examples(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    found = []
    for shard in sorted(folder.glob(f"{split}-*-of-*")):
        with shard.open("rb") as file:
            for offset, length in tfrecord.scan(str(shard)):
                data = tfrecord.read(file.fileno(), str(shard), offset, length, google_crc32c.value)
                found.append(tfrecord.parse(data))
    return found


def shards_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("[tv]*-of-*")}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imagenet")
    files(root / "train", TRAIN)
    files(root / "val", VALIDATION)
    return root


@pytest.fixture(scope="module")
def converted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    to_shards(source, folder, 4, texts=TEXTS)
    return folder


# --- what is written


def test_every_image_is_in_one_shard_and_the_shards_are_even(converted: Path) -> None:
    names = [f"train-{number:05}-of-00004" for number in range(4)]
    assert sorted(shards_of(converted)) == [*names, "validation-00000-of-00001"]
    sizes = [len(list(tfrecord.scan(str(converted / name)))) for name in names]
    assert max(sizes) - min(sizes) <= 1
    for split, images in (("train", TRAIN), ("validation", VALIDATION)):
        written = Counter(
            f"{one['image/class/synset'][0].decode()}/{one['image/filename'][0].decode()}"
            for one in examples(converted, split)
        )
        assert written == Counter(images.keys())
    order = [one["image/filename"][0] for one in examples(converted)]
    assert order != sorted(order), "shuffled"


def test_examples_have_the_tensorflow_worlds_keys_and_values(converted: Path) -> None:
    example = next(one for one in examples(converted) if one["image/filename"] == [b"d_3.JPEG"])
    assert example == {
        "image/height": [30],
        "image/width": [40],
        "image/colorspace": [b"RGB"],
        "image/channels": [3],
        "image/class/label": [4],
        "image/class/synset": [b"d"],
        "image/class/text": ["dög".encode()],
        "image/object/bbox/xmin": [],
        "image/object/bbox/xmax": [],
        "image/object/bbox/ymin": [],
        "image/object/bbox/ymax": [],
        "image/object/bbox/label": [],
        "image/format": [b"JPEG"],
        "image/filename": [b"d_3.JPEG"],
        "image/encoded": [TRAIN["d/d_3.JPEG"]],
    }


def test_validation_images_have_the_labels_of_training(converted: Path) -> None:
    """There is no validation image of class c, which must not move d."""
    labels = {one["image/filename"][0].decode(): one["image/class/label"] for one in examples(converted, "validation")}
    assert labels == {"val_1.JPEG": [4], "val_2.JPEG": [2], "val_3.JPEG": [4], "val_4.JPEG": [2], "val_5.JPEG": [1]}


def test_what_is_no_plain_jpeg_is_re_encoded_and_counted(converted: Path) -> None:
    images = {one["image/filename"][0].decode(): one["image/encoded"][0] for one in examples(converted)}
    for name, contents in TRAIN.items():
        stored = images[name.partition("/")[2]]
        was = ODD[name][1] if name in ODD else None
        if was is None:
            assert stored == contents, name
            continue
        with Image.open(io.BytesIO(stored)) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", PLAIN.size)
            assert np.abs(np.asarray(image, int) - COLOUR).max() < 10, name
    told = manifest.read(converted).splits
    assert (told["train"].reencoded, told["validation"].reencoded) == ({"CMYK": 1, "PNG": 2}, {})


def test_the_manifest_and_the_offsets_are_what_is_there(converted: Path) -> None:
    found = manifest.read(converted)
    assert [(one.label, one.synset, one.text) for one in found.classes] == [
        (label, name, TEXTS[name]) for label, name in enumerate("abcd", 1)
    ]
    for name, split in found.splits.items():
        shards = [str(converted / shard.name) for shard in split.shards]
        places = [list(tfrecord.scan(shard)) for shard in shards]
        with np.load(converted / f"{name}.npz", allow_pickle=False) as arrays:
            assert arrays["counts"].tolist() == [len(one) for one in places]
            assert arrays["offsets"].tolist() == [offset for one in places for offset, _ in one]
            assert arrays["lengths"].tolist() == [length for one in places for _, length in one]
            assert {array.dtype for array in arrays.values()} == {np.dtype("int64")}
        assert [shard.images for shard in split.shards] == [len(one) for one in places]
        assert [shard.bytes for shard in split.shards] == [Path(shard).stat().st_size for shard in shards]
        assert split.images == len(TRAIN if name == "train" else VALIDATION)


def test_shards_follow_from_the_seed_alone(source: Path, converted: Path, tmp_path: Path) -> None:
    to_shards(source, tmp_path / "two", 4, processes=2, texts=TEXTS)
    assert shards_of(tmp_path / "two") == shards_of(converted)
    to_shards(source, tmp_path / "other", 4, processes=2, texts=TEXTS, seed=2)
    assert shards_of(tmp_path / "other").keys() == shards_of(converted).keys()
    assert shards_of(tmp_path / "other") != shards_of(converted)


# --- tar files


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``source`` holds, as the tar files of ILSVRC 2012, and ``labels.txt``."""
    root = tmp_path_factory.mktemp("tars")
    inner = {}
    for name in "abcd":
        images = {image.partition("/")[2]: data for image, data in TRAIN.items() if image.startswith(name)}
        inner[f"{name}.tar"] = tar(root / "inner.tar", images)
    (root / "inner.tar").unlink()
    tar(root / sources.TRAIN_TAR, inner)
    tar(root / sources.VALIDATION_TAR, {name.partition("/")[2]: data for name, data in VALIDATION.items()})
    by_file = sorted(VALIDATION, key=lambda name: name.partition("/")[2])
    (root / "labels.txt").write_text("".join(f"{name.partition('/')[0]}\n" for name in by_file))
    return root


def test_tar_files_give_the_same_shards_as_folders(tars: Path, converted: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("".join(f"{name}\t{text}\n" for name, text in TEXTS.items()))
    done = run_harness(
        tmp_path,
        *("data", "convert", str(tars), "out", "--shards", "4", "--validation-labels", str(tars / "labels.txt")),
        *("--class-names", "names.txt", "--json"),
    ).succeeded()
    assert done.stderr == "", "no progress where no terminal is"
    assert done.json["splits"]["train"] == {
        "images": len(TRAIN),
        "bytes": sum(len(data) for name, data in shards_of(converted).items() if name.startswith("train")),
        "reencoded": {"CMYK": 1, "PNG": 2},
        "shards": 4,
        "skipped": 0,
    }
    assert shards_of(tmp_path / "out") == shards_of(converted)


def tar_of_classes(file: Path, damage: Callable[[bytes, int], bytes]) -> None:
    """A training file with a whole class, and one damaged, of whose bytes those of its last image begin at the number."""
    whole = tar(file, {"1.JPEG": PHOTOGRAPH, "2.JPEG": PHOTOGRAPH})
    tar(file, {"a.tar": whole, "b.tar": damage(whole, whole.index(b"1.JPEG"))})  # written in that order


@cases
def test_tar_files_that_do_not_do_are_refused(tars: Path, tmp_path: Path, case: Case) -> None:
    training, validation = (tmp_path / name for name in (sources.TRAIN_TAR, sources.VALIDATION_TAR))
    for file in (training, validation):
        file.write_bytes((tars / file.name).read_bytes())
    labels = tmp_path / "labels.txt"
    eval(case.request)
    with case.raises(DataError, HERE=tmp_path):
        sources.find(tmp_path, labels if labels.exists() else None, 1)


# --- going on


def begin(source: Path, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start to convert with the command, and wait for the first shard. Returns the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "data", "convert", str(source), str(folder), *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    before, deadline = len(shards_of(folder)), time.monotonic() + PATIENCE_S
    while len(shards_of(folder)) == before:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process


def all_end(processes: Sequence[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=30)[1]


def test_an_interrupted_and_killed_conversion_goes_on_to_the_same_shards(tmp_path: Path) -> None:
    source, folder, asked = tmp_path / "many", tmp_path / "shards", ["--shards", "60", "--processes", "2"]
    for number in range(4):
        files(source, {f"{number}/{image}.jpg": noise(image) for image in range(900)})
    to_shards(source, tmp_path / "undisturbed", 60, processes=2)

    process = begin(source, folder, *asked)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert (process.returncode, said.count("\n")) == (130, 1)
    assert "no process is left running" in said and "the same command goes on" in said
    assert children and all_end(children)
    assert not list(folder.glob(convert.PARTIAL))

    process = begin(source, folder, *asked)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    assert children and all_end(children), "they notice that nobody waits for them"
    finished = shards_of(folder)
    assert len(finished) < 60, "killed in the middle"
    times = {name: (folder / name).stat().st_mtime_ns for name in finished}
    assert finished.items() <= shards_of(tmp_path / "undisturbed").items(), (
        "nothing that is not whole has a shard's name"
    )

    to_shards(source, folder, 60, processes=2)
    assert shards_of(folder) == shards_of(tmp_path / "undisturbed")
    rewritten = [name for name, time_ns in times.items() if (folder / name).stat().st_mtime_ns != time_ns]
    assert len(rewritten) <= 2 * pool.AHEAD, "only what was not in the journal yet"
    assert not [file for file in folder.iterdir() if file.match(convert.PARTIAL)]
    assert check.check(check.subject(folder, None, False), 2).problems == 0


def test_another_conversion_in_the_same_folder_is_refused(
    source: Path, converted: Path, tmp_path: Path, wording: Wording
) -> None:
    def refused(words: str, folder: Path = converted, shards: int = 4, **options: Any) -> None:
        before = shards_of(folder)
        with wording(words).raises(InvalidInput, FOLDER=folder):
            to_shards(source, folder, shards, **({"texts": TEXTS} | options))
        assert shards_of(folder) == before

    refused("other shards", shards=5)
    refused("another seed", seed=2)
    refused("other texts", texts={})
    refused("the source", folder=source)
    refused("an image", folder=source / "train" / "a" / "a_1.JPEG")
    with (converted / convert.JOURNAL).open() as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        refused("a lock")
    refused("a damaged journal", folder=files(tmp_path / "bad", {convert.JOURNAL: b"{}\n{}\n"}))
    other = files(tmp_path / "other", {"train/a/1.JPEG": PHOTOGRAPH, "train/b/2.JPEG": PHOTOGRAPH})
    to_shards(other, tmp_path / "out", 1)
    files(other, {"train/b/3.JPEG": PHOTOGRAPH})
    with wording("another image").raises(InvalidInput, FOLDER=tmp_path / "out"):
        to_shards(other, tmp_path / "out", 1)


# --- bad images


def test_bad_images_stop_a_conversion_unless_they_are_skipped_with_a_count(tmp_path: Path, wording: Wording) -> None:
    good = {f"{name}/{image}.JPEG": noise(image) for name in "abcd" for image in range(10)}
    source = files(tmp_path / "source", good | {name: contents for name, (contents, _) in BAD.items()})
    asked = ["data", "convert", "source", "out", "--shards", "12", "--processes", "1"]

    done = run_harness(tmp_path, *asked)
    wording("bad images").ended(done, 1)
    assert done.stdout == ""
    kept = shards_of(tmp_path / "out")
    assert 7 <= len(kept) < 12, "those without a bad image"
    assert not (tmp_path / "out" / "manifest.json").exists()

    done = run_harness(tmp_path, *asked, "--skip-bad").succeeded()
    assert "40 images in 12 shards" in done.stdout and "5 skipped, listed in manifest.json" in done.stdout
    assert kept.items() <= shards_of(tmp_path / "out").items()
    skipped = {one.image: one.reason for one in manifest.read(tmp_path / "out").splits["train"].skipped}
    assert skipped.keys() == BAD.keys()
    assert all(BAD[name][1] in reason for name, reason in skipped.items())
    assert check.check(check.subject(tmp_path / "out", None, True), 1).problems == 0

    files(source, dict.fromkeys(BAD, PHOTOGRAPH))  # mended
    assert to_shards(source, tmp_path / "out", 12).splits["train"].images == 45
    assert len(examples(tmp_path / "out")) == 45


def test_a_file_that_cannot_be_read_is_never_skipped(tmp_path: Path, wording: Wording) -> None:
    source = files(tmp_path / "source", {"a/1.JPEG": PHOTOGRAPH, "a/2.JPEG": PHOTOGRAPH})
    plan = convert.plan(sources.find(source, None, 1), 1, None, 1, {})
    (source / "a" / "2.JPEG").unlink()
    with wording("a/2.JPEG").raises(HarnessError, SOURCE=source):
        convert.convert(plan, tmp_path / "out", 1, skip_bad=True)


# --- sources


@cases
def test_folders_that_are_no_source_are_refused(tmp_path: Path, case: Case) -> None:
    files(tmp_path, dict.fromkeys(case.words(), b""))
    with case.raises(DataError, HERE=tmp_path):
        sources.find(tmp_path, None, 1)


@cases
def test_class_names_that_are_none_are_refused(tmp_path: Path, case: Case) -> None:
    file = tmp_path / "names.txt"
    if case.request != "nothing":
        file.write_bytes(case.text.encode("latin-1"))
    with case.raises(DataError, FILE=file):
        sources.class_texts(file, ["a", "b", "c"])


def test_more_shards_than_images_are_refused(source: Path, wording: Wording) -> None:
    found = sources.find(source, None, 1)
    with wording("--shards 26").raises(DataError):
        convert.plan(found, 26, None, 1, {})
    with wording("--validation-shards 6").raises(DataError):
        convert.plan(found, 4, 6, 1, {})


# --- damage


def records(shard: Path) -> list[bytes]:
    data, listed, at = shard.read_bytes(), [], 0
    while at < len(data):
        (length,) = tfrecord.LENGTH.unpack(data[at : at + 8])
        listed.append(data[at : at + length + tfrecord.OVERHEAD])
        at += length + tfrecord.OVERHEAD
    return listed


def with_example(shard: Path, **changes: Any) -> None:
    """Change the second record: another value, or None for no such key. The checksums are right."""
    first, second, *rest = records(shard)
    features = tfrecord.parse(second[12:-4]) | {key.replace("_", "/"): value for key, value in changes.items()}
    kept = {key: value for key, value in features.items() if value is not None}
    shard.write_bytes(b"".join([first, tfrecord.record(tfrecord.example(kept)), *rest]))  # type: ignore[arg-type]


def flip(shard: Path, at: int) -> None:
    """Flip a bit of the second record."""
    data = bytearray(shard.read_bytes())
    data[len(records(shard)[0]) + at] ^= 4
    shard.write_bytes(data)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted set of eight shards with four images each. Images have their own bytes."""
    root = tmp_path_factory.mktemp("large")
    files(root / "source", {f"train/{'abcd'[image % 4]}/{image}.JPEG": noise(image) for image in range(32)})
    to_shards(root / "source", root / "shards", 8)
    return root / "shards"


def copied(folder: Path, to: Path, but: Sequence[str] = ()) -> Path:
    return files(to, {file.name: file.read_bytes() for file in folder.iterdir() if file.name not in but})


def found_in(folder: Path, classes: int | None = None, decode: bool = False) -> dict[str, str]:
    """The problems by file, of which each has one."""
    findings = check.check(check.subject(folder, classes, decode), 1)
    found = {problem.file: str(problem).removeprefix(f"{problem.file}: ") for problem in findings.listed}
    assert len(found) == findings.problems
    return found


def test_validation_images_without_folders_need_their_classes(
    tmp_path: Path, harness: Harness, wording: Wording
) -> None:
    """As Kaggle has them, whose table of classes is found by itself."""
    path = tmp_path / "ILSVRC" / "Data" / "CLS-LOC"
    make.make(path, 4, 2, (40, 40), 1)
    classes = sorted(folder.name for folder in (path / "train").iterdir())
    shutil.rmtree(path / "val", ignore_errors=True)
    (path / "val").mkdir()
    for number, image in enumerate(sorted((path / "train").glob("*/*"))[:2]):
        shutil.copy(image, path / "val" / f"ILSVRC2012_val_{number}.JPEG")
    alone = sources.find(path, None, 1)
    assert [*alone.splits] == ["train"] and "--validation-labels" in alone.left_out
    wording("data check").ended(harness("data", "check", str(path)), 0, DATA=path)
    (tmp_path / "labels.txt").write_text("\n".join([classes[1], classes[0]]), encoding="utf-8-sig")
    labelled = sources.find(path, tmp_path / "labels.txt", 1).splits["validation"]
    (tmp_path / sources.KAGGLE).write_text(
        "ImageId,PredictionString\n"
        + "".join(f"ILSVRC2012_val_{number},{classes[1 - number]} 1 2 3 4 \n" for number in (1, 0))
    )
    found = sources.find(path, None, 1).splits["validation"]
    assert (found.paths, found.labels) == (labelled.paths, labelled.labels)
    assert [sources.read(found.extent(n))[:2] for n in range(2)] == [b"\xff\xd8"] * 2
    assert sources.class_of(found.paths[0]) == classes[0] and found.extent(0).path.endswith("_val_1.JPEG")


@cases
def test_every_damage_is_found_once_with_file_and_byte(large: Path, tmp_path: Path, case: Case) -> None:
    folder = copied(large, tmp_path / "damaged")
    shards = sorted(folder.glob("train-*-of-*"))
    second = {f"{shard.name}, second record": f"{shard.name}: at byte {len(records(shard)[0])}" for shard in shards}
    exec(case.request)
    findings = check.check(check.subject(folder, None, False), 1)
    assert len({damage.file for damage in findings.listed}) == findings.problems
    case.answered("\n".join(map(str, findings.listed)), **second)


def test_shards_made_by_others_are_checked_without_a_manifest(large: Path, tmp_path: Path) -> None:
    assert found_in(large) == {}
    folder = copied(large, tmp_path / "others", but=["manifest.json", "train.npz", convert.JOURNAL])
    absent, wrong, hollow, *_ = sorted(folder.iterdir())
    assert found_in(folder) == {}, "labels up to 1000"
    absent.unlink()
    with_example(wrong, image_class_label=[1001], image_width=None)
    with_example(hollow, image_encoded=[b"\xff\xd8\xff" + bytes(50) + b"\xff\xd9"])  # looks like a JPEG
    assert found_in(folder) == {
        absent.name: "is missing, one of 8 shards",
        wrong.name: f"at byte {len(records(wrong)[0])}: the label is 1001, not one of 1 to 1000",
    }
    assert "the image cannot be decoded" in found_in(folder, classes=1001, decode=True)[hollow.name]
    files(folder, {"train-00000-of-00001": b""})
    assert "shards of several conversions are mixed" in found_in(folder)["train-*"]


def test_a_manifest_that_is_none_is_refused(large: Path, tmp_path: Path, wording: Wording) -> None:
    folder = copied(large, tmp_path / "damaged")
    told = json.loads((folder / "manifest.json").read_text())
    for contents in ("", "{}", json.dumps(told | {"schema": "harness.data/2"}), "\udce9"):
        (folder / "manifest.json").write_bytes(contents.encode(errors="surrogateescape"))
        with wording("manifest.json").raises(DataError, FOLDER=folder):
            check.subject(folder, None, False)


def test_the_command_says_what_is_wrong_and_exits_with_1(harness: Harness, tmp_path: Path, wording: Wording) -> None:
    good = {f"{split}/a/{image}.JPEG": noise(image) for split in ("train", "val") for image in range(70)}
    files(tmp_path / "set", good)
    done = harness("data", "check", "set").succeeded()
    assert done.stdout == "140 images looked at\n"
    files(tmp_path / "set", {"train/a/3.JPEG": b"", "val/a/4.JPEG": PHOTOGRAPH[:-9]})
    done = harness("data", "check", "set")
    wording("data check").ended(done, 1)
    first, second, last = done.stdout.splitlines()
    assert first == "train/a/3.JPEG: the image cannot be decoded: the file is empty"
    assert second.startswith("val/a/4.JPEG: the image cannot be decoded: ") and "truncated" in second
    assert last == "140 images looked at"
    done = harness("data", "check", "set", "--json")
    assert (done.code, done.json["problems"], done.json["listed"][0]["file"]) == (1, 2, "train/a/3.JPEG")


def test_a_terminal_sees_how_far_it_is_when_it_takes_longer_than_half_a_second(tmp_path: Path) -> None:
    source = tmp_path / "set"
    files(source, {f"train/a/{number}.JPEG": PHOTOGRAPH for number in range(12_000)})

    def seen(*options: str) -> str:
        terminal, its_end = os.openpty()
        command = [sys.executable, "-m", "harness", "data", "check", str(source), *options]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=its_end, check=True)
        os.close(its_end)
        try:
            return os.read(terminal, 10_000).decode()
        except OSError:  # nothing was written
            return ""
        finally:
            os.close(terminal)

    assert " of 12,000 images" in seen()
    assert " of " not in seen("--quiet")


def test_more_problems_than_anybody_reads_are_counted() -> None:
    findings = check.Findings()
    for _ in range(2):
        findings.add([check.Damage("shard", number, "bad") for number in range(check.LISTED + 5)], images=200)
    assert (findings.problems, len(findings.listed)) == (2 * check.LISTED + 10, check.LISTED)
    assert findings.images == 400


def test_any_cut_of_any_kind_of_jpeg_is_found() -> None:
    """What decoding every image once is for: a faster way would have to find them all too."""
    from harness.datasets.convert import photograph

    wild = Image.fromarray(np.random.default_rng(1).integers(0, 256, (24, 24, 3), np.uint8))
    for options in ({}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_rows": 1}):
        whole = encoded(wild, **options)
        assert photograph(whole).jpeg == whole
        for length in random.Random(0).sample(range(len(whole)), 100):
            with pytest.raises(ValueError):
                photograph(whole[:length])


def test_a_made_set_that_does_not_become_whole_leaves_nothing(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def interrupted(done: int, of: int) -> None:
        told.append((done, of))
        if done == 3:
            raise KeyboardInterrupt

    for _ in range(2):  # the second time it may begin anew
        with pytest.raises(KeyboardInterrupt):
            make.make(tmp_path / "set", 8, 2, (32, 24), 1, interrupted)
        assert list((tmp_path / "set").iterdir()) == []
    assert told == 2 * [(1, 8), (2, 8), (3, 8)]


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_a_file_may_be_read_by_whom_the_umask_lets_and_keeps_what_somebody_has_given_it(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        new, old = tmp_path / "new", tmp_path / "old"
        old.touch(0o640)
        old.chmod(0o640)
        for file in (new, old):
            assert write_atomically(file, "text").read_text() == "text"
    finally:
        os.umask(before)
    assert [file.stat().st_mode & 0o777 for file in (new, old)] == [mode, 0o640]
    assert {file.name for file in tmp_path.iterdir()} == {"new", "old"}

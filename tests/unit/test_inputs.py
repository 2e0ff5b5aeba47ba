"""The image index, the order of images, crops, synthetic batches and the made image set, without a framework."""

import math
import os
import pickle
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.datasets.make import make
from harness.worker.inputs import tfrecord
from harness.worker.inputs.augmentation import Box, central_crop, draws, pixels, random_crop, ratio, size_of
from harness.worker.inputs.errors import BadImage, DataError
from harness.worker.inputs.index import ImageIndex, ShardIndex, find, read, scan, write
from harness.worker.inputs.order import GROUP, ReadingOrder, check_world, images_of, uniform
from harness.worker.job import synthetic_batch
from tests.shards import encoded, record
from tests.wording import Case, Wording, cases


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


# --- scan


def test_classes_are_sorted_and_labelled_from_one(tmp_path: Path) -> None:
    index = scan(touch(tmp_path, "b/2.JPEG", "b/1.jpg", "a/3.JpEg", "c/4.JPG"), num_classes=4)
    assert index.root == str(tmp_path)
    assert list(index.paths) == ["a/3.JpEg", "b/1.jpg", "b/2.JPEG", "c/4.JPG"]
    assert list(index.labels) == [1, 2, 2, 3]
    assert index.extent(0).path == str(tmp_path / "a" / "3.JpEg")


def test_a_train_folder_is_the_data_set(tmp_path: Path) -> None:
    index = scan(touch(tmp_path, "train/a/1.JPEG", "val/a/2.JPEG"))
    assert index.root == str(tmp_path / "train")
    assert list(index.paths) == ["a/1.JPEG"]


def test_what_is_no_image_is_passed_over(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.JPEG", "a/._1.JPEG", "a/notes.txt", ".snapshot/9.JPEG", "README", "0_docs/readme.md")
    (tmp_path / "a" / "folder.jpg").mkdir()
    index = scan(tmp_path)
    assert (list(index.paths), list(index.labels)) == (["a/1.JPEG"], [1])


def test_a_link_to_an_image_is_an_image(tmp_path: Path) -> None:
    target = touch(tmp_path, "elsewhere/x.JPEG") / "elsewhere" / "x.JPEG"
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "1.JPEG").symlink_to(target)
    (tmp_path / "data" / "b").symlink_to(tmp_path / "elsewhere")
    assert list(scan(tmp_path / "data").paths) == ["a/1.JPEG", "b/x.JPEG"]


@cases
def test_a_path_without_a_data_set_is_refused(tmp_path: Path, case: Case) -> None:
    path, *names = case.text.split(" ")
    touch(tmp_path, *names)
    with case.raises(DataError, HERE=tmp_path):
        scan(tmp_path / path, num_classes=3)


# --- the index file


NAMES = [
    "a b/ö ñ 図.JPEG",
    "a/tab\there.JPEG",
    "a/carriage\rreturn.JPEG",
    "a/line\u2028separator.JPEG",
    "a/#=,'\".JPEG",
]


def test_an_index_survives_its_file(tmp_path: Path) -> None:
    index = scan(touch(tmp_path / "data set", *NAMES))
    write(index, tmp_path / "images.index")
    assert read(tmp_path / "images.index") == index
    assert all(Path(index.extent(image).path).exists() for image in range(len(NAMES)))


def test_a_name_that_is_not_utf8_survives(tmp_path: Path) -> None:
    name = os.fsdecode(b"a/latin1-\xe9.JPEG")
    write(ImageIndex("/data", [name], [1]), tmp_path / "images.index")
    assert list(read(tmp_path / "images.index").paths) == [name]


@pytest.mark.parametrize("kept", [0, 1, 100, 300, -1])
def test_an_index_cut_short_is_refused(tmp_path: Path, kept: int, wording: Wording) -> None:
    file = tmp_path / "images.index"
    write(ImageIndex("/data", ["a/1.JPEG", "a/2.JPEG"], [1, 1]), file)
    file.write_bytes(file.read_bytes()[:kept])
    with wording("images.index").raises(DataError, FILE=file):
        read(file)


def test_a_file_that_is_no_index_is_refused(tmp_path: Path, wording: Wording) -> None:
    np.savez(file := tmp_path / "other.npz", weights=np.zeros(3))
    for contents in (b"text\n" * 100, b"PK\x03\x04" + bytes(100), file.read_bytes()):
        file.write_bytes(contents)
        with wording("other.npz").raises(DataError, FILE=file):
            read(file)


# --- the order


def files(count: int) -> ImageIndex:
    return ImageIndex("/data", [f"a/{image}.JPEG" for image in range(count)], [1] * count)


def records(count: int, shards: int) -> ShardIndex:
    """An index of records of about equal numbers in each shard."""
    counts = np.diff([count * shard // shards for shard in range(shards + 1)])
    names = [f"train-{shard:05}-of-{shards:05}" for shard in range(shards)]
    return ShardIndex("/data", names, counts, np.arange(1, count + 1))


def reading(index: ImageIndex | ShardIndex, rank: int, world: int, seed: int | None = 7, done: int = 0) -> ReadingOrder:
    return ReadingOrder(index, rank, world, batch_size=4, image_size=8, decoders=0, seed=seed, done=done)


def epochs(index: ImageIndex | ShardIndex, rank: int, world: int, seed: int = 7) -> list[list[int]]:
    """The images that a rank reads in its first two epochs."""
    whole = reading(index, rank, world, seed)
    begin, end = whole.share
    read = list(islice(whole.positions(), 2 * (end - begin)))
    return [[image for epoch, image in read if epoch == number] for number in (0, 1)]


@pytest.mark.parametrize("world", range(1, 9))
@pytest.mark.parametrize(
    "index", [files(13), files(1000), *(records(1000, shards) for shards in (1, 3, 5, 7, 16)), records(9, 4)], ids=repr
)
def test_every_image_is_read_once_in_an_epoch_by_one_of_the_ranks(index: ImageIndex | ShardIndex, world: int) -> None:
    read = [epochs(index, rank, world) for rank in range(world)]
    for epoch in (0, 1):
        assert sorted(image for rank in read for image in rank[epoch]) == list(range(len(index)))
        lengths = {len(rank[epoch]) for rank in read}
        assert max(lengths) - min(lengths) <= 1
        assert max(lengths) == reading(index, 0, world).longest_share
    assert all(rank[0] != rank[1] for rank in read) or len(index) < 2 * world


@pytest.mark.parametrize("index", [files(1000), records(1000, 3)], ids=["files", "shards"])
def test_every_epoch_and_seed_is_another_shuffle_and_repeats(index: ImageIndex | ShardIndex) -> None:
    shuffles = {tuple(images) for seed in range(3) for images in epochs(index, 0, 2, seed)}
    assert len(shuffles) == 6
    assert epochs(index, 0, 2) == epochs(index, 0, 2)


def test_the_shuffle_is_the_same_everywhere() -> None:
    images = [image for _, image in islice(reading(files(10), 0, 1, seed=1).positions(), 10)]
    assert images == [9, 5, 7, 1, 8, 4, 0, 2, 6, 3]
    images = [image for _, image in islice(reading(records(40, 2), 1, 2, seed=1).positions(), 10)]
    assert images == [34, 21, 36, 26, 20, 25, 24, 22, 29, 23]


def test_records_are_read_in_runs_of_one_shard_and_shuffled_among_hundreds() -> None:
    index = records(4000, 7)
    _, pieces, places = next(reading(index, 0, 2, seed=1).groups())
    trained_on = images_of(pieces)[places]
    shards = np.searchsorted(index.firsts, pieces - [0, 1], "right")
    assert len(shards) == 16
    assert (shards[:, 0] == shards[:, 1]).all()
    assert len(set(shards[:, 0])) > 4
    assert sorted(trained_on) == sorted(images_of(pieces))
    assert 200 < len(trained_on) <= 256
    assert np.abs(np.diff(trained_on)).mean() > 500


@pytest.mark.parametrize("index", [files(1000), records(1000, 7)])
def test_what_was_read_before_is_passed_over_by_groups(index: ImageIndex | ShardIndex) -> None:
    images = [position for position in islice(reading(index, 1, 2).positions(), 5 * 500) if position[0] >= 3]
    for done in [0, 1, 255, 256, 257, 499]:
        goes_on = reading(index, 1, 2, done=3 * 500 + done)
        assert [*islice(goes_on.positions(), 1000 - done)] == images[done:]
        _, _, left = next(goes_on.groups())
        assert 0 < len(left) <= GROUP


def test_to_evaluate_is_to_read_in_order() -> None:
    whole = reading(records(100, 3), 1, 2, seed=None)
    assert images_of(whole.pieces(0)).tolist() == [image for _, image in whole.positions()] == [*range(50, 100)]


def test_fewer_images_than_ranks_are_refused(wording: Wording) -> None:
    check_world(4, 4)
    for refused in (lambda: check_world(3, 4), lambda: reading(files(3), 0, 4, seed=0)):
        with wording("3 images").raises(DataError):
            refused()


def test_numbers_are_uniform_and_the_same_everywhere() -> None:
    numbers = uniform(1, np.arange(1000).reshape(-1, 1), np.arange(41))
    assert numbers.shape == (1000, 41)
    assert numbers[2, 3] == uniform(1, 2, 3)[0]
    assert len(np.unique(numbers)) == numbers.size
    assert 0 <= numbers.min() < 0.001 < 0.999 < numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(numbers[:, 0], numbers[:, 1])[0, 1]) < 0.1
    assert uniform(0)[0] == (0xE220A8397B1DCDAF >> 11) * 2**-53  # what SplitMix64 begins with, seeded with 0


# --- crops


def test_crops_are_within_the_image_and_as_large_and_as_wide_as_they_may_be() -> None:
    width, height = 500, 375
    crops, flips = draws(0, 0, range(2000))
    boxes = np.array([random_crop(crop, width, height) for crop in crops])
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 0] + boxes[:, 2] <= width).all()
    assert (boxes[:, 1] + boxes[:, 3] <= height).all()
    areas, aspects = boxes[:, 2] * boxes[:, 3] / (width * height), boxes[:, 2] / boxes[:, 3]
    assert 0.08 <= areas.min() < 0.09
    assert 0.85 < areas.max() <= 1
    assert 0.75 <= aspects.min() < 0.76
    assert 1.32 < aspects.max() <= 4 / 3 + 1e-9
    assert 0.45 < flips.mean() < 0.55


def blank(width: int, height: int, format: str = "JPEG", mode: str = "RGB", **options: object) -> bytes:
    return encoded(Image.new(mode, (width, height)), format, **options)


def test_an_image_tells_its_size() -> None:
    profile = bytes(3000)
    known = {
        (500, 375): blank(500, 375),
        (65500, 1): blank(65500, 1, progressive=True, comment=b"long " * 100),
        (200, 300): blank(200, 300, mode="CMYK", icc_profile=profile),
        (20, 10): blank(20, 10, icc_profile=profile, comment=bytes(2000)),
        (33, 17): blank(33, 17, mode="L", quality=30) + bytes(100),
        (20, 30): b"\xff\xd8\xff" + blank(20, 30)[2:],  # markers may be filled up
        (40, 50): blank(40, 50, format="PNG"),
    }
    assert [size_of(contents) for contents in known.values()] == list(known)


@cases
def test_what_is_no_whole_image_tells_no_size(case: Case) -> None:
    with case.raises(ValueError):
        size_of(eval(case.request))


def test_an_image_that_no_crop_fits_is_taken_whole() -> None:
    assert random_crop(draws(0, 0, [0])[0][0], 1000, 10) == (0, 0, 1000, 10)


def test_evaluation_looks_at_the_middle() -> None:
    box = central_crop(400, 320)
    assert box == (60, 20, 280, 280)
    assert pixels(box, 400, 320, 1) == (59, 20, 282, 280)  # columns begin and end at an odd place


@pytest.mark.parametrize(("side", "divided"), [(100, 1), (447, 1), (448, 2), (895, 2), (896, 4), (1792, 8), (9999, 8)])
def test_a_large_crop_is_decoded_smaller_but_never_smaller_than_asked(side: int, divided: int) -> None:
    box = Box(1, 2, side, side)
    assert ratio(box, 224) == divided
    left, top, width, height = pixels(box, side + 3, side + 3, divided)
    assert top == math.floor(2 / divided + 0.5)
    assert height == math.floor(side / divided + 0.5)
    nearest = math.floor(1 / divided + 0.5)
    assert 0 <= nearest - left <= 1
    assert 0 <= left + width - (nearest + height) <= 1


@pytest.mark.parametrize("divided", [1, 2, 4, 8])
def test_columns_begin_and_end_where_a_decoder_needs_no_neighbours(divided: int) -> None:
    crops, _ = draws(0, 0, range(200))
    room = -(-501 // divided)
    for crop in crops:
        left, _top, width, _height = pixels(random_crop(crop, 501, 375), 501, 375, divided)
        assert left == 0 or left % 2 == 1
        assert left + width == room or (left + width) % 2 == 1
        assert 0 <= left < left + width <= room


# --- shards


def write_shards(folder: Path, split: str, counts: list[int], data: bytes = b"x" * 50) -> Path:
    folder.mkdir(exist_ok=True)
    for shard, count in enumerate(counts):
        name = f"{split}-{shard:05}-of-{len(counts):05}"
        (folder / name).write_bytes(b"".join(record(data + bytes(number)) for number in range(count)))
    return folder


def test_an_index_of_shards_knows_where_every_record_is_and_survives_its_file(tmp_path: Path) -> None:
    root = write_shards(tmp_path, "train", [3, 2, 1])
    write(find(root, "train"), tmp_path / "images.index")
    index = read(tmp_path / "images.index")
    assert isinstance(index, ShardIndex)
    assert len(index) == 6
    expected = [
        (str(root / f"train-{shard:05}-of-00003"), offset, length)
        for shard in range(3)
        for offset, length in tfrecord.scan(str(root / f"train-{shard:05}-of-00003"))
    ]
    assert [index.extent(image) for image in range(6)] == expected
    assert index.run(0, 3) == (expected[0][0], 12, 50 + 16 + 51 + 16 + 52)


@cases
def test_what_is_there_in_place_of_a_data_set_is_said(tmp_path: Path, case: Case) -> None:
    touch(tmp_path / "x", *case.words())
    with case.raises(DataError, HERE=tmp_path):
        find(tmp_path / "x", "train")


def test_an_empty_class_and_a_shard_without_images_are_refused(tmp_path: Path, wording: Wording) -> None:
    touch(tmp_path / "folders", "train/a/1.JPEG", "train/c/1.JPEG", "train/lost+found/x")
    assert len(find(tmp_path / "folders", "train")) == 2
    (tmp_path / "folders" / "train" / "b").mkdir()
    with wording("folders").raises(DataError, HERE=tmp_path):
        find(tmp_path / "folders", "train")
    with wording("shards").raises(DataError, HERE=tmp_path):
        find(write_shards(tmp_path / "shards", "train", [3, 0]), "train")


def test_shards_may_be_in_folders_of_their_splits_and_validation_may_be_short(tmp_path: Path) -> None:
    for folder in ("tpu/train", "tpu/validation", "short"):
        (tmp_path / folder).mkdir(parents=True)
    write_shards(tmp_path / "tpu" / "train", "train", [3, 2])
    write_shards(tmp_path / "tpu" / "validation", "validation", [4])
    write_shards(write_shards(tmp_path / "short", "train", [3, 2]), "val", [4])
    for layout in ("tpu", "short"):
        assert [len(find(tmp_path / layout, split)) for split in ("train", "validation")] == [5, 4]


def test_splits_are_found_in_either_layout(tmp_path: Path) -> None:
    write_shards(write_shards(tmp_path / "shards", "train", [3, 2]), "validation", [4])
    assert len(find(tmp_path / "shards", "train")) == 5
    assert len(find(tmp_path / "shards", "validation")) == 4
    for folder in ("val", "validation"):
        images = touch(tmp_path / folder, "train/a/1.JPEG", "train/b/2.JPEG", "train/b/3.JPEG", f"{folder}/b/4.JPEG")
        assert len(find(images, "train")) == 3
        validation = find(images, "validation")
        assert isinstance(validation, ImageIndex)
        assert list(validation.labels) == [2]  # as in training, though class a has no image here


def spoil(root: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    (root / name).write_bytes(change((root / name).read_bytes()))


SECOND = 50 + tfrecord.OVERHEAD  # where the second record of a shard begins


@cases
def test_a_set_of_shards_that_is_not_whole_is_refused(tmp_path: Path, case: Case) -> None:
    root = write_shards(tmp_path / "set", "train", [2, 2, 2])
    eval(case.request)
    with case.raises(DataError, HERE=root):
        find(root, "train")


@cases
def test_a_set_without_validation_images_is_refused(tmp_path: Path, case: Case) -> None:
    touch(tmp_path, *case.words())
    with case.raises(DataError, HERE=tmp_path):
        find(tmp_path, "validation")


def test_a_bad_image_crosses_process_borders() -> None:
    bad = pickle.loads(pickle.dumps(BadImage("/data/a.JPEG", "truncated")))
    assert (bad.path, bad.reason, str(bad)) == ("/data/a.JPEG", "truncated", "bad image /data/a.JPEG: truncated")


# --- synthetic


def test_synthetic_batches_are_noise_that_repeats() -> None:
    images, labels = synthetic_batch(seed=1, rank=0, batch_size=8, image_size=32, num_classes=1001)
    assert (images.shape, str(images.dtype)) == ((8, 32, 32, 3), "float32")
    assert (labels.shape, str(labels.dtype)) == ((8,), "int64")
    assert abs(images.mean()) < 0.05
    assert abs(images.std() - 1) < 0.05
    assert labels.min() >= 0
    assert labels.max() < 1001
    again, _ = synthetic_batch(1, 0, 8, 32, 1001)
    np.testing.assert_array_equal(images, again)


def test_every_rank_and_seed_has_its_own_batch() -> None:
    first = [synthetic_batch(seed, rank, 1, 4, 10)[0].ravel()[0] for seed in range(3) for rank in range(3)]
    assert len(set(first)) == 9


def test_synthetic_values_are_the_same_everywhere() -> None:
    images, labels = synthetic_batch(seed=1, rank=2, batch_size=2, image_size=2, num_classes=1001)
    np.testing.assert_allclose(images[0, 0, 0], [-1.5452675, 0.5408459, 1.5286111], rtol=1e-6)
    assert labels.tolist() == [902, 687]


# --- make


def test_a_made_set_has_imagenets_layout(tmp_path: Path) -> None:
    written = make(tmp_path / "set", images=7, classes=3, size=(50, 40), seed=0)
    index = scan(tmp_path / "set")
    assert list(index.labels) == [1, 1, 1, 2, 2, 3, 3]
    assert index.paths[0] == "n00000001/n00000001_0.JPEG"
    files = [Path(index.extent(image).path) for image in range(7)]
    assert written == sum(file.stat().st_size for file in files)
    assert len({file.read_bytes() for file in files}) == 7
    for file in files:
        with Image.open(file) as image:
            image.load()
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (50, 40))


def test_a_made_set_repeats_from_its_seed(tmp_path: Path) -> None:
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        make(tmp_path / name, images=2, classes=2, size=(32, 32), seed=seed)
    first, again, other = ([file.read_bytes() for file in sorted((tmp_path / name).rglob("*.JPEG"))] for name in "abc")
    assert first == again
    assert first != other


def test_images_of_a_class_resemble_each_other(tmp_path: Path) -> None:
    make(tmp_path, images=4, classes=2, size=(64, 64), seed=0)
    a0, a1, b0, b1 = (np.asarray(Image.open(file), float) for file in sorted(tmp_path.rglob("*.JPEG")))
    within = np.abs(a0 - a1).mean() + np.abs(b0 - b1).mean()
    between = np.abs(a0 - b0).mean() + np.abs(a1 - b1).mean()
    assert 0 < within < 0.9 * between


@cases
def test_what_makes_no_set_is_refused(tmp_path: Path, case: Case) -> None:
    touch(tmp_path, "full/thesis.tex")
    wanted = {"path": "new", "images": 2, "classes": 1} | eval(f"dict({case.request})")
    with case.raises(DataError, HERE=tmp_path):
        make(tmp_path / wanted.pop("path"), size=(8, 8), seed=0, **wanted)


def test_a_made_set_that_does_not_become_whole_leaves_nothing(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def interrupted(done: int, of: int) -> None:
        told.append((done, of))
        if done == 3:
            raise KeyboardInterrupt

    for _ in range(2):  # the second time it may begin anew
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "set", 8, 2, (32, 24), 1, interrupted)
        assert list((tmp_path / "set").iterdir()) == []
    assert told == 2 * [(1, 8), (2, 8), (3, 8)]

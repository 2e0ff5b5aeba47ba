"""The image index, the shards, the synthetic batches and the made image set, without a framework."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.inputs.index import BadImage, DataError, ImageIndex, check_world, order, read, scan, shard, write
from harness.inputs.make import make
from harness.inputs.synthetic import batch


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def one_line(error: pytest.ExceptionInfo[DataError], *words: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


# --- scan


def test_classes_are_sorted_and_labelled_from_one(tmp_path: Path) -> None:
    index = scan(touch(tmp_path, "b/2.JPEG", "b/1.jpg", "a/3.JpEg", "c/4.JPG"))
    assert index.root == str(tmp_path)
    assert list(index.paths) == ["a/3.JpEg", "b/1.jpg", "b/2.JPEG", "c/4.JPG"]
    assert list(index.labels) == [1, 2, 2, 3]
    assert index.path(0) == str(tmp_path / "a" / "3.JpEg")


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


@pytest.mark.parametrize(
    ("names", "path", "words"),
    [
        ([], "absent", ["absent does not exist"]),
        (["file"], "file", ["file is not a folder"]),
        (["1.JPEG"], "", ["no class folders", "PATH/<class>/*.JPEG"]),
        (["a/1.png", "b/2.txt"], "", ["no images", "*.JPEG", "2 folders"]),
        (["train/readme"], "", ["no class folders", "train"]),
    ],
)
def test_a_path_without_a_data_set_is_refused(tmp_path: Path, names: list[str], path: str, words: list[str]) -> None:
    touch(tmp_path, *names)
    with pytest.raises(DataError) as error:
        scan(tmp_path / path)
    one_line(error, str(tmp_path), *words)


def test_more_classes_than_the_model_takes_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{name}/1.JPEG" for name in "abc"))
    assert len(scan(tmp_path, num_classes=4)) == 3
    with pytest.raises(DataError) as error:
        scan(tmp_path, num_classes=3)
    one_line(error, "3 classes", "takes 2")


# --- the index file


NAMES = ["a b/ö ñ 図.JPEG", "a/carriage\rreturn.JPEG", "a/line\u2028separator.JPEG", "a/#=,'\".JPEG"]


def test_an_index_survives_its_file(tmp_path: Path) -> None:
    index = scan(touch(tmp_path / "data set", *NAMES))
    write(index, tmp_path / "images.txt")
    assert read(tmp_path / "images.txt") == index
    assert all(Path(index.path(image)).exists() for image in range(len(NAMES)))


def test_a_name_that_is_not_utf8_survives(tmp_path: Path) -> None:
    name = os.fsdecode(b"a/latin1-\xe9.JPEG")
    write(ImageIndex("/data", [name], [1]), tmp_path / "images.txt")
    assert list(read(tmp_path / "images.txt").paths) == [name]


@pytest.mark.parametrize("name", ["a/tab\there.JPEG", "a/new\nline.JPEG"])
def test_a_name_that_cannot_be_indexed_is_named(tmp_path: Path, name: str) -> None:
    index = scan(touch(tmp_path, "a/fine.JPEG", name))
    with pytest.raises(DataError) as error:
        write(index, tmp_path / "images.txt")
    one_line(error, repr(name))


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4])
def test_an_index_cut_short_is_refused(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "images.txt"
    write(ImageIndex("/data", ["a/1.JPEG", "a/2.JPEG"], [1, 1]), file)
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:kept]))
    with pytest.raises(DataError, match=r"cut short|not an image index"):
        read(file)


# --- shards


@pytest.mark.parametrize("world", range(1, 9))
@pytest.mark.parametrize("count", [8, 13, 64, 101])
def test_shards_are_disjoint_complete_and_even(count: int, world: int) -> None:
    shards = [shard(count, rank, world, epoch=3, seed=7) for rank in range(world)]
    assert sorted(image for images in shards for image in images) == list(range(count))
    lengths = {len(images) for images in shards}
    assert max(lengths) - min(lengths) <= 1


def test_every_epoch_and_seed_is_another_shuffle() -> None:
    shuffles = [tuple(shard(100, 0, 1, epoch, seed)) for epoch in range(3) for seed in range(3)]
    assert len(set(shuffles)) == 9
    assert tuple(shard(100, 0, 1, 0, 0)) == shuffles[0]


def test_the_shuffle_is_the_same_on_every_python() -> None:
    assert list(shard(10, 0, 1, epoch=0, seed=1)) == [5, 9, 6, 1, 8, 2, 3, 4, 7, 0]


def test_order_goes_through_the_shards_of_all_epochs() -> None:
    stream = order(5, rank=1, world=2, seed=0)
    expected = [(epoch, image) for epoch in range(3) for image in shard(5, 1, 2, epoch, 0)]
    assert [next(stream) for _ in expected] == expected


def test_fewer_images_than_ranks_are_refused() -> None:
    check_world(4, 4)
    with pytest.raises(DataError) as error:
        check_world(3, 4)
    one_line(error, "3 images for 4 ranks")
    with pytest.raises(DataError):
        shard(3, 0, 4, epoch=0, seed=0)


def test_a_bad_image_crosses_process_borders() -> None:
    bad = pickle.loads(pickle.dumps(BadImage("/data/a.JPEG", "truncated")))
    assert (bad.path, bad.reason, str(bad)) == ("/data/a.JPEG", "truncated", "bad image /data/a.JPEG: truncated")


# --- synthetic


def test_synthetic_batches_are_noise_that_repeats() -> None:
    images, labels = batch(seed=1, rank=0, batch_size=8, image_size=32, num_classes=1001)
    assert (images.shape, str(images.dtype)) == ((8, 32, 32, 3), "float32")
    assert (labels.shape, str(labels.dtype)) == ((8,), "int64")
    assert abs(images.mean()) < 0.05
    assert abs(images.std() - 1) < 0.05
    assert labels.min() >= 0
    assert labels.max() < 1001
    again, _ = batch(1, 0, 8, 32, 1001)
    np.testing.assert_array_equal(images, again)


def test_every_rank_and_seed_has_its_own_batch() -> None:
    first = [batch(seed, rank, 1, 4, 10)[0].ravel()[0] for seed in range(3) for rank in range(3)]
    assert len(set(first)) == 9


def test_synthetic_values_are_the_same_everywhere() -> None:
    images, labels = batch(seed=1, rank=2, batch_size=2, image_size=2, num_classes=1001)
    np.testing.assert_allclose(images[0, 0, 0], [-1.5452675, 0.5408459, 1.5286111], rtol=1e-6)
    assert labels.tolist() == [902, 687]


# --- make


def test_a_made_set_has_imagenets_layout(tmp_path: Path) -> None:
    heard: list[int] = []
    written = make(tmp_path / "set", images=7, classes=3, size=(50, 40), seed=0, progress=heard.append)
    index = scan(tmp_path / "set")
    assert list(index.labels) == [1, 1, 1, 2, 2, 3, 3]
    assert index.paths[0] == "n00000001/n00000001_0.JPEG"
    assert heard == [1, 2, 3, 4, 5, 6, 7]
    files = [Path(index.path(image)) for image in range(7)]
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


def test_a_made_photograph_is_as_large_as_a_photograph(tmp_path: Path) -> None:
    assert 60_000 < make(tmp_path, images=1, classes=1, size=(500, 375), seed=0) < 160_000


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"images": 2, "classes": 3}, "2 images in 3 classes"),
        ({"images": 2, "classes": 0}, "2 images in 0 classes"),
        ({"size": (0, 10)}, "0 × 10"),
    ],
)
def test_counts_that_make_no_set_are_refused(tmp_path: Path, counts: dict[str, object], words: str) -> None:
    with pytest.raises(DataError) as error:
        make(**{"path": tmp_path, "images": 4, "classes": 2, "size": (8, 8), "seed": 0} | counts)  # type: ignore[arg-type]
    one_line(error, words)


def test_make_writes_over_nothing(tmp_path: Path) -> None:
    touch(tmp_path, "full/thesis.tex")
    with pytest.raises(DataError) as error:
        make(tmp_path / "full", 1, 1, (8, 8), 0)
    one_line(error, "full is not empty")
    with pytest.raises(DataError) as error:
        make(tmp_path / "full" / "thesis.tex", 1, 1, (8, 8), 0)
    one_line(error, "is a file")

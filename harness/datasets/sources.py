"""The sources of a conversion: ImageNet's folders, or its tar files, which are not unpacked."""

import hashlib
import os
import sys
import tarfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from harness.core.progress import OnCount, uncounted
from harness.datasets import pool
from harness.worker.inputs import index
from harness.worker.inputs.errors import DataError, NoImages
from harness.worker.inputs.index import ImageIndex, class_of
from harness.worker.inputs.page_cache import Extent

TRAIN, VALIDATION = "train", "validation"
TRAIN_TAR, VALIDATION_TAR = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
KAGGLE = "LOC_val_solution.csv"
LONGEST_RECORD = 1 << 20  # what a tar file may be filled up to with zeros; most programs take 10 KiB
LAYOUT = (
    f"expected SRC/train/<class>/*.JPEG with or without SRC/val/<class>/*.JPEG, SRC/<class>/*.JPEG, "
    f"or {TRAIN_TAR} with or without {VALIDATION_TAR}"
)


@dataclass(frozen=True)
class TarImages(ImageIndex):
    """The images in the tar file ``root``: each is ``lengths`` bytes of it from ``offsets``."""

    offsets: Sequence[int]
    lengths: Sequence[int]

    def extent(self, image: int) -> Extent:
        return Extent(self.root, self.offsets[image], self.lengths[image])


@dataclass(frozen=True)
class FlatImages(ImageIndex):
    """The images in the folder ``root``, which has none for classes: ``paths`` have theirs all the same."""

    def extent(self, image: int) -> Extent:
        return Extent(str(Path(self.root, self.paths[image].partition("/")[2])))


def read(extent: Extent) -> bytes:
    """The bytes of an extent. Raises OSError, also when the file ends before them."""
    with open(extent.path, "rb", buffering=0) as file:  # noqa: PTH123
        file.seek(extent.offset)
        contents = file.read(extent.length)
    if len(contents) < extent.length:
        raise OSError(0, "the file has become shorter", extent.path)
    return contents


@dataclass(frozen=True)
class Source:
    """Images to convert, by split."""

    path: str  # absolute
    classes: Sequence[str]  # names in the order of their labels
    splits: Mapping[str, ImageIndex]
    left_out: str = ""  # which images are not among them, and why

    def digest(self) -> str:
        """The SHA-256 of the names and labels of all images: the same for folders and for tar files of them."""
        digest = hashlib.sha256()
        for split, images in self.splits.items():
            digest.update(f"{split} {len(images)}\n".encode())
            for name, label in zip(images.paths, images.labels, strict=True):
                digest.update(f"{label}\t{name}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()


def find(path: Path, validation_labels: Path | None, processes: int, progress: OnCount = uncounted) -> Source:
    """The images at ``path``. Where a split is there as a tar file and as a folder, the tar file is taken.

    ``validation_labels`` is a file with one class per line, in the order of the images in the validation tar, or in a
    folder of validation images without classes; or Kaggle's table of these, which is found by itself. ``progress`` counts
    the classes of the training tar that are listed. Raises DataError.
    """
    training_tar, validation_tar = path / TRAIN_TAR, path / VALIDATION_TAR
    folders = [path / name for name in index.VALIDATION if (path / name).is_dir()]
    flat = next((folder for folder in folders if _is_flat(folder)), None)
    if validation_labels and not validation_tar.is_file() and not flat:
        raise DataError(
            f"--validation-labels is for {VALIDATION_TAR} or a folder val/ without classes, and {path} has neither"
        )
    left_out = ""
    try:
        training = _training(training_tar, processes, progress) if training_tar.is_file() else _folder(path)
        classes = _classes(training.paths)
        splits = {TRAIN: training}
        if validation_tar.is_file():
            splits[VALIDATION] = _validation(validation_tar, validation_labels, classes)
        elif (path / TRAIN).is_dir() or training_tar.is_file():  # a folder of classes alone has no other images
            if len(folders) > 1:
                raise DataError(
                    f"{folders[0]} and {folders[1]} are both there; only one can hold the validation images"
                )
            above = (each / KAGGLE for each in (path.resolve(), *path.resolve().parents))
            labels = validation_labels or next(filter(Path.exists, above), None)
            if flat and labels:
                splits[VALIDATION] = _flat(flat, labels, classes)
            elif flat:
                left_out = f"{flat} has no folders of classes: give --validation-labels FILE with one class per line"
            elif folders:
                splits[VALIDATION] = index.labelled_as(training, _folder(folders[0], every=False))
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"a tar file in {path} is damaged or cut short: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {error.filename or path}: {error.strerror}") from None
    return Source(str(path.absolute()), classes, splits, left_out)


def _folder(path: Path, every: bool = True) -> ImageIndex:
    try:
        return index.scan(path, sys.maxsize, every)
    except NoImages as error:
        raise NoImages(error.why, f"{LAYOUT}{index.instead(path)}") from None


def _is_flat(folder: Path) -> bool:
    """Tell whether a folder holds images, and no folders of classes."""
    return not index.names_in(folder, folders=True) and bool(index.names_in(folder, folders=False))


def _flat(folder: Path, labels: Path, classes: Sequence[str]) -> FlatImages:
    images, lines = index.names_in(folder, folders=False), lines_of(labels)
    if lines[0].startswith("ImageId,"):  # Kaggle's: the image, the class, and its boxes
        known = {image: name.split(" ")[0] for image, _, name in (line.partition(",") for line in lines[1:])}
        if missing := [image for image in images if not known.get(Path(image).stem)]:
            raise DataError(f"{labels} does not say which class {missing[0]} is of")
        lines = [known[Path(image).stem] for image in images]
    if len(lines) != len(images):
        raise DataError(f"{labels} has {len(lines)} lines for the {len(images)} images of {folder}")
    named = sorted(f"{name}/{image}" for name, image in zip(lines, images, strict=True))
    return FlatImages(str(folder.absolute()), named, _labels([*map(class_of, named)], classes, labels))


def _classes(names: Sequence[str]) -> list[str]:
    return sorted(set(map(class_of, names)))


def _labels(names: Sequence[str], classes: Sequence[str], where: Path) -> Sequence[int]:
    """The labels of classes, given the names of all in order. Raises DataError for a name that is not among them."""
    label_of = {name: label for label, name in enumerate(classes, 1)}
    if unknown := next((name for name in names if name not in label_of), None):
        raise DataError(f"{where}: no training image is of the class {shown(unknown)}")
    return array("i", [label_of[name] for name in names])


# --- tar files ---------------------------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A file in a tar file: where in it its bytes are."""

    name: str
    offset: int
    length: int

    def of_class(self, name: str) -> "Member":
        return self._replace(name=f"{name}/{self.name}")


def _training(tar: Path, processes: int, progress: OnCount) -> ImageIndex:
    inner = [member for member in _members(str(tar)) if member.name.endswith(".tar")]
    if not inner:
        raise DataError(f"{tar} holds no tar files of classes, such as n01440764.tar; {LAYOUT}")
    images: list[Member] = []
    listed = partial(_listed, str(tar))
    for of_class in pool.results(listed, inner, processes, lambda done: progress(done, len(inner))):
        images += of_class
    return _located(tar, images, _classes([image.name for image in images]))


def _validation(tar: Path, labels: Path | None, classes: Sequence[str]) -> ImageIndex:
    if labels is None:
        raise DataError(
            f"{tar} does not say which class its images are of: give --validation-labels FILE with one class per line in "
            f"the images' order, such as the TensorFlow models' imagenet_2012_validation_synset_labels.txt"
        )
    images, names = sorted(_images(str(tar))), lines_of(labels)
    if len(names) != len(images):
        raise DataError(f"{labels} has {len(names)} lines for the {len(images)} images of {tar}")
    _labels(names, classes, labels)
    return _located(tar, [image.of_class(name) for name, image in zip(names, images, strict=True)], classes)


def _located(tar: Path, images: Sequence[Member], classes: Sequence[str]) -> ImageIndex:
    names, offsets, lengths = zip(
        *sorted(images, key=lambda image: image.name.split("/")), strict=True
    )  # as in folders
    labels = _labels([*map(class_of, names)], classes, tar)
    return TarImages(str(tar.absolute()), names, labels, array("q", offsets), array("q", lengths))


def _listed(path: str, inner: Member) -> list[Member]:
    """The images of the class whose tar file is ``inner``. Raises DataError. In a pool."""
    name = Path(inner.name).stem
    where = f"{path}: {name}.tar in it"
    try:
        images = [image.of_class(name) for image in _images(path, inner.offset, inner.offset + inner.length)]
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{where} is damaged or cut short: {error}") from None
    if not images:
        raise DataError(f"{where} holds no images (*.JPEG, *.jpg, *.jpeg)")
    pool.advance(1)
    return images


def _members(path: str, offset: int = 0, end: int | None = None) -> Iterator[Member]:
    """The files in the tar file at these bytes of a file, with offsets in the file. Raises TarError if it is damaged."""
    with open(path, "rb") as file:  # noqa: PTH123
        end = os.fstat(file.fileno()).st_size if end is None else end
        file.seek(offset)
        following = offset
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                if member.offset >= end:  # it has no end of its own, and this belongs to the tar file around it
                    return
                following = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                if member.isreg():
                    yield Member(member.name, member.offset_data, member.size)
        # Python takes whatever is no header for the end of the file. The end is zeros, of a record at most.
        file.seek(following)
        if end - following > LONGEST_RECORD or file.read(max(end - following, 0)).strip(b"\0"):
            raise tarfile.ReadError(f"no file begins at byte {following}")


def _images(path: str, offset: int = 0, end: int | None = None) -> Iterator[Member]:
    for member in _members(path, offset, end):
        name = member.name.rpartition("/")[2]
        if name.lower().endswith(index.SUFFIXES) and not name.startswith("."):
            yield member._replace(name=name)


# --- text --------------------------------------------------------------------------------------------------------------


def class_texts(file: Path, classes: Sequence[str]) -> dict[str, str]:
    """The name of each class for people, from lines ``class<TAB>text``. Raises DataError when one is missing."""
    texts: dict[str, str] = {}
    for number, line in enumerate(lines_of(file), 1):
        name, tab, text = line.partition("\t")
        if not tab:
            raise DataError(f"{file}, line {number}: expected a class, a tab and what the class is called")
        texts[name] = text
    if missing := [name for name in classes if name not in texts]:
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise DataError(f"{file} does not say what the class {shown(missing[0])}{others} is called")
    return {name: texts[name] for name in classes}


def lines_of(file: Path) -> list[str]:
    """The lines of a text file, without empty ones at its end. Raises DataError."""
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8-sig").rstrip().split("\n")]
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{file} is not a text file in UTF-8") from None


def shown(name: str) -> str:
    """A file name that may not be UTF-8, for people and JSON."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")

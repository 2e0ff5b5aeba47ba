"""Where the images of a conversion come from: ImageNet's folders, or its tar files as they are downloaded.

Controller side. Tar files are not unpacked: listing one tells where in it each image begins.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from harness.datasets import pool
from harness.worker.inputs import index
from harness.worker.inputs.errors import DataError

TRAIN, VALIDATION = "train", "validation"
TRAIN_TAR, VALIDATION_TAR = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
LONGEST_RECORD = 1 << 20  # what a tar file may be filled up to with zeros; most programs take 10 KiB
LAYOUT = (
    f"expected SRC/train/<class>/*.JPEG with or without SRC/val/<class>/*.JPEG, SRC/<class>/*.JPEG, "
    f"or {TRAIN_TAR} with or without {VALIDATION_TAR}"
)


@dataclass(frozen=True)
class Images:
    """The images of a split, ordered by class and file name.

    ``names`` are ``<class>/<file>``, ``labels`` are 1…C. The bytes of an image are those of the file ``root/<name>``; or,
    where there are ``offsets``, ``lengths`` bytes of the file ``root`` from there.
    """

    root: str
    names: Sequence[str]
    labels: Sequence[int]
    offsets: Sequence[int] = ()
    lengths: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.names)

    def where(self, image: int) -> Place:
        """Where the bytes of an image are, given its number."""
        if self.offsets:
            return Place(self.root, self.offsets[image], self.lengths[image])
        return Place(os.path.join(self.root, self.names[image]), 0, None)  # noqa: PTH118 - a million times


class Place(NamedTuple):
    """Bytes of a file: the whole file where ``length`` is None."""

    path: str
    offset: int
    length: int | None

    def read(self) -> bytes:
        """The bytes. Raises OSError, also when the file ends before them."""
        with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123
            if self.length is None:
                return file.read()
            contents = os.pread(file.fileno(), self.length, self.offset)
        if len(contents) < self.length:
            raise OSError(0, "the file has become shorter", self.path)
        return contents


@dataclass(frozen=True)
class Source:
    """What to convert: ``path`` as given, the classes' names in the order of their labels, the images by split."""

    path: str
    classes: Sequence[str]
    splits: Mapping[str, Images]

    def digest(self) -> str:
        """The SHA-256 of the names and labels of all images: the same for folders and for tar files of them."""
        digest = hashlib.sha256()
        for split, images in self.splits.items():
            digest.update(f"{split} {len(images)}\n".encode())
            for name, label in zip(images.names, images.labels, strict=True):
                digest.update(f"{label}\t{name}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()


def find(
    path: Path,
    validation_labels: Path | None,
    workers: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Source:
    """The images at ``path``. Where a split is there as a tar file and as a folder, the tar file is taken.

    ``validation_labels`` is a file with one class per line, in the order of the images in the validation tar. Listing the
    training tar takes ``workers`` processes; ``progress`` hears how many of its classes are listed, and of how many. Raises
    DataError.
    """
    training_tar, validation_tar = path / TRAIN_TAR, path / VALIDATION_TAR
    if validation_labels and not validation_tar.is_file():
        raise DataError(f"--validation-labels is for {VALIDATION_TAR}, which is not in {path}")
    try:
        training = _training(training_tar, workers, progress) if training_tar.is_file() else _folder(path)
        classes = sorted({_class(name) for name in training.names})
        if validation_tar.is_file():
            return _source(path, classes, training, _validation(validation_tar, validation_labels, classes))
        return _source(path, classes, training, _validation_folder(path, classes))
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"a tar file in {path} is damaged or cut short: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {error.filename or path}: {error.strerror}") from None


def folders(path: Path) -> Source:
    """The images at ``path`` in ImageNet's folder layout. Raises DataError."""
    training = _folder(path)
    classes = sorted({_class(name) for name in training.names})
    return _source(path, classes, training, _validation_folder(path, classes))


def _source(path: Path, classes: Sequence[str], training: Images, validation: Images | None) -> Source:
    splits = {TRAIN: training} if validation is None else {TRAIN: training, VALIDATION: validation}
    return Source(str(path.absolute()), classes, splits)


def _folder(path: Path) -> Images:
    try:
        found = index.scan(path, sys.maxsize)
    except DataError as error:
        raise DataError(f"{str(error).partition(';')[0]}; {LAYOUT}") from None
    return Images(found.root, found.paths, found.labels)


def _validation_folder(path: Path, classes: Sequence[str]) -> Images | None:
    """The images beside those for training. A folder of classes alone has none."""
    there = [path / name for name in (VALIDATION, "val") if (path / name).is_dir()]
    if not there or not ((path / TRAIN).is_dir() or (path / TRAIN_TAR).is_file()):
        return None
    if len(there) > 1:
        raise DataError(f"{there[0]} and {there[1]} are both there; only one can hold the validation images")
    found = _folder(there[0])
    return Images(found.root, found.names, _labels([_class(name) for name in found.names], classes, there[0]))


def _class(name: str) -> str:
    return name.partition("/")[0]


def _labels(names: Sequence[str], classes: Sequence[str], where: Path) -> Sequence[int]:
    """The labels of classes, given the names of all in order. Raises DataError for a name that is not among them."""
    label_of = {name: label for label, name in enumerate(classes, 1)}
    if unknown := next((name for name in names if name not in label_of), None):
        raise DataError(f"{where}: no training image is of the class {shown(unknown)}")
    return array("i", [label_of[name] for name in names])


# --- tar files ---------------------------------------------------------------------------------------------------------


class Section(NamedTuple):
    """A tar file within a tar file: that of a class."""

    path: str
    name: str
    offset: int
    end: int


class Member(NamedTuple):
    """An image in a tar file: its name is ``<class>/<file>``."""

    name: str
    offset: int
    length: int


def _training(tar: Path, workers: int, progress: Callable[[int, int], None]) -> Images:
    sections = [
        Section(str(tar), Path(inner.name).stem, inner.offset_data, inner.offset_data + inner.size)
        for inner in _members(str(tar))
        if inner.name.endswith(".tar")
    ]
    if not sections:
        raise DataError(f"{tar} holds no tar files of classes, such as n01440764.tar; {LAYOUT}")
    images: list[Member] = []
    pool.run(_listed, sections, min(workers, len(sections)), images.extend, lambda done: progress(done, len(sections)))
    return _located(tar, images, sorted({_class(image.name) for image in images}))


def _validation(tar: Path, labels: Path | None, classes: Sequence[str]) -> Images:
    if labels is None:
        raise DataError(
            f"{tar} does not say which class its images are of: give --validation-labels FILE with one class per line in "
            f"the images' order, such as the TensorFlow models' imagenet_2012_validation_synset_labels.txt"
        )
    found = sorted(_images(_members(str(tar))))
    named = lines_of(labels)
    if len(named) != len(found):
        raise DataError(f"{labels} has {len(named)} lines for the {len(found)} images of {tar}")
    _labels(named, classes, labels)
    members = [Member(f"{name}/{image.name}", *image[1:]) for name, image in zip(named, found, strict=True)]
    return _located(tar, members, classes)


def _located(tar: Path, images: Sequence[Member], classes: Sequence[str]) -> Images:
    images = sorted(images, key=lambda image: image.name.split("/"))  # as folders and the files in them are
    return Images(
        str(tar.absolute()),
        [image.name for image in images],
        _labels([_class(image.name) for image in images], classes, tar),
        array("q", [image.offset for image in images]),
        array("q", [image.length for image in images]),
    )


def _listed(section: Section) -> list[Member]:
    """The images of a class. Raises DataError; it is called in a pool."""
    where = f"{section.path}: {section.name}.tar in it"
    try:
        images = [*_images(_members(section.path, section.offset, section.end))]
    except (tarfile.TarError, EOFError) as error:
        raise DataError(f"{where} is damaged or cut short: {error}") from None
    if not images:
        raise DataError(f"{where} holds no images (*.JPEG, *.jpg, *.jpeg)")
    pool.advance(1)
    return [Member(f"{section.name}/{image.name}", *image[1:]) for image in images]


def _members(path: str, offset: int = 0, end: int | None = None) -> Iterator[tarfile.TarInfo]:
    """The files in the tar file at bytes ``offset`` to ``end`` of a file. Their offsets count from that file's beginning.

    Raises tarfile.TarError for one that is damaged or cut short.
    """
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
                    yield member
        # Python takes whatever is no header for the end of the file. The end is zeros, of a record at most.
        file.seek(following)
        if end - following > LONGEST_RECORD or file.read(max(end - following, 0)).strip(b"\0"):
            raise tarfile.ReadError(f"no file begins at byte {following}")


def _images(members: Iterator[tarfile.TarInfo]) -> Iterator[Member]:
    for member in members:
        name = member.name.rpartition("/")[2]
        if name.lower().endswith(index.SUFFIXES) and not name.startswith("."):
            yield Member(name, member.offset_data, member.size)


# --- text --------------------------------------------------------------------------------------------------------------


def class_texts(file: Path, classes: Sequence[str]) -> dict[str, str]:
    """What each class is called for people, from lines ``class<TAB>text``. Raises DataError when one is missing."""
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
        return [line.strip() for line in file.read_text().rstrip().split("\n")]
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{file} is not a text file in UTF-8") from None


def shown(name: str) -> str:
    """A file name that may not be UTF-8, for people and JSON."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")

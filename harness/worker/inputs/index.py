"""Which images there are: a folder of JPEGs for each class, or TFRecord shards. NumPy; Python 3.9.

The controller looks once and writes what it found into the run directory, so that 512 ranks read one file instead of
listing 1.28 million on the parallel file system.
"""

from __future__ import annotations

import itertools
import os
from array import array
from dataclasses import dataclass, replace
from pathlib import Path
from typing import List, Sequence, Union

import numpy as np

from harness.worker.inputs import order, shards
from harness.worker.inputs.errors import DataError
from harness.worker.inputs.page_cache import Extent

SUFFIXES = (".jpeg", ".jpg")  # in any case
LAYOUT = "expected PATH/<class>/*.JPEG, PATH/train/<class>/*.JPEG, or shards PATH/train-00000-of-00016 …"
VALIDATION = ("val", "validation")  # folders
MAGIC = "# harness image index 1"
ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class ImageIndex:
    """The images of a data set, ordered by class and name.

    ``paths`` are relative to ``root``. ``labels`` are 1…C in the classes' order: class 0 is the background, as in
    tf_cnn_benchmarks' ImageNet with its 1001 classes.
    """

    root: str
    paths: Sequence[str]
    labels: Sequence[int]

    chunk = 1

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, image: int) -> str:
        """The absolute path of an image, given its number."""
        return os.path.join(self.root, self.paths[image])  # noqa: PTH118 - a million times per epoch

    def extent(self, image: int) -> Extent:
        """The bytes of an image: all of its file."""
        return Extent(self.path(image))

    def chunks(self) -> np.ndarray:
        """Every image by itself, int64 [m, 2]: see ``order``."""
        return order.chunks(np.array([len(self)]), self.chunk)


Index = Union[ImageIndex, shards.ShardIndex]


def find(path: Union[str, Path], split: str, num_classes: int = 1001) -> Index:
    """The images of a split, "train" or "validation", of a data set in either layout.

    Raises DataError for whatever makes it unusable, the damaged shard by name; OSError.
    """
    root = _folder(path)
    if shards.there_are(root):
        return shards.find(root, split)
    if split == "train":
        return scan(root, num_classes)
    validation = next((root / name for name in VALIDATION if (root / name).is_dir()), None)
    if validation is None or not (root / "train").is_dir():
        raise DataError(
            f"no validation images in {root}; expected PATH/train/<class>/*.JPEG and PATH/val/<class>/*.JPEG"
        )
    return labelled_as(_listed(root / "train", num_classes), _listed(validation, num_classes))


def labelled_as(training: ImageIndex, images: ImageIndex) -> ImageIndex:
    """``images`` with the labels of their classes in ``training``. Raises DataError for a class that is not there."""
    labels = dict(zip(map(class_of, training.paths), training.labels))
    if unknown := sorted({name for name in map(class_of, images.paths) if name not in labels}):
        raise DataError(f"{images.root}/{unknown[0]} is a class that {training.root} does not have")
    return replace(images, labels=array("i", [labels[class_of(path)] for path in images.paths]))


def class_of(path: str) -> str:
    """The class of an image, given its path relative to the root."""
    return path.partition("/")[0]


def scan(path: Union[str, Path], num_classes: int = 1001) -> ImageIndex:
    """List ``path/<class>/*.JPEG`` (or .jpg, .jpeg, in any case), or ``path/train/<class>/…`` where train/ exists.

    Classes are the folders that hold an image, sorted by name; a class's label is its position + 1. Hidden files and
    folders are passed over. Raises DataError when the path is no folder, holds no classes or no images, or holds more
    than ``num_classes - 1`` classes.
    """
    root = _folder(path)
    return _listed(root / "train" if (root / "train").is_dir() else root, num_classes)


def _folder(path: Union[str, Path]) -> Path:
    root = Path(path).absolute()
    if not root.is_dir():
        raise DataError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}; {LAYOUT}")
    return root


def _listed(root: Path, num_classes: int) -> ImageIndex:
    try:
        folders = _names(root, folders=True)
        classes = {name: images for name in folders if (images := _names(root / name, folders=False))}
    except OSError as error:
        raise DataError(f"cannot list {error.filename}: {error.strerror}") from error
    if not folders:
        raise DataError(f"no class folders in {root}; {LAYOUT}")
    if not classes:
        raise DataError(f"no images (*.JPEG, *.jpg, *.jpeg) in the {len(folders)} folders of {root}; {LAYOUT}")
    if len(classes) >= num_classes:
        raise DataError(
            f"{root} holds {len(classes)} classes, but a model of {num_classes} classes takes {num_classes - 1} "
            f"(class 0 is the background)"
        )
    return ImageIndex(
        root=str(root),
        paths=[f"{name}/{image}" for name, images in classes.items() for image in images],
        labels=array("i", [label for label, images in enumerate(classes.values(), 1) for _ in images]),
    )


def _names(folder: Path, folders: bool) -> List[str]:
    """The sorted names of a folder's folders, or of its images."""
    # scandir learns an entry's type from the listing itself; is_file() on a Path would stat every image.
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if not entry.name.startswith(".")
            and (entry.is_dir() if folders else entry.name.lower().endswith(SUFFIXES) and entry.is_file())
        )


def write(index: Index, file: Union[str, Path]) -> None:
    """Write an index: of files as text, three header lines and ``label<TAB>relative path`` per image; of shards as arrays.

    Raises DataError when a name holds a tab or a newline, which the text cannot express.
    """
    if isinstance(index, shards.ShardIndex):
        shards.write(index, Path(file))
        return
    for name in itertools.chain([index.root], index.paths):
        if "\n" in name or "\t" in name:
            raise DataError(f"rename {name!r}: a tab or a newline in a file name cannot be indexed")
    lines = [MAGIC, f"root\t{index.root}", f"images\t{len(index)}"]
    lines += [f"{label}\t{path}" for label, path in zip(index.labels, index.paths)]
    # surrogateescape carries names that are not UTF-8; newline="\n" leaves a carriage return in a name alone.
    with Path(file).open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        stream.write("\n".join(lines) + "\n")


def read(file: Union[str, Path]) -> Index:
    """Read what ``write`` wrote. Raises DataError when the file is not an index, or is cut short."""
    with Path(file).open("rb") as stream:
        archive = stream.read(len(ZIP)) == ZIP
    if archive:
        return shards.read(Path(file))
    with Path(file).open(encoding="utf-8", errors="surrogateescape", newline="\n") as text:
        magic, *lines = text.read().split("\n")  # not splitlines(), which also splits at exotic characters
    if magic != MAGIC:
        raise DataError(f"{file} is not an image index: its first line is not {MAGIC!r}")
    if len(lines) < 3 or len(lines) - 3 != int(lines[1].partition("\t")[2] or -1):  # root, images, …, after the last \n
        raise DataError(f"{file} is cut short; write the index again")
    labels, paths = array("i"), []
    for line in lines[2:-1]:
        label, _, path = line.partition("\t")
        labels.append(int(label))
        paths.append(path)
    return ImageIndex(lines[0].partition("\t")[2], paths, labels)

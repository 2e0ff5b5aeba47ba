"""Which images there are, and which rank reads which of them when. Standard library only; Python 3.9.

The controller scans the data set once and writes the list into the run directory, so that 512 ranks read one file
instead of listing 1.28 million on the parallel file system.
"""

from __future__ import annotations

import itertools
import os
from array import array
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Iterator, List, Sequence, Tuple, Union

SUFFIXES = (".jpeg", ".jpg")  # in any case
LAYOUT = "expected PATH/<class>/*.JPEG or PATH/train/<class>/*.JPEG"
MAGIC = "# harness image index 1"


class DataError(ValueError):
    """The data set cannot be used. The message is one line and names what to mend."""


class BadImage(DataError):
    """One image cannot be read or decoded. Carries ``path`` and ``reason`` across process borders."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)  # both become args, which is what pickle hands back to this constructor
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"bad image {self.path}: {self.reason}"


@dataclass(frozen=True)
class ImageIndex:
    """The images of a data set, ordered by class and name.

    ``paths`` are relative to ``root``. ``labels`` are 1…C in the classes' order: class 0 is the background, as in
    tf_cnn_benchmarks' ImageNet with its 1001 classes.
    """

    root: str
    paths: Sequence[str]
    labels: Sequence[int]

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, image: int) -> str:
        """The absolute path of an image, given its number."""
        return os.path.join(self.root, self.paths[image])  # noqa: PTH118 - a million times per epoch


def scan(path: Union[str, Path], num_classes: int = 1001) -> ImageIndex:
    """List ``path/<class>/*.JPEG`` (or .jpg, .jpeg, in any case), or ``path/train/<class>/…`` where train/ exists.

    Classes are the folders that hold an image, sorted by name; a class's label is its position + 1. Hidden files and
    folders are passed over. Raises DataError when the path is no folder, holds no classes or no images, or holds more
    than ``num_classes - 1`` classes.
    """
    root = Path(path).absolute()
    if not root.exists():
        raise DataError(f"{root} does not exist; {LAYOUT}")
    if not root.is_dir():
        raise DataError(f"{root} is not a folder; {LAYOUT}")
    if (root / "train").is_dir():
        root = root / "train"
    try:
        folders = _names(root, folders=True)
        classes = [(name, images) for name in folders if (images := _names(root / name, folders=False))]
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
        paths=[f"{name}/{image}" for name, images in classes for image in images],
        labels=array("i", [label for label, (_, images) in enumerate(classes, 1) for _ in images]),
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


def write(index: ImageIndex, file: Union[str, Path]) -> None:
    """Write an index as text: three header lines, then ``label<TAB>relative path`` per image.

    Raises DataError when a name holds a tab or a newline, which the format cannot express.
    """
    for name in itertools.chain([index.root], index.paths):
        if "\n" in name or "\t" in name:
            raise DataError(f"rename {name!r}: a tab or a newline in a file name cannot be indexed")
    lines = [MAGIC, f"root\t{index.root}", f"images\t{len(index)}"]
    lines += [f"{label}\t{path}" for label, path in zip(index.labels, index.paths)]
    # surrogateescape carries names that are not UTF-8; newline="\n" leaves a carriage return in a name alone.
    with Path(file).open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        stream.write("\n".join(lines) + "\n")


def read(file: Union[str, Path]) -> ImageIndex:
    """Read what ``write`` wrote. Raises DataError when the file is not an index, or is cut short."""
    with Path(file).open(encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
        magic, *lines = stream.read().split("\n")  # not splitlines(), which also splits at exotic characters
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


def check_world(count: int, world: int) -> None:
    """Raise DataError when there are fewer images than ranks, so that some rank would have nothing to read."""
    if count < world:
        raise DataError(f"{count} images for {world} ranks: every rank needs at least one")


def shard(count: int, rank: int, world: int, epoch: int, seed: int) -> Sequence[int]:
    """The image numbers that a rank reads in an epoch, in order.

    All ranks and frameworks deal from one shuffle of (seed, epoch); the shards are disjoint, cover all ``count``
    images, and differ in length by one at most. Raises DataError when there are fewer images than ranks.
    """
    check_world(count, world)
    # Sorting by random() and not shuffle(): only random()'s sequence is promised to stay the same across Pythons.
    random = Random(f"{seed}/{epoch}")  # noqa: S311 - no secret
    keys = [random.random() for _ in range(count)]
    return sorted(range(count), key=keys.__getitem__)[rank::world]


def order(count: int, rank: int, world: int, seed: int) -> Iterator[Tuple[int, int]]:
    """Every (epoch, image number) that a rank reads, in order, without end."""
    for epoch in itertools.count():
        for image in shard(count, rank, world, epoch, seed):
            yield epoch, image

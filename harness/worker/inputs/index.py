"""The images of a data set: a folder of JPEGs for each class, or TFRecord shards. NumPy; Python 3.9.

The controller looks once and writes the index into the run directory, so that 512 ranks read one file instead of
listing 1.28 million on the parallel file system. Shards are named as everyone who trains ImageNet with TensorFlow names
them: ``train-00000-of-01024`` and so on, and ``validation-00000-of-00128``.
"""

from __future__ import annotations

import os
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Dict, List, Sequence, Tuple, Union

import numpy as np

from harness.worker.inputs import tfrecord
from harness.worker.inputs.errors import DataError
from harness.worker.inputs.page_cache import Extent

SUFFIXES = (".jpeg", ".jpg")  # in any case
LAYOUT = "expected PATH/<class>/*.JPEG, PATH/train/<class>/*.JPEG, or shards PATH/train-00000-of-00016 …"
VALIDATION = ("val", "validation")  # folders
SPLITS = {"train": ("train",), "validation": ("validation", "val")}  # names of their shards, and of folders with them
NO_CLASS = ("lost+found", "@eaDir", "__MACOSX")  # folders that file systems and programs make
# The files of data sets in other layouts, by the end of their names, and what would work.
_OTHERS = (
    (r"\.gz|\.zip|\.zst", "compressed files", "unpack them"),
    (r"\.tar", "tar files", "write their images into a folder for each class"),
    (
        r"\.tfrecord.*",
        "shards with other names, and often other keys",
        "write shards of the usual form from the images they came from",
    ),
    (r"\.rec", "files of MXNet's RecordIO", "unpack them into a folder for each class"),
    (r"\.mdb", "files of an LMDB", "unpack it into a folder for each class"),
    (r"\.parquet|\.arrow", "tables", "write their images into a folder for each class"),
    (r"\.png|\.bmp|\.gif|\.webp|\.ppm", "images that are not JPEG", "convert them to JPEG"),
    (r"\.jpe?g", "JPEGs that are in no folder of a class, or one too deep", "move them to PATH/train/<class>/"),
)
SHARD_NAME = re.compile(r"(?P<split>[^.]+)-(?P<number>\d{5})-of-(?P<of>\d{5})")
FOLDERS = 500  # that are looked at to say what there is in place of a data set
THREADS = 32  # that read records' headers: they wait for the file system, not for the processor


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

    def extent(self, image: int) -> Extent:
        return Extent(os.path.join(self.root, self.paths[image]))  # noqa: PTH118 - a million times per epoch

    def chunks(self) -> np.ndarray:
        """Every image by itself, int64 [m, 2]: see ``order``."""
        numbers = np.arange(len(self) + 1)
        return np.stack([numbers[:-1], numbers[1:]], 1)


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """The records of a data set's shards, in order.

    ``names`` are relative to ``root``; ``counts`` int64 [shards] are their records, ``lengths`` int64 [images] the bytes of
    each record's data, from which follows where it is. Labels are in the records.
    """

    root: str
    names: Sequence[str]
    counts: np.ndarray
    lengths: np.ndarray

    chunk = 16  # records that are read one after the other: about 2 MB of photographs

    @cached_property
    def firsts(self) -> np.ndarray:
        """The first image of each shard, and the number of images: int64 [shards + 1]."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def offsets(self) -> np.ndarray:
        """The byte of its shard at which each image's data begin, int64 [images]."""
        begins = np.cumsum(self.lengths + tfrecord.OVERHEAD) - (self.lengths + tfrecord.OVERHEAD)
        return begins - np.repeat(begins[self.firsts[:-1]], self.counts) + tfrecord.HEADER.size

    def __len__(self) -> int:
        return len(self.lengths)

    def extent(self, image: int) -> Extent:
        """The bytes with the data of an image's record, without the record's header."""
        shard = int(np.searchsorted(self.firsts, image, side="right")) - 1
        path = os.path.join(self.root, self.names[shard])  # noqa: PTH118 - a million times per epoch
        return Extent(path, int(self.offsets[image]), int(self.lengths[image]))

    def run(self, begin: int, end: int) -> Extent:
        """The bytes of a run of images of one shard, from the data of the first to those of the last."""
        first, last = self.extent(begin), self.extent(end - 1)
        return Extent(first.path, first.offset, last.offset + last.length - first.offset)

    def chunks(self) -> np.ndarray:
        """Runs of records within one shard, int64 [m, 2]; a shard's last one may be shorter."""
        firsts = self.firsts.tolist()
        begins = np.concatenate([np.arange(*shard, self.chunk) for shard in zip(firsts, firsts[1:])])
        return np.stack([begins, np.append(begins[1:], len(self))], 1)


Index = Union[ImageIndex, ShardIndex]


def write(index: Index, file: Union[str, Path]) -> None:
    if isinstance(index, ImageIndex):
        paths = np.frombuffer(b"\0".join(map(os.fsencode, index.paths)), np.uint8)
        arrays = {"paths": paths, "labels": np.array(index.labels, np.int32)}
    else:
        arrays = {"names": np.array(index.names), "counts": index.counts, "lengths": index.lengths}
    with Path(file).open("wb") as stream:  # given a name, NumPy would append .npz to it
        np.savez(stream, root=np.array(index.root), **arrays)  # type: ignore[arg-type]


def read(file: Union[str, Path]) -> Index:
    """Read what ``write`` wrote. Raises DataError when it is something else, or cut short."""
    try:
        with np.load(file, allow_pickle=False) as held:
            root = str(held["root"])
            if "paths" in held:
                paths = [os.fsdecode(path) for path in held["paths"].tobytes().split(b"\0")]
                return ImageIndex(root, paths, held["labels"].tolist())
            return ShardIndex(root, held["names"].tolist(), held["counts"], held["lengths"])
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{file} is no image index, or is cut short; write it again") from error


def find(path: Union[str, Path], split: str, num_classes: int = 1001) -> Index:
    """The images of a split, "train" or "validation", in either layout. Raises DataError, OSError."""
    root = folder_at(path)
    if holds_shards(root):
        return _shards(root, split)
    if split == "train":
        return scan(root, num_classes)
    validation = next((root / name for name in VALIDATION if (root / name).is_dir()), None)
    if validation is None or not (root / "train").is_dir():
        raise DataError(
            f"no validation images in {root}; expected PATH/train/<class>/*.JPEG and PATH/val/<class>/*.JPEG"
        )
    return labelled_as(scan(root, num_classes), scan(validation, num_classes, every=False))


# --- folders of images -------------------------------------------------------------------------------------------------


def scan(path: Union[str, Path], num_classes: int = 1001, every: bool = True) -> ImageIndex:
    """List ``path/<class>/*.JPEG``, or ``path/train/<class>/*.JPEG`` where train/ exists. Raises DataError.

    Classes are the folders that hold an image, sorted by name; a class's label is its position + 1. Hidden files and
    folders are passed over, and what holds other files. ``every`` class has to have images.
    """
    root = folder_at(path)
    root = root / "train" if (root / "train").is_dir() else root
    try:
        folders = names_in(root, folders=True)
        classes = {name: images for name in folders if (images := names_in(root / name, folders=False))}
    except OSError as error:
        raise DataError(f"cannot list {error.filename}: {error.strerror}") from error
    if not folders:
        raise DataError(f"no class folders in {root}; {LAYOUT}{instead(root)}")
    if not classes:
        raise DataError(
            f"no images (*.JPEG, *.jpg, *.jpeg) in the {len(folders)} folders of {root}; {LAYOUT}{instead(root)}"
        )
    without = [name for name in folders if every and name not in classes]
    if empty := [name for name in without if not any((root / name).iterdir())]:
        of = f"{len(empty)} of {len(folders)} folders"
        raise DataError(f"{root}/{empty[0]} is empty ({of}): fill it or remove it, for classes are counted")
    packed = sorted(file.name for file in root.glob("n[0-9]*.tar") if file.stem not in classes)
    if packed:
        raise DataError(f"{root}/{packed[0]} is not unpacked, beside a folder of {next(iter(classes))}")
    if len(classes) >= num_classes:
        raise DataError(
            f"{root} holds {len(classes)} classes, but a model of {num_classes} classes takes {num_classes - 1} "
            f"(class 0 is the background)"
        )
    paths = [f"{name}/{image}" for name, images in classes.items() for image in images]
    if broken := next((path for path in paths if "\n" in path), None):
        raise DataError(f"rename {broken!r} in {root}: messages that name a file are one line")
    return ImageIndex(str(root), paths, [label for label, images in enumerate(classes.values(), 1) for _ in images])


def labelled_as(training: ImageIndex, images: ImageIndex) -> ImageIndex:
    """``images`` with the labels of their classes in ``training``. Raises DataError for a class that is not there."""
    labels = dict(zip(map(class_of, training.paths), training.labels))
    if unknown := sorted({name for name in map(class_of, images.paths) if name not in labels}):
        raise DataError(f"{images.root}/{unknown[0]} is a class that {training.root} does not have")
    return replace(images, labels=[labels[class_of(path)] for path in images.paths])


def class_of(path: str) -> str:
    return path.partition("/")[0]


def folder_at(path: Union[str, Path]) -> Path:
    """The folder of a data set. Raises DataError if there is none."""
    root = Path(path).absolute()
    if not root.is_dir():
        raise DataError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}; {LAYOUT}")
    return root


def names_in(folder: Path, folders: bool) -> List[str]:
    """The sorted names of a folder's folders, or of its images."""
    # scandir learns an entry's type from the listing itself; is_file() on a Path would stat every image.
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if not entry.name.startswith(".")
            and entry.name not in NO_CLASS
            and (entry.is_dir() if folders else entry.name.lower().endswith(SUFFIXES) and entry.is_file())
        )


# --- shards ------------------------------------------------------------------------------------------------------------


def name_of(split: str, number: int, of: int) -> str:
    return f"{split}-{number:05}-of-{of:05}"


def holds_shards(root: Path) -> bool:
    return any(_present(root, split)[1] for split in SPLITS)


def _present(root: Path, split: str) -> Tuple[Path, Dict[str, int], str]:
    """The folder with the shards of a split, in ``root`` or below, their numbers by name, and what the split is called."""
    for folder in (root, *(root / name for name in SPLITS[split])):
        matches = [SHARD_NAME.fullmatch(file.name) for file in folder.iterdir()] if folder.is_dir() else []
        for name in SPLITS[split]:
            present = {match[0]: int(match["of"]) for match in matches if match and match["split"] == name}
            if present:
                return folder, present, name
    return root, {}, split


def instead(root: Path) -> str:
    """The files at ``root`` in place of a data set, and what would work: a clause, "" where nothing is known."""
    examples: Dict[str, str] = {}  # of each kind
    for number, (place, folders, files) in enumerate(os.walk(root)):
        if number == FOLDERS:
            break
        below = Path(place).relative_to(root)
        folders[:] = sorted(folders)[:10] if len(below.parts) < 4 else []
        if below.parts and "train" in folders and next(Path(place, "train").glob("*/*"), None):
            return f"; there is a folder train/ in {below}: give {root / below}"
        for name in sorted(files)[:100]:
            kind = next((kind for kind, *_ in _OTHERS if re.search(f"({kind})$", name, re.IGNORECASE)), None)
            if kind:
                examples.setdefault(kind, str(below / name))
    for kind, files_of_kind, advice in _OTHERS:
        if kind in examples:
            return f"; there are {files_of_kind}, such as {examples[kind]}: {advice}"
    return ""


def _shards(path: Path, split: str) -> ShardIndex:
    """The records of a split's shards, from their headers."""
    root, present, split = _present(path, split)
    if not present:
        raise DataError(f"no {split} shards in {root}; expected {name_of(split, 0, 16)} and so on")
    total = max(present.values())
    names = [name_of(split, number, total) for number in range(total)]
    if others := sorted(set(present) - set(names)):
        raise DataError(
            f"{root} holds {others[0]}, which is none of {split} shards 0 to {total - 1}; keep one set in a folder"
        )
    if missing := sorted(set(names) - set(present)):
        raise DataError(f"{root} lacks {missing[0]}: {len(present)} of {total} shards are there")
    with ThreadPoolExecutor(THREADS) as pool:
        shards = list(pool.map(lambda name: [length for _, length in tfrecord.scan(str(root / name))], names))
    if empty := [name for name, lengths in zip(names, shards) if not lengths]:
        raise DataError(
            f"{root / empty[0]} holds no record, as {len(empty)} of {len(names)} shards: write the set again"
        )
    counts = np.array(list(map(len, shards)), np.int64)
    return ShardIndex(str(root), names, counts, np.array(list(chain(*shards)), np.int64))

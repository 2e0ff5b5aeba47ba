"""The images of TFRecord shards: which files there are, and where in them each record is. NumPy; Python 3.9.

Shards are named as everyone who trains ImageNet with TensorFlow names them: ``train-00000-of-01024`` and so on, and
``validation-00000-of-00128``. Where a record begins follows from the lengths of those before it, so the lengths are all
that an index needs: four bytes an image.
"""

from __future__ import annotations

import os
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence, Tuple, Union

import numpy as np

from harness.worker.inputs import order, tfrecord
from harness.worker.inputs.errors import DataError
from harness.worker.inputs.page_cache import Extent

CHUNK = 16  # records that are read one after the other: about 2 MB of photographs
THREADS = 32  # that read headers: they wait for the file system, not for the processor
NAME = re.compile(r"(train|validation)-(\d{5})-of-(\d{5})")
NAMED_AS = "SPLIT-00000-of-00016"


class Record(NamedTuple):
    """Where the data of a record are: ``offset`` and ``length`` in bytes, without the record's header."""

    path: str
    offset: int
    length: int


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """The records of a data set's shards, in order.

    ``names`` are relative to ``root``; ``counts`` int64 [shards] are their records, ``lengths`` int64 [images] the bytes of
    each record's data. Labels are in the records.
    """

    root: str
    names: Sequence[str]
    counts: np.ndarray
    lengths: np.ndarray

    chunk = CHUNK

    @cached_property
    def firsts(self) -> np.ndarray:
        """The first image of each shard, and the number of images: int64 [shards + 1]."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where in its shard each image's data begin, int64 [images]."""
        begins = np.cumsum(self.lengths + tfrecord.OVERHEAD) - (self.lengths + tfrecord.OVERHEAD)
        starts = np.append(begins, 0)[self.firsts[:-1]]  # an empty shard at the end has no first record
        offsets: np.ndarray = begins - np.repeat(starts, self.counts) + tfrecord.HEADER.size
        return offsets

    def __len__(self) -> int:
        return len(self.lengths)

    def chunks(self) -> np.ndarray:
        """Runs of records within one shard, int64 [m, 2]."""
        return order.chunks(self.counts, self.chunk)

    def record(self, image: int) -> Record:
        """Where an image is."""
        shard = int(np.searchsorted(self.firsts, image, side="right")) - 1
        path = os.path.join(self.root, self.names[shard])  # noqa: PTH118 - a million times per epoch
        return Record(path, int(self.offsets[image]), int(self.lengths[image]))

    def run(self, begin: int, end: int) -> Record:
        """Where a run of images of one shard is."""
        first, last = self.record(begin), self.record(end - 1)
        return Record(first.path, first.offset, last.offset + last.length - first.offset)

    def extent(self, image: int) -> Extent:
        """The bytes of an image."""
        return self.record(image)


def there_are(root: Path) -> bool:
    """Whether a folder holds shards, of either split."""
    return any(NAME.fullmatch(file.name) for file in root.iterdir())


def find(root: Path, split: str) -> ShardIndex:
    """The records of the shards of a split, "train" or "validation".

    Their lengths come from ``SPLIT.npz`` beside them where that fits the files, else from their headers. Raises DataError
    for a set with a shard too few or too many, BadShard for a damaged one; OSError.
    """
    names = _complete(root, split)
    sizes = np.array([(root / name).stat().st_size for name in names], np.int64)
    known = _known(root / f"{split}.npz", sizes)
    if known is None:
        with ThreadPoolExecutor(THREADS) as pool:
            scanned = list(pool.map(lambda name: [length for _, length in tfrecord.scan(str(root / name))], names))
        known = _index(scanned)
    counts, lengths = known
    if not len(lengths):
        raise DataError(f"the {len(names)} {split} shards in {root} hold no record")
    return ShardIndex(str(root), names, counts, lengths)


def _index(scanned: List[List[int]]) -> Tuple[np.ndarray, np.ndarray]:
    counts = np.array([len(lengths) for lengths in scanned], np.int64)
    return counts, np.array([length for lengths in scanned for length in lengths], np.int64)


def _complete(root: Path, split: str) -> List[str]:
    """The names of a split's shards, by number. Raises DataError unless they are one whole set."""
    found: Dict[int, str] = {}
    totals = set()
    for name in sorted(file.name for file in root.iterdir()):
        match = NAME.fullmatch(name)
        if match and match[1] == split:
            totals.add(int(match[3]))
            found[int(match[2])] = name
    if not found:
        raise DataError(f"no {split} shards in {root}; expected {NAMED_AS.replace('SPLIT', split)} and so on")
    if len(totals) > 1:
        counts = " and of ".join(map(str, sorted(totals)))
        raise DataError(f"{root} holds {split} shards of two sets: of {counts}; keep one set in a folder")
    total = totals.pop()
    if missing := sorted(set(range(total)) - set(found)):
        first = f"{split}-{missing[0]:05}-of-{total:05}"
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(f"{root} lacks {first}{others}: {len(found)} of {total} shards are there")
    if excess := sorted(set(found) - set(range(total))):
        raise DataError(
            f"{root} holds {found[excess[0]]}, but the shards of a set of {total} end at number {total - 1}"
        )
    return [found[number] for number in range(total)]


def _known(file: Path, sizes: np.ndarray) -> Union[Tuple[np.ndarray, np.ndarray], None]:
    """Counts and lengths from the index that was written with the shards; None where it is not theirs."""
    try:
        with np.load(file, allow_pickle=False) as held:
            counts, lengths = held["counts"].astype(np.int64), held["lengths"].astype(np.int64)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    fits = len(counts) == len(sizes) and counts.sum() == len(lengths) and (counts >= 0).all()
    if not fits:
        return None
    ends = np.concatenate([[0], np.cumsum(lengths + tfrecord.OVERHEAD)])
    firsts = np.concatenate([[0], np.cumsum(counts)])
    return (counts, lengths) if (np.diff(ends[firsts]) == sizes).all() else None


def write(index: ShardIndex, file: Path) -> None:
    """Write an index as an uncompressed archive of NumPy arrays."""
    with file.open("wb") as stream:  # given a name, NumPy would append .npz to it
        np.savez(
            stream,
            root=np.array(index.root),
            names=np.array(index.names),
            counts=index.counts,
            lengths=_smallest(index.lengths),
        )


def _smallest(lengths: np.ndarray) -> np.ndarray:
    return lengths.astype(np.uint32) if lengths.max() < 2**32 else lengths


def read(file: Path) -> ShardIndex:
    """Read what ``write`` wrote. Raises DataError when it is something else, or cut short."""
    try:
        with np.load(file, allow_pickle=False) as held:
            root, names = str(held["root"]), held["names"].tolist()
            return ShardIndex(root, names, held["counts"], held["lengths"].astype(np.int64))
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{file} is cut short; write the index again") from error

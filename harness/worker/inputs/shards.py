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
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from harness.worker.inputs import order, tfrecord
from harness.worker.inputs.errors import DataError
from harness.worker.inputs.page_cache import Extent

CHUNK = 16  # records that are read one after the other: about 2 MB of photographs
THREADS = 32  # that read headers: they wait for the file system, not for the processor
NAME = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<of>\d{5})")
SPLITS = ("train", "validation")

Lengths = Tuple[np.ndarray, np.ndarray]  # how many records each shard has, and how long the data of each record are


def name_of(split: str, number: int, of: int) -> str:
    """How a shard is called."""
    return f"{split}-{number:05}-of-{of:05}"


def offsets_file(split: str) -> str:
    """The file beside a split's shards with the ``arrays`` of their index."""
    return f"{split}.npz"


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

    @property
    def arrays(self) -> Dict[str, np.ndarray]:
        """What the file beside the shards holds."""
        return {"counts": self.counts, "offsets": self.offsets, "lengths": self.lengths}

    def __len__(self) -> int:
        return len(self.lengths)

    def chunks(self) -> np.ndarray:
        """Runs of records within one shard, int64 [m, 2]."""
        return order.chunks(self.counts, self.chunk)

    def extent(self, image: int) -> Extent:
        """Where the data of an image's record are, without the record's header."""
        shard = int(np.searchsorted(self.firsts, image, side="right")) - 1
        path = os.path.join(self.root, self.names[shard])  # noqa: PTH118 - a million times per epoch
        return Extent(path, int(self.offsets[image]), int(self.lengths[image]))

    def run(self, begin: int, end: int) -> Extent:
        """Where a run of images of one shard is, from the data of the first to those of the last."""
        first, last = self.extent(begin), self.extent(end - 1)
        return Extent(first.path, first.offset, last.offset + last.length - first.offset)


def there_are(root: Path) -> bool:
    """Whether a folder holds shards, of either split."""
    return any(match["split"] in SPLITS for file in root.iterdir() if (match := NAME.fullmatch(file.name)))


def find(root: Path, split: str) -> ShardIndex:
    """The records of the shards of a split, "train" or "validation".

    Their lengths come from ``SPLIT.npz`` beside them where that fits the files, else from their headers. Raises DataError
    for a set with a shard too few or too many, BadShard for a damaged one; OSError.
    """
    names = _complete(root, split)
    sizes = np.array([(root / name).stat().st_size for name in names], np.int64)
    counts, lengths = _known(root / offsets_file(split), sizes) or _scanned([str(root / name) for name in names])
    if not len(lengths):
        raise DataError(f"the {len(names)} {split} shards in {root} hold no record")
    return ShardIndex(str(root), names, counts, lengths)


def _complete(root: Path, split: str) -> List[str]:
    """The names of a split's shards, by number. Raises DataError unless they are one whole set."""
    names: Dict[int, str] = {}
    totals = set()
    for name in sorted(file.name for file in root.iterdir()):
        match = NAME.fullmatch(name)
        if match and match["split"] == split:
            totals.add(int(match["of"]))
            names[int(match["number"])] = name
    if not names:
        raise DataError(f"no {split} shards in {root}; expected {name_of(split, 0, 16)} and so on")
    if len(totals) > 1:
        counts = " and of ".join(map(str, sorted(totals)))
        raise DataError(f"{root} holds {split} shards of two sets: of {counts}; keep one set in a folder")
    total = totals.pop()
    if missing := sorted(set(range(total)) - set(names)):
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        first = name_of(split, missing[0], total)
        raise DataError(f"{root} lacks {first}{others}: {len(names)} of {total} shards are there")
    if excess := sorted(set(names) - set(range(total))):
        raise DataError(
            f"{root} holds {names[excess[0]]}, but the shards of a set of {total} end at number {total - 1}"
        )
    return [names[number] for number in range(total)]


def _scanned(paths: Sequence[str]) -> Lengths:
    with ThreadPoolExecutor(THREADS) as pool:
        shards = list(pool.map(lambda path: [length for _, length in tfrecord.scan(path)], paths))
    counts = np.array([len(lengths) for lengths in shards], np.int64)
    return counts, np.array([length for lengths in shards for length in lengths], np.int64)


def _known(file: Path, sizes: np.ndarray) -> Optional[Lengths]:
    """What the file beside the shards says; None where it is not theirs."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            counts, lengths = arrays["counts"].astype(np.int64), arrays["lengths"].astype(np.int64)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    if len(counts) != len(sizes) or counts.sum() != len(lengths) or (counts < 0).any():
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
            lengths=index.lengths.astype(np.uint32 if index.lengths.max() < 2**32 else np.int64),
        )


def read(file: Path) -> ShardIndex:
    """Read what ``write`` wrote. Raises DataError when it is something else, or cut short."""
    try:
        with np.load(file, allow_pickle=False) as held:
            root, names = str(held["root"]), held["names"].tolist()
            return ShardIndex(root, names, held["counts"], held["lengths"].astype(np.int64))
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{file} is cut short; write the index again") from error

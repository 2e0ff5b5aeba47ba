"""The order in which each rank reads images. NumPy; Python 3.9.

A data set is a list of chunks: runs of images that are read one after the other. In a folder of files every image is a
chunk of its own, in TFRecord shards sixteen records are. For each epoch the chunks of all shards are shuffled, and the
row that they make is cut into one share for each rank; then a rank shuffles the images of a few chunks at a time. So
files are shuffled completely, and records nearly as well, though they are read from disk in long runs.

All of it follows from (chunks, rank, world, epoch, seed), so that every framework reads the same images in the same order.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Iterator, Optional, Tuple, Union

import numpy as np

from harness.worker.inputs.errors import DataError
from harness.worker.inputs.index import Index

GROUP = 256  # images, or a little less, that are shuffled among themselves

_CHUNKS, _IMAGES = 0x63686E6B, 0x696D6773  # each shuffle has numbers of its own

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST, _TO_53_BITS = np.uint64(31), np.uint64(11)


def uniform(*names: Union[int, np.ndarray]) -> np.ndarray:
    """Numbers in [0, 1), float64, for integers that say what they are for; arrays among them are broadcast.

    Equal names give equal numbers, on every platform. Each name goes through one round of SplitMix64 (Steele, Lea and
    Flood, OOPSLA 2014), which has the last word on those before it.
    """
    state: np.ndarray = np.zeros(1, np.uint64)  # arrays throughout: NumPy warns when scalars wrap around
    for name in names:
        state = state + np.array(name, np.int64, ndmin=1).astype(np.uint64) * _GOLDEN + _GOLDEN
        for shift, factor in _MIX:
            state = (state ^ state >> shift) * factor
        state = state ^ state >> _LAST
    return (state >> _TO_53_BITS) * 2.0**-53


def check_world(count: int, world: int) -> None:
    """Raise DataError when there are fewer images than ranks, so that some rank would have nothing to read."""
    if count < world:
        raise DataError(f"{count} images for {world} ranks: every rank needs at least one")


def images_of(pieces: np.ndarray) -> np.ndarray:
    """The numbers of the images in pieces [k, 2], one piece after the other."""
    lengths = pieces[:, 1] - pieces[:, 0]
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(pieces[:, 0] - before, lengths)


@dataclass(frozen=True)
class ReadingOrder:
    """A rank's share of the images of ``index``, in batches, which ``decoders`` threads or processes decode.

    With a ``seed`` they are to train on: without end, shuffled, cropped at random, after the first ``done`` images of the
    rank. A crop depends on (seed, epoch, image), never on the rank or the decoder, so runs repeat.

    Without a seed they are to evaluate on: once, in order, cropped in the middle. Every rank has the same number of
    batches: where its images end, labels are -1 and images are zero.

    An image that cannot be read or decoded, or whose label is not below ``num_classes``, ends the iteration. Raises
    DataError when there are fewer images to train on than ranks.
    """

    index: Index
    rank: int
    world: int
    batch_size: int
    image_size: int
    decoders: int
    num_classes: Optional[int] = None
    seed: Optional[int] = None
    done: int = 0

    def __post_init__(self) -> None:
        if self.seed is not None:
            check_world(len(self.index), self.world)

    @property
    def share(self) -> Tuple[int, int]:
        """The begin and end of the rank's part of an epoch: the parts cover everything, and differ by one at most."""
        count = len(self.index)
        return self.rank * count // self.world, (self.rank + 1) * count // self.world

    @property
    def longest_share(self) -> int:
        return -(-len(self.index) // self.world)

    def pieces(self, epoch: int) -> np.ndarray:
        """The rank's reads in an epoch, in order: pieces int64 [k, 2] of chunks."""
        row = self.index.chunks()
        if self.seed is not None:  # all ranks cut the same shuffle
            row = row[np.argsort(uniform(_CHUNKS, self.seed, epoch, np.arange(len(row))), kind="stable")]
        begin, end = self.share
        lengths = row[:, 1] - row[:, 0]
        ends = np.cumsum(lengths)
        before, behind = np.maximum(begin - (ends - lengths), 0), np.maximum(ends - end, 0)
        pieces = row + np.stack([before, -behind], 1)
        return pieces[pieces[:, 0] < pieces[:, 1]]

    def groups(self) -> Iterator[Tuple[int, np.ndarray, np.ndarray]]:
        """The rank's reads in groups: an epoch, pieces int64 [k, 2] of chunks in it, and the order of their images.

        That is of those that are not done, as places in ``images_of(pieces)``.
        """
        begin, end = self.share
        first_epoch, done = divmod(self.done, max(end - begin, 1))
        together = GROUP // self.index.chunk
        for epoch in range(1) if self.seed is None else itertools.count(first_epoch):
            pieces = self.pieces(epoch)
            for first in range(0, len(pieces), together):
                group = pieces[first : first + together]
                images = images_of(group)
                places = np.arange(len(images))
                if self.seed is not None:
                    places = np.argsort(uniform(_IMAGES, self.seed, epoch, images), kind="stable")
                if done < len(images):
                    yield epoch, group, places[done:]
                done = max(done - len(images), 0)

    def positions(self) -> Iterator[Tuple[int, int]]:
        """Every (epoch, image number) in the order in which they are used."""
        return ((epoch, image) for epoch, group, places in self.groups() for image in images_of(group)[places].tolist())

"""Which rank reads which images when. NumPy; Python 3.9.

A data set is a list of chunks: runs of images that are read one after the other. In a folder of files every image is a
chunk of its own, in TFRecord shards sixteen records are. For each epoch the chunks of all shards are shuffled, and the
row that they make is cut into one share for each rank; then a rank shuffles the images of a few chunks at a time. So
files are shuffled completely, and records nearly as well, though they are read from disk in long runs.

All of it follows from (chunks, rank, world, epoch, seed), so that every framework reads the same images in the same order.
"""

from __future__ import annotations

import itertools
from typing import Iterator, Protocol, Tuple

import numpy as np

from harness.worker.inputs.counter import uniform
from harness.worker.inputs.errors import DataError

GROUP = 256  # images, or a little less, that are shuffled among themselves

_CHUNKS, _IMAGES = 0x63686E6B, 0x696D6773  # each shuffle has numbers of its own


class Chunked(Protocol):
    """A data set, as far as its order goes."""

    @property
    def chunk(self) -> int:
        """Images of a chunk, at most."""

    def chunks(self) -> np.ndarray:
        """All chunks in order, int64 [m, 2]: the first image of each, and the one after its last."""


def check_world(count: int, world: int) -> None:
    """Raise DataError when there are fewer images than ranks, so that some rank would have nothing to read."""
    if count < world:
        raise DataError(f"{count} images for {world} ranks: every rank needs at least one")


def share(count: int, rank: int, world: int) -> Tuple[int, int]:
    """Where a rank's part of ``count`` images in a row begins and ends.

    The parts are disjoint, cover everything, and differ in length by one at most.
    """
    return rank * count // world, (rank + 1) * count // world


def longest_share(count: int, world: int) -> int:
    """The most images that a rank has of ``count``."""
    return -(-count // world)


def chunks(counts: np.ndarray, size: int) -> np.ndarray:
    """Chunks of ``size`` images in files of ``counts`` images, int64 [m, 2]; a file's last one may be shorter."""
    per_file = -(-counts // size)
    first_chunk, first_image = np.cumsum(per_file) - per_file, np.cumsum(counts) - counts
    within = np.arange(per_file.sum()) - np.repeat(first_chunk, per_file)
    begin = np.repeat(first_image, per_file) + within * size
    return np.stack([begin, np.minimum(begin + size, np.repeat(first_image + counts, per_file))], 1)


def cut(row: np.ndarray, begin: int, end: int) -> np.ndarray:
    """The images from place ``begin`` to ``end`` of a row of chunks [m, 2], as pieces [k, 2] of chunks."""
    lengths = row[:, 1] - row[:, 0]
    ends = np.cumsum(lengths)
    pieces = np.stack([
        row[:, 0] + np.maximum(begin - (ends - lengths), 0),
        row[:, 1] - np.maximum(ends - end, 0),
    ], 1)  # fmt: skip
    return pieces[pieces[:, 0] < pieces[:, 1]]


def epoch_pieces(chunks: np.ndarray, rank: int, world: int, epoch: int, seed: int) -> np.ndarray:
    """What a rank reads in an epoch, in order: pieces int64 [k, 2] of the chunks [m, 2].

    All ranks cut the same shuffle. Raises DataError when there are fewer images than ranks.
    """
    count = int(chunks[-1, 1])
    check_world(count, world)
    row = chunks[np.argsort(uniform(_CHUNKS, seed, epoch, np.arange(len(chunks))), kind="stable")]
    return cut(row, *share(count, rank, world))


def images_of(pieces: np.ndarray) -> np.ndarray:
    """The numbers of the images in pieces [k, 2], one piece after the other."""
    lengths = pieces[:, 1] - pieces[:, 0]
    before = np.cumsum(lengths) - lengths
    images: np.ndarray = np.arange(lengths.sum()) + np.repeat(pieces[:, 0] - before, lengths)
    return images


def places(images: np.ndarray, epoch: int, seed: int) -> np.ndarray:
    """In which order the images of a group are trained on: their places in ``images``."""
    return np.argsort(uniform(_IMAGES, seed, epoch, images), kind="stable")


def reached(count: int, rank: int, world: int, done: int) -> Tuple[int, int]:
    """Where a rank is that has read ``done`` of ``count`` images since the first epoch: the epoch, and how many of it."""
    begin, end = share(count, rank, world)
    return divmod(done, end - begin)


def beyond(pieces: np.ndarray, chunk: int, done: int) -> Tuple[np.ndarray, int]:
    """The pieces [k, 2] of an epoch without the groups whose images are all among the first ``done``.

    And how many images of the rest are. ``chunk`` are images of a chunk, at most.
    """
    each = GROUP // chunk
    ends = np.cumsum(pieces[:, 1] - pieces[:, 0])[each - 1 :: each]  # in images, of the groups but for a short last one
    passed = int(np.searchsorted(ends, done, side="right"))
    return pieces[passed * each :], done - int(ends[passed - 1] if passed else 0)


def groups(
    index: Chunked, rank: int, world: int, seed: int, done: int = 0
) -> Iterator[Tuple[int, np.ndarray, np.ndarray]]:
    """What a rank reads together, without end, but for the first ``done`` images that it would read.

    An epoch, pieces int64 [k, 2] of chunks in it, and the numbers of their images in the order in which they are trained
    on. Raises DataError when there are fewer images than ranks.
    """
    chunks, pieces_each = index.chunks(), GROUP // index.chunk
    count = int(chunks[-1, 1])
    check_world(count, world)
    first_epoch, done = reached(count, rank, world, done)
    for epoch in itertools.count(first_epoch):
        pieces, skipped = beyond(epoch_pieces(chunks, rank, world, epoch, seed), index.chunk, done)
        for first in range(0, len(pieces), pieces_each):
            group = pieces[first : first + pieces_each]
            images = images_of(group)
            yield epoch, group, images[places(images, epoch, seed)][skipped:]
            skipped = 0
        done = 0


def order(index: Chunked, rank: int, world: int, seed: int, done: int = 0) -> Iterator[Tuple[int, int]]:
    """Every (epoch, image number) that a rank reads after the first ``done``, in order, without end."""
    return ((epoch, image) for epoch, _, images in groups(index, rank, world, seed, done) for image in images.tolist())

"""Which images a rank reads, and how: what every framework's input pipeline takes. NumPy; Python 3.9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Tuple

from harness.worker.inputs import order
from harness.worker.inputs.index import Index


@dataclass(frozen=True)
class Reading:
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
            order.check_world(len(self.index), self.world)

    def positions(self) -> Iterator[Tuple[int, int]]:
        """Every (epoch, image number) in the order in which they are read."""
        if self.seed is None:
            return ((0, image) for image in range(*self.share))
        return order.order(self.index, self.rank, self.world, self.seed, self.done)

    @property
    def share(self) -> Tuple[int, int]:
        """Where the rank's share of an epoch begins and ends."""
        return order.share(len(self.index), self.rank, self.world)

    @property
    def longest_share(self) -> int:
        """The most images that any rank has in an epoch."""
        return order.longest_share(len(self.index), self.world)

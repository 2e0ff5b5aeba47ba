"""How long training waits for its input: batches, and the seconds until each was there. Standard library only; Python 3.9.

An input pipeline works ahead in processes or threads of its own. Where it keeps up, the next batch is there at once.
Where it does not, the training stands still: on this rank and, in synchronous training, on all the others.
"""

from __future__ import annotations

import time
from typing import Generic, Iterable, Iterator, List, TypeVar

Batch = TypeVar("Batch")


class Waited(Generic[Batch]):
    """An iterator over ``batches`` that keeps in ``seconds`` how long each of them was waited for."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = iter(batches)
        self.seconds: List[float] = []

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        began = time.perf_counter()
        batch = next(self._batches)
        self.seconds.append(time.perf_counter() - began)
        return batch

"""How well a model classifies images: one count for all, from the logits that each framework has computed. NumPy only."""

from __future__ import annotations

from typing import Iterable, NamedTuple, Tuple

import numpy as np

PADDING = -1  # the label of a row that is there only to fill a batch
TOP = 5


class Evaluation(NamedTuple):
    """How many images were looked at, how many of them have their class first and among the first five, and the sum of
    their losses."""

    images: int
    top1: int
    top5: int
    loss: float


def evaluation(batches: Iterable[Tuple[np.ndarray, np.ndarray]]) -> Evaluation:
    """Count over (logits float [N, classes], labels int [N]); rows with the label ``PADDING`` are left out.

    A class counts as before the right one unless its logit is less: a model that finds all classes equally likely, or
    whose logits are not numbers, gets none right.
    """
    images, top1, top5, loss = 0, 0, 0, 0.0
    for logits, labels in batches:
        real = labels != PADDING
        logits, labels = logits[real].astype(np.float64), labels[real]
        own = logits[np.arange(len(labels)), labels]
        rank = (~(logits < own[:, None])).sum(axis=1)  # 1: nothing but itself is before it
        highest = logits.max(axis=1, initial=-np.inf)
        images += len(labels)
        top1 += int((rank <= 1).sum())
        top5 += int((rank <= TOP).sum())
        loss += float((highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1)) - own).sum())
    return Evaluation(images, top1, top5, loss)

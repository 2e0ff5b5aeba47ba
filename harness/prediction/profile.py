"""Where a step computes: the share of forward and backward that lies before and after each tensor of a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from harness import models
from harness.core.placement import Piece

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Profile:
    """A model's tensors in creation order, which is that of the forward pass, with their names.

    ``left`` is the share of a forward pass that is still to be computed when tensor i is first needed. The backward pass
    goes the other way and has the same shares: ``left`` is also what of it is done when tensor i's gradient exists.
    """

    names: tuple[str, ...]
    bytes: Floats  # [tensors]
    left: Floats  # [tensors], from 1 down to 0


@cache
def profile(model: str, image_size: int | None = None) -> Profile:
    """The profile of ``model`` for square images of ``image_size`` pixels per side, by default the published size.

    Compute is counted as multiply-adds of convolutions and the classifier. What else takes time (batch norm, pooling) is
    taken to be spread like them.
    """
    specification = models.specification(model)
    work = np.array(specification.multiply_adds(image_size or specification.image_size), float)
    return Profile(
        names=tuple(tensor.name for tensor in specification.tensors),
        bytes=np.array([tensor.bytes for tensor in specification.tensors], float),
        left=np.cumsum(work[::-1])[::-1] / work.sum(),
    )


def of_pieces(profile: Profile, pieces: tuple[Piece, ...]) -> tuple[Floats, Floats, Integers]:
    """Of each piece: the share of a pass that is left when it is needed, its bytes, and its server."""
    positions = {name: number for number, name in enumerate(profile.names)}
    tensor = np.array([positions[piece.tensor] for piece in pieces])
    bytes_ = np.array([piece.bytes for piece in pieces], float)
    return profile.left[tensor], bytes_, np.array([piece.ps for piece in pieces])

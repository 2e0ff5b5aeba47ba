"""What every framework's pipeline does to an image: crop, resize, flip, normalise. NumPy; Python 3.9.

Training takes a crop of 8–100 % of the area at an aspect ratio of 3/4 to 4/3 (Szegedy et al., arXiv:1409.4842, section
6), flipped left to right every second time; evaluation takes the middle. Both are resized bilinearly between the centres
of pixels, without antialiasing. Large JPEGs are decoded at a half, a quarter or an eighth of their size, where the crop
then still has the pixels that are asked for.

Each framework decodes and resizes with operators of its own. Everything that is random is drawn here, and the pixels of
a crop follow from it by the same float64 arithmetic everywhere: so the frameworks train on the same pixels.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence, Tuple, Union

import numpy as np

from harness.worker.inputs.numbers import uniform

AREA = (0.08, 1.0)  # of the image
ASPECT = (3 / 4, 4 / 3)  # width / height
ATTEMPTS = 10  # at a crop that fits; then the whole image
CENTRE = 0.875  # of the shorter side: what evaluation looks at
RATIOS = (1, 2, 4, 8)  # by which libjpeg can divide an image's size while it decodes

# ImageNet's statistics per channel (red, green, blue), for pixels in 0–255.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)

_CROP = 0x63726F70  # tells these numbers from those of the same seed that shuffle


class Box(NamedTuple):
    """A part of an image, in pixels."""

    left: float
    top: float
    width: float
    height: float


def draws(
    seed: int, epochs: Union[int, Sequence[int]], images: Union[Sequence[int], np.ndarray]
) -> Tuple[np.ndarray, np.ndarray]:
    """What is random about images [n] in their epochs: crops float64 [n, ATTEMPTS, 4], flips bool [n].

    A crop's height and width are in units of √(image's height × width); then come the shares of the free room that are to
    be above it and left of it.
    """
    columns = np.arange(ATTEMPTS * 4 + 1)
    names = (np.asarray(epochs).reshape(-1, 1), np.asarray(images).reshape(-1, 1), columns)
    numbers = uniform(_CROP, seed, *names)
    crops = numbers[:, :-1].reshape(-1, ATTEMPTS, 4)
    area = AREA[0] + crops[..., 0] * (AREA[1] - AREA[0])
    aspect = ASPECT[0] + crops[..., 1] * (ASPECT[1] - ASPECT[0])
    crops[..., 0], crops[..., 1] = np.sqrt(area / aspect), np.sqrt(area * aspect)
    return crops, numbers[:, -1] < 0.5


def random_crop(crops: np.ndarray, width: int, height: int) -> Box:
    """The first of an image's crops [ATTEMPTS, 4] that fits into it; else all of it."""
    unit = math.sqrt(width * height)
    for high, wide, top, left in crops.tolist():
        wide, high = wide * unit, high * unit
        if wide <= width and high <= height:
            return Box(left * (width - wide), top * (height - high), wide, high)
    return Box(0.0, 0.0, width, height)


def central_crop(width: int, height: int) -> Box:
    """The square in the middle that evaluation looks at."""
    side = CENTRE * min(width, height)
    return Box((width - side) / 2, (height - side) / 2, side, side)


def ratio(box: Box, image_size: int) -> int:
    """By how much to divide a JPEG's size while decoding it, so that a crop keeps ``image_size`` pixels each way."""
    return max(ratio for ratio in RATIOS if ratio == 1 or min(box.width, box.height) >= ratio * image_size)


def pixels(box: Box, width: int, height: int, ratio: int) -> Tuple[int, int, int, int]:
    """Whole pixels for a crop of an image whose size is divided by ``ratio``: left, top, width, height.

    Columns begin and end at an odd place, or at the image's edge. JPEGs store colours for pairs of columns, from which
    libjpeg interpolates: column 2k from pairs k - 1 and k, column 2k + 1 from k and k + 1. So a decoder that decodes only
    this crop has all it needs for the same pixels as one that decodes the whole image.
    """
    room = -(-width // ratio)
    left, wide = _whole(box.left / ratio, box.width / ratio, room)
    top, high = _whole(box.top / ratio, box.height / ratio, -(-height // ratio))
    begin, end = max((left - 1) | 1, 0), min((left + wide) | 1, room)
    return begin, top, end - begin, high


def _whole(begin: float, length: float, room: int) -> Tuple[int, int]:
    pixels = min(max(math.floor(length + 0.5), 1), room)
    return min(math.floor(begin + 0.5), room - pixels), pixels

"""Image files, and the steps of every pipeline on the images: crop, resize, flip, normalise. NumPy; Python 3.9.

Training takes a crop of 8–100 % of the area at an aspect ratio of 3/4 to 4/3 (Szegedy et al., arXiv:1409.4842, section
6), flipped left to right every second time; evaluation takes the middle. Both are resized bilinearly between the centres
of pixels, without antialiasing. Large JPEGs are decoded at a half, a quarter or an eighth of their size, where the crop
then still has the pixels that are asked for.

Each framework decodes and resizes with operators of its own. Everything that is random is drawn here, and the pixels of
a crop follow from it by the same float64 arithmetic everywhere: so the frameworks train on the same pixels.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from harness.worker.inputs.order import uniform

AREA = (0.08, 1.0)  # of the image
ASPECT = (3 / 4, 4 / 3)  # width / height
ATTEMPTS = 10  # at a crop that fits; then the whole image
CENTRE = 0.875  # of the shorter side: what evaluation looks at
RATIOS = (1, 2, 4, 8)  # by which libjpeg can divide an image's size while it decodes

# ImageNet's statistics per channel (red, green, blue), for pixels in 0–255.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)

# Files.
FORMATS = ("JPEG", "PNG")  # that are read, as Pillow calls them; ImageNet holds a PNG that is named .JPEG
JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"  # how they begin
END = b"\xff\xd9"  # the marker that ends a JPEG
PADDING = 4096  # bytes that may follow it
_FRAMES = [marker for marker in range(0xC0, 0xD0) if marker not in (0xC4, 0xC8, 0xCC)]
_FRAME = struct.Struct(">BBHBHH")  # 0xff, marker, length of what follows the marker, precision, height, width

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
    """The random choices for images [n] in their epochs: crops float64 [n, ATTEMPTS, 4], flips bool [n].

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
    side = CENTRE * min(width, height)
    return Box((width - side) / 2, (height - side) / 2, side, side)


def plan(
    width: int, height: int, image_size: Optional[int], crops: Optional[np.ndarray]
) -> Tuple[Tuple[int, int, int, int], int]:
    """The ``pixels`` to use of an image, with one of its ``crops`` or for evaluation, and the ``ratio`` to divide it by."""
    box = central_crop(width, height) if crops is None else random_crop(crops, width, height)
    divided = ratio(box, image_size) if image_size else 1
    return pixels(box, width, height, divided), divided


def ratio(box: Box, image_size: int) -> int:
    """The divisor of a JPEG's size while decoding it, with which a crop keeps ``image_size`` pixels each way."""
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


def size_of(encoded: bytes) -> Tuple[int, int]:
    """The width and height of a JPEG or PNG. Raises ValueError for what is neither, and for a JPEG that is cut short.

    A JPEG is a sequence of segments, most of them a marker (two bytes), the length of what follows (two bytes, itself
    included) and the contents; that of the frame holds the image's size (ITU-T T.81, B.1.1 and B.2.2).
    """
    if encoded.startswith(PNG) and len(encoded) >= 24:
        width, height = struct.unpack_from(">II", encoded, 16)
        return width, height
    if not encoded.startswith(JPEG):
        raise ValueError("neither JPEG nor PNG")
    # Decoders stop after a crop's last row, and would not miss what should be below.
    if END in encoded[-PADDING:]:
        at = 2
        while 0 <= (at := encoded.find(b"\xff", at)) <= len(encoded) - _FRAME.size:
            _, marker, length, _, height, width = _FRAME.unpack_from(encoded, at)
            if marker in _FRAMES:
                return width, height
            at += 1 if marker == 0xFF else 2 + length
    raise ValueError("the image file is truncated")

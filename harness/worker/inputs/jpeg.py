"""How image files begin and end, and the sizes of JPEGs, from their first bytes. NumPy; Python 3.9.

A JPEG is a sequence of segments, most of them a marker (two bytes), the length of what follows (two bytes, itself included)
and the contents; that of the frame holds the image's size (ITU-T T.81, B.1.1 and B.2.2).
"""

from __future__ import annotations

import numpy as np

FORMATS = ("JPEG", "PNG")  # that are read, as Pillow calls them; ImageNet holds a PNG that is named .JPEG
JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"  # how they begin
END = b"\xff\xd9"  # the marker that ends a JPEG
PADDING = 4096  # bytes that may follow it
HEAD = 4096  # bytes in which photographs have their frame, unless a thumbnail comes before it

_IMAGE = (0xFF, 0xD8)  # begins one
_FRAMES = [marker for marker in range(0xC0, 0xD0) if marker not in (0xC4, 0xC8, 0xCC)]
_SKIPPED = [0xC4, 0xCC, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE]  # tables, application data and comments
_FRAME_BYTES = 9  # marker, length, precision, height, width


def sizes(heads: np.ndarray) -> np.ndarray:
    """Heights and widths int64 [n, 2] of images whose first bytes are ``heads`` uint8 [n, HEAD]; 0 where they do not say.

    All are looked at in step, segment by segment.
    """
    result = np.zeros((len(heads), 2), np.int64)
    rows = np.flatnonzero((heads[:, : len(_IMAGE)] == _IMAGE).all(1))
    at = np.full(len(rows), len(_IMAGE))
    while True:
        inside = at + _FRAME_BYTES <= heads.shape[1]
        rows, at = rows[inside], at[inside]
        if not len(rows):
            return result
        segment = heads[rows[:, None], at[:, None] + np.arange(_FRAME_BYTES)].astype(np.int64)
        numbers = segment[:, 1:-1] << 8 | segment[:, 2:]  # two bytes each, beginning at every byte but the first
        marker = np.where(segment[:, 0] == 0xFF, segment[:, 1], 0)
        frame, skipped = np.isin(marker, _FRAMES), np.isin(marker, _SKIPPED)
        result[rows[frame]] = numbers[frame][:, [4, 6]]
        rows, at = rows[skipped], at[skipped] + 2 + numbers[skipped, 1]

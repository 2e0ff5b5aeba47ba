"""An image file as shards hold it: decoded once to prove that it can be, re-encoded where it is no plain JPEG."""

from __future__ import annotations

import io
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from harness.worker.inputs.augmentation import END, FORMATS, JPEG, PADDING, PNG

PLAIN = ("RGB", "L")  # a grey JPEG stays: every decoder that is asked for three channels repeats the one it has
QUALITY = 100  # as the TensorFlow world's converter for ImageNet has it


class Photograph(NamedTuple):
    """A JPEG, RGB or grey, of a size in pixels. ``was`` says what it was re-encoded from, such as CMYK or PNG."""

    jpeg: bytes
    width: int
    height: int
    was: str | None


def photograph(contents: bytes) -> Photograph:
    """The image in a file's ``contents``, which must be a JPEG or a PNG. Raises ValueError with the reason.

    Decoding at an eighth of the size would find the same files cut short, but is only a quarter faster. What no decoder
    complains about, bytes changed or missing before a JPEG's end marker, is not found.
    """
    try:
        with Image.open(io.BytesIO(contents), formats=FORMATS) as image:
            image.load()
            # A JPEG with other pictures behind it, from a stereo camera say, is MPO to Pillow and a JPEG to all others.
            was = "PNG" if image.format == "PNG" else image.mode
            if was in PLAIN:
                return Photograph(contents, image.width, image.height, None)
            if image.mode.startswith("I"):  # Pillow would make white of all but its darkest values
                raise ValueError("a PNG with 16 bits per pixel, where 8 are expected")
            encoded = io.BytesIO()
            image.convert("RGB").save(encoded, "JPEG", quality=QUALITY)
            return Photograph(encoded.getvalue(), image.width, image.height, was)
    except UnidentifiedImageError:
        raise ValueError("neither JPEG nor PNG" if contents else "the file is empty") from None
    except Exception as error:  # damaged bytes raise OSError, SyntaxError, struct.error, EOFError, MemoryError…
        raise ValueError(str(error) or type(error).__name__) from None


def first_sight(contents: bytes) -> str | None:
    """What is wrong with an image as far as its first and last bytes show."""
    if not contents:
        return "the image is empty"
    if contents.startswith(PNG):
        return None
    if not contents.startswith(JPEG):
        return "the image is neither JPEG nor PNG"
    return None if END in contents[-PADDING:] else "the image is truncated: it has no end marker"

"""A small image set in ImageNet's layout, made from nothing: for tests and for sites without ImageNet."""

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from harness.core.progress import OnCount, uncounted
from harness.errors import writing
from harness.worker.inputs.errors import DataError

GRID = 9  # an image is a field of GRID × GRID random colours, smoothly enlarged
GRAIN = 16.0  # standard deviation of the pixel noise, in 0–255: what makes a JPEG as large as a photograph
QUALITY = 90


def make(path: Path, images: int, classes: int, size: tuple[int, int], seed: int, progress: OnCount = uncounted) -> int:
    """Write ``path/train/n00000001/n00000001_0.JPEG`` and so on; returns the bytes written.

    ``size`` is (width, height) in pixels; images are spread evenly over the classes. A class has its own colours in its
    own places, so a network can learn it. The pixels follow from the arguments; the bytes also from Pillow's encoder.
    ``progress`` counts images. Nothing is left of an incomplete set. Raises DataError for counts that make no data set, and
    when ``path`` is a file or a folder that is not empty; InvalidInput when it cannot be made.
    """
    if not 1 <= classes <= images:
        raise DataError(f"{images} images in {classes} classes: there must be a class, and an image for every class")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise DataError(f"{path} is there already and no empty folder; name a new one")

    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    try:
        width, height = size
        # Drawing noise costs more than encoding it: one sheet is drawn, and every image wears another part of it.
        sheet = np.random.default_rng([seed]).normal(0, GRAIN, (2 * height, 2 * width, 3)).astype(np.int16)
        written = 0
        for number in range(images):
            position, place = number % classes, number // classes
            name = f"n{position + 1:08}"
            file = path / "train" / name / f"{name}_{place}.JPEG"
            file.parent.mkdir(parents=True, exist_ok=True)
            random = np.random.default_rng([seed, position, 1 + place])
            field = _field(np.random.default_rng([seed, position, 0])) // 2 + _field(random) // 2
            colours = np.asarray(Image.fromarray(field).resize(size, Image.Resampling.BICUBIC), np.int16)
            top, left = random.integers(0, [height + 1, width + 1])
            pixels = colours + sheet[top : top + height, left : left + width]
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, quality=QUALITY)
            written += file.stat().st_size
            progress(number + 1, images)
        return written
    except BaseException:
        shutil.rmtree(path / "train", ignore_errors=True)
        raise


def _field(random: np.random.Generator) -> np.ndarray:
    return random.integers(0, 256, (GRID, GRID, 3), np.uint8)

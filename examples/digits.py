"""Write scikit-learn's bundled handwritten digits as a small image set that can really be learned.

    python examples/digits.py DST
    harness train --backend pytorch --data DST --model mnist_cnn --epochs 20 --until top1=0.9

1797 images of 8 × 8 grey pixels become RGB JPEGs of 32 × 32, in ImageNet's layout: 1437 in ``DST/train/0…9`` and 360 in
``DST/val/0…9``, with equal shares of every digit in both. Needs scikit-learn and Pillow, and no network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SIDE = 32
QUALITY = 95
VALIDATION_IMAGES = 360


def write(folder: Path, seed: int) -> dict[str, int]:
    """Write both parts below the new ``folder``; returns how many images each has. Raises OSError."""
    digits = load_digits()
    splits = train_test_split(
        digits.images, digits.target, test_size=VALIDATION_IMAGES, stratify=digits.target, random_state=seed
    )
    train, validation, train_labels, validation_labels = splits
    for part, images, labels in (("train", train, train_labels), ("val", validation, validation_labels)):
        for label in range(10):
            (folder / part / str(label)).mkdir(parents=True)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            _enlarged(image).save(folder / part / str(label) / f"{number:04}.JPEG", quality=QUALITY)
    return {"train": len(train), "val": len(validation)}


def _enlarged(image: np.ndarray) -> Image.Image:
    """A digit of 8 × 8 floats from 0 to 16 as RGB."""
    grey = Image.fromarray((image * 255 / 16).round().astype(np.uint8))
    return grey.resize((SIDE, SIDE), Image.Resampling.BICUBIC).convert("RGB")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dst", type=Path, help="folder to make")
    parser.add_argument("--seed", type=int, default=1, help="which images are kept for validation")
    arguments = parser.parse_args()
    if arguments.dst.exists():
        sys.exit(f"{arguments.dst} is there already; name a new folder")
    try:
        written = write(arguments.dst, arguments.seed)
    except OSError as error:
        sys.exit(f"cannot write {error.filename}: {error.strerror}")
    print(f"{written['train']} images in {arguments.dst}/train, {written['val']} in {arguments.dst}/val")


if __name__ == "__main__":
    main()

"""Write scikit-learn's bundled handwritten digits as a small image set that can really be learned.

    python examples/digits.py DST
    harness train --backend pytorch --data DST --model mnist_cnn --epochs 20 --until top1=0.9

1797 images of 8 × 8 grey pixels become RGB JPEGs of 32 × 32, in ImageNet's layout: 1437 in ``DST/train/0…9`` and 360 in
``DST/val/0…9``, with equal shares of every digit in both. Needs scikit-learn and Pillow, and no network.
"""

import sys
from pathlib import Path

import click
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SIDE = 32
QUALITY = 95
VALIDATION_IMAGES = 360


@click.command()
@click.argument("dst", type=click.Path(path_type=Path, exists=False))
@click.option("--seed", default=1, help="which images are kept for validation")
def main(dst: Path, seed: int) -> None:
    """Write scikit-learn's handwritten digits to the new folder DST."""
    if dst.exists():
        sys.exit(f"{dst} is there already; name a new folder")
    digits = load_digits()
    train, validation, train_labels, validation_labels = train_test_split(
        digits.images, digits.target, test_size=VALIDATION_IMAGES, stratify=digits.target, random_state=seed
    )
    try:
        for part, images, labels in (("train", train, train_labels), ("val", validation, validation_labels)):
            for label in range(10):
                (dst / part / str(label)).mkdir(parents=True)
            for number, (image, label) in enumerate(zip(images, labels, strict=True)):
                grey = Image.fromarray((image * 255 / 16).round().astype(np.uint8))  # from floats between 0 and 16
                large = grey.resize((SIDE, SIDE), Image.Resampling.BICUBIC).convert("RGB")
                large.save(dst / part / str(label) / f"{number:04}.JPEG", quality=QUALITY)
    except OSError as error:
        sys.exit(f"cannot write {error.filename}: {error.strerror}")
    click.echo(f"{len(train)} images in {dst}/train, {len(validation)} in {dst}/val")


if __name__ == "__main__":
    main()

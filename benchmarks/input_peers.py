"""How others load images for training: ``python input_peers.py torchvision|tf_cnn_benchmarks ARGUMENTS``.

It serves as ``read_images.py`` beside this file does, in the same environment. ARGUMENTS is JSON: ``path``, ``decoders``,
``batch_size``, ``image_size``, and for tf_cnn_benchmarks a ``checkout`` or null, and whether it gets ``our_crops``.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from read_images import serve  # which also makes harness importable


class TorchvisionLike:
    """A data set that opens a file with Pillow and does what torchvision's usual training transforms do, one by one."""

    def __init__(self, index: Any, image_size: int) -> None:
        import torch

        self.index, self.size = index, image_size
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, image: int) -> tuple[Any, int]:
        import numpy as np
        import torch
        from PIL import Image

        with Path(self.index.extent(image).path).open("rb") as file:
            pixels = Image.open(file).convert("RGB")
        pixels = pixels.crop(self._box(*pixels.size)).resize((self.size, self.size), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            pixels = pixels.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        tensor = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).contiguous().float().div(255)
        return tensor.sub_(self.mean).div_(self.std), self.index.labels[image]

    def _box(self, width: int, height: int) -> tuple[int, int, int, int]:
        """8–100 % of the area, at an aspect ratio between 3/4 and 4/3 whose logarithm is uniform."""
        for _ in range(10):
            area = width * height * random.uniform(0.08, 1)
            aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < wide <= width and 0 < high <= height:
                left, top = random.randint(0, width - wide), random.randint(0, height - high)
                return left, top, left + wide, top + high
        return 0, 0, width, height


def torchvision(path: str, decoders: int, batch_size: int, image_size: int) -> Iterator[Any]:
    """The stock DataLoader, with its own collating."""
    from torch.utils.data import DataLoader, RandomSampler

    from harness.worker.inputs.index import read

    images = TorchvisionLike(read(path), image_size)
    endless = RandomSampler(images, replacement=True, num_samples=1 << 40)
    return iter(DataLoader(images, batch_size, sampler=endless, num_workers=decoders))


def tf_cnn_benchmarks(
    path: str, decoders: int, batch_size: int, image_size: int, checkout: str | None, our_crops: bool = False
) -> Iterator[Any]:
    """Its data set in a session, as it trains from it: float32 images in [-1, 1], bilinear, decoding only the crop.

    Its crops are smaller than ours by a seventh; with ``our_crops`` it gets crops as large.
    """
    import tensorflow as tf

    if our_crops:
        # It, and what stands in for it, calls one or the other.
        tf.image.sample_distorted_bounding_box = tf.compat.v1.image.sample_distorted_bounding_box = _our_crop
    with tf.Graph().as_default():
        made = _theirs if checkout else _as_theirs
        images = made(path, decoders, batch_size, image_size, checkout)
        iterator = tf.compat.v1.data.make_initializable_iterator(images)
        # Something that needs the batch, without fetching it: as in training, it stays inside the session.
        taken = tf.group(*iterator.get_next())
        session = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(intra_op_parallelism_threads=decoders))
        session.run(iterator.initializer)
        run = session.make_callable(taken)
    return (run() for _ in repeat(None))


def _our_crop(shape: Any, **_: Any) -> tuple[Any, Any, None]:
    """In the place of tf.image.sample_distorted_bounding_box: one of 10,000 crops that were drawn for 500 × 375 pixels."""
    import numpy as np
    import tensorflow as tf

    from harness.worker.inputs import augmentation

    width, height, count = 500, 375, 10_000
    crops, _flips = augmentation.draws(0, 0, range(count))
    boxes = np.array([augmentation.random_crop(each, width, height) for each in crops])
    shares = (boxes / [width, height, width, height])[:, [1, 0, 3, 2]].astype(np.float32)
    chosen = tf.gather(shares, tf.random.uniform([], 0, count, tf.int32))
    pixels = tf.cast(chosen * tf.cast(tf.tile(shape[:2], [2]), tf.float32), tf.int32)
    return tf.concat([pixels[:2], [0]], 0), tf.concat([pixels[2:], [-1]], 0), None


def _theirs(path: str, decoders: int, batch_size: int, image_size: int, checkout: str) -> Any:
    """With the options that are its defaults for ImageNet."""
    sys.path.insert(0, checkout)
    import datasets
    import preprocessing
    import tensorflow as tf

    preprocessor = preprocessing.RecordInputImagePreprocessor(
        batch_size,
        [[batch_size, image_size, image_size, 3], [batch_size]],
        num_splits=1,
        dtype=tf.float32,
        train=True,
        distortions=False,
        resize_method="bilinear",
    )
    return preprocessor.create_dataset(
        batch_size,
        num_splits=1,
        batch_size_per_split=batch_size,
        dataset=datasets.ImagenetDataset(path),
        subset="train",
        train=True,
        datasets_repeat_cached_sample=False,
        num_threads=decoders,
    )


def _as_theirs(path: str, decoders: int, batch_size: int, image_size: int, _: None) -> Any:
    """The same operators in the same order, for who has no checkout."""
    import tensorflow as tf

    def image(record: Any) -> tuple[Any, Any]:
        features = {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([1], tf.int64),
        }
        found = tf.io.parse_single_example(record, features)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(found["image/encoded"]),
            bounding_boxes=tf.zeros([1, 0, 4]),
            min_object_covered=0.1,
            aspect_ratio_range=[0.75, 1.33],
            area_range=[0.05, 1.0],
            max_attempts=100,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        pixels = tf.image.random_flip_left_right(tf.io.decode_and_crop_jpeg(found["image/encoded"], window, channels=3))
        resized = tf.image.resize(pixels, [image_size, image_size])
        return resized * (1 / 127.5) - 1.0, tf.cast(found["image/class/label"], tf.int32)

    options = tf.data.Options()
    options.threading.private_threadpool_size = decoders
    return (
        tf.data.Dataset.list_files(f"{path}/train-*-of-*")
        .interleave(tf.data.TFRecordDataset, cycle_length=10, num_parallel_calls=10)
        .prefetch(batch_size)
        .shuffle(10000)
        .repeat()
        .map(image, num_parallel_calls=batch_size)
        .batch(batch_size, drop_remainder=True)
        .prefetch(1)
        .with_options(options)
    )


def _main() -> None:
    peer, arguments = sys.argv[1], json.loads(sys.argv[2])
    batches = {"torchvision": torchvision, "tf_cnn_benchmarks": tf_cnn_benchmarks}[peer](**arguments)
    serve(batches, arguments["batch_size"], ahead=2 * arguments["decoders"] + 2)
    os._exit(0)


if __name__ == "__main__":
    _main()

"""JPEGs for TensorFlow: a tf.data pipeline of TensorFlow's own operators, in graph mode or eagerly. Python 3.9.

Python runs once per epoch, to shuffle. So 1.28 million paths are neither a constant of the graph nor fed one by one.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Optional, Tuple

import numpy as np
import tensorflow as tf

from harness.inputs.augmentation import AREA, ASPECT, ATTEMPTS, MEAN, STD
from harness.inputs.index import BadImage, ImageIndex, check_world, order, shard

PNG = b"\x89PNG\r\n\x1a\n"
END = b"\xff\xd9"  # the marker that ends a JPEG
PADDING = 4096  # bytes that may follow it


def dataset(
    index: ImageIndex, rank: int, world: int, batch_size: int, image_size: int, seed: int, threads: int
) -> tf.data.Dataset:
    """A rank's batches without end: images float32 [N, H, W, 3], labels int64 [N], in static shapes.

    ``threads`` decode at once; the order is that of ``index.order``, and a crop depends on (seed, epoch, image) alone,
    so runs repeat. Raises DataError when there are fewer images than ranks. In graph mode use
    ``tf.compat.v1.data.make_initializable_iterator``, and place it on the task that built it: the shuffle is Python.

    An image that cannot be decoded ends the iteration with a tf.errors.OpError: see ``find_bad_image``.
    """
    check_world(len(index), world)
    options = tf.data.Options()
    options.deterministic = True
    options.threading.private_threadpool_size = threads
    # AutoGraph would rewrite the shuffle's Python too, and make it five times slower.
    shuffle = tf.autograph.experimental.do_not_convert(lambda epoch: _epoch(index, rank, world, seed, epoch))
    return (
        tf.data.Dataset.range(2**31)
        .map(shuffle)  # not prefetched: shuffling the second epoch would disturb the first steps, which are measured
        .flat_map(lambda *images: tf.data.Dataset.from_tensor_slices(images))
        .map(lambda path, label, key: (decode(path, key, image_size), label), num_parallel_calls=threads)
        .batch(batch_size, drop_remainder=True)  # nothing is ever dropped, but the shape becomes static
        .prefetch(2)
        .with_options(options)
    )


def _epoch(
    index: ImageIndex, rank: int, world: int, seed: int, epoch: tf.Tensor
) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """A rank's images of one epoch: paths string [n], labels int64 [n], keys int64 [n, 2]."""

    def read(epoch: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        images = shard(len(index), rank, world, int(epoch), seed)
        paths = np.array([os.fsencode(index.path(image)) for image in images], object)
        labels = np.array([index.labels[image] for image in images], np.int64)
        return paths, labels, np.array([_key(index, seed, int(epoch), image) for image in images], np.int64)

    paths, labels, keys = tf.numpy_function(read, [epoch], [tf.string, tf.int64, tf.int64])
    return tf.ensure_shape(paths, [None]), tf.ensure_shape(labels, [None]), tf.ensure_shape(keys, [None, 2])


def _key(index: ImageIndex, seed: int, epoch: int, image: int) -> Tuple[int, int]:
    """What decides an image's crop; the odd number after it decides the flip."""
    return seed, 2 * (epoch * len(index) + image)


def decode(path: tf.Tensor, key: tf.Tensor, image_size: int) -> tf.Tensor:
    """Read an image, crop, resize, flip and normalise it: float32 [H, W, 3], from a path and a key int64 [2].

    Takes what Pillow takes in the PyTorch pipeline: JPEGs (also grey and CMYK) with an end marker, and PNGs.
    """
    contents = tf.io.read_file(path)
    jpeg = tf.io.is_jpeg(contents)
    # The JPEG decoder stops after the crop's last row, so it would miss that a file is cut short below.
    tail = tf.strings.substr(contents, tf.maximum(tf.strings.length(contents) - PADDING, 0), PADDING)
    ends = tf.size(tf.strings.split([tail], END).flat_values) > 1
    png = tf.equal(tf.strings.substr(contents, 0, len(PNG)), PNG)
    reason = tf.where(jpeg, "the image file is truncated", "neither JPEG nor PNG")
    with tf.control_dependencies([tf.debugging.Assert((jpeg & ends) | png, [path + "; " + reason])]):
        contents = tf.identity(contents)
    image = tf.cond(jpeg, lambda: _crop_jpeg(contents, key), lambda: _crop_png(contents, key))
    image = tf.image.resize(image, [image_size, image_size], method="bilinear")
    image = tf.image.stateless_random_flip_left_right(image, key + tf.constant([0, 1], tf.int64))
    return (image - tf.constant(MEAN)) / tf.constant(STD)


def _crop_jpeg(contents: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    begin, size = _crop(tf.io.extract_jpeg_shape(contents), key)
    # Decoding only the crop halves the work; see tf_cnn_benchmarks' --fuse_decode_and_crop.
    return tf.io.decode_and_crop_jpeg(contents, tf.concat([begin[:2], size[:2]], 0), channels=3)


def _crop_png(contents: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_png(contents, channels=3)
    begin, size = _crop(tf.shape(image), key)
    return tf.slice(image, begin, size)


def _crop(shape: tf.Tensor, key: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """A random crop of an image [H, W, 3]: where it begins, and its size; int32 [3] as tf.slice wants them."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        bounding_boxes=tf.zeros([1, 0, 4]),
        seed=key,
        min_object_covered=0.0,
        aspect_ratio_range=ASPECT,
        area_range=AREA,
        max_attempts=ATTEMPTS,
        use_image_if_no_bounding_boxes=True,
    )
    return begin, size


def _reason(message: str, path: str) -> str:
    """What happened: TensorFlow writes "reason" or "[path; reason]" on a line between the places in the graph."""
    line = message.partition("\n\t [[")[0].rpartition("\n")[2]
    return line.rpartition(f"{path}; ")[2].rstrip("]")


def find_bad_image(index: ImageIndex, rank: int, world: int, seed: int, limit: int) -> Optional[BadImage]:
    """The first image that fails among the first ``limit`` that a rank reads; None when all of them decode.

    For a trainer whose session raised a tf.errors.OpError: decoders do not say which file they were given. The pipeline
    reads ahead, so ``limit`` is the images consumed and some batches more. Decodes them again, on the CPU.
    """
    with tf.Graph().as_default(), tf.device("/cpu:0"):  # a graph of its own: works beside any session, and eagerly
        path, key = tf.compat.v1.placeholder(tf.string, []), tf.compat.v1.placeholder(tf.int64, [2])
        pixel = decode(path, key, image_size=1)
        session = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}))

    def attempt(position: Tuple[int, int]) -> Optional[BadImage]:
        epoch, image = position
        try:
            session.run(pixel, {path: os.fsencode(index.path(image)), key: _key(index, seed, epoch, image)})
        except tf.errors.OpError as error:
            return BadImage(index.path(image), _reason(error.message, index.path(image)))
        return None

    with session, ThreadPoolExecutor() as pool:
        positions = itertools.islice(order(len(index), rank, world, seed), limit)
        return next(filter(None, pool.map(attempt, positions)), None)

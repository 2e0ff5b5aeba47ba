"""Images for TensorFlow: a tf.data pipeline of TensorFlow's own operators, in graph mode or eagerly. Python 3.9.

Python runs twice per group of images: to say which they are, and how to decode them. So 1.28 million paths are neither a
constant of the graph nor fed one by one.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Tuple, TypeVar

import numpy as np
import tensorflow as tf

from harness.worker.inputs import augmentation, tfrecord
from harness.worker.inputs.augmentation import JPEG, MEAN, RATIOS, STD
from harness.worker.inputs.errors import BadImage
from harness.worker.inputs.index import ImageIndex, ShardIndex
from harness.worker.inputs.order import GROUP, ReadingOrder, images_of
from harness.worker.inputs.tfrecord import ENCODED, LABEL

GROUPS_AHEAD = 2  # that are read while the images of another are decoded
READS = GROUP // ShardIndex.chunk  # at once, of runs of records or of files

Tensors = Tuple[Any, ...]
Function = TypeVar("Function", bound=Callable[..., Any])
# AutoGraph does not translate such functions: it would leave a file for each in the temporary folder.
as_written: Callable[[Function], Function] = tf.autograph.experimental.do_not_convert


def batches(reading: ReadingOrder) -> tf.data.Dataset:
    """Images float32 [N, H, W, 3] and labels int64 [N], in static shapes.

    The decoders are threads. In graph mode use ``tf.compat.v1.data.make_initializable_iterator``, and place it on the task
    that built it: the shuffle is Python. A bad image ends the iteration with a tf.errors.OpError: see ``find_bad_image``.
    """
    index, image_size, seed = reading.index, reading.image_size, reading.seed
    source = Files(index) if isinstance(index, ImageIndex) else Shards(index, reading.num_classes)
    signature = source.signature
    if seed is not None:
        crops, flips = tf.TensorSpec([None, augmentation.ATTEMPTS, 4], tf.float64), tf.TensorSpec([None], tf.bool)
        signature += (crops, flips)

    def groups() -> Iterator[Tuple[np.ndarray, ...]]:
        for epoch, pieces, places in reading.groups():
            drawn = () if seed is None else augmentation.draws(seed, epoch, images_of(pieces)[places])
            yield (*source.described(pieces, places), *drawn)

    @as_written
    def read(*group: tf.Tensor) -> Tensors:
        drawn = group[len(source.signature) :]
        encoded, labels = source.read(*group[: len(source.signature)])
        return encoded, labels, *planned(encoded, image_size, *drawn[:1]), *drawn[1:]

    @as_written
    def decoded(contents: tf.Tensor, label: tf.Tensor, *plan: tf.Tensor) -> Tensors:
        return decode(contents, image_size, *plan), label

    # Many images wait for a thread: one that finds nothing to do looks for work, at some expense.
    queued = max(reading.decoders, min(reading.batch_size, 16 * reading.decoders))
    images = (
        # Not prefetched: shuffling the second epoch would disturb the first steps, which are measured.
        tf.data.Dataset.from_generator(groups, output_signature=signature)
        .map(read, num_parallel_calls=GROUPS_AHEAD)
        .flat_map(as_written(lambda *group: tf.data.Dataset.from_tensor_slices(group)))
        .map(decoded, num_parallel_calls=queued)
    )
    if seed is None:
        begin, end = reading.share
        padding = -(-reading.longest_share // reading.batch_size) * reading.batch_size - (end - begin)
        nothing = (tf.zeros([image_size, image_size, 3]), tf.constant(-1, tf.int64))
        images = images.concatenate(tf.data.Dataset.from_tensors(nothing).repeat(padding))
    options = tf.data.Options()
    options.deterministic = True
    options.threading.private_threadpool_size = reading.decoders
    options.threading.max_intra_op_parallelism = 1  # images are enough to share out
    options.experimental_optimization.map_and_batch_fusion = True  # images are written where the batch has them
    # Nothing is ever dropped, but the shape becomes static.
    return images.batch(reading.batch_size, drop_remainder=True).prefetch(2).with_options(options)


# The sources of a group's images. ``described`` gives them as arrays of ``signature``, from pieces [k, 2] and the order of
# the images in them; ``read`` makes of these the encoded images, and their labels.


@dataclass
class Files:
    """A folder's images. They are described by paths and labels."""

    index: ImageIndex

    signature = (tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int64))

    def described(self, pieces: np.ndarray, places: np.ndarray) -> Tuple[np.ndarray, ...]:
        images = images_of(pieces)[places].tolist()
        paths = np.array([os.fsencode(self.index.extent(image).path) for image in images], object)
        return paths, np.array([self.index.labels[image] for image in images], np.int64)

    def read(self, paths: tf.Tensor, labels: tf.Tensor) -> Tensors:
        files = tf.data.Dataset.from_tensor_slices(paths).map(tf.io.read_file, num_parallel_calls=READS)
        return files.batch(GROUP).get_single_element(), labels


@dataclass
class Shards:
    """Records, which are read in runs."""

    index: ShardIndex
    num_classes: Optional[int]

    signature = (tf.TensorSpec([None], tf.string), *[tf.TensorSpec([None], tf.int64)] * 5)

    def described(self, pieces: np.ndarray, places: np.ndarray) -> Tuple[np.ndarray, ...]:
        """The shard, begin, bytes and records of each run, and the bytes and place of each image."""
        runs = [self.index.run(begin, end) for begin, end in pieces.tolist()]
        counts = pieces[:, 1] - pieces[:, 0]
        return (
            np.array([os.fsencode(run.path) for run in runs], object),
            np.array([run.offset - tfrecord.HEADER.size for run in runs], np.int64),
            np.array([run.length + tfrecord.OVERHEAD for run in runs], np.int64),
            counts,
            self.index.lengths[images_of(pieces)],
            places,
        )

    def read(self, *described: tf.Tensor) -> Tensors:
        """Encoded images and their labels. TensorFlow verifies the records' checksums."""
        *runs, lengths, places = described
        read = (
            tf.data.Dataset.from_tensor_slices(tuple(runs))
            .interleave(_run, cycle_length=READS, block_length=ShardIndex.chunk, num_parallel_calls=READS)
            .batch(GROUP)
            .get_single_element()
        )
        # A shard may have become shorter, or another, since it was indexed.
        expected = tf.reduce_all(tf.equal(tf.strings.length(read), tf.cast(lengths, tf.int32)))
        with tf.control_dependencies([tf.debugging.Assert(expected, ["records have other lengths than they had"])]):
            read = tf.gather(read, places)
        features = {ENCODED: tf.io.FixedLenFeature([], tf.string), LABEL: tf.io.FixedLenFeature([], tf.int64)}
        parsed = tf.io.parse_example(read, features)
        encoded, labels = parsed[ENCODED], parsed[LABEL]
        if self.num_classes is not None:
            valid = tf.reduce_all((labels >= 0) & (labels < self.num_classes))
            with tf.control_dependencies([tf.debugging.Assert(valid, ["a label is out of range"])]):
                labels = tf.identity(labels)
        return encoded, labels


@as_written
def _run(path: tf.Tensor, offset: tf.Tensor, size: tf.Tensor, count: tf.Tensor) -> tf.data.Dataset:
    """The records of a run, which is read at once."""
    # tf.data.TFRecordDataset has no argument for the place to begin at.
    from_there = tf.raw_ops.TFRecordDatasetV2(
        filenames=[path], compression_type="", buffer_size=size, byte_offsets=[offset]
    )
    return tf.data.experimental.from_variant(from_there, tf.TensorSpec([], tf.string)).take(count)


def decode(contents: tf.Tensor, image_size: int, window: tf.Tensor, ratio: tf.Tensor, *flip: tf.Tensor) -> tf.Tensor:
    """Crop, resize, flip and normalise an encoded image: float32 [H, W, 3].

    ``window`` int32 [4] and ``ratio`` int32 [] are what ``planned`` says of it; ``flip`` bool [] is given for training.
    """
    # A function of its own: as part of the graph around it, each operator of a branch that is seldom taken would take
    # time in every image, if only to be passed over.
    apart = tf.function(_crop, autograph=False, experimental_attributes={"_noinline": True})
    image = tf.cond(tf.equal(ratio, 1), lambda: _crop_jpeg(contents, window, 1), lambda: apart(contents, window, ratio))
    # Bytes would give the same pixels, more slowly: each would be converted as often as it is used.
    resized = tf.image.resize(tf.cast(image, tf.float32), [image_size, image_size], method="bilinear")
    if flip:
        resized = tf.cond(flip[0], lambda: tf.reverse(resized, [1]), lambda: resized)
    # As if every value of a row were a channel: TensorFlow is eight times faster on whole rows than on three channels.
    rows = tf.reshape(resized, [1, 1, image_size, image_size * 3])
    mean, std = (np.tile(np.array(of_colours, np.float32), image_size) for of_colours in (MEAN, STD))
    scale, offset = np.ones_like(mean), np.zeros_like(mean)
    normalised, _, _ = tf.compat.v1.nn.fused_batch_norm(rows, scale, offset, mean, std**2, is_training=False)
    return tf.reshape(normalised, [image_size, image_size, 3])


@as_written  # or what is Python gets five times slower
def planned(encoded: tf.Tensor, image_size: int, *crops: tf.Tensor) -> Tensors:
    """The decoding plans of images, by ``_plan``: windows int32 [n, 4] and ratios int32 [n]."""

    def plans(encoded: np.ndarray, *crops: np.ndarray) -> Tuple[np.ndarray, ...]:
        windows, ratios = np.zeros((len(encoded), 4), np.int32), np.ones(len(encoded), np.int32)
        for image, contents in enumerate(encoded):
            with suppress(ValueError):  # decoding what has no window fails, when its turn comes
                windows[image], ratios[image] = _plan(contents, image_size, *(drawn[image] for drawn in crops))
        return windows, ratios

    # Python is called once for many images: a dozen operators for each of them would take longer.
    windows, ratios = tf.numpy_function(plans, [encoded, *crops], [tf.int32, tf.int32])
    return tf.ensure_shape(windows, [None, 4]), tf.ensure_shape(ratios, [None])


def _plan(contents: bytes, image_size: int, crops: Optional[np.ndarray] = None) -> Tuple[Tuple[int, ...], int]:
    """The window to decode (top, left, height, width), and what divides a JPEG's size, 0 for a PNG. Raises ValueError."""
    is_jpeg = contents.startswith(JPEG)
    size = augmentation.size_of(contents)
    (left, top, wide, high), ratio = augmentation.plan(*size, image_size if is_jpeg else None, crops)
    return (top, left, high, wide), ratio if is_jpeg else 0


def _crop(contents: tf.Tensor, window: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
    jpegs = [partial(_crop_jpeg, contents, window, divided) for divided in RATIOS]
    number = tf.argmax(tf.equal(ratio, [0, *RATIOS]), output_type=tf.int32)
    return tf.switch_case(number, [partial(_crop_png, contents, window), *jpegs])


def _crop_jpeg(contents: tf.Tensor, window: tf.Tensor, ratio: int) -> tf.Tensor:
    return tf.io.decode_and_crop_jpeg(contents, window, channels=3, ratio=ratio, dct_method="INTEGER_ACCURATE")


def _crop_png(contents: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    top, left, high, wide = tf.unstack(window)
    return tf.io.decode_png(contents, channels=3)[top : top + high, left : left + wide]


def find_bad_image(reading: ReadingOrder, count: int) -> Optional[BadImage]:
    """The first image that fails among the first ``count`` that are read; None when all of them decode.

    For a trainer whose session raised a tf.errors.OpError: operators do not say which image they were given. Reads and
    decodes them again, on the CPU; the pipeline reads ahead, so look some batches further than was trained.
    """
    with tf.Graph().as_default(), tf.device("/cpu:0"):  # a graph of its own: works beside any session, and eagerly
        inputs = [tf.compat.v1.placeholder(*kind) for kind in ((tf.string, []), (tf.int32, [4]), (tf.int32, []))]
        pixels = _crop(*inputs)
        session = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}))

    def attempt(position: Tuple[int, int]) -> Optional[BadImage]:
        epoch, image = position
        crops = None if reading.seed is None else augmentation.draws(reading.seed, epoch, [image])[0][0]
        extent = reading.index.extent(image)
        place = extent.path
        try:
            if isinstance(reading.index, ShardIndex):
                encoded, _, place = tfrecord.read_image(extent, reading.num_classes, verified=True)
            else:
                encoded = Path(place).read_bytes()
            session.run(pixels, dict(zip(inputs, (encoded, *_plan(encoded, reading.image_size, crops)))))
        except BadImage as bad:
            return bad
        except tf.errors.OpError as error:  # its message has the reason on a line between places in the graph
            return BadImage(place, error.message.partition("\n\t [[")[0].rpartition("\n")[2])
        except (OSError, ValueError) as error:
            return BadImage(place, getattr(error, "strerror", None) or str(error))
        return None

    positions = islice(reading.positions(), count)
    with session, ThreadPoolExecutor() as pool:
        while some := list(islice(positions, GROUP)):  # as the pool takes all that it is given before it gives anything
            if bad := next(filter(None, pool.map(attempt, some)), None):
                return bad
    return None

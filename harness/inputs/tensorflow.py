"""Images for TensorFlow: a tf.data pipeline of TensorFlow's own operators, in graph mode or eagerly. Python 3.9.

Python runs once per epoch, to shuffle, and once per group of images. So 1.28 million paths are neither a constant of the
graph nor fed one by one.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, Callable, Iterable, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from harness.inputs import augmentation, order, records, tfrecord
from harness.inputs.augmentation import CENTRE, MEAN, RATIOS, STD
from harness.inputs.errors import BadImage
from harness.inputs.index import ImageIndex, Index
from harness.inputs.shards import CHUNK, ShardIndex

JPEG = b"\xff\xd8\xff"
PNG = b"\x89PNG\r\n\x1a\n"
END = b"\xff\xd9"  # the marker that ends a JPEG
PADDING = 4096  # bytes that may follow it
ENCODED, LABEL = records.ENCODED.decode(), records.LABEL.decode()

Tensors = Tuple[Any, ...]
Signature = Tuple[Tuple[Any, Any], ...]  # dtypes and shapes


def dataset(
    index: Index,
    rank: int,
    world: int,
    batch_size: int,
    image_size: int,
    seed: int,
    threads: int,
    num_classes: Optional[int] = None,
    done: int = 0,
) -> tf.data.Dataset:
    """A rank's batches without end: images float32 [N, H, W, 3], labels int64 [N], in static shapes.

    They go on after the first ``done`` images of the rank. ``threads`` decode at once; the order is that of
    ``order.order``, and a crop depends on (seed, epoch, image) alone, so runs repeat. Raises DataError when there are
    fewer images than ranks. In graph mode use ``tf.compat.v1.data.make_initializable_iterator``, and place it on the task
    that built it: the shuffle is Python.

    An image that cannot be read or decoded, or whose label is not below ``num_classes``, ends the iteration with a
    tf.errors.OpError: see ``find_bad_image``.
    """
    order.check_world(len(index), world)
    source, chunks = _source(index, num_classes), index.chunks()

    def described(epoch: int, pieces: np.ndarray) -> Tuple[np.ndarray, ...]:
        images = order.images_of(pieces)
        places = order.places(images, epoch, seed)
        return (*source.described(pieces, places), *augmentation.draws(seed, epoch, images[places]))

    pieces_of = _python(lambda epoch: [order.epoch_pieces(chunks, rank, world, epoch, seed)], PIECES)
    describe = _python(described, source.signature + DRAWN)

    def groups(epoch: tf.Tensor) -> tf.data.Dataset:
        pieces = tf.data.Dataset.from_tensor_slices(*pieces_of(epoch)).batch(order.GROUP // index.chunk)
        return pieces.map(lambda pieces: describe(epoch, pieces))

    # Not prefetched: shuffling the second epoch would disturb the first steps, which are measured.
    first_epoch, skipped = order.reached(len(index), rank, world, done)
    epochs = tf.data.Dataset.range(first_epoch, 2**31)
    queued = _queued(batch_size, threads)
    return _batched(_images(source, epochs.flat_map(groups), image_size, queued, skipped), batch_size, threads)


def evaluation(
    index: Index,
    rank: int,
    world: int,
    batch_size: int,
    image_size: int,
    threads: int,
    num_classes: Optional[int] = None,
) -> tf.data.Dataset:
    """A rank's share of all images, once, in order, cropped in the middle: batches as those of ``dataset``.

    Every rank has the same number of them: where its images end, labels are -1 and images are zero.
    """
    begin, end = order.share(len(index), rank, world)
    padding = -(-order.longest_share(len(index), world) // batch_size) * batch_size - (end - begin)
    source = _source(index, num_classes)
    pieces = _python(lambda _: [order.cut(index.chunks(), begin, end)], PIECES)
    describe = _python(lambda pieces: source.described(pieces, slice(None)), source.signature)
    groups = (
        tf.data.Dataset.range(1)
        .flat_map(lambda number: tf.data.Dataset.from_tensor_slices(*pieces(number)))
        .batch(order.GROUP // index.chunk)
        .map(describe)
    )
    nothing = tf.data.Dataset.from_tensors((tf.zeros([image_size, image_size, 3]), tf.constant(-1, tf.int64)))
    images = _images(source, groups, image_size, _queued(batch_size, threads))
    return _batched(images.concatenate(nothing.repeat(padding)), batch_size, threads)


def _images(source: Source, groups: tf.data.Dataset, image_size: int, queued: int, skipped: int = 0) -> tf.data.Dataset:
    """Images one by one, of groups that are described by what ``source`` wants, and by what was drawn if it was.

    ``queued`` may wait for a thread to decode them. The first ``skipped`` are not decoded.
    """
    described = len(source.signature)

    def read(*group: tf.Tensor) -> Tensors:
        return (*source.read(*group[:described]), *group[described:])

    def decoded(stored: tf.Tensor, label: tf.Tensor, *drawn: tf.Tensor) -> Tensors:
        return decode(source.contents(stored), image_size, *drawn), label

    return (
        groups.map(read, num_parallel_calls=source.groups_ahead)
        .flat_map(lambda *group: tf.data.Dataset.from_tensor_slices(group))
        .skip(skipped)
        .map(decoded, num_parallel_calls=queued)
    )


def _queued(batch_size: int, threads: int) -> int:
    """How many images to give to the threads at a time: one that finds nothing to do looks for work, at some expense."""
    return max(threads, min(batch_size, 16 * threads))


def _batched(images: tf.data.Dataset, batch_size: int, threads: int) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = True
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1  # images are enough to share out
    options.experimental_optimization.map_and_batch_fusion = True  # images are written where the batch has them
    # Nothing is ever dropped, but the shape becomes static.
    return images.batch(batch_size, drop_remainder=True).prefetch(2).with_options(options)


PIECES: Signature = ((tf.int64, [None, 2]),)
DRAWN: Signature = ((tf.float64, [None, augmentation.ATTEMPTS, 4]), (tf.bool, [None]))


def _python(function: Callable[..., Any], signature: Signature) -> Callable[..., Tensors]:
    """A function of arrays, as one of tensors."""

    def call(*arguments: tf.Tensor) -> Tensors:
        results = tf.numpy_function(function, arguments, [dtype for dtype, _ in signature])
        return tuple(tf.ensure_shape(result, shape) for result, (_, shape) in zip(results, signature))

    # AutoGraph would rewrite the function too, and make it five times slower.
    converted: Callable[..., Tensors] = tf.autograph.experimental.do_not_convert(call)
    return converted


# Where a group's images come from. ``described`` says it in arrays of ``signature``, given pieces [k, 2] and the order of
# the images in them; ``read`` makes of these what is stored of each image, and its label; ``contents`` the encoded image.


class Files:
    """A folder's images: they are read one by one, when they are decoded."""

    signature: Signature = ((tf.string, [None]), (tf.int64, [None]))
    groups_ahead = None

    def __init__(self, index: ImageIndex) -> None:
        self._index = index

    def described(self, pieces: np.ndarray, places: Union[np.ndarray, slice]) -> Tuple[np.ndarray, ...]:
        """Paths and labels."""
        images = order.images_of(pieces)[places].tolist()
        paths = np.array([os.fsencode(self._index.path(image)) for image in images], object)
        return paths, np.array([self._index.labels[image] for image in images], np.int64)

    def read(self, paths: tf.Tensor, labels: tf.Tensor) -> Tensors:
        """Nothing yet."""
        return paths, labels

    def contents(self, path: tf.Tensor) -> tf.Tensor:
        """The file."""
        return tf.io.read_file(path)


class Shards:
    """Records: whole groups are read, run by run, while the one before is decoded."""

    signature: Signature = ((tf.string, [None]), *((tf.int64, [None]),) * 5)
    groups_ahead = 2

    def __init__(self, index: ShardIndex, num_classes: Optional[int]) -> None:
        self._index, self._num_classes = index, num_classes

    def described(self, pieces: np.ndarray, places: Union[np.ndarray, slice]) -> Tuple[np.ndarray, ...]:
        """Of each run: its shard, where it begins, its bytes, its records. Of each image: its bytes, and its place."""
        runs = [self._index.run(begin, end) for begin, end in pieces.tolist()]
        counts = pieces[:, 1] - pieces[:, 0]
        return (
            np.array([os.fsencode(run.path) for run in runs], object),
            np.array([run.offset - tfrecord.HEADER.size for run in runs], np.int64),
            np.array([run.length + tfrecord.OVERHEAD for run in runs], np.int64),
            counts,
            self._index.lengths[order.images_of(pieces)],
            np.arange(counts.sum())[places],
        )

    def read(self, *described: tf.Tensor) -> Tensors:
        """Encoded images and their labels. TensorFlow verifies the records' checksums."""
        *runs, lengths, places = described
        found = (
            tf.data.Dataset.from_tensor_slices(tuple(runs))
            .interleave(
                _run, cycle_length=order.GROUP // CHUNK, block_length=CHUNK, num_parallel_calls=order.GROUP // CHUNK
            )
            .batch(order.GROUP)
            .get_single_element()
        )
        # A shard may have become shorter, or another, since it was indexed.
        expected = tf.reduce_all(tf.equal(tf.strings.length(found), tf.cast(lengths, tf.int32)))
        with tf.control_dependencies([tf.debugging.Assert(expected, ["records have other lengths than they had"])]):
            found = tf.gather(found, places)
        wanted = {ENCODED: tf.io.FixedLenFeature([], tf.string), LABEL: tf.io.FixedLenFeature([], tf.int64)}
        features = tf.io.parse_example(found, wanted)
        encoded, labels = features[ENCODED], features[LABEL]
        if self._num_classes is not None:
            valid = tf.reduce_all((labels >= 0) & (labels < self._num_classes))
            with tf.control_dependencies([tf.debugging.Assert(valid, ["a label is out of range"])]):
                labels = tf.identity(labels)
        return encoded, labels

    def contents(self, encoded: tf.Tensor) -> tf.Tensor:
        """What was read."""
        return encoded


Source = Union[Files, Shards]


def _source(index: Index, num_classes: Optional[int]) -> Source:
    return Files(index) if isinstance(index, ImageIndex) else Shards(index, num_classes)


def _run(path: tf.Tensor, offset: tf.Tensor, size: tf.Tensor, count: tf.Tensor) -> tf.data.Dataset:
    """The records of a run, which is read at once."""
    # tf.data.TFRecordDataset has no argument for the place to begin at.
    from_there = tf.raw_ops.TFRecordDatasetV2(
        filenames=[path], compression_type="", buffer_size=size, byte_offsets=[offset]
    )
    return tf.data.experimental.from_variant(from_there, tf.TensorSpec([], tf.string)).take(count)


def decode(contents: tf.Tensor, image_size: int, crops: Any = None, flip: Any = None) -> tf.Tensor:
    """Crop, flip, resize and normalise an encoded image: float32 [H, W, 3].

    ``crops`` float64 [ATTEMPTS, 4] and ``flip`` bool [] are what ``augmentation.draws`` has drawn; without them it is the
    crop for evaluation. Takes what Pillow takes in the PyTorch pipeline: JPEGs (also grey and CMYK) with an end marker,
    and PNGs.
    """
    begins, ends = tf.strings.substr(contents, 0, len(JPEG)), tf.maximum(tf.strings.length(contents) - len(END), 0)
    usual = tf.equal(begins, JPEG) & tf.equal(tf.strings.substr(contents, ends, len(END)), END)
    image = tf.cond(
        usual,
        lambda: _crop_jpeg(contents, crops, image_size),
        lambda: _apart(partial(_crop_unusual, image_size=image_size), contents, crops),
    )
    if flip is not None:
        image = tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image)
    # Of bytes the same pixels would come out, more slowly: each is converted as often as it is looked at.
    resized = tf.image.resize(tf.cast(image, tf.float32), [image_size, image_size], method="bilinear")
    # As if every value of a row were a channel: TensorFlow is eight times faster on whole rows than on three channels.
    rows = tf.reshape(resized, [1, 1, image_size, image_size * 3])
    mean, std = (np.tile(np.array(of_colours, np.float32), image_size) for of_colours in (MEAN, STD))
    one, zero = np.ones_like(mean), np.zeros_like(mean)
    normalised, _, _ = tf.compat.v1.nn.fused_batch_norm(rows, one, zero, mean, std**2, is_training=False)
    return tf.reshape(normalised, [image_size, image_size, 3])


def _apart(branch: Callable[..., tf.Tensor], *arguments: Any) -> tf.Tensor:
    """A branch that is seldom taken, as a function of its own.

    As part of the graph around it, each of its operators would take time in every image, if only to be passed over.
    """
    return tf.function(branch, autograph=False, experimental_attributes={"_noinline": True})(*arguments)


def _crop_unusual(contents: tf.Tensor, crops: Any, image_size: int) -> tf.Tensor:
    """The crop of a PNG, or of a JPEG with something behind its end. Fails for anything else.

    A JPEG must end, because its decoder stops after the crop's last row and would not miss what should be below.
    """
    jpeg, png = (tf.equal(tf.strings.substr(contents, 0, len(magic)), magic) for magic in (JPEG, PNG))
    tail = tf.strings.substr(contents, tf.maximum(tf.strings.length(contents) - PADDING, 0), PADDING)
    ends = tf.size(tf.strings.split([tail], END).flat_values) > 1
    reason = tf.where(jpeg, "the image file is truncated", "neither JPEG nor PNG")
    with tf.control_dependencies([tf.debugging.Assert((jpeg & ends) | png, [reason])]):
        contents = tf.identity(contents)
    return tf.cond(jpeg, lambda: _crop_jpeg(contents, crops, image_size), lambda: _crop_png(contents, crops))


def _crop_jpeg(contents: tf.Tensor, crops: Any, image_size: int) -> tf.Tensor:
    """Decoding only the crop halves the work; see tf_cnn_benchmarks' --fuse_decode_and_crop."""
    shape = tf.io.extract_jpeg_shape(contents)[:2]
    begin, size = _crop(tf.cast(shape, tf.float64), crops)
    return tf.cond(
        tf.reduce_min(size) < float(RATIOS[1] * image_size),
        lambda: _decode_and_crop(contents, _window(begin, size, shape, 1), 1),
        lambda: _apart(partial(_crop_smaller, image_size=image_size), contents, begin, size, shape),
    )


def _crop_smaller(
    contents: tf.Tensor, begin: tf.Tensor, size: tf.Tensor, shape: tf.Tensor, image_size: int
) -> tf.Tensor:
    """The crop of a large JPEG, at a half of its size or less."""
    ratios = RATIOS[1:]
    enough = tf.reduce_min(size) >= [float(ratio * image_size) for ratio in ratios]
    chosen = tf.reduce_sum(tf.cast(enough, tf.int32)) - 1
    window = _window(begin, size, shape, tf.gather(ratios, chosen))
    return tf.switch_case(chosen, [partial(_decode_and_crop, contents, window, ratio) for ratio in ratios])


def _decode_and_crop(contents: tf.Tensor, window: tf.Tensor, ratio: int) -> tf.Tensor:
    return tf.io.decode_and_crop_jpeg(contents, window, channels=3, ratio=ratio, dct_method="INTEGER_ACCURATE")


def _crop_png(contents: tf.Tensor, crops: Any) -> tf.Tensor:
    image = tf.io.decode_png(contents, channels=3)
    shape = tf.shape(image)[:2]
    top, left, high, wide = tf.unstack(_window(*_crop(tf.cast(shape, tf.float64), crops), shape, 1))
    return image[top : top + high, left : left + wide]


# What ``augmentation`` says of crops, once more as operators, and as few of them as can be: they take time for every image.
# Positions and sizes are (height, width), as TensorFlow has them.


def _crop(room: tf.Tensor, crops: Any) -> Tuple[tf.Tensor, tf.Tensor]:
    """Where the crop of an image of ``room`` pixels begins, and its size; all float64 [2]."""
    if crops is None:
        side = CENTRE * tf.reduce_min(room)
        return (room - side) / 2, tf.stack([side, side])
    wanted = crops[:, :2] * tf.sqrt(tf.reduce_prod(room))
    fits = tf.reduce_all(wanted <= room, 1)
    first = tf.argmax(fits)
    size = tf.where(tf.gather(fits, first), tf.gather(wanted, first), room)
    return tf.gather(crops[:, 2:], first) * (room - size), size


def _window(begin: tf.Tensor, size: tf.Tensor, shape: tf.Tensor, ratio: Any) -> tf.Tensor:
    """Whole pixels of a crop of an image whose size is divided by ``ratio``: top, left, height and width, int32 [4]."""
    room, divisor = (shape + (ratio - 1)) // ratio, tf.cast(ratio, tf.float64)
    size = tf.clip_by_value(tf.cast(size / divisor + 0.5, tf.int32), 1, room)
    begin = tf.minimum(tf.cast(begin / divisor + 0.5, tf.int32), room - size)
    end = tf.minimum(tf.bitwise.bitwise_or(begin + size, [0, 1]), room)
    begin = tf.maximum(tf.bitwise.bitwise_or(begin - [0, 1], [0, 1]), 0)
    return tf.concat([begin, end - begin], 0)


def find_bad_image(
    index: Index, positions: Iterable[Tuple[int, int]], seed: int, num_classes: Optional[int] = None
) -> Optional[BadImage]:
    """The first image of these (epoch, image) that fails; None when all of them decode.

    For a trainer whose session raised a tf.errors.OpError: operators do not say which image they were given. Reads and
    decodes them again, on the CPU; the pipeline reads ahead, so look some batches further than was trained.
    """
    with tf.Graph().as_default(), tf.device("/cpu:0"):  # a graph of its own: works beside any session, and eagerly
        contents = tf.compat.v1.placeholder(tf.string, [])
        crops = tf.compat.v1.placeholder(tf.float64, [augmentation.ATTEMPTS, 4])
        pixel = decode(contents, 1, crops)
        session = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"GPU": 0}))

    def attempt(position: Tuple[int, int]) -> Optional[BadImage]:
        epoch, image = position
        drawn, _ = augmentation.draws(seed, epoch, [image])
        try:
            encoded, place = _found(index, image, num_classes)
            session.run(pixel, {contents: encoded, crops: drawn[0]})
        except BadImage as bad:
            return bad
        except tf.errors.OpError as error:
            return BadImage(place, _reason(error.message))
        return None

    with session, ThreadPoolExecutor() as pool:
        return next(filter(None, pool.map(attempt, positions)), None)


def _found(index: Index, image: int, num_classes: Optional[int]) -> Tuple[bytes, str]:
    """An encoded image, and where it comes from, once more in Python. Raises BadImage."""
    if isinstance(index, ImageIndex):
        path = index.path(image)
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                return file.read(), path
        except OSError as error:
            raise BadImage(path, str(error.strerror)) from error
    record = index.record(image)
    with closing(records.Reader()) as reader:
        found = reader.read(record, num_classes)
    if reason := records.damage(record):
        raise BadImage(found.place, reason)
    return found.encoded, found.place


def _reason(message: str) -> str:
    """What happened: TensorFlow writes "reason" or "assertion failed: [reason]" on a line between places in the graph."""
    line = message.partition("\n\t [[")[0].rpartition("\n")[2]
    return line.rpartition("assertion failed: [")[2].rstrip("]")

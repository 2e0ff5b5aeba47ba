"""TFRecord shards of images, with the features of TensorFlow's ImageNet that training reads. For benchmarks and tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.worker.inputs.index import name_of
from harness.worker.inputs.tfrecord import CHECKSUM, ENCODED, FILENAME, LABEL, LENGTH, crc32c, masked

Image = tuple[str, bytes, int]  # its name, the encoded image, and its label


def write(folder: Path, split: str, images: Iterable[Image], of: int) -> None:
    """Deal ``images`` to ``of`` shards in the new ``folder``, one by one."""
    folder.mkdir(parents=True)
    shards = [(folder / name_of(split, shard, of)).open("wb") for shard in range(of)]
    for number, image in enumerate(images):
        shards[number % of].write(image_record(*image))
    for shard in shards:
        shard.close()


def image_record(name: str, encoded: bytes | None, label: int | None) -> bytes:
    """The record of an image; without a feature that is None."""
    features = {FILENAME: name.encode(), ENCODED: encoded, LABEL: label}
    return record(example({key: value for key, value in features.items() if value is not None}))


def record(data: bytes) -> bytes:
    """A record that holds ``data``, for whose checksum Python takes 0.1 µs per byte."""
    length = LENGTH.pack(len(data))
    return length + CHECKSUM.pack(masked(crc32c(length))) + data + CHECKSUM.pack(masked(crc32c(data)))


def example(features: Mapping[str, bytes | int]) -> bytes:
    """A serialised ``tf.train.Example`` whose features have one value each."""
    entries = [_field(1, name.encode()) + _field(2, _feature(value)) for name, value in features.items()]
    return _field(1, b"".join(_field(1, entry) for entry in entries))


def _feature(value: bytes | int) -> bytes:
    return _field(1, _field(1, value)) if isinstance(value, bytes) else _field(3, _field(1, _varint(value)))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    number &= 0xFFFFFFFFFFFFFFFF  # negative numbers are two's complement
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)

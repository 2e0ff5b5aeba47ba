"""TFRecord files, the examples in them, and the images in these, read without TensorFlow. NumPy only; Python 3.9.

A file is a sequence of records: length (uint64), masked CRC-32C of the length, data, masked CRC-32C of the data, all little
endian (tensorflow/core/lib/io/record_writer.h). The data are ``tf.train.Example`` messages
(tensorflow/core/example/example.proto): a map from names to lists of bytes, floats or integers, in protobuf's wire format.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from functools import lru_cache
from typing import IO, Any, Collection, Dict, Iterator, List, Optional, Tuple, Union

from harness.worker.inputs.errors import BadImage, DataError
from harness.worker.inputs.page_cache import Extent

HEADER = struct.Struct("<QI")  # length, checksum of the length
LENGTH = struct.Struct("<Q")
CHECKSUM = struct.Struct("<I")
OVERHEAD = HEADER.size + CHECKSUM.size  # bytes of a record besides its data
ENCODED, LABEL, FILENAME = "image/encoded", "image/class/label", "image/filename"  # features
OPEN_FILES = 128  # of a process, which may usually have 1024


class BadShard(DataError):
    """A TFRecord file is damaged. Carries ``path``, ``offset`` (of the record, in bytes) and ``reason``."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path, self.offset, self.reason = path, offset, reason

    def __str__(self) -> str:
        return f"bad shard {self.path}: at byte {self.offset}: {self.reason}"


_TABLE = list(range(256))  # what each byte adds to a checksum: eight steps, one for each bit
for _ in range(8):
    _TABLE = [rest >> 1 ^ (0x82F63B78 if rest & 1 else 0) for rest in _TABLE]


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli, RFC 3720 B.4). For a record's few bytes of length; about 0.1 µs per byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """The form in which TFRecord files store a checksum."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def scan(path: str) -> Iterator[Tuple[int, int]]:
    """Offset and length of every record's data, from headers alone. Raises BadShard for a wrong or missing one; OSError."""
    size = os.path.getsize(path)  # noqa: PTH202 - a thousand shards
    offset = 0
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        while offset < size:
            header = os.pread(file.fileno(), HEADER.size, offset)
            length = header_length(header, path, offset)
            if offset + OVERHEAD + length > size:
                raise BadShard(path, offset, f"the file is cut short in a record of {length} bytes")
            yield offset + HEADER.size, length
            offset += OVERHEAD + length


def header_length(header: bytes, path: str, offset: int) -> int:
    """The length that a record's first 12 bytes tell. Raises BadShard when they are no header."""
    if len(header) < HEADER.size:
        raise BadShard(path, offset, "the file is cut short in a record's length")
    length, stored = HEADER.unpack(header)
    if masked(crc32c(header[: LENGTH.size])) != stored:
        compressed = header.startswith(b"\x1f\x8b") and not offset
        why = "the file is compressed with gzip: unpack it" if compressed else "the checksum of its length is wrong"
        raise BadShard(path, offset, f"no TFRecord starts here: {why}")
    return int(length)


def verify(descriptor: int, path: str, offset: int, length: int) -> None:
    """Read the data of a record, which begin at ``offset``. Raises BadShard when they are cut short or damaged, OSError."""
    stored = os.pread(descriptor, length + CHECKSUM.size, offset)
    if len(stored) < length + CHECKSUM.size:
        raise BadShard(path, offset, f"the file is cut short in a record of {length} bytes")
    if masked(crc32c(stored[:length])) != CHECKSUM.unpack(stored[length:])[0]:
        raise BadShard(path, offset, "the record's data do not have its checksum")


# --- images ------------------------------------------------------------------------------------------------------------


def read_image(record: Extent, num_classes: Optional[int], verified: bool = False) -> Tuple[bytes, int, str]:
    """The encoded image in a record, its label, and where it comes from: ``FILE at byte N (name)``.

    Raises BadImage when there is none, or its label is not one of ``num_classes``. Unless they are to be ``verified``, the
    checksum of the data is looked at only when something is wrong: in Python that takes longer than decoding an image.
    """
    begin = record.offset - HEADER.size
    place = f"{record.path} at byte {begin}"
    try:
        file = _opened(record.path)
        stored = os.pread(file.fileno(), HEADER.size + record.length, begin)
        length = header_length(stored[: HEADER.size], record.path, begin)
        if length != record.length:
            raise ValueError(f"a record of {length} bytes, where one of {record.length} was when the run began")
        if verified or len(stored) < HEADER.size + length:
            verify(file.fileno(), *record)
        features = parse(memoryview(stored)[HEADER.size :], (ENCODED, LABEL, FILENAME))
        if features.get(FILENAME) and isinstance(features[FILENAME][0], memoryview):
            place += f" ({bytes(features[FILENAME][0]).decode(errors='replace')})"
        for name, kind in ((ENCODED, memoryview), (LABEL, int)):
            if not features.get(name) or not isinstance(features[name][0], kind):
                raise ValueError(f"the record has no {name}")
        encoded, label = bytes(features[ENCODED][0]), features[LABEL][0]
        if num_classes is not None and not 0 <= label < num_classes:
            raise ValueError(f"label {label}, but the model has {num_classes} classes")
    except OSError as error:
        raise BadImage(place, str(error.strerror)) from error
    except ValueError as error:
        if not verified:
            return read_image(record, num_classes, verified=True)
        raise BadImage(place, getattr(error, "reason", str(error))) from error
    return encoded, label, place


def will_need(run: Extent) -> None:
    """Tell the kernel to read ahead, so that records in any order are still read in one go."""
    with suppress(OSError):  # whoever reads the records will say what is wrong
        file = _opened(run.path)
        os.posix_fadvise(file.fileno(), run.offset, run.length, os.POSIX_FADV_WILLNEED)


@lru_cache(OPEN_FILES)
def _opened(path: str) -> IO[bytes]:
    """The file. It is closed when it is forgotten and nobody holds it any more: so hold it while you read it."""
    return open(path, "rb", buffering=0)  # noqa: PTH123


# --- examples ----------------------------------------------------------------------------------------------------------

_VARINT, _BYTES = 0, 2  # wire types
_FIXED = {1: 8, 5: 4}  # wire types with a size in bytes
_BYTES_LIST, _FLOAT_LIST = 1, 2  # fields of a Feature; the third one has integers


def parse(data: memoryview, names: Collection[str]) -> Dict[str, List[Any]]:
    """The values of the features with these ``names`` in a serialised ``tf.train.Example``.

    Bytes are not copied, and other features are passed over: some microseconds for reading images in a loop. Raises
    ValueError for anything but an Example.
    """
    features = {}
    try:
        for number, listed in _fields(data):
            for _, entry in _fields(listed) if number == 1 else ():
                size, begin = _read_varint(entry, 1)  # serialisers put the name in front of the feature
                name = str(entry[begin : begin + size], "utf-8")
                if name in names:
                    feature = _fields(entry, begin + size)
                    lists = (kind_and_list for _, content in feature for kind_and_list in _fields(content))
                    features[name] = [value for kind, values in lists for value in _values(kind, values)]
    except (LookupError, TypeError, ValueError, struct.error) as error:
        raise ValueError("the record is no tf.train.Example") from error
    return features


def _values(kind: int, listed: memoryview) -> Iterator[Any]:
    for _, content in _fields(listed):
        if kind == _BYTES_LIST:
            yield content
        elif kind == _FLOAT_LIST:
            yield from struct.unpack(f"<{len(content) // 4}f", content)
        elif isinstance(content, int):
            yield _signed(content)
        else:
            at = 0
            while at < len(content):
                number, at = _read_varint(content, at)
                yield _signed(number)


def _fields(message: memoryview, at: int = 0) -> Iterator[Tuple[int, Any]]:
    """The fields of a message from byte ``at``: number and content; a varint's content is an int."""
    while at < len(message):
        key, at = _read_varint(message, at)
        content: Union[int, memoryview]
        if key & 7 == _VARINT:
            content, at = _read_varint(message, at)
        else:
            size, at = _read_varint(message, at) if key & 7 == _BYTES else (_FIXED[key & 7], at)
            content = message[at : at + size]
            if len(content) < size:
                raise ValueError("cut short")
            at += size
        yield key >> 3, content


def _read_varint(message: memoryview, at: int) -> Tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number

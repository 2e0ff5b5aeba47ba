"""TFRecord files and the examples in them, without TensorFlow. Standard library only; Python 3.9.

A file is a sequence of records: length (uint64), masked CRC-32C of the length, data, masked CRC-32C of the data, all little
endian (tensorflow/core/lib/io/record_writer.h). The data are ``tf.train.Example`` messages
(tensorflow/core/example/example.proto): a map from names to lists of bytes, floats or integers, in protobuf's wire format.
"""

from __future__ import annotations

import itertools
import os
import struct
from array import array
from typing import Callable, Collection, Dict, Iterator, List, Sequence, Tuple, Union

from harness.worker.inputs.errors import DataError

HEADER = struct.Struct("<QI")  # length, checksum of the length
LENGTH = struct.Struct("<Q")
CHECKSUM = struct.Struct("<I")
OVERHEAD = HEADER.size + CHECKSUM.size  # bytes of a record besides its data

Value = Union[Sequence[bytes], Sequence[float], Sequence[int]]
Buffer = Union[bytes, memoryview]
Checksum = Callable[[bytes], int]


class BadShard(DataError):
    """A TFRecord file is damaged. Carries ``path``, ``offset`` (of the record, in bytes) and ``reason``."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path, self.offset, self.reason = path, offset, reason

    def __str__(self) -> str:
        return f"bad shard {self.path}: at byte {self.offset}: {self.reason}"


def _table() -> List[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli, RFC 3720 B.4). For a record's few bytes of length; about 0.1 µs per byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """The form in which TFRecord files store a checksum."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes, checksum: Checksum = crc32c) -> bytes:
    """A record that holds ``data``. ``checksum`` computes a CRC-32C; give a faster one for images."""
    length = LENGTH.pack(len(data))
    return length + CHECKSUM.pack(masked(crc32c(length))) + data + CHECKSUM.pack(masked(checksum(data)))


def scan(path: str) -> Iterator[Tuple[int, int]]:
    """(offset of the data, length of the data) of every record, reading headers alone.

    Raises BadShard at the first header that is wrong, and for a file that ends within a record; OSError.
    """
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
        raise BadShard(path, offset, "no TFRecord starts here: the checksum of its length is wrong")
    return int(length)


def read(descriptor: int, path: str, offset: int, length: int, checksum: Union[Checksum, None] = None) -> bytes:
    """The data of the record whose data begin at ``offset``. Verifies them only with a ``checksum`` to do it with.

    Raises BadShard when they are cut short or damaged; OSError.
    """
    stored = os.pread(descriptor, length + CHECKSUM.size, offset)
    if len(stored) < length + CHECKSUM.size:
        raise BadShard(path, offset, f"the file is cut short in a record of {length} bytes")
    data = stored[:length]
    if checksum and masked(checksum(data)) != CHECKSUM.unpack(stored[length:])[0]:
        raise BadShard(path, offset, "the record's data do not have its checksum")
    return data


# --- examples ----------------------------------------------------------------------------------------------------------

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3  # fields of a Feature


def example(features: Dict[str, Value]) -> bytes:
    """A serialised ``tf.train.Example``. Values are sequences of bytes, of floats or of integers.

    Empty ones are floats, but for ``array("q")``: a reader refuses a list of another kind than it expects, empty or not.
    """
    entries = b"".join(_field(1, _field(1, name.encode()) + _field(2, _feature(features[name]))) for name in features)
    return _field(1, entries)


def parse(data: bytes) -> Dict[str, List[Union[bytes, float, int]]]:
    """The features of a serialised ``tf.train.Example``. Raises ValueError for anything else."""
    try:
        return dict(
            _entry(entry) for number, features in _fields(data) if number == 1 for _, entry in _fields(features)
        )
    except (IndexError, TypeError, UnicodeDecodeError, struct.error) as error:
        raise ValueError("not a tf.train.Example") from error


def first_values(data: memoryview, names: Collection[bytes]) -> Dict[bytes, Union[Buffer, float, int]]:
    """The first value of those features of a serialised ``tf.train.Example`` that have one. Bytes are not copied.

    For reading images in a loop: it passes over the other features. Raises ValueError for anything but an Example.
    """
    try:
        return {
            name: value
            for number, features in _fields(data)
            if number == 1
            for _, entry in _fields(features)
            if (name := _name(entry)) in names
            for _, content in list(_fields(entry))[1:]
            for kind, listed in _fields(content)
            for value in itertools.islice(_values(kind, listed), 1)
        }
    except (IndexError, TypeError, struct.error) as error:
        raise ValueError("not a tf.train.Example") from error


def _name(entry: Buffer) -> bytes:
    """The name in an entry, where serialisers put it: at the front."""
    size, at = _read_varint(entry, 1)
    return bytes(entry[at : at + size])


def _feature(values: Value) -> bytes:
    if values and isinstance(values[0], bytes):
        return _field(_BYTES_LIST, b"".join(_field(1, value) for value in values))  # type: ignore[arg-type]
    if (isinstance(values, array) and values.typecode == "q") or (values and isinstance(values[0], int)):
        return _field(_INT64_LIST, _field(1, b"".join(map(_varint, values))))
    return _field(_FLOAT_LIST, _field(1, struct.pack(f"<{len(values)}f", *values)))


def _entry(entry: bytes) -> Tuple[str, List[Union[bytes, float, int]]]:
    """A name and its values."""
    name, values = "", []
    for number, content in _fields(entry):
        if number == 1:
            name = bytes(content).decode()
        else:
            values = [value for kind, listed in _fields(content) for value in _values(kind, listed)]
    return name, values


def _values(kind: int, listed: bytes) -> Iterator[Union[bytes, float, int]]:
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


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _fields(message: Buffer) -> Iterator[Tuple[int, bytes]]:
    """The fields of a message: number and content; a varint's content is an int. Raises ValueError."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        wire = key & 7
        if wire == _VARINT:
            content, at = _read_varint(message, at)
            yield key >> 3, content  # type: ignore[misc]
            continue
        if wire == _BYTES:
            size, at = _read_varint(message, at)
        elif wire in (_EIGHT, _FOUR):
            size = 8 if wire == _EIGHT else 4
        else:
            raise ValueError("not a tf.train.Example")
        if at + size > len(message):
            raise ValueError("not a tf.train.Example")
        yield key >> 3, message[at : at + size]  # type: ignore[misc]
        at += size


def _varint(number: int) -> bytes:
    number &= 0xFFFFFFFFFFFFFFFF  # negative numbers are two's complement
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(message: Buffer, at: int) -> Tuple[int, int]:
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

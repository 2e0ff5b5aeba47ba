"""The image in a record: read it, and say what is wrong with it. Standard library only; Python 3.9.

Training needs three of the features that ImageNet's records have: ``image/encoded``, ``image/class/label`` and, for
messages, ``image/filename``. Finding these alone, without copying what they hold, takes some microseconds.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress
from typing import Mapping, NamedTuple, Union

from harness.worker.inputs import tfrecord
from harness.worker.inputs.errors import BadImage
from harness.worker.inputs.shards import Record

ENCODED, LABEL, FILENAME = b"image/encoded", b"image/class/label", b"image/filename"
WANTED = frozenset((ENCODED, LABEL, FILENAME))
OPEN_FILES = 128  # of a reader; a process may usually have 1024


class Labelled(NamedTuple):
    """An image as it is stored, with its label and where it comes from."""

    encoded: bytes
    label: int
    place: str


class Reader:
    """Reads records of many shards, and keeps the files open that it read last. For one thread."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, int] = OrderedDict()

    def read(self, record: Record, num_classes: Union[int, None]) -> Labelled:
        """The image in a record. Raises BadImage when there is none, or its label is not one of ``num_classes``.

        The checksum of the data is not verified: in Python that takes longer than decoding them. See ``damage``.
        """
        begin = record.offset - tfrecord.HEADER.size
        try:
            stored = os.pread(self._file(record.path), tfrecord.HEADER.size + record.length, begin)
            length = tfrecord.header_length(stored[: tfrecord.HEADER.size], record.path, begin)
        except tfrecord.BadShard as error:
            raise BadImage(place(record), error.reason) from error
        except OSError as error:
            raise BadImage(place(record), str(error.strerror)) from error
        if length != record.length:
            reason = f"a record of {length} bytes, where one of {record.length} was when the run began"
            raise BadImage(place(record), reason)
        if len(stored) < tfrecord.HEADER.size + length:
            raise BadImage(place(record), f"the file is cut short in a record of {length} bytes")
        return _labelled(memoryview(stored)[tfrecord.HEADER.size :], record, num_classes)

    def will_need(self, run: Record) -> None:
        """Tell the kernel to read ahead, so that records in any order are still read in one go."""
        with suppress(OSError):  # whoever reads the records will say what is wrong
            os.posix_fadvise(self._file(run.path), run.offset, run.length, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """Close all files."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _file(self, path: str) -> int:
        if path in self._files:
            self._files.move_to_end(path)
        else:
            self._files[path] = os.open(path, os.O_RDONLY)
            if len(self._files) > OPEN_FILES:
                os.close(self._files.popitem(last=False)[1])
        return self._files[path]


def _labelled(data: memoryview, record: Record, num_classes: Union[int, None]) -> Labelled:
    """The image in the data of a record. Raises BadImage."""
    try:
        found = tfrecord.first_values(data, WANTED)
    except ValueError as error:
        raise BadImage(place(record), damage(record) or "the record is no tf.train.Example") from error
    where, encoded, label = place(record, found), found.get(ENCODED), found.get(LABEL)
    if not isinstance(encoded, memoryview) or not isinstance(label, int):
        missing = LABEL if isinstance(encoded, memoryview) else ENCODED
        raise BadImage(where, damage(record) or f"the record has no {missing.decode()}")
    if num_classes is not None and not 0 <= label < num_classes:
        raise BadImage(where, f"label {label}, but the model has {num_classes} classes")
    return Labelled(bytes(encoded), label, where)


def place(record: Record, found: Union[Mapping[bytes, object], None] = None) -> str:
    """Where a record begins, and what its image is called if ``found`` says so."""
    name = (found or {}).get(FILENAME)
    named = f" ({bytes(name).decode(errors='replace')})" if isinstance(name, memoryview) else ""
    return f"{record.path} at byte {record.offset - tfrecord.HEADER.size}{named}"


def damage(record: Record) -> Union[str, None]:
    """What a record's checksum says about its data: None when they are as they were written. For a record that fails."""
    try:
        descriptor = os.open(record.path, os.O_RDONLY)
        try:
            tfrecord.read(descriptor, record.path, record.offset, record.length, tfrecord.crc32c)
        finally:
            os.close(descriptor)
    except tfrecord.BadShard as error:
        return error.reason
    return None

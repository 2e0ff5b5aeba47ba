"""The image in a record: read it, and say what is wrong with it. Standard library only; Python 3.9."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import IO, Any, Mapping, Optional, Tuple

from harness.worker.inputs import tfrecord
from harness.worker.inputs.errors import BadImage
from harness.worker.inputs.page_cache import Extent

ENCODED, LABEL, FILENAME = "image/encoded", "image/class/label", "image/filename"
OPEN_FILES = 128  # of a process, which may usually have 1024


def read(record: Extent, num_classes: Optional[int]) -> Tuple[bytes, int, str]:
    """The encoded image in a record, its label, and where it comes from.

    Raises BadImage when there is none, or its label is not one of ``num_classes``. The checksum of the data is not
    verified: in Python that takes longer than decoding them. See ``damage``.
    """
    begin = record.offset - tfrecord.HEADER.size
    try:
        file = _opened(record.path)
        stored = os.pread(file.fileno(), tfrecord.HEADER.size + record.length, begin)
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
    try:
        features = tfrecord.parse(memoryview(stored)[tfrecord.HEADER.size :], (ENCODED, LABEL, FILENAME))
    except ValueError as error:
        raise BadImage(place(record), damage(record) or "the record is no tf.train.Example") from error
    for name, kind in ((ENCODED, memoryview), (LABEL, int)):
        if not features.get(name) or not isinstance(features[name][0], kind):
            raise BadImage(place(record, features), damage(record) or f"the record has no {name}")
    label = features[LABEL][0]
    if num_classes is not None and not 0 <= label < num_classes:
        raise BadImage(place(record, features), f"label {label}, but the model has {num_classes} classes")
    return bytes(features[ENCODED][0]), label, place(record, features)


def will_need(run: Extent) -> None:
    """Tell the kernel to read ahead, so that records in any order are still read in one go."""
    with suppress(OSError):  # whoever reads the records will say what is wrong
        file = _opened(run.path)
        os.posix_fadvise(file.fileno(), run.offset, run.length, os.POSIX_FADV_WILLNEED)


def place(record: Extent, features: Optional[Mapping[str, Any]] = None) -> str:
    """Where a record begins, and what its image is called if ``features`` say so."""
    names = (features or {}).get(FILENAME)
    named = f" ({bytes(names[0]).decode(errors='replace')})" if names and isinstance(names[0], memoryview) else ""
    return f"{record.path} at byte {record.offset - tfrecord.HEADER.size}{named}"


def damage(record: Extent) -> Optional[str]:
    """What a record's checksum says about its data: None when they are as they were written. For a record that fails."""
    file = _opened(record.path)
    try:
        tfrecord.read(file.fileno(), *record)
    except tfrecord.BadShard as error:
        return error.reason
    return None


@lru_cache(OPEN_FILES)
def _opened(path: str) -> IO[bytes]:
    """The file. It is closed when it is forgotten and nobody holds it any more: so hold it while you read it."""
    return open(path, "rb", buffering=0)  # noqa: PTH123

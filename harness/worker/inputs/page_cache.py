"""The part of the images in this host's memory, and functions to have all of it there, or none. Linux; Python 3.9.

The page cache is the kernel's: reading a file a second time touches neither disk nor network. The servers of a
parallel file system have caches of their own, which nothing here reaches.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Iterable, List, NamedTuple, Optional, Sequence

import numpy as np

SAMPLED = 512  # extents that are looked at to tell how much is cached


class Extent(NamedTuple):
    """Bytes of a file: ``length`` of them from ``offset``; with a length of -1 all that follow, as in ``file.read``."""

    path: str
    offset: int = 0
    length: int = -1


def forget(extents: Iterable[Extent]) -> None:
    """Ask the kernel to drop the files that these bytes are in. It keeps what others have mapped."""
    # Whole files, because the kernel drops nothing of a large folio of which a part is wanted still.
    for path in sorted({extent.path for extent in extents}):
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            os.fsync(file.fileno())  # what is not on the disk yet is not dropped
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fetch(extents: Iterable[Extent]) -> None:
    for extent in extents:
        with open(extent.path, "rb", buffering=0) as file:  # noqa: PTH123
            file.seek(extent.offset)
            file.read(extent.length)


def mean_bytes(extents: Sequence[Extent]) -> float:
    """The mean length in bytes, from a sample."""
    sample = extents[:: max(1, len(extents) // SAMPLED)]
    return sum(each.length if each.length >= 0 else Path(each.path).stat().st_size for each in sample) / len(sample)


def cached_share(extents: Sequence[Extent]) -> Optional[float]:
    """The share of these bytes' pages in the page cache, from a sample; None where the kernel does not tell."""
    step = max(1, len(extents) // SAMPLED)
    pages = [cached for extent in extents[::step] for cached in _pages(extent)]
    return sum(pages) / len(pages) if pages else None


def _pages(extent: Extent) -> List[bool]:
    """True for each page that is cached."""
    with open(extent.path, "rb", buffering=0) as file:  # noqa: PTH123
        status = os.fstat(file.fileno())
        begin = extent.offset - extent.offset % mmap.PAGESIZE
        end = status.st_size if extent.length < 0 else min(extent.offset + extent.length, status.st_size)
        size = end - begin
        # Since Linux 5.2 it tells those only who own a file or may write to it.
        if size <= 0 or (status.st_uid != os.geteuid() and not os.access(extent.path, os.W_OK)):
            return []
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, offset=begin) as mapped:
            address = np.frombuffer(mapped, np.uint8).ctypes.data
            flags = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), flags)
            return [] if failed else [bool(flag & 1) for flag in flags]

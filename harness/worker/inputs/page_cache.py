"""Which part of the images is in this host's memory, and how to have all of it there, or none. Linux; Python 3.9.

The page cache is the kernel's: reading a file a second time touches neither disk nor network. The servers of a
parallel file system have caches of their own, which nothing here reaches.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import contextmanager
from typing import Iterable, Iterator, NamedTuple, Optional, Sequence

SAMPLED = 512  # extents that are looked at to tell how much is cached
BLOCK = 1 << 20


class Extent(NamedTuple):
    """Bytes of a file: ``length`` of them from ``offset``; with a length of -1 all that follow, as in ``file.read``."""

    path: str
    offset: int = 0
    length: int = -1

    def end(self, size: int) -> int:
        """Where it ends in a file of ``size`` bytes."""
        return size if self.length < 0 else self.offset + self.length


def forget(extents: Iterable[Extent]) -> None:
    """Ask the kernel to drop the files that these bytes are in. It keeps what others have mapped.

    Whole files, because the kernel drops nothing of a large folio of which a part is wanted still.
    """
    for path in sorted({extent.path for extent in extents}):
        with _opened(path) as descriptor:
            os.fsync(descriptor)  # what is not on the disk yet is not dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def fetch(extents: Iterable[Extent]) -> None:
    """Read these bytes once."""
    for extent in extents:
        with _opened(extent.path) as descriptor:
            end = extent.end(os.fstat(descriptor).st_size)
            for at in range(extent.offset, end, BLOCK):
                os.pread(descriptor, min(BLOCK, end - at), at)


def cached_share(extents: Sequence[Extent]) -> Optional[float]:
    """The share of these bytes' pages in the page cache, from a sample; None where the kernel does not tell.

    Since Linux 5.2 it tells those only who own a file or may write to it.
    """
    step = max(1, len(extents) // SAMPLED)
    pages = [cached for extent in extents[::step] for cached in _pages(extent)]
    return sum(pages) / len(pages) if pages else None


def _pages(extent: Extent) -> Iterator[bool]:
    """For each page whether it is cached."""
    with _opened(extent.path) as descriptor:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() and not os.access(extent.path, os.W_OK):
            return
        begin = extent.offset - extent.offset % mmap.PAGESIZE
        size = extent.end(status.st_size) - begin
        if size <= 0:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        at = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, descriptor, ctypes.c_int64(begin))
        if at == ctypes.c_void_p(-1).value:
            return
        try:
            flags = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            if libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), flags) == 0:
                yield from (bool(flag & 1) for flag in flags)
        finally:
            libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """A descriptor of a file: half of the time of a million opens would be Python's file objects."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

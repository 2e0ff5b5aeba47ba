"""Which part of the images is in this host's memory, and how to have all of it there, or none. Linux; Python 3.9.

The page cache is the kernel's: reading a file a second time touches neither disk nor network. The servers of a
parallel file system have caches of their own, which nothing here reaches.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Iterable, Iterator, Optional, Sequence, Tuple

Extent = Tuple[str, int, int]  # a file, where in it, and how many bytes; 0: to its end

SAMPLED = 512  # extents that are looked at to tell how much is cached
BLOCK = 1 << 20


def forget(extents: Iterable[Extent]) -> None:
    """Ask the kernel to drop the files that these bytes are in. It keeps what others have mapped.

    Whole files, because the kernel drops nothing of a large folio of which a part is wanted still.
    """
    for path in sorted({path for path, _, _ in extents}):
        with _opened(path) as descriptor:
            os.fsync(descriptor)  # what is not on the disk yet is not dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def fetch(extents: Iterable[Extent]) -> None:
    """Read these bytes once."""
    for path, offset, length in extents:
        with _opened(path) as descriptor:
            end = offset + length if length else os.fstat(descriptor).st_size
            for at in range(offset, end, BLOCK):
                os.pread(descriptor, min(BLOCK, end - at), at)


def cached_share(extents: Sequence[Extent]) -> Optional[float]:
    """The share of these bytes' pages in the page cache, from a sample; None where the kernel does not tell.

    Since Linux 5.2 it tells those only who own a file or may write to it.
    """
    step = max(1, len(extents) // SAMPLED)
    pages = [seen for extent in extents[::step] for seen in _pages(*extent)]
    return sum(pages) / len(pages) if pages else None


def _pages(path: str, offset: int, length: int) -> Iterator[bool]:
    """For each page whether it is cached."""
    with _opened(path) as descriptor:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() and not os.access(path, os.W_OK):
            return
        begin = offset - offset % mmap.PAGESIZE
        size = (offset + length if length else status.st_size) - begin
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


class _opened:
    """``with _opened(path) as descriptor``: half of a million opens would be Python's file objects."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._descriptor = os.open(self._path, os.O_RDONLY)
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

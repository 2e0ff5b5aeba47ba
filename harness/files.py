"""Files that are there whole or not at all, and locks. Workers use this too: standard library only; Python 3.6."""

import fcntl
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Iterator, Union


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes]]:
    """A file to write to that takes the place of ``target`` when all went well; a device or pipe is written to as it is.

    Readers see the old file or the new one, even after a crash of the machine. The new one has the permissions of the old
    one, or else those of the umask.
    """
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:
            yield stream
        return
    target = target.resolve()  # a link stays a link
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        opened = temporary.open("xb")
    except OSError as error:
        error.filename = str(target)  # nobody knows the other name
        raise
    with opened as stream:
        try:
            yield stream
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
            temporary.replace(target)
        except BaseException:
            with suppress(FileNotFoundError):
                temporary.unlink()
            raise


def at_home(path: Union[str, Path]) -> Path:
    """``path`` with what ``~`` and ``~user`` stand for; as it is where there is no such user, as a shell leaves it."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 (a Path's raises RuntimeError)


def write_atomically(target: Path, text: str) -> Path:
    """Write ``text`` so that readers, and a crash, see the old file or the new one. Returns ``target``. Raises OSError."""
    with whole_file(target) as stream:
        stream.write(text.encode())
    return target


def end_of(log: Path) -> str:
    """The last 64 KiB of a log: a program may print gigabytes. Raises OSError."""
    with log.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - (1 << 16)))
        return stream.read().decode(errors="replace")


def lock(file: IO[Any], kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file until it is closed; False if another process has. A file system without locks lets everybody."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True

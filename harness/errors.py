"""The two ways a command can go wrong, each with the exit code that scripts rely on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def signal_name(number: int) -> str:
    """``SIGKILL`` of 9; most real-time signals have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def error_in_one_line(error: BaseException) -> str:
    """An error of somebody else's code, for people: ``ModuleNotFoundError: No module named 'x'``."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class HarnessError(Exception):
    """Base of all errors that a user sees as one line instead of a traceback."""

    exit_code = 1


class InvalidInput(HarnessError):
    """The request cannot be carried out as written. One line: what is wrong, where, what would be right."""

    exit_code = 2


class RunFailed(HarnessError):
    """A run started and did not end well. Names the rank, the host and the reason; there is no number."""

    exit_code = 1


class Interrupted(HarnessError):
    """The user has stopped a command. The message says how to go on."""

    exit_code = 130


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Guard the writing of a file or folder that a person has named. Raises InvalidInput if it cannot be written."""
    try:
        yield
    except BrokenPipeError:  # it is a pipe, and whoever read it has gone
        raise
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror}") from None

"""One line that says how far something is. On a terminal it is rewritten; elsewhere one is printed now and then.

No thread draws the text, as libraries do it: a measurement on the same machine must not be disturbed.
"""

import shutil
import sys
import time
from collections.abc import Callable

from harness.core.text import duration

REFRESH_S = 0.5  # between two lines on a terminal
LOGGED_S = 60.0  # between two lines in a file or a pipe
CLEAR_LINE = "\r\x1b[2K"
OnCount = Callable[[int, int], None]  # is called with how many are done, and of how many


def uncounted(done: int, of: int) -> None:
    """Show nothing: the default of what takes an ``OnCount``."""


class ProgressLine:
    """The line. ``prefix`` gives the text before it: the progress of the whole of which this is a part."""

    def __init__(self, enabled: bool = True, prefix: Callable[[], str] = lambda: "") -> None:
        self._enabled, self._prefix, self._stream = enabled, prefix, sys.stderr
        self._rewritten = self._stream.isatty()
        self._every_s = REFRESH_S if self._rewritten else LOGGED_S
        self._written_at = time.monotonic()

    def due(self) -> bool:
        """Tell whether it is time for a new text. If it is, the next one is due some time later."""
        now = time.monotonic()
        if not self._enabled or now - self._written_at < self._every_s:
            return False
        self._written_at = now
        return True

    def show(self, text: str) -> None:
        text = self._prefix() + text
        if self._rewritten:
            self._rewrite(text[: shutil.get_terminal_size().columns - 1])
        else:
            self._print(text + "\n")

    def keep(self, text: str) -> None:
        """A line that stays, above the progress if that is on a terminal."""
        if self._rewritten:
            self._rewrite(text + "\n")
        elif self._enabled:
            self._print(text + "\n")
            self._written_at = time.monotonic()

    def clear(self) -> None:
        """Leave the line empty for other output."""
        self._rewrite("")

    def _rewrite(self, text: str) -> None:
        if self._enabled and self._rewritten:
            self._print(CLEAR_LINE + text)

    def _print(self, text: str) -> None:
        """Write the text. A measurement goes on where nobody reads any more, as with ``2>&1 | head``, or a disk is full."""
        try:
            print(text, end="", file=self._stream, flush=True)
        except OSError:
            self._enabled = False


class CountLine(ProgressLine):
    """Counts how many of a known number are done, how fast, and when all will be."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit
        self._first: tuple[int, float] | None = None

    def count(self, done: int, of: int) -> None:
        """Show how far it is. Work that the first call counts was done before, and says nothing of the speed."""
        now = time.monotonic()
        self._first = self._first or (done, now)
        if done == of:
            self.clear()
        elif self.due():
            text = f"{done:,} of {of:,} {self._unit}"
            rate = (done - self._first[0]) / (now - self._first[1]) if now > self._first[1] else 0.0
            if rate:
                text += f", {rate:,.0f} {self._unit}/s, {duration((of - done) / rate)} left"
            self.show(text)

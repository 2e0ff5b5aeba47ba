"""Commands that take long are interrupted as a whole."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does: cleanly, with a record. Later ones are ignored.

    What is ignored from the start stays so: that is how ``nohup`` and shells keep what runs in the background from ending.
    """
    asking = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in asking if signal.getsignal(number) != signal.SIG_IGN]

    def interrupt(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)  # the end is short, and must not be cut off
        raise KeyboardInterrupt(f"interrupted by {signal.Signals(number).name}")

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Numbers as people write them. The command line and Python accept the same, and refuse in the same words.

A reader's ValueError names what would be right.
"""

import math
import re
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import TypeVar

from harness.core.spec import MOST_WORKERS
from harness.errors import InvalidInput

Understood = TypeVar("Understood")
Written = TypeVar("Written")


def understood(label: str, value: Written, read: Callable[[Written], Understood]) -> Understood:
    """``value`` as ``read`` understands it. Raises InvalidInput, which begins with the ``label``."""
    try:
        return read(value)
    except ValueError as error:
        raise InvalidInput(f"{label}: {error}") from None


def numbers(value: object, right: str = "numbers such as 8, 1,2,4, 1..512 or 1..512+1") -> list[int]:
    """``8``; ``1,2,4``; ``1..512``, which doubles; ``1..512+1``, which adds; or numbers. In order, once each."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else [value]
    read: set[int] = set()
    for part in parts:
        integral = isinstance(part, Integral) and not isinstance(part, bool)  # NumPy's numbers are Integral, too
        text = str(part) if integral or isinstance(part, str) else ""
        match = re.fullmatch(r"\s*(\d{1,6})\s*(?:\.\.\s*(\d{1,6})\s*(?:\+\s*(\d{1,6}))?)?\s*", text)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        step = int(match[3]) if match and match[3] else None
        if not 1 <= first <= last <= MOST_WORKERS or step == 0:
            raise ValueError(f"must be {right}; at most {MOST_WORKERS:,}")
        if step:
            read |= set(range(first, last + 1, step))
        else:
            read |= {last, *(first << doubled for doubled in range((last // first).bit_length()))}
    if not read:
        raise ValueError(f"must be {right}")
    return sorted(read)


def servers(value: object) -> list[int] | None:
    """Numbers of parameter servers; None for ``best``."""
    return None if value == "best" else numbers(value, "best or numbers such as 4, 1,2,4 or 1..128+1")


def share(value: object, zero: bool = False) -> float:
    """``5%``, ``5 %`` or ``0.05`` as 0.05."""
    number, percent, rest = str(value).strip().partition("%")
    try:
        read = math.nan if rest else float(number) / (100 if percent else 1)
    except ValueError:
        read = math.nan
    if not 0 <= read < 1 or (not zero and not read):
        least = "0 or more" if zero else "more than 0"
        raise ValueError(f"must be a share such as 5% or 0.05, {least} and less than 100%")
    return read


def positive(value: object) -> float:
    """A finite number above 0."""
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError("must be a finite number above 0")
    return number

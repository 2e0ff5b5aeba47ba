"""Text and numbers that others wrote, in logs and in tables: how they look, and what a number is."""

import math
import re
from collections.abc import Collection, Iterator
from pathlib import Path

LONGEST, OVERLAP = 1 << 16, 1 << 10  # characters of a line that are looked at at a time, and again with the next ones
FORMULA = ("=", "+", "-", "@", "\t")  # by which spreadsheets know what they compute
SHOWN = 60  # characters of a text in a message
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)"
)  # colours and titles of terminals
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_BLANKS = "\u00a0\u2009\u202f"  # that stand in numbers only
_NUMBER = re.compile(rf"([+-]?)((?:[0-9]|[.,'’_ {_BLANKS}](?=[0-9]))+)(?:[eE]([+-]?[0-9]{{1,3}}))?\s*(.*)")
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_OF_UNIT = "(?:img|image|sample|step|it/|batch)"
_GOES_ON = re.compile(rf"[0-9]|\.[0-9]|[eE][+-]?[0-9]|[kKMG](?:$|[^A-Za-z]|{_OF_UNIT})| [kKMG]{_OF_UNIT}")
_GROUP_FOLLOWS = re.compile(rf"[,'’_{_BLANKS}][0-9]")

RATES = {
    f"{noun}/{second}": 1.0
    for noun in ("img", "imgs", "image", "images", "sample", "samples")
    for second in ("s", "sec")
}
STEPS = {f"{noun}/{second}": 1.0 for noun in ("step", "steps", "it", "batch", "batches") for second in ("s", "sec")}
SECONDS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
PERIODS = {f"{second}/{noun}": scale for noun in ("step", "it", "batch") for second, scale in SECONDS.items()}


def plain(text: str) -> str:
    """``text`` as a terminal shows it, in one line: without colours and other control characters but tabs."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def shown(text: str) -> str:
    """``text`` for a message, in quotation marks; of a long one the beginning."""
    line = plain(text).strip()
    return repr(line if len(line) <= SHOWN else f"{line[:SHOWN]}…")


def encoding_of(file: Path) -> str:
    """UTF-16 if the file begins so, else UTF-8. Raises OSError."""
    with file.open("rb") as content:
        return "utf-16" if content.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def lines(log: Path) -> Iterator[str]:
    """The lines of a log as a terminal shows them, also those that are overwritten; long ones in parts. Raises OSError."""
    with log.open(encoding=encoding_of(log), errors="replace") as texts:
        before = ""
        while part := texts.readline(LONGEST):
            yield plain(before + part)
            before = "" if part.endswith("\n") else part[-OVERLAP:]


def no_formula(text: str) -> str:
    """A cell of a table that a spreadsheet does not compute, for it begins with an apostrophe where it might."""
    return f"'{text}" if text.startswith(FORMULA) else text


def from_spreadsheet(cell: str) -> str:
    """The text that ``no_formula`` made a cell of."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def number(text: str, units: Collection[str] = ()) -> float:
    """The number in a text that has nothing else: see ``quantity``."""
    return quantity(text, units)[0]


def quantity(text: str, units: Collection[str] = ()) -> tuple[float, str]:
    """The number in a text that has nothing else but one of ``units``, which may be left out, and that unit.

    ``1234.5``, ``1.2345e+03``, ``1.2345k`` and, with marks between thousands, ``1,234.5``, ``1.234,5``, ``1'234.5`` and
    ``1 234,5`` are one number. A comma that cannot set thousands apart is a decimal one. Raises ValueError, which shows the
    text, for anything else, and for what is not finite.
    """
    match = _NUMBER.fullmatch(plain(text).strip().rstrip(".,;:"))
    if match:
        sign, digits, exponent, rest = match.groups()
        written = rest.lower()
        prefix, unit = ("", written) if written in units or not rest else (rest[0], written[1:].strip())
        decimal = _decimal(digits)
        if decimal and prefix in _PREFIXES and (not unit or unit in units):
            value = float(f"{sign}{decimal}e{exponent or 0}") * _PREFIXES[prefix]
            if math.isfinite(value):
                return value, unit
    raise ValueError(f"{shown(text)} is no number")


def _decimal(digits: str) -> str:
    """``digits`` with a decimal point and no other mark; "" if the marks between them make no sense."""
    marks = re.sub("[0-9]", "", digits)
    first, last = marks[:1], marks[-1:]
    if len({*marks}) <= 1:
        if marks != "." and _grouped(digits, first):
            return digits.replace(first, "") if first else digits
        return digits.replace(",", ".") if marks in (",", ".") else ""
    whole, _, part = digits.rpartition(last)
    sensible = last in ".," and {*marks[:-1]} == {first} and _grouped(whole, first)
    return f"{whole.replace(first, '')}.{part}" if sensible else ""


def _grouped(digits: str, mark: str) -> bool:
    """Tell whether ``mark`` sets the thousands of a whole number apart; without a mark, whether there are digits only."""
    pattern = rf"[1-9][0-9]{{0,2}}(?:{re.escape(mark)}[0-9]{{3}})+" if mark else "[0-9]+"
    return re.fullmatch(pattern, digits) is not None


def is_torn(line: str, begin: int, end: int) -> bool:
    """Tell whether a number that was looked for from ``begin`` to ``end`` of a line goes on before or behind."""
    text = line[begin:end]
    if re.match(r"[0-9.,]", text) and re.search(r"[0-9]\.?$", line[:begin]):
        return True
    if not re.search(r"[0-9][.,]?$", text):
        return False
    follows = _GROUP_FOLLOWS.match(line, end) if not re.search("[.,]", text) else None
    return bool(follows or _GOES_ON.match(line, end))

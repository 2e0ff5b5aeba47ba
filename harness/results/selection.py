"""Selections of the records of a source: ``runs/ @ now-14d:now-7d tag=nightly site=daint``.

Conditions follow `` @ ``, with spaces between them. All of them have to be met:

- ``FROM:TO``, when the run started: at FROM or later, and before TO. Either may be left out. Both are ``now``, ``now-7d``
  (``m``, ``h``, ``d`` and ``w`` are minutes, hours, days and weeks), or a date or time in ISO 8601, in UTC unless it says
  otherwise; a date is its midnight;
- ``tag=NAME``: the ``--tag`` of the run;
- ``site=SYSTEM`` or ``site=SYSTEM:PARTITION``: where it took place. ``local`` is the machine of the command.

A path that exists is a path, whatever is in its name.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from harness.core.text import minute, plural
from harness.errors import InvalidInput
from harness.results.result import Result

_BEFORE_NOW = re.compile(r"now(?:-(\d+)([mhdw]))?")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MOST_NAMED = 5  # tags or sites


@dataclass(frozen=True)
class Selection:
    """Conditions, each None or "" if it is left out. Times are in UTC."""

    start: datetime | None = None
    end: datetime | None = None
    tag: str = ""
    site: str = ""

    @classmethod
    def read(cls, text: str, now: datetime) -> Selection:
        """The conditions of a text. Raises ValueError with the mistake."""
        values: dict[str, str] = {}
        for condition in text.split():
            name, equals, value = condition.rpartition("=")
            if name not in ("tag", "site", "") or not value or (equals and not name):
                raise ValueError(f"'{condition}' is not a window FROM:TO, tag=NAME or site=NAME")
            if name in values:
                raise ValueError(f"'{condition}' is one {name or 'window'} too many; give RESULTS twice for both")
            values[name] = value
        if not values:
            raise ValueError("no condition follows the @; give a window FROM:TO, tag=NAME or site=NAME")
        start, end = _window(values.pop(""), now) if "" in values else (None, None)
        return cls(start, end, **values)

    def __str__(self) -> str:
        ends = ["" if time is None else time.isoformat().replace("+00:00", "Z") for time in (self.start, self.end)]
        values = [f"{name}={value}" for name in ("tag", "site") if (value := getattr(self, name))]
        return " ".join([*([":".join(ends)] if any(ends) else []), *values])

    def holds(self, started: str, tag: str, site: str) -> bool:
        """True if a record with these meets the conditions; ``started`` is ISO 8601; no window holds other text."""
        if (self.tag and tag != self.tag) or (self.site and not f"{site}:".startswith(f"{self.site}:")):
            return False
        if self.start is None and self.end is None:
            return True
        try:
            time = _utc(started)
        except ValueError:
            return False
        return (self.start is None or self.start <= time) and (self.end is None or time < self.end)


def _window(text: str, now: datetime) -> tuple[datetime | None, datetime | None]:
    # Times have colons, too: the one between two times is the only one with a time, or nothing, on either side.
    for colon in re.finditer(":", text):
        with suppress(ValueError, OverflowError):
            start, end = _time(text[: colon.start()], now), _time(text[colon.end() :], now)
            break
    else:
        raise ValueError(f"'{text}' is no window such as now-14d:now-7d, now-36h: or 2026-11-01:2026-11-08")
    if start is None and end is None:
        raise ValueError(f"'{text}' has neither a beginning nor an end")
    if start and end and start >= end:
        raise ValueError(f"'{text}' does not begin before it ends")
    return start, end


def _time(text: str, now: datetime) -> datetime | None:
    if match := _BEFORE_NOW.fullmatch(text):
        count, unit = match.groups()
        return now - timedelta(**{_UNITS[unit]: int(count)}) if count else now
    return _utc(text) if text else None


def _utc(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def parted(source: str | Path, now: datetime | None = None) -> tuple[str, Selection | None]:
    """The name in a source, and the selection of its records, if any. ``now`` is by default the time of the call.

    Raises InvalidInput for conditions that make no sense.
    """
    text = str(source)
    name, at, conditions = text.rpartition(" @ ")
    if not at or os.path.exists(text):  # noqa: PTH110 (a Path's raises for names that are too long)
        return text, None
    try:
        return name.rstrip(), Selection.read(conditions, now or datetime.now(UTC))
    except ValueError as error:
        raise InvalidInput(f"'{text}': {error}") from None


def at_time(source: str, now: datetime) -> str:
    """``source`` with times in place of those relative to ``now``, so that it means the same wherever it is read again.

    Raises InvalidInput for conditions that make no sense.
    """
    name, selection = parted(source, now)
    return source if selection is None else f"{name} @ {selection}"


class Selected:
    """The records that were read for several selections, and the selections that have left nothing."""

    def __init__(self) -> None:
        self.read: dict[Path, list[Result]] = {}  # all at or below a path, of which several sources may be some
        self.outside: dict[str, list[Result]] = {}  # by source: all that it has, where nothing of it is left

    def of(self, results: list[Result], source: str, selection: Selection | None) -> list[Result]:
        """The ``results``, all those in ``source``, that meet the conditions."""
        if selection is None:
            return results
        left = [result for result in results if selection.holds(result.started, result.tag, result.site)]
        if results and not left:
            self.outside[source] = results
        return left

    def check(self) -> None:
        """Raise InvalidInput, which says what there is, for a source whose selection has left none of its records."""
        for source, results in self.outside.items():
            times = [result.started for result in results]
            known = [f"started {minute(min(times))} to {minute(max(times))} UTC"]
            for name in ("tag", "site"):
                if values := sorted({getattr(result, name) for result in results} - {""}):
                    more = [*values[:_MOST_NAMED], *(["…"] if len(values) > _MOST_NAMED else [])]
                    known.append(f"{name}s: {', '.join(more)}")
            count = plural(len({result.id for result in results}), "record")
            raise InvalidInput(f"'{source}' leaves none of {count} ({'; '.join(known)})")

"""The line that says how many records are read."""

from __future__ import annotations

import io
import sys

import pytest

from harness.cli import common
from harness.core import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_sees_how_many_records_are_read_and_an_empty_line_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(progress, "REFRESH_S", 0.0)
    told = common.reading()
    told(3400, 100_000)
    told(100_000, 100_000)
    assert terminal.getvalue() == "\r\x1b[2Kreading 3,400 of 100,000 records\r\x1b[2K"


def test_reading_that_takes_less_than_half_a_second_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    told = common.reading()
    for done in range(25, 1000, 25):
        told(done, 1000)
    assert "reading" not in terminal.getvalue()


def test_a_file_or_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    soon = common.reading()
    soon(1, 2)
    soon(2, 2)
    assert pipe.getvalue() == "", "a minute has not passed"
    monkeypatch.setattr(progress, "LOGGED_S", 0.0)
    late = common.reading()
    late(1, 2)
    late(2, 2)
    assert pipe.getvalue() == "reading 1 of 2 records\n"


def test_a_line_that_is_not_wanted_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REFRESH_S", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    line = progress.ProgressLine(enabled=False)
    line.keep("kept")
    line.clear()
    assert not line.due() and terminal.getvalue() == ""


def test_a_count_tells_its_speed_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(progress, "REFRESH_S", 0.0)
    clock = iter([0.0, 0.0, 0.0, 10.0, 10.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    line = progress.CountLine("MB", 1_000_000)
    line.count(0, 5_000_000)
    line.count(2_000_000, 5_000_000)
    assert terminal.getvalue().split("\x1b[2K")[1:] == ["0 of 5 MB\r", "2 of 5 MB, 0 MB/s, 15.0 s left"]

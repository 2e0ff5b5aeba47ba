"""The line that says how many records are read."""

from __future__ import annotations

import io
import sys

import pytest

from harness.cli import common


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_sees_how_many_records_are_read_and_an_empty_line_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(common, "REFRESH_S", 0.0)
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


def test_a_file_or_a_pipe_gets_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    monkeypatch.setattr(common, "REFRESH_S", 0.0)
    told = common.reading()
    told(1, 2)
    told(2, 2)
    assert pipe.getvalue() == ""

"""What people see of records that are read and of repeats that end, on a terminal and in a file."""

import io
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core import progress
from harness.core.spec import RunSpec
from harness.errors import RunFailed
from harness.launch.watch import Progress
from harness.report.text.progress import RunLine
from harness.running import request
from harness.running.pace import Pace
from harness.running.prepare import Place
from harness.running.run import Run

A, B, C = Path("a"), Path("b"), Path("c")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(patch: pytest.MonkeyPatch, stream: io.StringIO) -> io.StringIO:
    """Let ``stream`` take what is shown, as often as there is something."""
    patch.setattr(sys, "stderr", stream)
    patch.setattr(progress, "REFRESH_S", 0.0)
    return stream


def test_a_person_sees_how_many_records_are_read_and_an_empty_line_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, told = shown(monkeypatch, Terminal()), progress.CountLine("records").count
    told(3400, 100_000)
    told(100_000, 100_000)
    assert terminal.getvalue() == "\r\x1b[2K3,400 of 100,000 records\r\x1b[2K"


def test_reading_that_takes_less_than_half_a_second_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    told = progress.CountLine("records").count
    for done in range(25, 1000, 25):
        told(done, 1000)
    assert "records" not in terminal.getvalue()


@pytest.mark.parametrize(("logged_s", "line"), [(60.0, ""), (0.0, "1 of 2 records\n")])
def test_a_file_or_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, logged_s: float, line: str) -> None:
    monkeypatch.setattr(progress, "LOGGED_S", logged_s)
    pipe, told = shown(monkeypatch, io.StringIO()), progress.CountLine("records").count
    told(1, 2)
    told(2, 2)
    assert pipe.getvalue() == line


def test_a_count_tells_its_speed_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = shown(monkeypatch, Terminal()), iter([0.0, 0.0, 0.0, 10.0, 10.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    told = progress.CountLine("images").count
    told(0, 5000)
    told(2000, 5000)
    shown_texts = ["0 of 5,000 images\r", "2,000 of 5,000 images, 200 images/s, 15.0 s left"]
    assert terminal.getvalue().split("\x1b[2K")[1:] == shown_texts


def test_the_rest_takes_as_long_as_what_has_ended() -> None:
    pace = Pace({A: 3, B: 3, C: 2}, {})
    assert pace.left_s is None, "nothing is known before the first repeat has ended"
    pace.took_s[A] += [10.0, 20.0]
    pace.took_s[B] += [45.0]
    assert pace.left_s == 1 * 15 + 2 * 45 + 2 * (15 + 45) / 2
    pace.lanes = 3
    assert pace.left_s == 165 / 3
    pace.given_up.add(B)
    assert pace.left == {A: 1, C: 2} and pace.done == 3


def test_runs_are_told_apart_by_what_was_asked_for() -> None:
    one, two = (RunSpec(backend="pytorch", nodes=nodes, threads=4 // nodes) for nodes in (1, 2))
    assert [*Pace.of({A: one, B: two}).names.values()] == ["pytorch nodes=1", "pytorch nodes=2"]
    fewer = one.model_copy(update={"threads": 1})
    assert [*Pace.of({A: one, B: fewer}).names.values()] == ["pytorch nodes=1 threads=4", "pytorch nodes=1 threads=1"]


def test_of_two_trainings_each_epoch_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", said := io.StringIO())
    spec = RunSpec(backend="pytorch")
    one, other = (SimpleNamespace(folder=Path(name), spec=spec) for name in ("one", "other"))
    epochs = [
        {"epoch": number, "epochs": 2, "loss": 1.0, "top1": None, "img_per_s": 9.0, "rate": 0.1, "elapsed_s": 3.0}
        for number in (1, 2)
    ]
    line = RunLine()
    for run, ended in ((one, 0), (other, 0), (one, 2), (other, 1), (one, 2), (other, 2)):
        line.progress(run, 1, Progress(Counter(), 1, 0.0, epochs[:ended]))  # type: ignore[arg-type]
    shown_epochs = [text.split("  ")[:2] for text in said.getvalue().splitlines()]
    assert shown_epochs == [[name, f"epoch {number}/2"] for name in ("one", "other") for number in (1, 2)]


def test_progress_that_nobody_can_read_is_silent_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Path("/dev/full").open("w"))  # noqa: SIM115 - to close it is to write again
    line = progress.ProgressLine()
    line.keep("one")
    line.show("two")
    line.clear()
    assert not line.due()


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Two runs of two repeats each of 2 images in 0.02 s; the second run's first repeat fails."""

    def repeat(run: Run, number: int, on_progress: Any) -> None:
        if run.spec.nodes == 2:
            raise RunFailed("rank 1 exited with 1\n    the end of its log")
        run.judged.append({"ranks": [SimpleNamespace(window_s=0.02, marks_s=[0.0, 0.02])]})

    for name, does in {"begin": lambda run: None, "repeat": repeat, "finish": lambda run, error=None: None}.items():
        monkeypatch.setattr(Run, name, does)

    def carry_out(stream: io.StringIO, enabled: bool = True) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        specs = [RunSpec(backend="pytorch", nodes=nodes, batch_size=2, steps=1, repeats=2) for nodes in (1, 2)]
        request.execute([Place(output=tmp_path).prepare(spec) for spec in specs], RunLine(enabled))
        return stream.getvalue()

    return carry_out


LINES = [
    "pytorch:torch:gloo nodes=1  repeat 1/2  100.00 img/s; 1 of 4 repeats, about 0 s left\n",
    "pytorch:torch:gloo nodes=2  repeat 1/2  failed: rank 1 exited with 1; 1 of 2 repeats, about 0 s left\n",
    "pytorch:torch:gloo nodes=1  repeat 2/2  100.00 img/s\n",
]


def test_every_repeat_has_its_line_in_a_file(measured: Callable[..., str]) -> None:
    assert measured(io.StringIO()) == "".join(LINES)


def test_on_a_terminal_the_lines_stay_above_the_progress(measured: Callable[..., str]) -> None:
    assert measured(Terminal()) == "".join(f"\r\x1b[2K{line}" for line in LINES)


def test_quiet_is_quiet(measured: Callable[..., str]) -> None:
    assert measured(io.StringIO(), enabled=False) == ""

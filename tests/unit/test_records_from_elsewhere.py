"""Records that somebody else wrote: whatever they hold, every command leaves out what breaks a rule, and shows the rest."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.records.measurement import Record
from harness.records.record import sealed
from tests import made
from tests.conftest import Finished, Harness, run_in_process
from tests.made import edited
from tests.wording import Case, Wording, cases

Json = dict[str, Any]
COMMANDS = (
    *(("results check",), ("table",), ("table", "--format", "csv"), ("best",), ("history",)),
    *(("results export", "--format", "json"), ("report", "-o", "report.html"), ("model fit",)),
)
ODD = (
    *(None, True, -1, 0, 1e308, math.nan, math.inf),
    *("", " ", "=1+1", "\x1b]0;title\x07\x1b[2J", "../../elsewhere", "/etc"),
    *("yesterday", "9999-99-99T00:00:00+00:00", "A" * 100_000, "\ud800", "‮", [], [None], {}, {"a": {"b": []}}, [[[]]]),
)


def good() -> Json:
    record = made.record("pytorch", 2, site="elsewhere", bucket_mb=25.0)
    made_up: Json = json.loads(record.to_json()) | {"tag": "nightly"}
    return made_up


ORIGINAL = good()


def written(folder: Path, name: str, record: Json, seal: bool = True) -> Path:
    """Both files of a record, in which anything may stand, as it writes them."""
    (folder / name).mkdir(parents=True)
    raw = {"plan": {"processes": ORIGINAL["plan"]["processes"]}}
    raw["repeats"] = [{"ranks": repeat["ranks"]} for repeat in ORIGINAL["repeats"]]
    own = deepcopy(record)
    with suppress(TypeError, KeyError, AttributeError):
        own["plan"].pop("processes")
        for repeat in own["repeats"]:
            repeat.pop("ranks")
    text = json.dumps(raw) + "\n"
    (folder / name / "raw.json").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    content = f'{json.dumps(own, indent=1)[:-2]},\n "raw": "{digest}"'.encode()
    file = folder / name / Record.file_name
    file.write_bytes(sealed(content) if seal else content + b"\n}\n")
    return file


def beside(folder: Path, odd: Json, seal: bool = True) -> Path:
    """Two good records, and an odd one."""
    for number in (1, 2):
        written(folder / "runs", f"good-{number}", good() | {"id": f"good-{number}"})
    return written(folder / "runs", "odd", odd, seal)


def places(value: object, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a record but those of its ranks, which are in another file."""
    if way:
        yield way
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in entries:
        if name not in ("ranks", "processes"):
            yield from places(each, (*way, name))


def changed(record: Json, way: tuple[Any, ...], value: object) -> Json:
    record = deepcopy(record)
    part: Any = record
    for name in way[:-1]:
        part = part[name]
    part[way[-1]] = value
    return record


def shown(done: Finished) -> Finished:
    """What is seen of a command that may leave something out, and may find fault with it."""
    assert done.code in (0, 1, 2) and "Traceback" not in done.stderr
    assert not any(ord(character) < 32 and character not in "\n\t" for character in done.stdout + done.stderr)
    return done


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(way=st.sampled_from(list(places(ORIGINAL))), value=st.sampled_from(ODD), seal=st.booleans())
def test_no_record_keeps_others_from_being_shown(
    tmp_path_factory: pytest.TempPathFactory, way: tuple[Any, ...], value: object, seal: bool
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    beside(folder, changed(ORIGINAL | {"id": "odd"}, way, value), seal)
    for command, *options in COMMANDS:
        done = shown(run_in_process(folder, *command.split(), "runs", *options))
        assert (
            done.code == 0 or command == "results check" or (command, done.code) in (("model fit", 2), ("history", 2))
        ), (
            command,
            done,
        )
    table = run_in_process(folder, "results", "export", "runs", "--format", "json").succeeded().json
    assert {"good-1", "good-2"} <= {run["id"] for run in table}


@cases
def test_a_record_that_breaks_a_rule_is_named_and_left_out_everywhere(tmp_path: Path, case: Case) -> None:
    beside(tmp_path, edited(ORIGINAL, case.request))
    for command, *options in COMMANDS:
        done = shown(run_in_process(tmp_path, *command.split(), "runs", *options))
        case.answered(done.stdout if command == "results check" else done.stderr)
    run_in_process(tmp_path, "baseline", "save", "nightly", "runs")
    assert not list(tmp_path.glob("**/elsewhere"))


def test_a_record_ends_after_it_starts(tmp_path: Path, wording: Wording) -> None:
    file = beside(tmp_path, ORIGINAL | {"ended": "1999-01-01T00:00:00+00:00"})
    wording("1999").answered(
        run_in_process(tmp_path.parent, "results", "check", str(tmp_path)).stdout.strip(), FILE=file
    )


@pytest.mark.parametrize("place", ["record.json", "raw.json"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "is no regular file"),
        (lambda file: file.symlink_to("/dev/zero"), "is no regular file"),
        (lambda file: file.symlink_to(file.name), "Too many levels of symbolic links"),
        (lambda file: os.truncate(os.open(file, os.O_CREAT | os.O_RDWR), 1 << 40), "more than a record"),
    ],
    ids=["a FIFO", "a device", "itself", "a terabyte"],
)
def test_what_is_no_file_of_a_record_is_not_read(
    tmp_path: Path, make: Callable[[Path], object], words: str, place: str
) -> None:
    file = beside(tmp_path, ORIGINAL, seal=False).with_name(place)
    file.unlink()
    make(file)
    for command in (["results", "check"], ["table"]):
        done = shown(run_in_process(tmp_path, *command, "runs"))
        assert words in done.stdout + done.stderr and done.code == (command != ["table"])


def test_a_folder_is_looked_at_once(tmp_path: Path) -> None:
    beside(tmp_path, ORIGINAL)
    (tmp_path / "runs" / "all").mkdir()
    (tmp_path / "runs" / "all" / "above").symlink_to("../..")
    assert "3 records" in run_in_process(tmp_path, "results", "check", "runs").succeeded().stdout


def test_texts_are_shown_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    reason = "\x1b]0;pwned\x07\x1b[31mRED\x1b[0m\x1b[2J"
    failed = {"status": "failed", "derived": None, "reason": reason, "tag": "\x1b[1mx"}
    beside(tmp_path, ORIGINAL | failed)
    table = run_in_process(tmp_path, "table", "runs").succeeded().stdout
    assert "\x1b" not in table and "\x07" not in table and "RED" in table


def test_no_cell_is_a_formula_and_the_text_is_read_again(tmp_path: Path) -> None:
    beside(tmp_path, ORIGINAL | {"tag": "=1+1"})
    for command in (["table"], ["results", "export"]):
        rows = run_in_process(tmp_path, *command, "runs", "--format", "csv").succeeded().stdout
        assert "'=1+1" in rows and ",=1+1" not in rows and '"=1+1' not in rows


def test_a_baseline_holds_as_many_sound_records_as_were_saved(
    shelf: Path, tmp_path: Path, harness: Harness, wording: Wording
) -> None:
    made.save(tmp_path / "runs", [made.record(nodes=1), made.record(nodes=2)])
    harness("baseline", "save", "nightly", "runs").succeeded()
    first, _ = sorted(shelf.glob("nightly/*/record.json"))
    first.unlink()
    wording("nightly").refused(harness("table", "nightly"), HERE=tmp_path)
    # A record whose figures do not follow from its raw times cannot be saved, though its seal fits.
    derived = ORIGINAL["derived"] | {"img_per_s": ORIGINAL["derived"]["img_per_s"] | {"mean": 1e6}}
    written(tmp_path / "forged", "one", ORIGINAL | {"derived": derived})
    wording("forged").refused(harness("baseline", "save", "forged", "forged"))

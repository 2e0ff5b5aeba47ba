"""What harness answers to a request, most of all to one that it refuses, in text files for people to review.

Beside ``test_x.py`` lies ``test_x.txt``. A line ``=== NAME`` begins the requests of the test of that name. Each request
stands at the left margin, and its answer below it, indented by four blanks. A blank line follows. ``…`` is any text.

A test with ``@cases`` runs once per request. Any other test takes the fixture ``wording``, and each of its requests is a
few words that the test calls it by: ``with wording("a file that is missing").raises(InvalidInput, FILE=file):``.

    HARNESS_REWRITE=1 .venv/bin/python -m pytest tests/unit/test_x.py

writes today's answer wherever another one or none stands, and the request where that is missing, too. Such a test fails
all the same: only a reviewed answer passes.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from tests.conftest import Finished

Test = TypeVar("Test", bound=Callable[..., None])


@dataclass(frozen=True)
class Case:
    """A request and the answer that somebody has reviewed. What ``names`` hold stands in both by its name."""

    file: Path
    section: str
    request: str
    answer: str

    @property
    def text(self) -> str:
        """The request with ``\\n`` and other escapes read as in Python."""
        return self.request.encode("latin-1", "backslashreplace").decode("unicode_escape")

    def words(self, **names: object) -> list[str]:
        """The arguments of a command."""
        return [
            _replaced(word, {name: str(value) for name, value in names.items()}) for word in shlex.split(self.request)
        ]

    def refused(self, done: Finished, **names: object) -> None:
        """Check that the command was refused as a wrong request, in one line."""
        self.answered(done.refused(), **names)

    @contextmanager
    def raises(self, error: type[Exception], **names: object) -> Iterator[None]:
        """Check that the block raises such an error, and its message."""
        with pytest.raises(error) as raised:
            yield
        self.answered(raised.value, **names)

    def ended(self, done: Finished, code: int, **names: object) -> None:
        """Check a command's exit code, and all that it said of problems."""
        assert done.code == code, done
        self.answered(done.stderr.removesuffix("\n"), **names)

    def answered(self, answer: object, **names: object) -> None:
        """Check an answer."""
        text = _replaced(str(answer), {str(value): name for name, value in names.items()})
        pattern = ".*".join(map(re.escape, self.answer.split("…")))
        if not self.answer.strip("…") or not re.fullmatch(pattern, text, re.DOTALL):
            if "HARNESS_REWRITE" in os.environ:
                self._rewrite(text)
            pytest.fail(f"{self.file}: {self.request}\nis answered\n{text}\nin place of\n{self.answer}")

    def _rewrite(self, answer: str) -> None:
        text = _text(self.file)
        if _begin(self.section) not in text:
            text += "\n" * bool(text) + _begin(self.section)
        before, begin, rest = text.partition(_begin(self.section))
        section, end, after = rest.partition("\n=== ")
        old = f"\n{self.request}{_indented(self.answer) if self.answer else ''}\n"
        new = f"\n{self.request}{_indented(answer)}\n"
        section = section.replace(old, new, 1) if old in section else section + new
        self.file.write_text(before + begin + section + end + after, encoding="utf-8")


def cases(test: Test) -> Test:
    """Parametrise a test with the requests that stand under its name in the text file beside it."""
    file = Path(test.__code__.co_filename).with_suffix(".txt")
    found = list(cases_of(file, test.__name__))
    assert found, f"{file} has no requests for {test.__name__}"
    return pytest.mark.parametrize("case", found, ids=[" ".join(case.request.split())[:60] for case in found])(test)


Wording = Callable[[str], Case]


@pytest.fixture
def wording(request: pytest.FixtureRequest) -> Wording:
    """This test's case with a request, without an answer where the text file does not have the request yet."""
    file, section = request.path.with_suffix(".txt"), request.function.__name__
    reviewed = {case.request: case for case in cases_of(file, section)}
    return lambda words: reviewed.get(words, Case(file, section, words, ""))


def same_as_golden(name: str, text: str) -> None:
    """Check a text against the file ``tests/unit/golden/NAME``, which is rewritten as answers are."""
    golden = Path(__file__).parent / "unit" / "golden" / name
    old = golden.read_text(encoding="utf-8") if golden.exists() else ""
    if text != old and "HARNESS_REWRITE" in os.environ:
        golden.write_text(text, encoding="utf-8")
    assert text == old, "".join(difflib.unified_diff(old.splitlines(True), text.splitlines(True), name, "now"))


def sections(file: Path) -> list[str]:
    return re.findall("^=== (.*)$", _text(file), re.MULTILINE)


def cases_of(file: Path, section: str) -> Iterator[Case]:
    _, _, rest = _text(file).partition(_begin(section))
    for paragraph in rest.partition("\n=== ")[0].split("\n\n"):
        request, _, answer = paragraph.strip("\n").partition(_indented(""))
        if request:
            yield Case(file, section, request, answer.replace(_indented(""), "\n"))


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _begin(section: str) -> str:
    return f"=== {section}\n"


def _indented(answer: str) -> str:
    return "".join(f"\n    {line}" for line in answer.split("\n"))


def _replaced(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text

"""What harness answers to a request, most of all to one that it refuses, in text files for people to review.

Beside ``test_x.py`` lies ``test_x.txt``. A line ``=== NAME`` begins the requests of the test of that name. Each request
stands at the left margin, and its answer below it, indented by four blanks. A blank line follows. ``…`` is any text.

    HARNESS_REWRITE=1 .venv/bin/python -m pytest tests/unit/test_x.py

writes today's answer wherever another one or none stands. Such a test fails all the same: only a reviewed answer passes.
"""

import difflib
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

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

    def answered(self, answer: object, **names: object) -> None:
        """Check an answer."""
        text = _replaced(str(answer), {str(value): name for name, value in names.items()})
        pattern = ".*".join(map(re.escape, self.answer.split("…")))
        if not self.answer.strip("…") or not re.fullmatch(pattern, text, re.DOTALL):
            if "HARNESS_REWRITE" in os.environ:
                self._rewrite(text)
            pytest.fail(f"{self.file}: {self.request}\nis answered\n{text}\nin place of\n{self.answer}")

    def _rewrite(self, answer: str) -> None:
        before, begin, rest = self.file.read_text(encoding="utf-8").partition(_begin(self.section))
        old = f"\n{self.request}{_indented(self.answer) if self.answer else ''}\n"
        new = f"\n{self.request}{_indented(answer)}\n"
        self.file.write_text(before + begin + rest.replace(old, new, 1), encoding="utf-8")


def cases(test: Test) -> Test:
    """Parametrise a test with the requests that stand under its name in the text file beside it."""
    file = Path(test.__code__.co_filename).with_suffix(".txt")
    found = list(_cases(file, test.__name__))
    assert found, f"{file} has no requests for {test.__name__}"
    return pytest.mark.parametrize("case", found, ids=[" ".join(case.request.split())[:60] for case in found])(test)


def same_as_golden(name: str, text: str) -> None:
    """Check a text against the file ``tests/unit/golden/NAME``, which is rewritten as answers are."""
    golden = Path(__file__).parent / "unit" / "golden" / name
    old = golden.read_text(encoding="utf-8") if golden.exists() else ""
    if text != old and "HARNESS_REWRITE" in os.environ:
        golden.write_text(text, encoding="utf-8")
    assert text == old, "".join(difflib.unified_diff(old.splitlines(True), text.splitlines(True), name, "now"))


def sections(file: Path) -> list[str]:
    return re.findall("^=== (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)


def _cases(file: Path, section: str) -> Iterator[Case]:
    _, _, rest = file.read_text(encoding="utf-8").partition(_begin(section))
    for paragraph in rest.partition("\n=== ")[0].split("\n\n"):
        request, _, answer = paragraph.strip("\n").partition(_indented(""))
        if request:
            yield Case(file, section, request, answer.replace(_indented(""), "\n"))


def _begin(section: str) -> str:
    return f"=== {section}\n"


def _indented(answer: str) -> str:
    return "".join(f"\n    {line}" for line in answer.split("\n"))


def _replaced(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text

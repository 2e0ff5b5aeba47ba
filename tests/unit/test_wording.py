"""Answers in text files: one that differs or is missing fails, and so does the test that writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.wording import _cases, sections


def test_only_a_reviewed_answer_passes_and_a_rewritten_one_has_yet_to_be_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "test_x.txt"
    file.write_text("=== test_x\n\ntable x\n    old\n\ntable y\n    HERE: … file\n\n=== test_z\n\ntable x\n")
    (first, second), (unanswered,) = _cases(file, "test_x"), _cases(file, "test_z")
    assert (first.words(x="RUNS"), unanswered.answer) == (["table", "RUNS"], "")
    first.answered("old")
    second.answered("/tmp/1: no such file", HERE="/tmp/1")
    monkeypatch.setenv("HARNESS_REWRITE", "1")
    for case, answer in ((first, "new"), (second, "HERE: a folder"), (unanswered, "two\nlines")):
        with pytest.raises(pytest.fail.Exception, match="in place of"):
            case.answered(answer)
    assert file.read_text().startswith("=== test_x\n\ntable x\n    new\n\ntable y\n    HERE: a folder\n\n=== test_z\n")
    (rewritten,) = _cases(file, "test_z")
    rewritten.answered("two\nlines")


@pytest.mark.parametrize("file", [*ROOT.glob("tests/*/test_*.txt")], ids=lambda file: file.stem)
def test_every_section_of_a_text_file_belongs_to_a_test(file: Path) -> None:
    text = file.with_suffix(".py").read_text(encoding="utf-8")
    assert [name for name in sections(file) if f"@cases\ndef {name}(" not in text] == []

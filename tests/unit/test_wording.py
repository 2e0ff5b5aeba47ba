"""Answers in text files: each belongs to a test."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.wording import cases_of, sections


@pytest.mark.parametrize("file", [*ROOT.glob("tests/*/test_*.txt")], ids=lambda file: file.stem)
def test_every_answer_of_a_text_file_belongs_to_a_test(file: Path) -> None:
    text = file.with_suffix(".py").read_text(encoding="utf-8")
    for name in sections(file):
        if f"@cases\ndef {name}(" not in text:
            assert f"\ndef {name}(" in text
            assert [case.request for case in cases_of(file, name) if f'"{case.request}"' not in text] == []

"""Plain English: no help text, page or docstring has a relative clause or a bare pronoun as its head."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness.cli import ALL, cli
from tests.conftest import ROOT

HEADS = r"(What|Whose|Those|That of|Of which|As many as|As much as|Whatever|Whoever)\b"
START = re.compile(rf"(?:^|(?<=[.!?:;] )|(?<=\| )|(?<=\*\*)|(?<=\n)[#>*\- ]+){HEADS}[^.?!|]*[.?!|]?")
PAGES = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/**/*.md"), *ROOT.glob("cluster/*.md")}
)
CODE = ("harness", "backends", "models", "kernels", "programs", "studies", "cluster", "benchmarks", "examples")


def heads(text: str) -> list[str]:
    """The sentences that begin with a banned head. Questions may."""
    return [match[0] for match in START.finditer(text) if not match[0].endswith("?")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_and_headings_of_a_page_have_a_noun_or_a_verb_as_their_head(page: Path) -> None:
    assert not heads(page.read_text(encoding="utf-8"))


def docstrings(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("folder", CODE)
def test_docstrings_begin_with_a_noun_or_a_verb(folder: str) -> None:
    files = [file for file in (ROOT / folder).rglob("*.py") if not file.is_symlink()]
    wrong = {f"{file.relative_to(ROOT)}: {text}" for file in files for each in docstrings(file) for text in heads(each)}
    assert not wrong


def texts(command: click.Command) -> Iterator[str]:
    yield from (command.help or "", command.short_help or "")
    yield from (getattr(parameter, "help", None) or "" for parameter in command.params)
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        yield from texts(each)


@pytest.mark.parametrize("name", ALL)
def test_help_begins_with_a_noun_or_a_verb(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command and not [wrong for text in texts(command) for wrong in heads(text[:1].upper() + text[1:])]

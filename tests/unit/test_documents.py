"""Every command that a document shows is carried out, and what the document says comes of it has to come of it.

Sybil finds the commands: each line of a block of ``sh``, the first line of a block of ``console``, above its output, and
what a sentence has in backquotes. What follows ``<!-- skip: next "REASON" -->`` is left out. Each command has a folder of
its own, which holds what the documents speak of. A test is named by its command.
"""

import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree
from typing import NamedTuple
from unittest import SkipTest

import pytest
from sybil import Document, Example, Region
from sybil.example import SybilFailure
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from harness.cli import command_path
from harness.datasets.make import make
from harness.environments import cache_folder
from tests import made
from tests.conftest import FEW_STEPS, PATIENCE_S, ROOT, SMALLEST, STARTING, Finished, run_harness, run_in_process
from tests.unit.test_kernel_results import measured, saved

PAGES = ("*.md", "docs/**/*.md", "results/**/*.md", "cluster/*.md", "examples/**/*.md")
COMMAND = r"(?:harness|make|\S*python3?)\s"
# What takes minutes or a cluster is planned. Only the reader's own study is carried out, for it is small here.
PLANNED = re.compile(r"^(make|harness (?:run|train|kernel|launch|ab|study run(?= studies/))) ")
SLOW = re.compile(r"harness (study run|data|model|report|env) (?!.*--(dry|help))|^\S*python")


class Shown(NamedTuple):
    """A command as a page shows it, with the output and the exit code that the page states."""

    example: Example
    text: str
    output: str = ""
    code: int = 0


SHOWN: dict[str, list[Shown]] = {}  # by what is carried out, so that a command of several pages is carried out once


def show(example: Example, line: str, output: str = "") -> None:
    code = re.search(r"# .*exit code (\d):", line)
    if text := re.sub(r"(^|\s+)# .*", "", line):
        shown = Shown(example, text, output, int(code[1]) if code else 0)
        SHOWN.setdefault(PLANNED.sub(r"\1 --dry-run ", text), []).append(shown)


def in_block(example: Example) -> None:
    """Each line is a command. Quotes may hold line breaks."""
    for line in re.findall(r'(?:"[^"]*"|[^"\n])+', re.sub(r"\\\n\s*", "", example.parsed)):
        show(example, line)


def in_console(example: Example) -> None:
    show(example, *example.parsed.removeprefix("$ ").split("\n", 1))


def in_sentence(example: Example) -> None:
    """A script has to exist. A command without operands, or with NAMES in place of some, has to have a help."""
    text, script = example.parsed, re.search(r"\S+\.py\b", example.parsed)
    path = command_path(text.split()[1:])
    operands = text.removeprefix(path).split()
    named = all(word.startswith("-") for word in operands) or any(re.fullmatch("[A-Z_]*…?", word) for word in operands)
    if script:
        SHOWN.setdefault(f"ls {script[0]}", []).append(Shown(example, text))
    elif text.startswith("harness ") and named and not re.match("harness (config|list)", text):
        SHOWN.setdefault(f"{path} --help", []).append(Shown(example, text))
    else:
        show(example, text)


def sentences(document: Document) -> Iterator[Region]:
    for match in re.finditer(rf"(?<!`)`({COMMAND}[^`]+)`(?!`)", document.text):
        yield Region(match.start(), match.end(), " ".join(match[1].split()), in_sentence)


PARSERS = (SkipParser(), CodeBlockParser("sh", in_block), CodeBlockParser("console", in_console), sentences)
DOCUMENTS = [
    Document.parse(str(path), *PARSERS)
    for pattern in PAGES
    for path in sorted(ROOT.glob(pattern))
    if path.name != "CHANGELOG.md"  # which names what there once was
]
for _example in itertools.chain(*DOCUMENTS):
    with suppress(SkipTest):
        _example.evaluate()


def save_made(folder: Path, site: str, day: float = 0.0, tag: str = "") -> None:
    """Results of three backends on three sizes, with five repeats, on three days."""
    speeds = {"parameter_server": 100.0, "horovod": 120.0, "pytorch": 140.0}
    for (backend, speed), nodes, later in itertools.product(speeds.items(), (1, 2, 64), range(3)):
        repeats = [speed * nodes**0.9 * (1 + repeat / 1000 + later / 5000) for repeat in range(5)]
        record = made.record(backend, nodes, repeats, day=day + later, site=site)
        made.save(folder, [record.model_copy(update={"tag": tag})])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the documents speak of, by the names that it has there."""
    here, images = tmp_path_factory.mktemp("prepared"), tmp_path_factory.mktemp("made") / "images"
    (here / ".venv").symlink_to(sys.prefix)
    for name in ("benchmarks", "cluster", "examples", "results", "studies", "Makefile", "pyproject.toml"):
        (here / name).symlink_to(ROOT / name)
    today = (datetime.now(UTC) - made.FIRST).days
    for name, day in (("2026-10", 0.0), ("2026-11", 30.0), ("last-week", today - 11), ("this-week", today - 4)):
        save_made(here / "runs" / name, "daint:gpu", day)
    for tag in ("before-upgrade", "after-upgrade"):
        save_made(here / "runs" / tag, "daint:gpu", tag=tag)
    save_made(here / "alps" / "runs", "alps:normal")
    save_made(here / "daint" / "runs", "daint:gpu")
    saved(here / "runs" / "kernels", measured(), measured("cg"))
    experiments = ROOT / "results" / "experiments"
    (here / "runs" / "network").symlink_to(experiments / "network")
    (here / "RESULTS").symlink_to("runs")
    (here / "RECORD").symlink_to(next(experiments.glob("alone/*-horovod-inception3-n1-*")) / "record.json")
    (here / "RUN").symlink_to(next(experiments.glob("steady/steady-8-links-2.25-*/*-horovod-inception3-n8-*")))
    (here / "RUN_DIR").symlink_to(next(here.glob("runs/2026-10/*-horovod-inception3-n2-*")))
    (here / "mine.csv").write_text("system,backend,nodes,img_per_s\nOurs,horovod,2,221.4\nOurs,horovod,2,220.2\n")
    (here / "osu_bw.txt").write_text("# OSU MPI Bandwidth Test\n# Size      Bandwidth (MB/s)\n4194304   9480.00\n")
    small = "model = 'pointwise', batch_size = 2, image_size = 32, warmup_steps = 1, steps = 3, repeats = 1"
    (here / "nightly.toml").write_text(f"common = {{{small}}}\nmatrix = [{{backend = 'pytorch', nodes = [1]}}]\n")
    (here / "home" / ".config" / "harness" / "sites").mkdir(parents=True)
    profile = (ROOT / "docs" / "sites" / "README.md").read_text().partition("```toml\n")[2].partition("```")[0]
    for name in ("home/.config/harness/sites/mycluster.toml", "my-cluster.toml", "my.toml"):
        (here / name).write_text(profile)
    make(images, 100, 2, (64, 48), seed=1)
    (here / "PATH").symlink_to(images)
    return here


@pytest.fixture
def folder(command: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what is prepared, for one command, and the variables of somebody who works there."""
    here = copytree(prepared, tmp_path / "here", symlinks=True, copy_function=os.link)
    for name, value in {
        "CUDA_VISIBLE_DEVICES": "0" if "--device cuda" in command else "",  # a plan takes its name, and no GPU
        "GITHUB_STEP_SUMMARY": str(here / "summary.md"),
        "HARNESS_BASELINES": str(here / "baselines"),
        "HARNESS_CACHE": str(cache_folder()),
        "HOME": str(here / "home"),
        "PATH": f"{here}/.venv/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SCRATCH": str(here),
        "XDG_CONFIG_HOME": str(here / "home" / ".config"),
        "today": "runs/2026-11",
    }.items():
        monkeypatch.setenv(name, value)
    for name in re.findall("before-upgrade|production", command) if "harness compare" in command else ():
        run_in_process(here, "baseline", "save", "--replace", name, "runs/2026-10").succeeded()
    for environment in re.findall(r"\(harness env path (.*?)\)", command):
        carried_out(f"harness env build {environment}", here).succeeded()
    if command == "harness jobs status":
        run_harness(here, "run", "--backend", "pytorch", *SMALLEST, *FEW_STEPS).succeeded()
    return here


def carried_out(command: str, here: Path) -> Finished:
    """In this process if it is one plain command that starts nothing, otherwise by a shell."""
    words = shlex.split(command)
    plain = words[0] == "harness" and not re.search(r"[$|;&<>~]", re.sub(r"'.*?'", "", command))
    if plain and (words[1] not in STARTING or {"--dry-run", "--help"} & set(words)):
        return run_in_process(here, *words[1:])
    patience_s = PATIENCE_S * (4 if "env build" in command else 1)  # Horovod may be compiled beside other tests
    done = subprocess.run(["bash", "-c", command], cwd=here, capture_output=True, text=True, timeout=patience_s)
    return Finished(done.returncode, done.stdout, done.stderr)


def holds(stdout: str, output: str) -> bool:
    """Whether the lines of ``output`` are in ``stdout``, in their order; columns and lines may be set otherwise."""
    parts = [re.escape(" ".join(part.split())) for part in re.split(r"\n|…", re.sub("─+", "─", output))]
    in_order = "".join(f"(?>.*?{part})" for part in parts)  # atomic: what matched is not tried again
    return bool(re.match(in_order, " ".join(re.sub("─+", "─", stdout).split())))


def marks(command: str) -> list[pytest.MarkDecorator]:
    """What all of docs/answers.md comes of is computed by tests/unit/test_predict_answers.py, too."""
    computed = all(shown.example.path.endswith("docs/answers.md") for shown in SHOWN[command])
    return [pytest.mark.slow, *[pytest.mark.exhaustive] * computed] if SLOW.search(command) else []


@pytest.mark.parametrize("command", [pytest.param(each, id=each, marks=marks(each)) for each in SHOWN])
def test_what_a_document_shows_can_be_done(command: str, folder: Path) -> None:
    done, code = carried_out(command, folder), max(shown.code for shown in SHOWN[command])
    places = ", ".join(f"{shown.example.path}:{shown.example.line}" for shown in SHOWN[command])
    said = f"{command} of {places}: exit code {done.code}\n{done.stdout}{done.stderr}"
    for shown in SHOWN[command]:
        options = re.findall(r"--[a-z-]+", shown.text) if command.endswith(" --help") else []
        right = done.code == code and "Traceback" not in done.stderr and holds(done.stdout, shown.output)
        if not right or not all(option in done.stdout for option in options):
            raise SybilFailure(shown.example, f"{shown.text}\n{shown.output}\nwhere this came of {said}")


def test_no_command_and_no_exception_is_overlooked() -> None:
    """Other blocks are not carried out. A directive stands right above the block that it is needed for, with a reason."""
    elsewhere = re.compile(rf"^(?: {{4,}}|```(?!sh|console)\w*\n){COMMAND}.*", re.MULTILINE)
    for document in DOCUMENTS:
        assert elsewhere.findall(document.text) == [], document.path
        for below in re.split("^<!-- skip: next", document.text, flags=re.MULTILINE)[1:]:
            assert re.match(r' ".+" -->\n\n```sh\n', below), f"{document.path}: {below[:100]}"

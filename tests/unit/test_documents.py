"""Every command that a document shows is carried out, and what the document says comes of it has to come of it.

Each command has a folder of its own, which holds what the documents speak of: results, images, profiles, a user's config,
which makes runs small. A test is named by its command; a failure says on which pages and lines that stands.
"""

import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from shutil import copytree, rmtree
from textwrap import dedent

import pytest
from markdown_it import MarkdownIt

from harness.cli import command_path
from harness.datasets.make import make
from harness.environments import cache_folder
from tests import made
from tests.conftest import PATIENCE_S, ROOT, STARTING, Finished, run_harness, run_in_process
from tests.unit.test_kernel_results import measured, saved

PAGES = ("*.md", "docs/**/*.md", "results/**/*.md", "cluster/*.md", "examples/**/*.md")
Entries = tuple[tuple[str, str, str], ...]  # page, command, reason; * stands for anything. Each entry has to be needed
ON_CLUSTER = "is tried on the virtual cluster: tests/cluster"

EXCLUDED: Entries = (
    ("docs/cluster.md", "*", "is followed word for word on the virtual cluster: tests/cluster/test_docs.py"),
    ("*", "*cluster/cluster.py *", ON_CLUSTER),
    ("*", "harness site init *", ON_CLUSTER),
    ("*", "harness cancel *", ON_CLUSTER),
    ("docs/sites/*", "* --site ec2 *", "takes machines reached by ssh, which are asked for their cores: tests/cluster"),
    ("docs/sites/*", "* --site generic-slurm *", "takes a Slurm, which is asked for its nodes' cores: tests/cluster"),
    ("*", "* --no-wait; *", ON_CLUSTER),
    ("*", "* --site */site.toml *", ON_CLUSTER),
    ("*", "*zsh_source*", "takes zsh"),
    ("*", "*fish_source*", "takes fish"),
    ("*", "* -m pytest *", "is these tests"),
    ("*", "python benchmarks/law_*", "takes hours"),
    ("docs/error-rates.md", "python benchmarks/error_rates.py", "takes half an hour: tests/unit/test_jobs.py"),
    ("*", "python benchmarks/slow_disk.py*", "takes minutes, as root: tests/parity/test_slow_disk.py"),
    ("*", "python benchmarks/kernel_peers.py*", "takes minutes, and programs that Debian has: docs/kernels.md"),
    ("*", "python3 benchmarks/gpu_check.py *", "is carried out by tests/unit/test_gpu_check.py"),
    ("*", "*/emulated-p100/measure.py*", "takes hours, as root, of a machine that does nothing else"),
    ("*", "harness data bench PATH*", "takes a minute: tests/parity/test_input_speed.py"),
    ("docs/training.md", "harness train *--data digits *", "takes minutes: tests/learning"),
    ("docs/ab.md", "harness ab * env=/opt/*", "takes two environments: tests/unit/test_ab.py"),
    ("docs/ab.md", "harness ab * var:SOURCE=*", "takes two versions of a program: tests/unit/test_ab.py"),
    ("docs/commands.md", "harness import mlperf *", "takes logs of MLPerf: tests/unit/test_published.py"),
    ("docs/ab.md", "harness ab --of DIR", "takes a comparison that was made: tests/unit/test_ab.py"),
    ("CONTRIBUTING.md", "import torch*", "is trained with by tests/plugins/test_third_party.py"),
    ("CONTRIBUTING.md", "harness run --backend flat *", "is carried out by tests/plugins/test_third_party.py"),
    ("docs/python.md", "import harness*harness.run(*", "takes minutes: tests/unit/test_api.py"),
    ("docs/training.md", "* --resume RUN_DIR", "takes a training that was interrupted: tests/unit/test_training.py"),
)
# What is only planned, with --dry-run, besides what a single machine does not hold.
PLANNED: Entries = (
    ("*", "make *", "what make does is what installs and starts these tests"),
    ("docs/*", "harness run *", "takes minutes; the README's are carried out, and tests/parity trains in every way"),
    ("*", "harness run --backend *,* *", "takes minutes; is what `make run` does"),
    ("*", "harness kernel *", "takes minutes: tests/parity measures each kernel with two small sizes"),
    ("*", "harness train --backend pytorch --nodes 2 *", "takes minutes: tests/learning"),
)
# What is left to `make test-all` unless another page shows it, too.
EXHAUSTIVE: Entries = (
    ("docs/answers.md", "*", "all of the page is computed by tests/unit/test_predict_answers.py"),
    ("docs/scaling-model.md", "harness fit re*", "takes a minute or two; fits of less are carried out"),
)
ELSEWHERE = re.compile(r"--nodes (\d+,)*([5-9]|\d\d+)|--site (?!local)|studies/(?!quick)")
# What stands for something in the documents, where no file of the prepared folder has that name.
MEANT = {
    **{"BACKEND": "pytorch", "COMMAND": "run", "N": "2", "NAME": "local", "SITE": "local"},
    **{"RESULTS…": "RESULTS", "RESULTS...": "RESULTS", "harness run …": "harness run --backend pytorch", " …": ""},
}
SLOW = re.compile(
    r"harness (run|train|study run|data|predict|fit|explain|report|env|status) (?!.*--(dry-run|help))"
    r"|python|import |\$\(harness env "
)

# Of all models the one that computes soonest, on images as small as any. What a document gives comes later, and counts.
SMALL = "--model pointwise --batch-size 2 --image-size 32 --threads 1 --warmup 1 --steps 3 --repeats 1"
STUDY = """\
model = "pointwise"
batch_size = 2
image_size = 32
threads = 1
warmup_steps = 1
steps = 3
repeats = 1
"""


@dataclass(frozen=True)
class Shown:
    """A command that a page shows in ``line``; the ``output`` shown below it, or None if it stands in a sentence."""

    page: str
    line: int
    text: str
    output: str | None = ""
    code: int = 0  # that the comment beside it states


PROGRAM = r"(?:harness|make|python3?|\.venv/bin/\w+)"
# Quotes may hold line breaks; the rest of a block after an import belongs to it.
COMMAND = re.compile(rf"""^(?:import [\s\S]*|(?=(?:.*[ ("=])?{PROGRAM}(?:[ )]|$))(?:"[^"]*"|[^"\n])*)""", re.MULTILINE)
COMMENT = re.compile(r"(^|\s+)# .*", re.MULTILINE)


def shown(page: str, text: str) -> Iterator[Shown]:
    """The commands of a page, in blocks and in sentences."""
    for token in MarkdownIt().enable("table").parse(text):
        line = token.map[0] + 1 if token.map else 0
        if token.type in ("code_block", "fence"):
            yield from in_block(page, line, token.content)
        for part in token.children or ():
            if part.type == "code_inline" and re.match(rf"{PROGRAM}\s", part.content):
                yield Shown(page, line, " ".join(part.content.split()), None)


def in_block(page: str, line: int, block: str) -> Iterator[Shown]:
    """The commands of a block, each with what stands below it after a blank line. A block of Python is one command."""
    joined = re.sub(r"\\\n\s*", "", block)
    found = [*COMMAND.finditer(joined)]
    for command, following in itertools.zip_longest(found, found[1:]):
        below = joined[command.end() : following.start() if following else None].partition("\n\n")[2]
        stated = re.search(r"# .*exit code (\d)(?! if)", command[0])
        text, output = (COMMENT.sub("", part) for part in (command[0].strip(), below))
        yield Shown(page, line, text, output, int(stated[1]) if stated else 0)


def variants(text: str) -> Iterator[str]:
    """The commands that a synopsis stands for: with all that is optional, and one for each alternative."""
    for word, meant in MEANT.items():
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", meant, text)
    words = re.sub(r"\[(-.*?)\]", r"\1", text).split(" ")
    choices = [word.split("|") if re.fullmatch(r"[\w-]+(\|[\w-]+)+", word) else [word] for word in words]
    yield from map(" ".join, itertools.product(*choices))


def fitting(entries: Entries, one: Shown, command: str) -> list[tuple[str, str, str]]:
    return [
        entry
        for entry in entries
        if fnmatchcase(one.page, entry[0]) and any(fnmatchcase(text, entry[1]) for text in (one.text, command))
    ]


def planned(one: Shown, command: str) -> str:
    """The command as it is carried out. Of what a sentence only names, or leaves half of out, there has to be a help."""
    words = command.split()
    if one.output is None and words[0] == "harness":
        path = command_path(words[1:])
        rest = words[len(path.split()) :]
        half = words[1] in ("run", "train", "predict") and "--backend" not in rest
        if half or (all(word.startswith("-") for word in rest) and words[1] not in ("config", "list")):
            return f"{path} --help"
    if match := re.match(r"harness (launch|ab) ", command):  # whose programs are the reader's
        return f"{match[0]}--dry-run {command.removeprefix(match[0])}"
    starts = re.match(r"harness (run|train|study run) ", command) and "--dry-run" not in command
    return (
        f"{command} --dry-run" if fitting(PLANNED, one, command) or (starts and ELSEWHERE.search(command)) else command
    )


ALL = [
    one
    for pattern in PAGES
    for file in sorted(ROOT.glob(pattern))
    if file.name != "CHANGELOG.md"  # which names what there once was
    for one in shown(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
]
# What is carried out, and where it is shown: a command of several pages is one.
CASES: dict[str, list[Shown]] = {}
for _one in ALL:
    for _command in variants(_one.text):
        if not fitting(EXCLUDED, _one, _command):
            CASES.setdefault(planned(_one, _command), []).append(_one)


def save_made(folder: Path, site: str, day: float = 0.0, tag: str = "") -> None:
    """Results of three backends on three sizes, with five repeats, on three days."""
    for (backend, speed, options), nodes, later in itertools.product(
        (("parameter_server", 100.0, {"ps": 1}), ("horovod", 120.0, {}), ("pytorch", 140.0, {})), (1, 2, 64), range(3)
    ):
        repeats = [speed * nodes**0.9 * (1 + repeat / 1000 + later / 5000) for repeat in range(5)]
        record = made.record(backend, nodes, repeats, day=day + later, site=site, **options)
        made.save(folder, [record.model_copy(update={"tag": tag})])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the documents speak of, by the names that it has there."""
    folder = tmp_path_factory.mktemp("prepared")
    save_made(folder / "runs" / "2026-10", "daint:gpu")
    save_made(folder / "runs" / "2026-11", "daint:gpu", day=30.0)
    saved(folder / "runs" / "kernels", measured(), measured("cg"))
    save_made(folder / "two" / "alps", "alps:normal")
    save_made(folder / "two" / "daint", "daint:gpu")
    (folder / "mine.csv").write_text("system,backend,nodes,img_per_s\nOurs,horovod,2,221.4\nOurs,horovod,2,220.2\n")
    (folder / "osu_bw.txt").write_text("# OSU MPI Bandwidth Test\n# Size      Bandwidth (MB/s)\n4194304   9480.00\n")
    (folder / "hosts.txt").write_text("node1 10.0.0.11\nnode2 10.0.0.12\n")
    make(folder / "images", 64, 2, (64, 48), seed=1)
    own = folder / "home" / ".config" / "harness"
    (own / "sites").mkdir(parents=True)
    page = (ROOT / "docs" / "sites" / "README.md").read_text(encoding="utf-8")
    profile = re.search(r"^    \[\[systems\]\]\n(    .*\n|\n(?=    ))*", page, re.MULTILINE)
    assert profile
    for file in (
        own / "sites" / "mycluster.toml",
        folder / "my-cluster.toml",
        folder / "my.toml",
        folder / "nightly.toml",
    ):
        file.write_text(dedent(profile[0]))
    (folder / "nightly.toml").write_text(f'[common]\n{STUDY}nodes = [1]\n\n[[matrix]]\nbackend = "pytorch"\n')
    commands = folder / ".venv" / "bin"
    commands.mkdir(parents=True)
    for name, arguments in (("harness", "-m harness "), ("python", ""), ("python3", "")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"')
        (commands / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        at_home(folder, patch)
        for name in ("before-upgrade", "production"):
            run_in_process(folder, "baseline", "save", name, "runs/2026-10").succeeded()
    return folder


def at_home(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The variables of somebody who works in ``folder``."""
    for name, value in {
        "HARNESS_CACHE": str(cache_folder()),
        "HOME": str(folder / "home"),
        "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "SCRATCH": str(folder),
        "today": "runs/2026-11",
    }.items():
        patch.setenv(name, value)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "HARNESS_BASELINES"):
        patch.delenv(name, raising=False)


@pytest.fixture
def folder(
    command: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Callable[..., Path]
) -> Path:
    """A copy of what is prepared, for one command: with what it reads, and without what it makes."""
    if "$(harness env path horovod --framework torch --variant openmpi)" in command:  # not one of `make environments`
        environment("horovod", "torch", "openmpi")
    here = copytree(prepared, tmp_path / "here", symlinks=True, copy_function=os.link)
    at_home(here, monkeypatch)
    for name in ("examples", "benchmarks", "results", "cluster", "Makefile", "pyproject.toml"):
        if f"-o {name}/" not in command:
            (here / name).symlink_to(ROOT / name)
    for name in ("studies", "results"):  # what it writes into is its own
        if not (here / name).exists():
            copytree(ROOT / name, here / name)
    quick = (here / "studies" / "quick.toml").read_text(encoding="utf-8")
    for usual, less in (
        *(("resnet50", "pointwise"), ("steps = 10", "steps = 3"), ("repeats = 3", "repeats = 1")),
        ("nodes = [1, 2]", "nodes = 2"),
    ):
        assert usual in quick
        quick = quick.replace(usual, less)
    (here / "studies" / "quick.toml").write_text(quick, encoding="utf-8")
    experiments = ROOT / "results" / "experiments"
    results, records = here / "runs", here.glob("runs/2026-10/*pytorch*n2*")
    if "--single RECORD" in command:  # of one worker, and what a network's kernels say
        results = experiments / "network"
        records = experiments.glob("alone/*-horovod-inception3-n1-*")
        (here / "runs" / "network").symlink_to(results)
        (here / "RUN").symlink_to(next(experiments.glob("steady/steady-8-links-2.25-*/*-horovod-inception3-n8-*")))
    (here / "RESULTS").symlink_to(results)
    (here / "RECORD").symlink_to(next(records) / "record.json")
    if "data convert" in command:  # a thousand shards take a thousand images
        make(here / "IMAGENET", 1100, 2, (64, 48), seed=1)
    elif "data check" in command and "--classes" in command:  # which is for shards
        run_harness(here, "data", "convert", "images", "PATH", "--shards", "2").succeeded()
    elif "data make" not in command:
        for name in ("PATH", "IMAGENET"):
            (here / name).symlink_to(here / "images")
    if "baseline save" in command:
        rmtree(here / "home" / ".local")
    for name in ("alps", "daint"):
        if f"runs/{name}" in command:
            (here / "two" / name).rename(here / "runs" / name)
    if "now-" in command:
        today = (datetime.now(UTC) - made.FIRST).days
        for days in (4, 11):
            save_made(here / "runs" / "weeks", "daint:gpu", day=today - days)
    for tag in re.findall(r" @ tag=([\w-]+)", command):
        save_made(here / "runs" / tag, "daint:gpu", tag=tag)
    if "runs/emulated/kept" in command:
        (here / "runs" / "emulated").mkdir()
        (here / "runs" / "emulated" / "kept").symlink_to(experiments / "steady")
    if "--device cuda" in command:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # a plan takes the name of a GPU, and no GPU
    if "harness status" in command and "--help" not in command:
        carried_out("harness run --backend pytorch", here).succeeded()
    return here


def carried_out(command: str, folder: Path) -> Finished:
    """In this process if it is one plain command that starts nothing, otherwise by a shell."""
    command = re.sub(r"(?<=\")\$\w+(?=\")", lambda variable: os.path.expandvars(variable[0]), command)
    command = re.sub(r"harness run (?!.*--(dry-run|help))", f"harness run {SMALL} ", command)
    words = shlex.split(command)
    plain = words[0] == "harness" and not re.search(r"[$|;&<>~]", re.sub(r"'.*?'", "", command))
    if plain and (words[1] not in STARTING or {"--dry-run", "--help"} & set(words)):
        return run_in_process(folder, *words[1:])
    script = f"python -c {shlex.quote(command)}" if command.startswith("import ") else command
    patience_s = PATIENCE_S * (4 if "env build" in command else 1)  # Horovod may be compiled beside other tests
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=patience_s)
    return Finished(done.returncode, done.stdout, done.stderr)


def holds(said: str, output: str) -> bool:
    """Whether the lines of ``output`` are in what was ``said``, in their order; columns and lines may be set otherwise."""
    said, position = " ".join(re.sub("─+", "─", said).split()), 0
    for part in re.split(r"\n|…", re.sub("─+", "─", output)):
        position = said.find(" ".join(part.split()), position)
        if position < 0:
            return False
    return True


def marks(command: str) -> list[pytest.MarkDecorator]:
    if not SLOW.search(command):
        return []
    left = all(fitting(EXHAUSTIVE, one, command) for one in CASES[command])
    return [pytest.mark.slow, *([pytest.mark.exhaustive] if left else [])]


@pytest.mark.parametrize("command", [pytest.param(one, id=one, marks=marks(one)) for one in CASES])
def test_what_a_document_shows_can_be_done(command: str, folder: Path) -> None:
    done = carried_out(command, folder)
    places = ", ".join(f"{one.page}:{one.line}" for one in CASES[command])
    said = f"{places}: {command}: exit code {done.code}\n{done.stdout}{done.stderr}"
    assert done.code == max(one.code for one in CASES[command]), said
    assert "Traceback" not in said, said
    for one in CASES[command]:
        if command.endswith(" --help"):  # in place of what a sentence names
            assert all(option in done.stdout for option in re.findall(r"--[a-z-]+", one.text)), said
        assert holds(done.stdout, one.output or ""), f"{one.page}:{one.line} shows\n{one.output}\nin place of\n{said}"


@pytest.mark.parametrize("entry", [*EXCLUDED, *PLANNED, *EXHAUSTIVE], ids=lambda entry: " ".join(entry[:2]))
def test_every_exception_is_needed(entry: tuple[str, str, str]) -> None:
    assert any(fitting((entry,), one, command) for one in ALL for command in variants(one.text))

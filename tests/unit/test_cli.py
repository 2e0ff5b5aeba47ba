"""The command line: quick to answer, free of frameworks, complete when installed as a wheel."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from harness.cli import ALL, cli, main
from tests.conftest import Harness, cpu_s, run_harness
from tests.wording import Case, cases

# In place of seconds, which differ from machine to machine: so many times what Python takes to load the two libraries
# that no command does without.
LIBRARIES = [sys.executable, "-c", "import click, pydantic.root_model"]
ANSWERS_WITHIN = 3.0
BIG_PLAN_WITHIN = 4.0


def least_cpu_s(folder: Path, *commands: Sequence[str]) -> list[float]:
    """What each command computes, called in turn: the least of five, as a busy machine computes more slowly, too.

    As for users, Python compiles harness's modules once, even where it shall write no bytecode beside them.
    """
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
    rounds = [[cpu_s(argv, cwd=folder, env=env, stdout=subprocess.DEVNULL) for argv in commands] for _ in range(5)]
    return [min(times) for times in zip(*rounds, strict=True)]


HELP = ["--help"]
DRY_RUN = ["run", "--backend", "pytorch", "--nodes", "4", "--dry-run"]
SERVERS = ["--backend", "parameter_server", "--nodes", "512", "--ps", "116"]
BIG_PLAN = ["run", *SERVERS, "--model", "inception3", "--dry-run"]


def test_packages_in_pythonpath_are_for_programs_and_not_for_harness(tmp_path: Path) -> None:
    """As modules of a cluster put them there, of another Python."""
    for package in ("numpy", "click"):
        (tmp_path / "site" / package).mkdir(parents=True)
        (tmp_path / "site" / package / "__init__.py").write_text("raise ImportError('of another Python')")
    for path in (f"{tmp_path / 'site'}", "site/"):
        done = run_harness(tmp_path, "table", "reference:daint", PYTHONPATH=path).succeeded()
        assert "parameter_server" in done.stdout


@pytest.mark.alone
@pytest.mark.parametrize(
    ("arguments", "limit"), [(HELP, ANSWERS_WITHIN), (DRY_RUN, ANSWERS_WITHIN), (BIG_PLAN, BIG_PLAN_WITHIN)]
)
def test_help_and_dry_runs_answer_at_once(tmp_path: Path, arguments: list[str], limit: float) -> None:
    """Also that of 512 nodes and 116 servers."""
    answer, libraries = least_cpu_s(tmp_path, [sys.executable, "-m", "harness", *arguments], LIBRARIES)
    assert answer < limit * libraries


def test_a_dry_run_shows_every_process_and_the_bytes_of_every_server(harness: Harness) -> None:
    done = harness("run", "--backend", "parameter-server", "--nodes", "3", "--ps", "2", "--dry-run")
    assert [done.stdout.count(word) for word in ("  worker  ", "  ps  ", "--index INDEX", " MB in ")] == [3, 4, 1, 2]
    plan = harness("run", "--backend", "parameter-server", "--nodes", "3", "--ps", "2", "--dry-run", "--json").json[
        "plan"
    ]
    assert [process["role"] for process in plan["processes"]] == ["worker", "worker", "worker", "ps", "ps"]
    assert all(process["argv"] and process["env"] and process["host"] for process in plan["processes"])


def test_a_large_dry_run_shows_five_of_each_role_and_how_many_more(refused: Harness) -> None:
    few = refused("run", *SERVERS, "--dry-run").stdout
    assert [few.count(word) for word in ("  worker  ", "  ps  ", "--index", " MB in ")] == [5, 12, 1, 5]
    assert "…  worker 507 more, in --json" in few and few.count("…  ps     111 more, in --json") == 2
    held = refused("run", *SERVERS, "--dry-run", "--json").json["plan"]["details"]["servers"]
    fullest = sorted(held, key=lambda server: server["bytes"], reverse=True)[:5]
    assert [int(line.split()[1]) for line in few.splitlines() if " MB in " in line] == [each["ps"] for each in fullest]


def test_a_dry_run_needs_no_environment_and_leaves_nothing(harness: Harness, tmp_path: Path) -> None:
    cache = tmp_path / "empty cache"
    assert harness("run", "--backend", "pytorch", "--dry-run", HARNESS_CACHE=str(cache)).code == 0
    assert list(tmp_path.iterdir()) == []


def test_the_controller_imports_no_framework_and_answers_without_pandas() -> None:
    code = "import sys, harness.cli, harness.running.run, harness.report.text.progress; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "tensorflow", "pandas", "scipy"} & set(loaded)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_one_that_nobody_reads(tmp_path: Path, closed: str) -> None:
    for arguments, code in (["list", "models"], 0), (["table", "nowhere"], 2):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "harness", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
        if code == 0 and ">&-" not in closed.replace("2>&-", ""):
            assert "resnet50" in done.stdout


LOAD_EACH = """
import importlib, os, pkgutil
import click, pandas, pydantic  # once for all
import harness.cli
for module in pkgutil.iter_modules(harness.cli.__path__, "harness.cli."):
    if not os.fork():
        importlib.import_module(module.name)
        os._exit(0)
    assert os.wait()[1] == 0, module.name
"""


def test_the_module_of_every_command_loads_by_itself() -> None:
    """Commands that are tried in the process of the tests find modules loaded that others have needed."""
    done = subprocess.run([sys.executable, "-c", LOAD_EACH], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_list_shows_what_there_is(harness: Harness) -> None:
    backends = harness("list", "backends").stdout
    builtin = {"caffe2", "distributed_replicated", "horovod", "multi_worker_mirrored", "parameter_server", "pytorch"}
    builtin |= {"jax", "parameter_server_strategy", "torch_parameter_server"}
    assert builtin <= {line.partition(":")[0] for line in backends.splitlines()}
    models = harness("list", "models").stdout
    assert "23.82 M" in models and "25.56 M" in models
    environments = harness("list", "environments").stdout
    of_caffe2, of_torch = (
        [name for name in environments.split() if part in name] for part in ("/caffe2-", "/horovod-torch-")
    )
    assert [name.rsplit("-", 2)[1] for name in of_caffe2] == ["cpu", "openmpi"]
    assert [name.rsplit("-", 2)[1] for name in of_torch] == ["cpu", "cuda", "openmpi"]


def test_every_command_is_listed_with_a_line_that_fits_80_columns_without_being_loaded() -> None:
    code = "import sys; from harness.cli import cli; cli.main(['--help'], standalone_mode=False); print(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True, check=True
    ).stdout
    *lines, modules = shown.splitlines()
    listed = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert set(ALL) <= set(listed)
    assert all(len(line) <= 80 and not line.endswith("...") for line in listed.values())
    assert {name for name in modules.split() if name.startswith("harness.cli")} == {"harness.cli"}


@pytest.mark.parametrize("name", ALL)
def test_every_command_is_where_the_table_says(name: str) -> None:
    assert isinstance(cli.get_command(click.Context(cli), name), click.Command)


@cases
def test_a_mistake_points_to_the_help_of_its_own_command(refused: Harness, case: Case) -> None:
    case.refused(refused(*case.words()))


@pytest.mark.parametrize("command", ["train", "kernel", "launch"])
def test_no_command_offers_an_emulated_device_that_refuses_it(harness: Harness, command: str) -> None:
    said = harness(command, "--help").stdout
    assert "--device auto|cpu|cuda " in said and "emulated:NAME" not in said and "--dilation" not in said


@pytest.mark.parametrize("name", ["list", "env", "site", "study", "baseline", "data", "jobs", "model", "results"])
def test_the_list_of_a_groups_commands_cuts_none_short(harness: Harness, name: str) -> None:
    _, _, commands = harness(name, "--help").stdout.partition("Commands:")
    assert commands and "..." not in commands


def test_harness_alone_prints_its_sections(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As every group of commands does, for a reader and not as an error."""
    for arguments, shown in (([], ["Measure:", "Answer:", "Predict:", "Set up:"]), (["study"], ["  collect  "])):
        monkeypatch.setattr(sys, "argv", ["harness", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        out, err = capsys.readouterr()
        assert (exited.value.code, err) == (0, "")
        assert all(f"\n{text}" in out for text in shown) and "\x1b" not in out


@cases
def test_a_shell_completes_what_one_may_type(capsys: pytest.CaptureFixture[str], case: Case) -> None:
    *before, last = case.request.split(" ")[1:]
    items = ShellComplete(cli, {}, "harness", "_HARNESS_COMPLETE").get_completions(before, last)
    assert {item.type for item in items} == {"plain"}
    case.answered(" ".join(item.value for item in items))
    assert capsys.readouterr() == ("", ""), "a hint would be in the middle of the line that is typed"


@pytest.mark.parametrize("line", ["table ru", "compare ru", "run --data ru", "run --site ./ru", "report runs -o ru"])
def test_a_shell_completes_files_where_they_are_meant(line: str) -> None:
    *before, last = line.split()
    items = ShellComplete(cli, {}, "harness", "_HARNESS_COMPLETE").get_completions(before, last)
    assert [(item.value, item.type) for item in items] == [(last, "file")]

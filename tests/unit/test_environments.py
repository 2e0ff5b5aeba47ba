"""Environments are built for real here, from packages small enough to take a second."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import harness.backends
from harness import environments
from harness.cli.interrupts import signals_interrupt
from harness.core.backend import backend
from harness.environments import EnvironmentProblem, EnvironmentSpec, Run
from harness.environments.building import CheckReport, build, check, last_words, lock, matches, reason
from harness.environments.pythons import BasePython, at, find_python, lacking
from harness.errors import RunFailed
from tests.conftest import PATIENCE_S, Clock, Harness, shell_program
from tests.wording import Case, Wording, cases

pytestmark = pytest.mark.usefixtures("cache")

BUILD = """
import sys
from pathlib import Path
from harness.environments import EnvironmentSpec
from harness.environments.building import build
spec = EnvironmentSpec("tiny", "cpu", Path(sys.argv[1]), ("six",))
build(spec, lambda line: print(line, flush=True))
"""


@pytest.fixture
def tiny(tmp_path: Path) -> EnvironmentSpec:
    return requiring(tmp_path, "six==1.17.0")


def requiring(folder: Path, text: str) -> EnvironmentSpec:
    requirements = folder / "requirements-cpu.txt"
    requirements.write_text(text + "\n")
    return EnvironmentSpec("tiny", "cpu", requirements, ("six",))


def whole(report: CheckReport) -> bool:
    return not report.failed and not report.mismatched


def builder(spec: EnvironmentSpec) -> subprocess.Popen[str]:
    """Another process that builds the environment."""
    argv = [sys.executable, "-u", "-c", BUILD, str(spec.requirements)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def builder_stopped_inside_pip(spec: EnvironmentSpec, by: signal.Signals) -> None:
    process = builder(spec)
    assert process.stdout
    next(line for line in process.stdout if line.startswith(("Collecting", "Processing")))
    process.send_signal(by)
    process.wait()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvironmentSpec]:
    """A ready environment for the tests that only look at it."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(folder))
        spec = requiring(folder, "six==1.17.0")
        build(spec, print)
    yield spec


@pytest.fixture
def ready(built: EnvironmentSpec, cache: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentSpec:
    monkeypatch.setenv("HARNESS_CACHE", str(built.requirements.parent))
    return built


def test_built_environment_is_ready_and_checked_and_what_post_build_remarks_is_told_and_logged(
    tiny: EnvironmentSpec,
) -> None:
    remark = "no compiler: built without MPI"
    spec = replace(tiny, post_build=lambda *_: remark)
    assert environments.status(spec) == "missing"
    news: list[str] = []
    folder = build(spec, news.append)
    assert environments.status(spec) == "ready"
    assert environments.require(spec) == environments.python(spec) == folder / "bin" / "python"
    assert news[0].startswith("creating six-cpu-")
    assert "Installing collected packages: six" in news
    assert remark in news and f"\n{remark}\n" in folder.with_name(f"{folder.name}.log").read_text()
    assert news[-1].startswith("ready in")
    assert not any("WARNING" in line for line in news)
    marker = json.loads((folder / "complete.json").read_text())
    assert marker["build_s"] > 0
    report = check(spec)
    assert whole(report) and report.imported == {"six": "1.17.0"} and report.python_version == marker["python"]


@pytest.mark.slow
def test_ready_environment_is_reused_at_once(ready: EnvironmentSpec, clock: Clock) -> None:
    news: list[str] = []
    began = time.monotonic()
    assert build(ready, news.append) == environments.path(ready)
    clock("finding a ready environment", time.monotonic() - began, 1.0)
    assert not news


@pytest.mark.slow
def test_site_packages_on_the_pythonpath_do_not_count_as_installed(
    tiny: EnvironmentSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (about := tmp_path / "site" / "six-1.17.0.dist-info").mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: six\nVersion: 1.17.0\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=":")
    folder = build(tiny, print)
    assert list(folder.glob("lib/*/site-packages/six.py"))


def test_of_two_concurrent_builders_one_installs_and_the_other_waits(tiny: EnvironmentSpec) -> None:
    outputs = [process.communicate()[0] for process in [builder(tiny), builder(tiny)]]
    assert environments.status(tiny) == "ready"
    did = [("Installing collected" in out, "waiting: another process" in out) for out in outputs]
    assert sorted(did) == [(False, True), (True, False)]


@pytest.mark.slow
def test_different_environments_build_at_the_same_time(tiny: EnvironmentSpec, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = requiring(tmp_path / "other", "six==1.16.0")
    outputs = [process.communicate()[0] for process in [builder(tiny), builder(other)]]
    assert environments.status(tiny) == environments.status(other) == "ready"
    assert not any("waiting" in out for out in outputs)


@pytest.mark.slow
def test_environment_of_a_killed_build_is_partial_and_is_rebuilt(tiny: EnvironmentSpec, wording: Wording) -> None:
    builder_stopped_inside_pip(tiny, signal.SIGKILL)
    assert environments.status(tiny) == "partial"
    with wording("half built").raises(EnvironmentProblem):
        environments.require(tiny)
    build(tiny, print)
    assert whole(check(tiny))


@pytest.mark.slow
def test_lock_outlives_a_killed_harness_until_its_pip_has_ended(tiny: EnvironmentSpec) -> None:
    environments.path(tiny).parent.mkdir(parents=True)
    with lock(environments.path(tiny), print) as descriptor:
        left_behind = subprocess.Popen(["sleep", "1"], pass_fds=[descriptor])
    news: list[str] = []
    build(tiny, news.append)
    assert left_behind.poll() == 0 and news[0].startswith("waiting")


def test_interrupted_build_leaves_no_environment_and_no_process(tiny: EnvironmentSpec) -> None:
    builder_stopped_inside_pip(tiny, signal.SIGINT)
    nothing_is_left_of(tiny)


def nothing_is_left_of(spec: EnvironmentSpec) -> None:
    assert environments.status(spec) == "missing"
    assert not environments.path(spec).exists()
    folder = str(environments.path(spec))
    assert not [p for p in psutil.process_iter(["cmdline"]) if any(folder in word for word in p.info["cmdline"] or [])]


@pytest.mark.parametrize("sent", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_the_command_that_builds_ends_cleanly_when_a_batch_system_or_a_closed_terminal_ends_it(
    sent: signal.Signals,
) -> None:
    command = [sys.executable, "-m", "harness", "env", "build", "mpi4py"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr and "creating mpi4py" in process.stderr.readline()
    process.send_signal(sent)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert (process.returncode, said.lstrip()) == (130, "harness: interrupted; no process is left running\n")
    nothing_is_left_of(backend("mpi4py").environments("cpu")[0])


def test_a_signal_that_comes_while_a_process_is_started_ends_that_one_too(
    tiny: EnvironmentSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine starting takes long; whoever is interrupted then did not know whom to kill."""
    start = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> Any:
        process = start(*arguments, **options)
        signal.raise_signal(signal.SIGTERM)
        return process

    with monkeypatch.context() as patched, signals_interrupt(), pytest.raises(KeyboardInterrupt):
        patched.setattr(subprocess, "Popen", interrupted)
        build(tiny, print)
    nothing_is_left_of(tiny)


def test_wrong_pin_fails_with_the_pin_and_the_log_and_leaves_nothing(tmp_path: Path, wording: Wording) -> None:
    spec = requiring(tmp_path, "six==99.0")
    with pytest.raises(RunFailed) as failure:
        build(spec, print)
    log = Path(str(failure.value).rpartition("log: ")[2].rstrip(")"))
    wording("six==99.0").answered(failure.value, LOG=log)
    assert "six==99.0" in log.read_text()
    assert environments.status(spec) == "missing"


@pytest.mark.slow
def test_unreachable_index_is_named_as_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    # the user's own configuration is set aside: it may name places that do answer
    own = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    for name, value in (own | {"PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_RETRIES": "1"}).items():
        monkeypatch.setenv(name, value)
    news: list[str] = []
    with wording("127.0.0.1:9").raises(RunFailed):
        build(requiring(tmp_path, "six==1.17.0"), news.append)
    assert any(line.startswith("WARNING: Retrying") for line in news)


@pytest.mark.slow
def test_post_build_runs_in_the_environment_and_its_failure_is_a_failed_build(
    tiny: EnvironmentSpec, wording: Wording
) -> None:
    def compile_nothing(folder: Path, run: Run) -> None:
        code = "import os, six; raise SystemExit(os.environ['WISH'])"
        run(folder / "bin" / "python", "-c", code, env={"WISH": "no MPI"})

    spec = replace(tiny, post_build=compile_nothing)
    assert environments.path(spec) != environments.path(tiny)
    with wording("WISH").raises(RunFailed):
        build(spec, print)
    assert environments.status(spec) == "missing"


CPP_PACKAGE = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
    "setup.py": "from setuptools import Extension, setup\n"
    "setup(name='answer', ext_modules=[Extension('answer', ['answer.cc'])])",
    "answer.cc": "int answer() { return unknown; }",
}


def compiling(folder: Path, files: Mapping[str, str]) -> EnvironmentSpec:
    """An environment whose hook has pip compile a package of these files."""
    package = folder / "answer"
    package.mkdir()
    for name, text in files.items():
        (package / name).write_text(text)

    def compile_package(folder: Path, run: Run) -> None:
        pip = (folder / "bin" / "python", "-m", "pip", "-v", "install", "--no-build-isolation", "--no-deps")
        run(*pip, package)

    return replace(requiring(folder, "setuptools==80.10.2"), post_build=compile_package, tools=("g++",))


@pytest.mark.slow
def test_failed_compilation_ends_with_the_compilers_words(tmp_path: Path, wording: Wording) -> None:
    news: list[str] = []
    with pytest.raises(RunFailed) as failure:
        build(compiling(tmp_path, CPP_PACKAGE), news.append)
    wording("unknown").answered(failure.value)
    assert str(failure.value).count("\n") == 1
    assert any(line.startswith("Building wheel for answer") for line in news)


@pytest.mark.slow
def test_failed_setup_of_a_package_ends_with_what_it_said(tmp_path: Path) -> None:
    setup = "import os\nraise SystemExit('no MPI ' + 'x' * 500)"
    with pytest.raises(RunFailed) as failure:
        build(compiling(tmp_path, CPP_PACKAGE | {"setup.py": setup}), print)
    assert re.search(r"^    no MPI", str(failure.value), re.MULTILINE)
    assert all(len(line) < 320 for line in str(failure.value).splitlines()[1:])


def test_failure_shows_the_first_dozen_errors_of_compilers_cmake_and_linkers_each_once() -> None:
    output = [
        "[ 12%] Building CXX object a.dir/a.cc.o",
        "a.h:1:2: warning: unused",
        "a.h:3:4: error: no such type",
        "a.h:3:4: error: no such type",
        "k.cu(9): error: no such kernel",
        "CMake Error at CMakeLists.txt:138 (find_package):",
        "Could NOT find MPI (missing: MPI_CXX_FOUND)",
        "Call Stack (most recent call first):",
        "FindMPI.cmake:1842 (find_package_handle_standard_args)",
        "",
        "a.cc:(.text+0x5): undefined reference to `MPI_Init'",
        "/usr/bin/ld: cannot find -lmpi",
        "collect2: error: ld returned 1 exit status",
        "make: *** [all] Error 2",
        "error: subprocess-exited-with-error",
        "note: This error originates from a subprocess, and is likely not a problem with pip.",
    ]
    meaningful = [*output[2:3], *output[4:7], *output[10:13]]
    assert last_words(output) == meaningful
    assert last_words([f"a.cc:{line}:1: error: no" for line in range(99)])[-1] == "a.cc:11:1: error: no"


def test_missing_tool_is_named_at_once_with_the_way_to_get_it(
    tiny: EnvironmentSpec, cache: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setenv("PATH", "/bin")
    spec = replace(tiny, tools=("sh", "no-g++", "nvcc"))
    assert environments.lacking_tools(spec) == ["no-g++", "nvcc"]
    with wording("no-g++").raises(EnvironmentProblem):
        build(spec, print)
    assert not cache.exists()


def test_ready_environment_needs_no_tools(ready: EnvironmentSpec) -> None:
    assert build(replace(ready, tools=("no-g++",)), print) == environments.path(ready)


def test_cache_that_cannot_be_written_fails_in_one_line(tiny: EnvironmentSpec, cache: Path, wording: Wording) -> None:
    cache.write_text("a file where the folder should be")
    with wording("a file").raises(RunFailed, CACHE=cache):
        build(tiny, print)


def test_comment_keeps_the_key_and_a_pin_changes_it(tmp_path: Path) -> None:
    key = environments.path(requiring(tmp_path, "six==1.17.0"))
    assert environments.path(requiring(tmp_path, "# why\n\nsix==1.17.0  # because")) == key
    assert environments.path(requiring(tmp_path, "six==1.16.0")) != key


def test_key_stays_the_one_that_earlier_releases_built_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "python_version", lambda: "3.11.7")
    spec = requiring(tmp_path, "six==1.17.0")
    assert environments.path(spec).name == "six-cpu-3b7e64594f15"


def test_text_of_what_is_compiled_is_part_of_the_key(tiny: EnvironmentSpec, tmp_path: Path, wording: Wording) -> None:
    (tmp_path / "operators.cc").write_text("int one;")
    spec = replace(tiny, sources=(tmp_path / "operators.cc",))
    before = environments.path(spec)
    assert before != environments.path(tiny)
    (tmp_path / "operators.cc").write_text("int two;")
    assert environments.path(spec) != before
    (tmp_path / "operators.cc").unlink()
    with wording("operators.cc").raises(EnvironmentProblem, HERE=tmp_path):
        build(spec, print)


def test_backends_with_the_same_pins_share_an_environment(tiny: EnvironmentSpec) -> None:
    assert environments.path(replace(tiny, backend="another")) == environments.path(tiny)


@cases
def test_missing_environment_names_the_command_that_builds_it(tiny: EnvironmentSpec, case: Case) -> None:
    wanted = replace(tiny, **eval(f"dict({case.request})"))
    with case.raises(EnvironmentProblem):
        environments.require(wanted)


def test_environment_is_named_after_its_first_import(tiny: EnvironmentSpec) -> None:
    assert environments.path(replace(tiny, imports=("os.path", "six"))).name.startswith("os-path-cpu-")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user on whose machine there is no Python to be found."""
    home = tmp_path / "home"
    home.mkdir()
    for name, value in hidden(home).items():
        monkeypatch.setenv(name, value)
    return home


def hidden(home: Path) -> dict[str, str]:
    nothing = dict.fromkeys(("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME"), "")
    return {"HOME": str(home), "PATH": str(home / "bin")} | nothing


def program(path: Path, version: str | None) -> Path:
    """A program that answers as a Python of this version, or, like a shim of pyenv, does not run."""
    return shell_program(path, f"echo {version}" if version else "exit 127")


def test_python_is_looked_for_on_path_then_at_pyenv_and_uv(bare: Path) -> None:
    for place, version in [  # each comes before those above it
        (".local/share/uv/python/cpython-3.9.4-linux-x86_64-gnu", "3.9.4"),
        (".local/share/uv/python/cpython-3.9.25-linux-x86_64-gnu", "3.9.25"),
        (".pyenv/versions/3.9.25", "3.9.25"),
        ("", "3.9.2"),
    ]:
        expected = BasePython(program(bare / place / "bin" / "python3.9", version), version)
        assert find_python("3.9") == expected
    (bare / "bin" / "python3.9").unlink()
    assert find_python("3.9").version == "3.9.25", "which is newer than 3.9.4"


@pytest.mark.parametrize(("variable", "folder"), [("UV_PYTHON_INSTALL_DIR", ""), ("XDG_DATA_HOME", "uv/python")])
def test_pythons_are_where_a_variable_of_uv_says(
    bare: Path, monkeypatch: pytest.MonkeyPatch, variable: str, folder: str
) -> None:
    python = program(bare / "elsewhere" / folder / "cpython-3.9.18-linux" / "bin" / "python3.9", "3.9.18")
    monkeypatch.setenv(variable, str(bare / "elsewhere"))
    assert find_python("3.9").python == python


def test_program_that_does_not_run_or_is_another_python_is_not_taken(bare: Path, wording: Wording) -> None:
    shim = program(bare / "bin" / "python3.9", None)
    other = program(bare / ".local/share/uv/python/cpython-3.9.26-linux/bin/python3.9", "3.8.20")
    with wording("python3.9").raises(EnvironmentProblem, SHIM=shim, OTHER=other, HOME=bare):
        find_python("3.9")
    python = program(bare / ".local/share/uv/python/cpython-3.9.25-linux/bin/python3.9", "3.9.25")
    assert find_python("3.9").python == python


def test_module_of_another_python_is_not_in_the_way(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "bin").mkdir()
    (bare / "bin" / f"python{OWN}").symlink_to(sys.executable)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    assert find_python(OWN) == BasePython(bare / "bin" / f"python{OWN}", platform.python_version())


def test_absent_python_is_one_line_with_where_and_how(
    tiny: EnvironmentSpec, bare: Path, cache: Path, wording: Wording
) -> None:
    spec = replace(tiny, python="3.9")
    assert environments.status(spec) == "missing"
    assert lacking(spec) == ["Python 3.9 to build with", "its environment (`harness env build tiny`)"]
    with wording("3.9").raises(EnvironmentProblem, HOME=bare):
        build(spec, print)
    assert not cache.exists()
    program(bare / "bin" / "python3.9", "3.9.2")
    assert lacking(spec) == ["its environment (`harness env build tiny`)"]


OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
ANNOUNCED = """
from dataclasses import replace
from pathlib import Path
from harness.backends.pytorch.backend import BACKEND
from harness.environments import EnvironmentSpec
def backend(name, python):
    spec = EnvironmentSpec(name, "cpu", Path(__file__).with_name("requirements.txt"), ("json",), python=python)
    return replace(BACKEND, name=name, environment=lambda framework, variant: replace(spec, variant=variant))
"""


@pytest.fixture
def announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends of another package: ``same`` wants a Python of harness's version, ``old`` one that nobody has."""
    site = tmp_path / "site"
    (about := site / "announced-1.dist-info").mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: announced\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[harness.backends]\nsame = announced:same\nold = announced:old\n")
    (site / "announced.py").write_text(f"{ANNOUNCED}\nsame = backend('same', '{OWN}')\nold = backend('old', '3.99')\n")
    (site / "requirements.txt").touch()
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)


@pytest.mark.usefixtures("announced")
@pytest.mark.slow
def test_only_building_takes_the_python_that_an_environment_is_made_from(harness: Harness, tmp_path: Path) -> None:
    on_path = tmp_path / "bin" / f"python{OWN}"
    on_path.parent.mkdir()
    on_path.symlink_to(sys.executable)
    built = harness("env", "build", "same", PATH=f"{on_path.parent}:{os.environ['PATH']}").succeeded()
    folder = built.stdout.rpartition(" ready at ")[2].strip()
    without = hidden(tmp_path / "home")
    assert harness("env", "path", "same", **without).succeeded().stdout.strip() == folder
    assert harness("env", "build", "same", **without).succeeded().stderr == ""


@pytest.mark.usefixtures("announced")
@cases
def test_an_environment_that_cannot_be_is_a_wrong_request(harness: Harness, cache: Path, case: Case) -> None:
    case.refused(harness(*case.words()))
    assert not cache.exists()


def test_environment_whose_python_is_gone_is_broken(ready: EnvironmentSpec, wording: Wording) -> None:
    link = environments.python(ready)
    link.rename(link.with_name("hidden"))
    try:
        assert environments.status(ready) == "broken"
        with wording("hidden").raises(EnvironmentProblem):
            environments.require(ready)
    finally:
        link.with_name("hidden").rename(link)


def test_check_finds_failed_imports_crashes_and_other_versions(
    ready: EnvironmentSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.py").write_text(r"print('noise'); raise ImportError('libmpi.so.40:\n cannot open')")
    (tmp_path / "fatal.py").write_text("import os; os.kill(os.getpid(), 4)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # as a site's modules do for an environment of theirs
    other = replace(requiring(tmp_path, "six==1.16.0\nabsent==1.0"), imports=("six", "bad", "fatal"))
    report = check(other, environments.python(ready))
    assert not whole(report)
    assert report.imported == {"six": "1.17.0"}
    assert report.failed == {"bad": "ImportError: libmpi.so.40: cannot open", "fatal": "died from SIGILL"}
    assert report.mismatched == {"six": ("1.16.0", "1.17.0"), "absent": ("1.0", None)}


def test_given_environment_is_a_prefix_or_a_python(ready: EnvironmentSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = environments.python(ready)
    assert at(environments.path(ready), ready) == at(inside, ready) == inside
    monkeypatch.setenv("PATH", str(inside.parent), prepend=os.pathsep)
    assert at(Path("python"), ready) == inside
    assert whole(check(ready, inside))


@pytest.mark.parametrize("where", ["nowhere", "empty", "text"])
def test_given_environment_without_a_python_is_a_problem(
    tiny: EnvironmentSpec, tmp_path: Path, where: str, wording: Wording
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("not a program")
    with wording("a folder without one").raises(EnvironmentProblem, GIVEN=tmp_path / where):
        at(tmp_path / where, tiny)


def test_local_label_meets_a_pin_without_one() -> None:
    assert matches("2.13.0+cpu", "2.13.0")
    assert not matches("2.13.0", "2.13.0+cpu")
    assert not matches("2.13.1", "2.13.0")
    assert not matches(None, "2.13.0")


@cases
def test_reason_of_a_failure_says_what_to_do(case: Case) -> None:
    case.answered(reason(case.text.splitlines(), "3.14"))


REQUIREMENTS = sorted(Path(harness.backends.__file__).parent.glob("*/requirements-*.txt"))


@pytest.mark.parametrize("requirements", REQUIREMENTS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_every_requirement_of_the_project_is_pinned(requirements: Path) -> None:
    assert len(environments.pins(requirements)) >= 3


def test_unpinned_requirement_is_refused(tmp_path: Path, wording: Wording) -> None:
    with wording("six>=1").raises(EnvironmentProblem, HERE=tmp_path):
        build(requiring(tmp_path, "six>=1"), print)

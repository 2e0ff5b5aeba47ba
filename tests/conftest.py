"""Fixtures shared by all tests: backend environments, and harness as a user runs it."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from threadpoolctl import threadpool_limits

from harness import cli, environments
from harness.core.backend import backend
from harness.datasets import make
from harness.environments import Variant
from harness.environments.building import build
from harness.sites import config
from tests.wording import wording as wording

ROOT = Path(__file__).parent.parent
# Until something must have happened that a test waits for. A machine that builds somebody else's project at the same time
# can be ten times slower than usual; a limit that is generous costs nothing where all is well.
PATIENCE_S = 300.0
# Of all models the one that starts and computes soonest, on images as small as any; and a few steps of whatever it is.
SMALLEST = ["--model", "pointwise", "--batch-size", "2", "--image-size", "32"]
FEW_STEPS = ["--warmup", "1", "--steps", "3"]
# Of all backends the one whose processes start soonest, for tests of what has nothing to do with frameworks.
SOONEST = "caffe2"
# Several tests run at a time, and threads that wait by spinning would take the processor from the others'.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HARNESS_SITE"] = "local"  # also where tests run on a cluster's login node
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # or on a machine with GPUs
# Where tests run in the background of a script these are ignored, harness would inherit that, and keep it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _folder_of_tests() -> Path:
    """A folder that is gone when the tests are over."""
    folder = Path(tempfile.mkdtemp(prefix="harness-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _config_of_others() -> Path:
    """A folder with links to what other programs keep in the user's config folder, such as pip: nothing of harness's."""
    folder = _folder_of_tests()
    usual = config.folder().parent
    for entry in usual.iterdir() if usual.is_dir() else ():
        if entry.name != "harness":
            (folder / entry.name).symlink_to(entry.resolve())
    return folder


if "PYTEST_XDIST_WORKER" not in os.environ:  # which has them from the process that started it
    os.environ["XDG_CONFIG_HOME"] = str(_config_of_others())
    # What is made ``once``. Sessions of the same code, such as those of ``.ci/run``, may share a folder.
    os.environ.setdefault("TESTS_ONCE", str(_folder_of_tests()))
# What a run's first rank has compiled is not compiled again by that of the next one.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(os.environ["TESTS_ONCE"]) / "jax")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--until", type=float, metavar="TIME", help="begin no test after TIME (seconds since 1970); each fails"
    )
    parser.addoption("--no-skip", action="store_true", help="a test that is skipped fails, as in CI")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """CI ends after so many minutes: what would begin too late is an error each, so that nobody takes it for passed."""
    until = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.fail("NOT RUN: the time of --until was over", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return _not_skipped(item.config, report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _not_skipped(collector.config, report)


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def _not_skipped(config: pytest.Config, report: Report) -> Report:
    """The report; under ``--no-skip`` a skip becomes a failure, for CI has all that tests need."""
    if config.getoption("--no-skip") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome, report.longrepr = "failed", f"NOT RUN: {reason}"
    return report


Clock = Callable[[str, float, float], None]


@pytest.fixture
def clock(record_property: Callable[[str, object], None]) -> Clock:
    """Compare a time with its limit, both in seconds. One that is exceeded is reported and fails nothing.

    Any machine is too slow at times, so that only ratios of two times of one run may fail a test.
    """

    def compare(what: str, taken_s: float, limit_s: float) -> None:
        record_property("clock", (what, taken_s, limit_s))

    return compare


@pytest.hookimpl(tryfirst=True)  # before -m is applied
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "clock" in getattr(item, "fixturenames", ()):
            item.add_marker("clock")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [
        report for some in terminalreporter.stats.values() for report in some if isinstance(report, pytest.TestReport)
    ]
    limits = [
        (report.nodeid, *value)
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == "clock"
    ]
    exceeded = [limit for limit in limits if limit[2] > limit[3]]
    for nodeid, what, taken_s, limit_s in exceeded:
        terminalreporter.write_line(
            f"clock: {what} took {taken_s:.3g} s, limit {limit_s:.3g} s ({nodeid})", yellow=True
        )
    if limits:
        terminalreporter.write_line(f"clock: {len(exceeded)} of {len(limits)} limits exceeded")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under ``-n 2`` tests that share expensive fixtures share a process, for each process makes fixtures of its own.

    Large groups come first; tests that are a group each fill what those leave.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFixtures(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return ByFixtures(config, log)


def group(nodeid: str) -> str:
    """What a test shares a process with: its folder, some files, or its file. Most faults share nothing."""
    file = nodeid.partition("::")[0]
    folder, name = Path(file).parent.name, Path(file).name
    if folder in ("cluster", "browser"):  # one virtual cluster of a kind, one browser
        return folder
    if folder == "parity" and name in ("test_bytes.py", "test_losses.py", "test_transport.py"):
        return "two workers"
    if folder == "faults" and name != "test_tampering.py":
        return nodeid
    return file


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """NumPy multiplies with one thread in this process: where several tests share the cores, more of them only wait."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def environment() -> Callable[..., Path]:
    """The Python of a backend's environment (of its first framework and for CPUs, unless told), built if need be."""

    def python(name: str, framework: str | None = None, variant: Variant = "cpu") -> Path:
        wanted = backend(name).environments(variant, framework)[0]
        build(wanted, lambda line: print(line, file=sys.stderr))
        return environments.python(wanted)

    return python


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own. There is no folder yet."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def shelf(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test keeps baselines. There is no folder yet."""
    monkeypatch.setenv("HARNESS_BASELINES", str(tmp_path / "baselines"))
    return tmp_path / "baselines"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Sixteen JPEGs in ImageNet's layout."""
    make.make(tmp_path / "images", 16, 2, (64, 48), seed=1)
    return tmp_path / "images"


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder to be $TMPDIR, with a path that is short enough for the addresses of sockets in it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def succeeded(self) -> Finished:
        """Itself, if the command succeeded: for commands whose failure is not what the test is about."""
        assert self.code == 0, f"exit code {self.code}\n{self.stdout}\n{self.stderr}"
        return self

    def refused(self, *fragments: str) -> str:
        """The line that the command was refused with as a wrong request; ``fragments`` have to be in it."""
        assert (self.code, self.stdout) == (2, ""), self
        assert self.stderr.startswith("harness: ") and self.stderr.find("\n") == len(self.stderr) - 1, self.stderr
        assert all(fragment in self.stderr for fragment in fragments), self.stderr
        return self.stderr.removeprefix("harness: ").removesuffix("\n")


Harness = Callable[..., Finished]


# Commands that start processes and handle signals, unless they only show what they would do.
STARTING = ("run", "train", "study", "kernel", "env", "data", "launch", "ab")


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """Run ``harness ARGUMENTS`` in an empty folder: as a user does, or in this process if nothing is started by it.

    A process costs 0.4 s. Variables of the environment are read when modules are loaded and kept in caches, so that a
    command that is given some has a process of its own too.
    """

    def run(*arguments: str, timeout: float = PATIENCE_S, **environ: str) -> Finished:
        if environ or (arguments[0] in STARTING and not {"--dry-run", "--help"} & set(arguments)):
            return run_harness(tmp_path, *arguments, timeout=timeout, **environ)
        return run_in_process(tmp_path, *arguments)

    return run


@pytest.fixture
def refused(tmp_path: Path) -> Harness:
    """Make a wrong request, in this process: it must be refused before anything is started."""
    return partial(run_in_process, tmp_path)


def laid_out(harness: Harness, folder: Path, *arguments: str) -> dict[str, Any]:
    """The spec and the plan of ``harness run ARGUMENTS``, which nobody launches; in ``folder`` as processes read them."""
    shown: dict[str, Any] = harness("run", *arguments, "--dry-run", "--json").succeeded().json
    for name in ("spec", "plan"):
        (folder / f"{name}.json").write_text(json.dumps(shown[name]))
    return shown


def run_in_process(folder: Path, *arguments: str) -> Finished:
    """Run ``harness ARGUMENTS`` in ``folder`` within this process, with a process's output, warnings, errors and code."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.resetwarnings()
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        try:
            code = cli.cli.main([*arguments], prog_name="harness", standalone_mode=False)
        except (Exception, KeyboardInterrupt) as error:
            message, code = cli.complaint(error, arguments)
            print(f"harness: {message}", file=err)
    for warning in warned:
        err.write(warnings.formatwarning(warning.message, warning.category, warning.filename, warning.lineno))
    stdout, stderr = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return Finished(code if isinstance(code, int) else 0, stdout, stderr)


def run_harness(folder: Path, *arguments: str, timeout: float = PATIENCE_S, **environ: str) -> Finished:
    """Run ``harness ARGUMENTS`` in ``folder``, with ``environ`` added to this process's variables."""
    done = subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def once(name: object, make: Callable[[Path], object]) -> Path:
    """The folder that ``make`` fills for all tests that ask for ``name``, those of other processes, too.

    Of tests side by side the first one makes it, while the others wait.
    """
    folder = Path(os.environ["TESTS_ONCE"]) / hashlib.sha256(repr(name).encode()).hexdigest()[:16]
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = folder.with_suffix(".made")
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what a failure has left
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


def shell_program(path: Path, body: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def cpu_s(argv: Sequence[str], **options: Any) -> float:
    """What a command and its children compute."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

"""Fixtures of the fault tests: a run to disturb; what a failing test leaves is removed."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.faults.running import Run
from tests.parity.conftest import Way

Begin = Callable[..., Run]


@pytest.fixture
def begin(tmp_path: Path, environment: Callable[..., Path]) -> Iterator[Begin]:
    """Start a run of ``BACKEND [FRAMEWORK [TRANSPORT]]`` on two nodes. What a failing test leaves is removed."""
    runs: list[Run] = []

    def start(way: Way | str, *arguments: str, folder: Path = tmp_path, **how: object) -> Run:
        backend, *chosen = str(way).replace(":", " ").split()
        environment(backend, *chosen[:1])
        options = [word for pair in zip(("--framework", "--transport"), chosen, strict=False) for word in pair]
        runs.append(Run(folder, "--backend", backend, *options, "--nodes", "2", *arguments, **how))  # type: ignore[arg-type]
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            with suppress(psutil.NoSuchProcess):
                for process in psutil.Process(run.process.pid).children(recursive=True):
                    process.kill()
            run.process.kill()
            run.process.communicate()

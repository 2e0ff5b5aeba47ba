"""Runs that several tests look at: every way of training on CPUs, once per session, two workers on the same images."""

import json
import os
import subprocess
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness import models
from harness.core.backend import EVERY, backend, contenders
from tests.conftest import PATIENCE_S, ROOT, once, run_harness

MODEL, STEPS, WINDOW = models.specification("resnet50"), 12, 10
# At a learning rate of 0.01 training so small a batch is chaotic: what rounding changes doubles with every step.
PROTOCOL = ["--nodes", "2", "--model", MODEL.name, "--batch-size", "4", "--image-size", "48", "--threads", "1"]
PROTOCOL += ["--warmup", str(STEPS - WINDOW), "--steps", str(WINDOW), "--repeats", "1", "--learning-rate", "0.001"]

# Frameworks by themselves, and a backend whose environment has them.
HOMES = {"torch": "pytorch", "tensorflow": "parameter_server", "caffe2": "caffe2", "jax": "jax"}

Record = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """A backend on one of its frameworks, over one of its transports."""

    backend: str
    framework: str
    transport: str

    def __str__(self) -> str:
        return f"{self.backend}:{self.framework}:{self.transport}"

    @property
    def arguments(self) -> list[str]:
        return ["--backend", self.backend, "--framework", self.framework, "--transport", self.transport]

    @property
    def has_servers(self) -> bool:
        return "ps" in backend(self.backend).options.model_fields


# As ``harness run --backend all`` would compare them: a new backend is in these tests by being there.
WAYS = [
    Way(contender["backend"], contender["framework"], contender["transport"])
    for contender in contenders([EVERY], "cpu")
]


# What the default tests train with: an allreduce and servers.
QUICK = [way for way in WAYS if str(way) in ("pytorch:torch:gloo", "parameter_server:tensorflow:grpc")]
# What CI trains with whatever else it leaves out: each framework, and both kinds of collectives.
ENOUGH = [*QUICK, *(way for way in WAYS if str(way) in ("horovod:torch:mpi", "caffe2:caffe2:gloo"))]


def with_one_transport(preferred: str) -> set[Way]:
    """Each backend on each of its frameworks, over the ``preferred`` transport if it has that one."""
    ordered = sorted(WAYS, key=lambda way: way.transport == preferred)
    return {*{(way.backend, way.framework): way for way in ordered}.values()}


# Of ``two_workers``, those that CI trains. Left to `make test-all`: a second transport of a backend on a framework, and the
# control of our parameter servers, TensorFlow's own, which CI trains with smaller models.
TRAINED_IN_CI = [
    way for way in WAYS if way in {*with_one_transport("mpi"), *ENOUGH} and way.backend != "parameter_server_strategy"
]


def each(ways: Iterable[Way], for_ci: Collection[Way] = WAYS) -> list[Any]:
    """``ways`` as parameters of a test, marked as slow but for ``QUICK``, and as exhaustive but for those ``for_ci``."""
    slow, exhaustive = pytest.mark.slow, pytest.mark.exhaustive
    marks = {way: [] if way in QUICK else [slow] if way in for_ci else [slow, exhaustive] for way in WAYS}
    return [pytest.param(way, marks=marks[way]) for way in ways]


def inside(python: Path, script: str, *arguments: object, stdin: str | None = None, **variables: str) -> str:
    """Run a script of this folder in a framework's environment, on CPUs. Returns what it prints."""
    done = subprocess.run(
        [python, Path(__file__).with_name(script), *map(str, arguments)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **variables, "PYTHONPATH": str(ROOT)},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def two_workers(environment: Callable[..., Path]) -> Callable[[Way], Record]:
    """The record of two workers (and two servers) that trained for ``STEPS`` steps, the last ``WINDOW`` in the window."""

    @cache
    def ran(way: Way) -> Record:
        environment(way.backend, way.framework)
        servers = ["--ps", "2"] if way.has_servers else []

        def run(folder: Path) -> None:
            done = run_harness(folder, "run", *way.arguments, *servers, *PROTOCOL, "--json").succeeded()
            (folder / "printed.json").write_text(done.stdout)

        folder = once(("two workers", way), run)
        record: Record = json.loads((folder / "printed.json").read_text())
        return record

    return ran

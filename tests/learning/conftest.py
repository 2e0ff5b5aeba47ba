"""Digits that can be learned within seconds, and ``harness train`` on them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

# Three epochs of these classify nine digits of ten; the rate is half of what would be too much for some seeds.
SCHEDULE = ["--epochs", "3", "--learning-rate", "0.05", "--warmup-epochs", "0.5", "--decay-epochs", "2"]
GLOBAL_BATCH = 32

Train = Callable[..., list[str]]


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's digits as images."""
    folder = tmp_path_factory.mktemp("digits") / "digits"
    subprocess.run([sys.executable, str(ROOT / "examples" / "digits.py"), str(folder)], check=True)
    return folder


@pytest.fixture
def train(digits: Path) -> Train:
    """The arguments of ``harness train`` on digits, of the same global batch for any number of workers; later ones win."""

    def arguments(backend: str, workers: int, *more: str) -> list[str]:
        size = str(GLOBAL_BATCH // workers)
        where = ["--backend", backend, "--nodes", str(workers), "--batch-size", size, "--threads", "1"]
        return ["train", *where, "--data", str(digits), "--model", "mnist_cnn", *SCHEDULE, *more]

    return arguments

"""The page of predictions without a fit is what its records and predictions say, and these are what harness predicts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

SCRIPT = ROOT / "studies" / "emulated-p100" / "unfitted.py"
PAGE = ROOT / "results" / "experiments" / "unfitted" / "index.md"


def test_the_page_is_what_the_records_say() -> None:
    made = subprocess.run(
        [sys.executable, str(SCRIPT), "analyse"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert made.stdout == PAGE.read_text()


def test_the_predictions_are_those_of_this_law(tmp_path: Path) -> None:
    """They were committed before the trainings were run; a change of the law has to say so."""
    file = tmp_path / "predicted.csv"
    subprocess.run([sys.executable, str(SCRIPT), "predict", str(file)], check=True, cwd=ROOT)
    assert file.read_text() == SCRIPT.with_suffix(".csv").read_text()

"""The share of forward, measured in each framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.emulation import profile
from tests.conftest import Harness
from tests.wording import Case, cases

SMALL = ("--model", "resnet50", "--batch-size", "4", "--image-size", "64", "--warmup", "2", "--steps", "5")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("parameter_server", "caffe2")]
SLOW.append(pytest.param("jax", marks=[pytest.mark.slow, pytest.mark.exhaustive]))


@pytest.mark.alone
@pytest.mark.parametrize("backend", ["pytorch", *SLOW])
def test_forward_is_a_part_of_a_step_and_backward_the_larger_one(harness: Harness, backend: str) -> None:
    """Backward computes two products where forward computes one. Wide limits: machines that test are busy."""
    more = ("--steps", "20", "--threads", "1", "--json")  # of 5 steps a busy machine made a share of 0.099
    done = harness("split", "--backend", backend, *SMALL, *more, OMP_WAIT_POLICY="PASSIVE").json
    assert 0 < done["forward_s"] < done["step_s"]
    assert 0.1 < done["share"] < 0.6
    assert done["ci95"] > 0


def test_a_device_that_was_measured_can_be_emulated(harness: Harness, tmp_path: Path) -> None:
    file = tmp_path / "device.toml"
    measured = harness(
        "split", "--backend", "pytorch", *SMALL, "--threads", "1", "--device-file", str(file), "--json"
    ).json
    device = profile(str(file))
    assert device.forward_share == pytest.approx(measured["share"], abs=1e-3)
    assert 4 / device.steps["resnet50"].img_per_s == pytest.approx(measured["step_s"], rel=1e-3)
    emulated = ("run", "--backend", "pytorch", *SMALL[:6], "--device", f"emulated:{file}", "--dry-run")
    assert harness(*emulated).code == 0
    harness("split", "--backend", "pytorch", *SMALL, "--device-file", str(file)).refused(
        f"--device-file {file}: must be a new file"
    )


def test_what_the_framework_says_is_the_reason(harness: Harness) -> None:
    done = harness("split", "--backend", "pytorch", "--batch-size", "1", "--image-size", "32", "--steps", "2")
    assert (done.code, done.stdout) == (1, "")
    assert "measuring forward and backward of resnet50 with torch failed: ValueError" in done.stderr


@cases
def test_what_has_no_share_to_measure_is_refused(refused: Harness, case: Case) -> None:
    case.refused(refused(*case.words()))

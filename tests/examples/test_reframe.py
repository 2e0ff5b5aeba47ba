"""The ReFrame example as a centre runs it: real ReFrame, real runs, a reference that was measured just before."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, run_harness

pytestmark = pytest.mark.slow
EXAMPLE = ROOT / "examples" / "reframe"
SMALL = "--model pointwise --batch-size 2 --image-size 32 --warmup 1 --steps 3 --repeats 2 --threads 1"


@dataclass(frozen=True)
class ReFrame:
    """Runs the example's tests of one backend in a folder of their own."""

    folder: Path

    def __call__(self, *settings: str, only: str = "HarnessCheck%backend=pytorch") -> subprocess.CompletedProcess[str]:
        reframe = shutil.which("reframe", path=str(Path(sys.executable).parent)) or "reframe"
        given = [f"harness={sys.executable} -m harness", *settings]
        return subprocess.run(
            [
                *(reframe, "-C", EXAMPLE / "settings.py", "-c", EXAMPLE / "harness_check.py"),
                *("--prefix", self.folder, "-n", only, "-r", "--performance-report"),
                *(part for setting in given for part in ("-S", setting)),
            ],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RFM_COLORIZE": "n"},
            capture_output=True,
            text=True,
            timeout=500,
        )


@pytest.fixture
def reframe(environment: Callable[..., Path], tmp_path: Path) -> ReFrame:
    environment("pytorch")
    return ReFrame(tmp_path)


@pytest.fixture(scope="module")
def img_per_s(environment: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> float:
    """What `harness run` measures here on one node, with the options of the tests."""
    environment("pytorch")
    folder = tmp_path_factory.mktemp("reference")
    done = run_harness(folder, "run", "--backend", "pytorch", *SMALL.split(), "--json", OMP_WAIT_POLICY="PASSIVE")
    return float(done.succeeded().json["derived"]["img_per_s"]["mean"])


def test_a_run_that_is_slower_than_its_reference_fails_on_performance_and_one_that_is_not_passes(
    reframe: ReFrame, img_per_s: float
) -> None:
    wide = "tolerance=0.95"  # the machine may be doing other things by now
    done = reframe(f"harness_options={SMALL}", f"img_per_s=pytorch-1:{100 * img_per_s},pytorch-2:{img_per_s}", wide)
    assert done.returncode == 1
    assert "Ran 2/2 test case(s) from 2 check(s) (1 failure(s)" in done.stdout, done.stdout
    assert re.search(r"\[ +OK \] .* %nodes=2 ", done.stdout), done.stdout
    assert re.search(r"performance error: failed to meet reference\S* throughput=", done.stdout), done.stdout
    reported = [float(text) for text in re.findall(r"^P: throughput: (\S+) img/s \(r:", done.stdout, re.MULTILINE)]
    recorded = [
        json.loads(path.read_text())["derived"]["img_per_s"]["mean"]
        for path in reframe.folder.glob("output/**/runs/*/record.json")  # where ReFrame keeps what has passed
    ]
    assert reported == pytest.approx(recorded, abs=0.01) and len(recorded) == 1


def test_a_run_that_failed_fails_its_sanity_check_with_harness_reason(reframe: ReFrame) -> None:
    diverging = f"harness_options={SMALL} --learning-rate 1e30"
    done = reframe(diverging, only="HarnessCheck%backend=pytorch%nodes=1")
    assert done.returncode == 1
    assert re.search(r"sanity error: failed: repeat 1 does not count: finite: loss \S+", done.stdout), done.stdout
    assert "P: throughput" not in done.stdout


def test_a_request_that_cannot_work_fails_with_harness_one_line(reframe: ReFrame) -> None:
    done = reframe("site=nowhere", only="HarnessCheck%backend=pytorch%nodes=1")
    assert done.returncode == 1
    assert re.search(r"sanity error: harness: .*nowhere", done.stdout), done.stdout

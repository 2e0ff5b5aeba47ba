"""Machines of arm64, such as Alps' Grace-Hopper nodes: what is pinned exists there, or is said not to."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness import environments
from harness.worker.energy import pm_counters
from tests.conftest import ROOT

FILES = sorted(
    path.relative_to(ROOT)
    for path in (*ROOT.glob("backends/*/requirements*.txt"), *ROOT.glob("harness/environments/mpi-*.txt"))
)
# What has no wheels for arm64. Caffe2's has one, whose operators nobody has tried there.
LACKING = {Path("harness/environments/mpi-intel.txt"): "impi-rt"}


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=str)
def test_every_environment_resolves_for_arm64_or_docs_say_that_it_does_not(file: Path) -> None:
    version = "3.9" if "caffe2" in file.parts else "3.11"
    machine = ["--python-platform", "aarch64-manylinux_2_28", "--python-version", version, "--only-binary", ":all:"]
    done = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-deps", "--no-header", *machine, str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if file in LACKING:
        assert done.returncode and f"{LACKING[file]}==" in done.stderr and "no wheels" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
    said = (ROOT / "docs/install.md").read_text(encoding="utf-8").partition("## arm64\n")[2]
    assert all(name in said for name in ("Caffe2", "Intel MPI"))


def test_a_pin_for_one_kind_of_machine_counts_there_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = tmp_path / "requirements.txt"
    pins.write_text('a-cpu==1 ; platform_machine == "x86_64"\na==1 ; platform_machine == "aarch64"\nb==2  # for all\n')
    for machine, known in (("x86_64", {"a-cpu": "1", "b": "2"}), ("aarch64", {"a": "1", "b": "2"})):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert environments.pins(pins) == known


def test_the_energy_of_a_node_with_four_grace_hopper_modules_is_read(tmp_path: Path) -> None:
    """The files of an HPE Cray EX254n, whose modules have a counter each, of processor, GPU and memory."""
    parts = [f"{part}{number}_energy" for part in ("accel", "cpu") for number in range(4)]
    for name in ("energy", "cpu_energy", *parts):
        (tmp_path / name).write_text("1000 J 1700000000000000 us\n")
    for name in ("freshness", "generation", "raw_scan_hz", "power_cap", "startup", "version"):
        (tmp_path / name).write_text("10\n")
    found = [(counter.covers, counter.name) for counter in pm_counters.find(tmp_path)]
    assert found == [
        ("node", "energy"),
        *(("package", f"cpu{number}_energy") for number in range(4)),
        *(("module", f"accel{number}_energy") for number in range(4)),
    ]

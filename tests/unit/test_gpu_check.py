"""The check of a machine with a GPU, as far as it takes none: what it plans, how it judges, and what a CPU can do."""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_check
from harness.core.fingerprint import TOLERANCES
from tests.conftest import ROOT, run_in_process
from tests.wording import Wording


class Planned(gpu_check.Machine):
    """A machine that plans each run on a GPU, and hands out one record for all."""

    def __init__(self, folder: Path, img_per_s: float, joules_per_image: float = 0.1) -> None:
        self.output, self.python, self.core = folder, sys.executable, sys.executable
        self.device, self.visible, self.alone = "cuda", "0", False
        self.torch = {"gpu": "NVIDIA H100 80GB HBM3", "memory_bytes": 85e9, "capability": [9, 0], "jax": True}
        self.img_per_s, self.joules_per_image = img_per_s, joules_per_image
        self.planned: list[tuple[str, ...]] = []

    def carried_out(self, command: list[str], **more: str) -> str:
        return "total images/sec: 4000.0\n" if "benchmarks/plain_ddp.py" in command else "1e-5\n"

    def harness(
        self, *arguments: str, backend: str = "pytorch", device: str | None = None, **more: str
    ) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CUDA_VISIBLE_DEVICES", more.get("CUDA_VISIBLE_DEVICES", "0"))
            usual = ["--backend", backend, "--device", device or "cuda", "--repeats", "1", "--force", "--dry-run"]
            data = [word if not word.startswith(str(self.output)) else "synthetic" for word in arguments]
            run_in_process(self.output, *data, *usual).succeeded()
        self.planned.append(arguments)
        evidence = {"losses": [7.0] * 14, "transport": "nccl", "gpu": {"watts": [450.0, 500.0, 520.0], "slowed": {}}}
        rank = {"evidence": evidence, "marks_s": [0.0, 6.4], "finished_s": 6.401}
        part = {"source": "nvml", "covers": "gpu", "joules_per_image": {"mean": self.joules_per_image}}
        derived = {
            "img_per_s": {"values": [self.img_per_s], "mean": self.img_per_s},
            "energy": {"parts": [part], "notes": []},
        }
        seen = {"sent_bytes_per_step": 1e-5}
        return {"seen": seen, "derived": derived, "repeats": [{"ranks": [rank]}], "spec": {"steps": 100}}


def found(machine: Planned) -> dict[str, str]:
    """What each check says, with "FAILED: " before what is wrong."""
    said = {}
    for check in gpu_check.Checks(machine).all():
        try:
            said[check.name], _ = check.make()
        except gpu_check.Failed as error:
            said[check.name] = f"FAILED: {error}"
        except gpu_check.NotChecked as error:
            said[check.name] = f"not checked: {error}"
    return said


def test_every_run_that_a_gpu_is_to_carry_out_can_be_planned(tmp_path: Path) -> None:
    machine = Planned(tmp_path, 5000.0)
    said = found(machine)
    assert not [text for text in said.values() if text.startswith(("FAILED", "not checked"))]
    assert said["energy by two ways"] == "0.1 J/img, 500 W by NVML's counter, 500 W (median) by its power"
    assert said["speed: fp16 against the bar"] == "5000.0 img/s at batch 272, bar 4210"
    assert said["speed: against a plain script, in turn"].startswith("1.250 and 1.250 × the plain script")
    for option in ("--cuda-graphs", "--compile", "--data"):
        assert any(option in arguments for arguments in machine.planned), option
    kernels = {arguments[1] for arguments in machine.planned if arguments[0] == "kernel"}
    assert kernels == {"allreduce", "matmul", "cg", "fft"}


def test_what_is_slower_than_a_bar_or_of_another_energy_has_failed_and_one_process_at_a_time_is_not_asked_for_two(
    tmp_path: Path,
) -> None:
    machine = Planned(tmp_path, 4200.0, 0.104)
    machine.alone = True
    said = found(machine)
    assert said["speed: fp16 against the bar"] == "FAILED: 4200.0 img/s at batch 272, bar 4210"
    assert said["speed: against a plain script, in turn"].startswith("FAILED: 1.050 and 1.050 × the plain script")
    assert said["energy by two ways"].startswith("FAILED: 0.104 J/img, 437 W by NVML's counter")
    not_asked = {name for name, text in said.items() if "exclusive: it takes one process at a time" in text}
    assert not_asked == {"pytorch, two processes over gloo, bytes", "kernel allreduce over gloo"}


def test_an_older_and_smaller_gpu_is_checked_in_smaller_batches_for_what_it_has(tmp_path: Path) -> None:
    machine = Planned(tmp_path, 700.0)
    machine.torch = {"gpu": "Tesla V100-PCIE-16GB", "memory_bytes": 16.9e9, "capability": [7, 0], "jax": False}
    said = found(machine)
    assert said["speed: fp16 against the bar"] == "700.0 img/s at batch 64; there is no bar for Tesla V100-PCIE-16GB"
    lacking = {name for name, text in said.items() if text.endswith("has neither TF32 nor bfloat16")}
    assert lacking == {"tf32, losses", "amp, losses"} | {
        f"{model} {precision}" for model in ("resnet50", "inception3") for precision in ("tf32", "amp")
    }
    assert not [name for name in said if "jax" in name]


def test_what_runs_when_the_time_is_over_is_given_up(tmp_path: Path, wording: Wording) -> None:
    machine = object.__new__(gpu_check.Machine)
    machine.ends, machine.environ = time.monotonic() + 0.5, {}
    with wording("sleep").raises(gpu_check.NotChecked):
        machine.carried_out([sys.executable, "-c", "import time; time.sleep(60)"])
    with wording("sleep").raises(gpu_check.NotChecked):
        machine.carried_out([sys.executable, "-c", "pass"])


def test_a_check_that_breaks_has_failed_and_what_the_others_found_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> tuple[str, dict[str, Any]]:
        raise IndexError("no such line")

    machine = Planned(tmp_path, 5000.0)
    machine.torch |= {"torch": "2.11.0", "cuda": "13.0"}
    good = gpu_check.Check("good", False, lambda: ("fine", {"img_per_s": 1.0}))
    monkeypatch.setattr(gpu_check, "Machine", lambda options: machine)
    monkeypatch.setattr(gpu_check.Checks, "all", lambda self: [gpu_check.Check("broken", False, broken), good])
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--output", str(tmp_path)])
    assert gpu_check.main() == 1
    checks = json.loads((tmp_path / "gpu-check.json").read_text())["checks"]
    results = [(check["state"], check["says"]) for check in checks]
    assert results == [("FAILED", "IndexError('no such line')"), ("passed", "fine")]


@pytest.mark.slow
def test_a_machine_without_a_gpu_checks_what_a_cpu_can_and_says_what_not(environment: Any, tmp_path: Path) -> None:
    """Takes 40 s: it is the whole command, with its runs."""
    command = [sys.executable, "benchmarks/gpu_check.py", "--env", environment("pytorch"), "--output", tmp_path]
    done = subprocess.run([*command, "--core", sys.executable], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stdout + done.stderr
    checks = json.loads((tmp_path / "gpu-check.json").read_text())["checks"]
    assert Counter(check["state"] for check in checks) == {"passed": 8, "not checked": 16}, checks
    assert all("sees no GPU" in check["says"] for check in checks if check["state"] == "not checked")


def test_the_page_has_the_figures_that_were_measured() -> None:
    """Each img/s that the check of the H200 found, to the whole image."""
    page = (ROOT / "docs/gpus.md").read_text()
    found = json.loads((ROOT / "results/experiments/h200/gpu-check.json").read_text())["checks"]
    speeds = {each["check"]: each["figures"]["img_per_s"] for each in found if "img_per_s" in each["figures"]}
    del speeds["jpeg input"]  # in float32 by mistake: the page has that of the run before
    assert len(speeds) == 10 and {check for check, speed in speeds.items() if f"| {speed:,.0f} |" not in page} == set()


def test_a_gpu_may_differ_by_what_runs_may_differ_by() -> None:
    """The check has the table of its own, as it begins with the standard library alone."""
    assert gpu_check.LOSSES == TOLERANCES

"""Energy of a real run: a made counter that grows by a known power, read by the run's own worker at its own barriers."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import Harness
from tests.made import content

POWER_W = 100.0


@pytest.fixture
def sysfs(tmp_path: Path) -> Iterator[Path]:
    """A tree with one package that uses ``POWER_W`` all the time."""
    zone, ended = tmp_path / "sys/class/powercap/intel-rapl:0", threading.Event()
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")

    def grow() -> None:
        while not ended.is_set():
            (zone / "new").write_text(f"{int((time.monotonic() - began) * POWER_W * 1e6)}\n")
            (zone / "new").rename(zone / "energy_uj")  # nobody reads half of a number
            ended.wait(0.001)

    began = time.monotonic()
    grower = threading.Thread(target=grow)
    grower.start()
    yield tmp_path / "sys"
    ended.set()
    grower.join()


@pytest.mark.alone
def test_joules_per_image_times_images_per_second_is_the_power(harness: Harness, sysfs: Path) -> None:
    run = ["run", "--backend", "pytorch", "--model", "pointwise", "--nodes", "2", "--repeats", "2", "--steps", "160"]
    shown = harness(*run, "--warmup", "2", "--batch-size", "2", "--output", "runs", HARNESS_SYS=str(sysfs)).succeeded()
    assert "J/img of package (powercap)" in shown.stdout
    (file,) = sysfs.parent.glob("runs/*/record.json")
    record = content(file)
    energy = record["derived"]["energy"]
    rates, joules = (record["derived"]["img_per_s"]["values"], energy["joules_per_image"]["values"])
    assert [rate * used for rate, used in zip(rates, joules, strict=True)] == pytest.approx([POWER_W] * 2, rel=0.1)
    # Both nodes are this machine, and both have a reader.
    assert len([rank for rank in record["repeats"][0]["ranks"] if rank["energy"]]) == 2
    assert "2 nodes of the run are one machine" in energy["notes"][0]
    assert record["variables"]["HARNESS_SYS"] == str(sysfs)


@pytest.mark.alone
def test_the_rate_of_a_kernel_over_its_work_per_joule_is_the_power(harness: Harness, sysfs: Path) -> None:
    run = ["kernel", "matmul", "--backend", "mpi4py", "--nodes", "2", "--size", "16,1024", "--steps", "100"]
    shown = harness(*run, "--repeats", "2", "--output", "runs", HARNESS_SYS=str(sysfs)).succeeded().stdout
    assert "Gflop/J" in shown and "J are of package (powercap): 2 nodes of the run are one machine" in shown
    assert "no J of N = 16: " in shown and "powercap package-0: the window is shorter than 0.02 s" in shown
    (file,) = sysfs.parent.glob("runs/*/kernel.json")
    small, large = json.loads(file.read_text())["derived"]
    assert small["work_per_joule"] is None
    assert large["rate"]["mean"] / large["work_per_joule"] == pytest.approx(POWER_W, rel=0.1)


@pytest.mark.slow
@pytest.mark.alone
def test_joules_over_the_seconds_of_training_are_the_power(harness: Harness, sysfs: Path) -> None:
    data = sysfs.parent / "data"
    for part, count in (("train", 200), ("val", 4)):
        for name in "ab":
            (data / part / name).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (32, 32), (number, 0, 0)).save(data / part / name / f"{number}.JPEG")
    run = [
        "train",
        "--backend",
        "pytorch",
        "--model",
        "mnist_cnn",
        "--nodes",
        "2",
        "--data",
        str(data),
        "--epochs",
        "2",
    ]
    where = ["--batch-size", "2", "--threads", "1", "--until", "top1=0.1", "--evaluate-every", "2", "--output", "runs"]
    shown = harness(*run, *where, HARNESS_SYS=str(sysfs)).succeeded().stdout
    assert "J/img while training" in shown and "J to top-1 0.1 of package (powercap)" in shown
    (file,) = sysfs.parent.glob("runs/*/training.json")
    record = json.loads(file.read_text())
    assert len(record["energy"]["joules"]["values"]) == 2
    assert record["joules_to_accuracy"] / record["reached"]["train_s"] == pytest.approx(POWER_W, rel=0.1)

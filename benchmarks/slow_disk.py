"""How long emulated devices wait for a disk that gives so many images a second, beside what the law predicts: a table.

    python benchmarks/slow_disk.py [--images 9000] BACKEND[:FRAMEWORK]:NODES:WARMUP:STEPS ...

As root, on Linux with version 1 of the control groups' blkio controller. The disk is a loop device with a file system of
its own, and the kernel's block layer limits what the processes of a group read of it (cgroups(7)); all nodes share that.
Devices ask for twice what it gives: half of a step is to be waited for. tests/parity/test_slow_disk.py uses ``mounted``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from harness.datasets.make import make
from harness.prediction import forecast
from harness.records.measurement import Rank, Record

LIMIT = Path("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device")
PAGE = 4096
DILATION, BATCH, IMG_PER_S = 8, 64, 1600  # of the device; on the clock it takes DILATION times as long
DEVICE = f"""
description = "a device that nobody has"
forward_share = 0.3
[mnist_cnn]
img_per_s = {IMG_PER_S}
batch_size = {BATCH}
source = "benchmarks/slow_disk.py"
"""


@dataclass(frozen=True)
class Disk:
    """The file system at ``folder``, with the ``number`` of its device. Processes in the control ``group`` have a limit."""

    folder: Path
    number: str
    group: Path

    @property
    def images(self) -> Path:
        return self.folder / "images"

    @property
    def image_bytes(self) -> float:
        """The mean size of an image on the disk, in whole pages."""
        return fmean(-(-file.stat().st_size // PAGE) * PAGE for file in self.images.rglob("*.JPEG"))

    def limit(self, bytes_per_s: float) -> None:
        (self.group / LIMIT.name).write_text(f"{self.number} {bytes_per_s:.0f}")

    def harness(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``harness ARGUMENTS`` in ``folder``, within the group."""
        joined = f'echo $$ > {self.group}/cgroup.procs; exec {sys.executable} -m harness "$@"'
        return subprocess.run(["sh", "-c", joined, "sh", *arguments], cwd=folder, capture_output=True, text=True)


@contextmanager
def mounted(place: Path, images: int) -> Iterator[Disk]:
    """A disk with so many images of 21 kB, in a file in ``place``. Raises CalledProcessError without the right to it."""
    image, folder, group = place / "image", place / "mounted", LIMIT.parent / f"harness-{os.getpid()}"

    def command(*words: object) -> str:
        return subprocess.run([*map(str, words)], check=True, capture_output=True, text=True).stdout.strip()

    command("truncate", "-s", f"{images * 40 // 1000 + 100}M", image)
    command("mkfs.ext4", "-q", "-b", PAGE, image)  # by itself it takes 1 KiB for a small one
    device = command("losetup", "--find", "--show", image)
    folder.mkdir()
    group.mkdir()
    try:
        command("mount", device, folder)
        try:
            make(folder / "images", images, 2, (240, 180), seed=1)
            os.sync()
            yield Disk(folder, Path("/sys/block", Path(device).name, "dev").read_text().strip(), group)
        finally:
            command("umount", folder)
    finally:
        command("losetup", "--detach", device)
        group.rmdir()


def measure(disk: Disk, folder: Path, backend: str, nodes: int, warmup: int, steps: int) -> str:
    """A row of the table. A run on a machine that did not keep up is one, too, and says so."""
    name, _, framework = backend.partition(":")
    own = ("--framework", framework) if framework else ()
    emulated = ("--device", f"emulated:{folder}/device.toml", "--dilation", str(DILATION), "--batch-size", str(BATCH))
    counted = ("--backend", name, *own, "--nodes", str(nodes), "--model", "mnist_cnn", *emulated, "--repeats", "1")
    data = ("--data", str(disk.images), "--data-threads", "2", "--data-cache", "cold")
    rate = IMG_PER_S * nodes / 2
    notes: set[str] = set()

    def ran(bytes_per_s: float, *more: object) -> list[Rank]:
        disk.limit(bytes_per_s)
        with tempfile.TemporaryDirectory(dir=folder) as runs:
            done = disk.harness(folder, "run", *counted, *map(str, more), "--output", runs)
            files = [*Path(runs).glob("*/record.json")]
            if not files:
                raise RuntimeError(done.stderr)
            record = Record.read(files[0])
        notes.update(check.name for repeat in record.repeats for check in repeat.checks if not check.passed)
        return record.repeats[0].ranks

    def step_s(ranks: list[Rank]) -> float:
        return max(rank.marks_s[-1] for rank in ranks) / (len(ranks[0].marks_s) - 1) / DILATION

    alone_s = step_s(ran(1e9, "--warmup", 2, "--steps", 10))
    real = ran(rate / DILATION * disk.image_bytes, "--warmup", warmup, "--steps", steps, *data)
    read_s = float(forecast.reader(f"shared:{rate}").seconds(BATCH, nodes))
    predicted_s = read_s - alone_s
    waited_s = fmean(max(step) for step in zip(*(rank.input_wait_s for rank in real), strict=True)) / DILATION
    given = sum(rank.evidence["data_cache"]["read_bytes"] for rank in real)
    share = given / (steps * BATCH * nodes * disk.image_bytes)
    times = [f"{1e3 * each:.1f}" for each in (alone_s, read_s, step_s(real), predicted_s, waited_s)]
    cells = (
        backend,
        nodes,
        steps,
        *times,
        f"{waited_s / predicted_s - 1:+.1%}",
        f"{share:.0%}",
        ", ".join(sorted(notes)),
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="BACKEND[:FRAMEWORK]:NODES:WARMUP:STEPS")
    parser.add_argument("--images", type=int, default=9000)
    options = parser.parse_args()
    heading = (
        "backend",
        "nodes",
        "steps",
        "step alone, ms",
        "reading",
        "step",
        "predicted wait",
        "measured wait",
        "error",
    )
    print(f"| {' | '.join((*heading, 'from the disk', 'failed checks'))} |\n{'|---' * 11}|")
    with tempfile.TemporaryDirectory() as folder, mounted(Path(folder), options.images) as disk:
        (Path(folder) / "device.toml").write_text(DEVICE)
        for run in options.runs:
            backend, nodes, warmup, steps = run.rsplit(":", 3)
            print(measure(disk, Path(folder), backend, int(nodes), int(warmup), int(steps)), flush=True)


if __name__ == "__main__":
    main()

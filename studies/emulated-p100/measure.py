"""Measure the studies of this folder: emulated devices on links of several rates, in the virtual cluster. Resumable.

    .venv/bin/python studies/emulated-p100/measure.py [FILE ...] [-o DIR] [--only PATTERN] [--retry-failed] [--anew]

A FILE is a study of `harness study` with two fields more in its tables: ``links``, rates in GB/s of the device's time,
and ``slow``, the share of it that the first node's link has. Time is dilated and bytes may be scaled, so the cluster's
links have to be slower by as much. Points that want the same become a study of their own, in DIR, named by the file and
its links. The links are measured before and after it. An interrupted study goes on where it was, and points in
results/experiments are taken as measured, unless --anew. Completed points are kept in DIR/kept: their records, without
logs and without the names of this machine's folders, and the list of points.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from harness.environments import cache_folder
from harness.records.measurement import Record
from harness.worker.agent.seating import PLAN, SPEC

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXPERIMENTS = ROOT / "results" / "experiments"
# The files, by the folder of results/experiments that has their records.
FOLDERS = {
    "steady": (
        "steady-8",
        "again",
        "steps",
        "steady-32",
        "steady-128",
        "again-128",
        "buckets",
        "servers",
        "tensorflow-64",
    ),
    "causes": ("causes", "search"),
    "caffe2": ("caffe2",),
    "cori": ("cori",),
}
FILES = [HERE / f"{name}.toml" for names in FOLDERS.values() for name in names]
CLUSTER = [sys.executable, str(ROOT / "cluster" / "cluster.py")]
HARNESS = [sys.executable, "-m", "harness"]
Table = dict[str, Any]


class Links(NamedTuple):
    """The cluster that points need: links of so many GB/s in the device's time, and the scales of time and bytes.

    The link of the first node has the share ``slow`` of that rate.
    """

    rate: float
    dilation: float
    bytes_scale: float
    slow: float = 1.0

    @property
    def megabits(self) -> float:
        """Mbit/s of the cluster's own time."""
        return self.rate * 8000 / self.dilation * self.bytes_scale

    def __str__(self) -> str:
        scale = f"-scale-{self.bytes_scale:g}" if self.bytes_scale != 1 else ""
        slow = f"-slow-{self.slow:g}" if self.slow != 1 else ""
        return f"links-{self.rate:g}-dilation-{self.dilation:g}{scale}{slow}"


class Part(NamedTuple):
    """Tables of a study's file whose points want the same links."""

    name: str
    links: Links
    tables: list[Table]

    @property
    def nodes(self) -> int:
        sizes = (table["nodes"] for table in self.tables)
        return max(max(size) if isinstance(size, list) else int(size) for size in sizes)

    @property
    def place(self) -> Path:
        """The folder of its kept records."""
        if self.name.startswith("alone"):
            return Path("alone")
        return next(
            Path(folder, self.name) for folder, names in FOLDERS.items() if self.name.partition("-links")[0] in names
        )

    def toml(self) -> str:
        """Its study file. Strings, numbers and lists of them are the same in JSON."""
        lines = [f"name = {json.dumps(self.name)}"]
        for table in self.tables:
            lines += ["", "[[matrix]]", *(f"{field} = {json.dumps(value)}" for field, value in table.items())]
        return "\n".join([*lines, ""])


def parts(file: Path) -> Iterator[Part]:
    """A study's parts, in the order of the file."""
    study = tomllib.loads(file.read_text())
    tables: dict[Links, list[Table]] = defaultdict(list)
    for table in study["matrix"]:
        fields = study["common"] | table
        rates, slow = fields.pop("links"), fields.pop("slow", 1.0)
        for rate in rates if isinstance(rates, list) else [rates]:
            tables[Links(rate, fields["dilation"], fields.get("bytes-scale", 1), slow)].append(fields)
    for links, alike in tables.items():
        yield Part(f"{file.stem}-{links}", links, alike)


def call(*command: str) -> int:
    """The exit code of a command. An interrupt, or a signal to end, waits until the command has ended in good order."""
    print("$", *command, flush=True)
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise


def measure(part: Part, state: str, output: Path, again: bool) -> int:
    """Set the links, measure them, the part, and them again: the exit code of the study, or 2 if the links are wrong."""
    at, links = ["--state", state], part.links
    scales = ["--dilation", f"{links.dilation:g}", "--bytes-scale", f"{links.bytes_scale:g}"]
    file = output / f"{part.name}.toml"
    file.write_text(part.toml())
    if call(*CLUSTER, "rate", *at, f"{links.megabits:.3f}mbit", *scales) or call(*CLUSTER, "check-links", *at):
        return 2
    if links.slow != 1 and call(*CLUSTER, "rate", *at, f"{links.slow * links.megabits:.3f}mbit", "node1", *scales):
        return 2
    where = ["--site", f"{state}/site.toml", "--output", str(output)]
    code = call(*HARNESS, "study", "run", str(file), *where, *["--retry-failed"] * again)
    rate = call(*CLUSTER, "rate", *at, f"{links.megabits:.3f}mbit", *scales) if links.slow != 1 else 0
    return 2 if rate or call(*CLUSTER, "check-links", *at) else code


def take_up(kept: Path, folder: Path) -> None:
    """Copy what was kept into a study's folder that goes on with it: run directories have their spec and plan, too."""
    shutil.copytree(kept, folder)
    for file in folder.glob("*/record.json"):
        record = Record.read(file)
        (file.parent / SPEC).write_text(record.spec.model_dump_json())
        (file.parent / PLAN).write_text(json.dumps(record.plan))


def keep(part: Part, output: Path) -> None:
    """Copy the records of completed runs, with other names for the folders of this machine; they are sealed anew."""
    names = {str(output): "/opt/harness/runs/emulated", str(ROOT): "/opt/harness"}
    names |= {str(cache_folder()): "/opt/harness-cache", str(Path.home()): "/home/user"}
    for file in (output / part.name).glob("*/record.json"):
        if (record := Record.read(file)).status == "completed":
            text = record.to_json()
            for name, other in names.items():
                text = text.replace(name, other)
            kept = output / "kept" / part.place / file.parent.name
            kept.mkdir(parents=True, exist_ok=True)
            Record.model_validate_json(text).write(kept)
            shutil.copy(output / part.name / "study.json", kept.parent)


def main() -> int:
    """Exit code 1 if a part has points without a number, 2 if the cluster's links are not what they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="*", type=Path, default=FILES)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "runs" / "emulated", metavar="DIR")
    parser.add_argument("--state", default="/tmp/harness-emulated", help="the cluster's state directory")  # noqa: S108
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="the parts with such a name, as in '*-dilation-16'"
    )
    parser.add_argument("--retry-failed", action="store_true", help="measure failed points again")
    parser.add_argument("--anew", action="store_true", help="measure what is in results/, too")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a script's "&" has it ignored
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = {file: [part for part in parts(file) if fnmatchcase(part.name, options.only)] for file in options.file}
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    state, worst = ["--state", options.state], 0
    for of_file in filter(None, chosen.values()):
        try:
            nodes = max(2, *(part.nodes for part in of_file))  # links have two ends
            if code := call(*CLUSTER, "up", *state, "--nodes", str(nodes), "--rate", "1gbit"):
                return code
            for part in of_file:
                if not options.anew and (EXPERIMENTS / part.place).is_dir() and not (output / part.name).exists():
                    take_up(EXPERIMENTS / part.place, output / part.name)
                try:
                    worst = max(worst, measure(part, options.state, output, options.retry_failed))
                finally:
                    keep(part, output)
        finally:
            call(*CLUSTER, "down", *state)
    return worst


if __name__ == "__main__":
    sys.exit(main())

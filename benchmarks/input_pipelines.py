"""Our input pipelines against the way others load the same images: processor time per image and img/s, in turn.

    harness data make FILES --images 2000
    python benchmarks/input_pipelines.py --files FILES --shards SHARDS
    python benchmarks/input_pipelines.py --files FILES --shards SHARDS --tf-cnn-benchmarks PATH/TO/scripts/tf_cnn_benchmarks

If there is no folder SHARDS, the images in FILES are written there as shards first. Every pipeline runs in an environment
of its framework, in processes that read for some seconds on command and rest otherwise.

The peers are in ``input_peers.py`` beside this file: Pillow as torchvision uses it, on the files; and tf_cnn_benchmarks'
own preprocessing, from a checkout that is not part of this project, on the shards. Without one it is the same operators in
the same order. Everyone gets the same threads, batch and image size, and crops 8–100 % of the area. tf_cnn_benchmarks' own
crops, of 10–100 %, are uniform in height instead of area, and a seventh smaller in the mean: so it is measured twice, with
its crops and with ours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import shards

from harness.core.backend import working
from harness.core.plan import KEEP_MEMORY
from harness.core.text import last_line
from harness.environments import require, status
from harness.worker.inputs import index

OURS, PEERS = (Path(__file__).with_name(name) for name in ("read_images.py", "input_peers.py"))
ENVIRON = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"} | KEEP_MEMORY
MOST_SHARDS = 16
# Ours, and whom it is compared with.
PAIRS = [
    ("torch, files", "as torchvision, files"),
    ("torch, shards", "as torchvision, files"),
    ("tensorflow, shards", "tf_cnn_benchmarks, shards"),
    ("tensorflow, shards", "the same, our crops"),
]


class Turn(NamedTuple):
    """The work of a pipeline in its turn. ``processor_s`` is the time of all its processes on all cores."""

    images: int
    wall_s: float
    processor_s: float

    @property
    def rate(self) -> float:
        """Images per second of processor time."""
        return self.images / self.processor_s


def main() -> None:
    """Alternate, print every side's figures, and the median ratio of processor times."""
    options = _options()
    if not Path(options.shards).exists():
        _make_shards(Path(options.files), Path(options.shards))
    with tempfile.TemporaryDirectory() as folder:
        indexes = {}
        for layout in ("files", "shards"):
            indexes[layout] = Path(folder) / layout
            index.write(index.find(getattr(options, layout), "train"), indexes[layout])
        turns = _alternate(_commands(options, indexes), options.seconds, options.rounds)
    for name, its_turns in turns.items():
        rates = [turn.rate for turn in its_turns]
        print(
            f"{name:26} {statistics.median(turn.images / turn.wall_s for turn in its_turns):7.0f} img/s "
            f"{statistics.median(rates):7.0f} per core ({min(rates):.0f} – {max(rates):.0f})  "
            f"{1e3 / statistics.median(rates):.3f} ms per image"
        )
    for ours, theirs in PAIRS:
        print(f"{ours} / {theirs}: {_ratios(turns[ours], turns[theirs])}")


def _ratios(ours: Sequence[Turn], theirs: Sequence[Turn]) -> str:
    """Images per second of processor time, ours over theirs, turn by turn."""
    ratios = [mine.rate / other.rate for mine, other in zip(ours, theirs, strict=True)]
    return f"median ratio {statistics.median(ratios):.3f} (min {min(ratios):.3f}, max {max(ratios):.3f})"


def _make_shards(files: Path, folder: Path) -> None:
    images = index.scan(files, sys.maxsize)
    paths = [Path(images.extent(number).path) for number in range(len(images))]
    encoded = ((path.name, path.read_bytes(), label) for path, label in zip(paths, images.labels, strict=True))
    shards.write(folder, "train", encoded, min(MOST_SHARDS, len(images)))


def _alternate(commands: Mapping[str, Sequence[str]], seconds: float, rounds: int) -> dict[str, list[Turn]]:
    """The turns of each command's process, A B A B …, after one each that does not count."""
    turns: dict[str, list[Turn]] = {name: [] for name in commands}
    with ExitStack() as stack:
        readers = {name: stack.enter_context(_reader(name, argv)) for name, argv in commands.items()}
        for round_ in range(rounds + 1):
            for name, read in readers.items():
                print(f"\r\x1b[2K{name}: turn {round_}", end="\r", file=sys.stderr, flush=True)
                turn = read(seconds)
                if round_:
                    turns[name].append(turn)
    return turns


@contextmanager
def _reader(name: str, argv: Sequence[str]) -> Iterator[Callable[[float], Turn]]:
    """A process that reads images, as a function of the seconds to read."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            argv, env=os.environ | ENVIRON, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )

        def read(seconds: float) -> Turn:
            assert process.stdin and process.stdout
            try:
                process.stdin.write(f"{seconds}\n".encode())
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
            except (BrokenPipeError, ValueError):
                log.seek(0)
                sys.exit(f"{name}: its process ended: {last_line(log.read().decode(errors='replace'))}")
            if "error" in answer:
                sys.exit(f"{name}: {answer['error']}")
            if not answer["processor_s"]:  # it is counted in hundredths of a second
                sys.exit(f"{name}: {answer['images']} images took no processor time that counts: give more --seconds")
            return Turn(**answer)

        try:
            yield read
        finally:
            process.kill()
            process.communicate()


def _commands(options: argparse.Namespace, indexes: dict[str, Path]) -> dict[str, list[str]]:
    return {
        "torch, files": _command("torch", OURS, "torch", options, index=str(indexes["files"])),
        "as torchvision, files": _command("torch", PEERS, "torchvision", options, path=str(indexes["files"])),
        "torch, shards": _command("torch", OURS, "torch", options, index=str(indexes["shards"])),
        "tensorflow, shards": _command("tensorflow", OURS, "tensorflow", options, index=str(indexes["shards"])),
        "tf_cnn_benchmarks, shards": _tf_cnn_benchmarks(options, our_crops=False),
        "the same, our crops": _tf_cnn_benchmarks(options, our_crops=True),
    }


def _tf_cnn_benchmarks(options: argparse.Namespace, our_crops: bool) -> list[str]:
    return _command(
        "tensorflow",
        PEERS,
        "tf_cnn_benchmarks",
        options,
        path=options.shards,
        checkout=options.tf_cnn_benchmarks,
        our_crops=our_crops,
    )


def _command(
    framework: str, script: Path, pipeline: str, options: argparse.Namespace, **arguments: str | bool | None
) -> list[str]:
    """The command of a pipeline, in a built environment of a backend that runs on ``framework`` alone."""
    specs = [backend.environment(framework, "cpu") for backend in working() if backend.frameworks == (framework,)]
    ready = next((spec for spec in specs if status(spec) == "ready"), specs[0])
    common = {"decoders": options.threads, "batch_size": options.batch_size, "image_size": options.image_size}
    return [str(require(ready)), str(script), pipeline, json.dumps(common | arguments)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", required=True, metavar="FOLDER", help="JPEGs in class folders")
    parser.add_argument("--shards", required=True, metavar="FOLDER", help="the same images in shards, made if missing")
    parser.add_argument("--tf-cnn-benchmarks", metavar="FOLDER", help="where tf_cnn_benchmarks.py is")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=10, help="of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()

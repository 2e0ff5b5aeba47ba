"""Our input pipelines against the way others load the same images: processor time per image and img/s, in turn.

    harness data make FILES --images 2000
    harness data convert FILES SHARDS --shards 16
    python benchmarks/input_pipelines.py --files FILES --shards SHARDS
    python benchmarks/input_pipelines.py --files FILES --shards SHARDS --tf-cnn-benchmarks PATH/TO/scripts/tf_cnn_benchmarks

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
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.datasets.bench import Turn, alternate, command, interpreter, summary
from harness.worker.inputs import index

PEERS = Path(__file__).with_name("input_peers.py")
# Ours, and whom it is compared with.
PAIRS = [
    ("torch, files", "as torchvision, files"),
    ("torch, shards", "as torchvision, files"),
    ("tensorflow, shards", "tf_cnn_benchmarks, shards"),
    ("tensorflow, shards", "the same, our crops"),
]


def main() -> None:
    """Alternate, print every side's figures, and the median ratio of processor times."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        indexes = {}
        for layout in ("files", "shards"):
            indexes[layout] = Path(folder) / layout
            index.write(index.find(getattr(options, layout), "train"), indexes[layout])
        turns = alternate(_commands(options, indexes), options.seconds, options.rounds, _progress)
    for name, its_turns in turns.items():
        speed = summary(its_turns)
        print(
            f"{name:26} {speed['img_per_s']:7.0f} img/s {speed['img_per_processor_s']:7.0f} per core "
            f"({speed['lowest_img_per_processor_s']:.0f} – {speed['highest_img_per_processor_s']:.0f})  "
            f"{speed['processor_ms_per_image']:.3f} ms per image"
        )
    for ours, theirs in PAIRS:
        print(f"{ours} / {theirs}: {_ratios(turns[ours], turns[theirs])}")


def _ratios(ours: Sequence[Turn], theirs: Sequence[Turn]) -> str:
    """Images per second of processor time, ours over theirs, turn by turn."""
    ratios = [
        (mine.images / mine.processor_s) / (other.images / other.processor_s)
        for mine, other in zip(ours, theirs, strict=True)
    ]
    return f"median ratio {statistics.median(ratios):.3f} (min {min(ratios):.3f}, max {max(ratios):.3f})"


def _commands(options: argparse.Namespace, indexes: dict[str, Path]) -> dict[str, list[str]]:
    arguments = (options.threads, options.batch_size, options.image_size)
    return {
        "torch, files": command("torch", indexes["files"], *arguments),
        "as torchvision, files": _peer("torch", "torchvision", options, path=str(indexes["files"])),
        "torch, shards": command("torch", indexes["shards"], *arguments),
        "tensorflow, shards": command("tensorflow", indexes["shards"], *arguments),
        "tf_cnn_benchmarks, shards": _tf_cnn_benchmarks(options, our_crops=False),
        "the same, our crops": _tf_cnn_benchmarks(options, our_crops=True),
    }


def _tf_cnn_benchmarks(options: argparse.Namespace, our_crops: bool) -> list[str]:
    return _peer(
        "tensorflow",
        "tf_cnn_benchmarks",
        options,
        path=options.shards,
        checkout=options.tf_cnn_benchmarks,
        our_crops=our_crops,
    )


def _peer(framework: str, peer: str, options: argparse.Namespace, **arguments: str | bool | None) -> list[str]:
    """A peer in the same environment as our pipeline."""
    common = {"decoders": options.threads, "batch_size": options.batch_size, "image_size": options.image_size}
    return [str(interpreter(framework)), str(PEERS), peer, json.dumps(common | arguments)]


def _progress(name: str, round_: int) -> None:
    print(f"\r\x1b[2K{name}: turn {round_}", end="\r", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", required=True, metavar="FOLDER", help="JPEGs in class folders")
    parser.add_argument("--shards", required=True, metavar="FOLDER", help="the same images as TFRecord shards")
    parser.add_argument("--tf-cnn-benchmarks", metavar="FOLDER", help="where tf_cnn_benchmarks.py is")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=10, help="of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()

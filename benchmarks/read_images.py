"""Reads images as fast as it can, for as long as each line on stdin says: ``python read_images.py FRAMEWORK ARGUMENTS``.

It runs in a backend's environment. FRAMEWORK is the pipeline's: torch or tensorflow. ARGUMENTS is JSON:
``index`` (a file), ``decoders``, ``batch_size``, ``image_size``. Each line on stdin is a number of seconds to read for, and
is answered by a line of JSON on stdout: ``images``, and the seconds ``wall_s`` and ``processor_s`` that they took; or
``error``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from harness.worker import proc


def serve(
    batches: Iterator[Any],
    batch_size: int,
    ahead: int,
    find_bad: Callable[[int], Exception | None] = lambda count: None,
) -> None:
    """Answer the lines on stdin. ``ahead`` batches may lie ready, made before the seconds began; they do not count.

    ``find_bad`` finds an image among the first so many, where a framework does not name the one that it could not read.
    """
    read = images = 0
    for line in sys.stdin:
        try:
            for _ in range(ahead):
                next(batches)
                read += batch_size
            worked, images = processor_s(), 0  # which looks at all processes of the machine, and may take a while
            begin = time.monotonic()
            while not images or time.monotonic() < begin + float(line):
                next(batches)
                images += batch_size
            read += images
            wall_s = time.monotonic() - begin
            answer: dict[str, Any] = {"images": images, "wall_s": wall_s, "processor_s": processor_s() - worked}
        except Exception as error:  # of whatever kind the framework's are
            error = find_bad(read + images + 2 * ahead * batch_size) or error
            answer = {"error": next(iter(str(error).splitlines()), type(error).__name__)}
        print(json.dumps(answer), flush=True)


def processor_s() -> float:
    """Processor time of this process and all that descend from it, in user and system mode (proc(5))."""
    return proc.processor_s([proc.stat(os.getpid()), *proc.descendants().values()])


def _main() -> None:
    from harness.worker.inputs import index
    from harness.worker.inputs.order import ReadingOrder

    framework, arguments = sys.argv[1], json.loads(sys.argv[2])
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(arguments["decoders"])
    pipeline = importlib.import_module(f"harness.worker.inputs.{framework}")
    images = index.read(arguments.pop("index"))
    reading = ReadingOrder(images, rank=0, world=1, seed=1, **arguments)
    find_bad = [partial(pipeline.find_bad_image, reading)] if framework == "tensorflow" else []
    # PyTorch's decoders have two batches each in hand, TensorFlow's prefetch two and decode another one.
    serve(iter(pipeline.batches(reading)), arguments["batch_size"], 2 * arguments["decoders"] + 2, *find_bad)
    os._exit(0)


if __name__ == "__main__":
    _main()

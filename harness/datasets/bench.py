"""The speed of each framework's input pipeline by itself: images per second, and per second of processor time.

Every pipeline runs in an environment of its framework, in processes that read for some seconds on command and rest
otherwise. They take turns, so that a machine whose speed drifts treats all alike.
"""

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from harness.core.backend import working
from harness.core.plan import KEEP_MEMORY
from harness.core.text import last_line
from harness.environments import require, status
from harness.errors import RunFailed
from harness.worker.inputs import index

FRAMEWORKS = ("torch", "tensorflow")  # that have a pipeline in harness/worker/inputs
READ_IMAGES = Path(__file__).parents[1] / "worker" / "read_images.py"
ENVIRON = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"} | KEEP_MEMORY
OnTurn = Callable[[str, int], None]


class Turn(NamedTuple):
    """The work of a pipeline in its turn. ``processor_s`` is the time of all its processes on all cores."""

    images: int
    wall_s: float
    processor_s: float


def summary(turns: Sequence[Turn]) -> dict[str, float]:
    """Medians over some turns, and of images per second of processor time the lowest and the highest."""
    rates = [turn.images / turn.processor_s for turn in turns]
    return {
        "img_per_s": statistics.median(turn.images / turn.wall_s for turn in turns),
        "img_per_processor_s": statistics.median(rates),
        "lowest_img_per_processor_s": min(rates),
        "highest_img_per_processor_s": max(rates),
        "processor_ms_per_image": 1e3 / statistics.median(rates),
    }


def interpreter(framework: str) -> Path:
    """The Python of a built environment of a backend that runs on ``framework`` alone. Raises InvalidInput."""
    specs = [backend.environment(framework, "cpu") for backend in working() if backend.frameworks == (framework,)]
    ready = next((spec for spec in specs if status(spec) == "ready"), specs[0])
    return require(ready)


def command(framework: str, index_file: Path, decoders: int, batch_size: int, image_size: int) -> list[str]:
    """The command that starts one of our pipelines. Raises InvalidInput when its environment is not built."""
    arguments = {"index": str(index_file), "decoders": decoders, "batch_size": batch_size, "image_size": image_size}
    return [str(interpreter(framework)), str(READ_IMAGES), framework, json.dumps(arguments)]


def compare(
    images: index.Index,
    frameworks: Sequence[str],
    decoders: int,
    batch_size: int,
    image_size: int,
    seconds: float,
    rounds: int,
    progress: OnTurn,
) -> dict[str, list[Turn]]:
    """The turns of the pipelines, each of ``seconds``, in ``rounds``. Raises InvalidInput, RunFailed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "images.index"
        index.write(images, file)
        commands = {name: command(name, file, decoders, batch_size, image_size) for name in frameworks}
        return alternate(commands, seconds, rounds, progress)


def alternate(
    commands: Mapping[str, Sequence[str]], seconds: float, rounds: int, progress: OnTurn
) -> dict[str, list[Turn]]:
    """The turns of ``read_images`` processes, A B A B …, after one each that does not count. Raises RunFailed."""
    turns: dict[str, list[Turn]] = {name: [] for name in commands}
    with ExitStack() as stack:
        readers = {name: stack.enter_context(_reader(name, argv)) for name, argv in commands.items()}
        for round_ in range(rounds + 1):
            for name, read in readers.items():
                progress(name, round_)
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
                raise RunFailed(
                    f"{name}: its process ended: {last_line(log.read().decode(errors='replace'))}"
                ) from None
            if "error" in answer:
                raise RunFailed(f"{name}: {answer['error']}; `harness data check` finds what is wrong with images")
            if not answer["processor_s"]:  # it is counted in hundredths of a second
                raise RunFailed(
                    f"{name}: {answer['images']} images took no processor time that counts: give more --seconds"
                )
            return Turn(**answer)

        try:
            yield read
        finally:
            process.kill()
            process.communicate()

"""How fast each framework's input pipeline is by itself: images per second, and per second of processor time.

Every pipeline runs in its backend's environment, in processes that read for some seconds when told to and rest
otherwise. They take turns, so that a machine whose speed drifts treats all alike.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from harness import environments
from harness.core.backend import backend
from harness.core.plan import KEEP_MEMORY
from harness.errors import RunFailed
from harness.worker.inputs import index

# Each pipeline's framework, and a backend whose environment has it.
PIPELINES = {"torch": "pytorch", "tensorflow": "parameter_server"}
READ_IMAGES = Path(__file__).parents[1] / "worker" / "read_images.py"
Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class Turn:
    """What a pipeline did in its turn. ``processor_s`` is the time of all its processes on all cores."""

    images: int
    wall_s: float
    processor_s: float


@dataclass(frozen=True)
class Speed:
    """Medians over the turns, with the lowest and the highest."""

    img_per_s: float
    img_per_processor_s: float
    lowest: float
    highest: float
    processor_ms_per_image: float

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> Speed:
        """The speed in some turns. ``lowest`` and ``highest`` are images per second of processor time."""
        rates = [turn.images / turn.processor_s for turn in turns]
        return cls(
            img_per_s=statistics.median(turn.images / turn.wall_s for turn in turns),
            img_per_processor_s=statistics.median(rates),
            lowest=min(rates),
            highest=max(rates),
            processor_ms_per_image=1e3 / statistics.median(rates),
        )


@dataclass(frozen=True)
class Command:
    """How to start a process that serves as ``harness.worker.read_images`` does."""

    argv: Sequence[str]
    env: Mapping[str, str]


def command(pipeline: str, index_file: Path, threads: int, batch_size: int, image_size: int) -> Command:
    """How to start one of ``PIPELINES``. Raises InvalidInput when its environment is not built."""
    python = environments.require(backend(PIPELINES[pipeline]).environment(pipeline, "cpu"))
    arguments = {"pipeline": pipeline, "index": str(index_file), "threads": threads}
    arguments |= {"batch_size": batch_size, "image_size": image_size}
    env = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"} | KEEP_MEMORY
    return Command([str(python), str(READ_IMAGES), json.dumps(arguments)], env)


def compare(
    images: index.Index,
    pipelines: Sequence[str],
    threads: int,
    batch_size: int,
    image_size: int,
    seconds: float,
    rounds: int,
    progress: Progress = lambda pipeline, round_: None,
) -> dict[str, list[Turn]]:
    """The turns of ``pipelines``, each of ``seconds``, in ``rounds``. Raises InvalidInput, RunFailed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "images.index"
        index.write(images, file)
        commands = {name: command(name, file, threads, batch_size, image_size) for name in pipelines}
        return alternate(commands, seconds, rounds, progress)


def alternate(
    commands: Mapping[str, Command], seconds: float, rounds: int, progress: Progress = lambda name, round_: None
) -> dict[str, list[Turn]]:
    """The turns of processes by name: A B A B …, after one turn of each that does not count. Raises RunFailed."""
    turns: dict[str, list[Turn]] = {name: [] for name in commands}
    with ExitStack() as stack:
        readers = {name: stack.enter_context(_reader(name, found)) for name, found in commands.items()}
        for round_ in range(rounds + 1):
            for name, read in readers.items():
                progress(name, round_)
                turn = read(seconds)
                if round_:
                    turns[name].append(turn)
    return turns


@contextmanager
def _reader(name: str, command: Command) -> Iterator[Callable[[float], Turn]]:
    """A process that reads images for as many seconds as it is told."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command.argv, env=os.environ | command.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        assert process.stdin and process.stdout

        def read(seconds: float) -> Turn:
            assert process.stdin and process.stdout
            try:
                process.stdin.write(f"{seconds}\n".encode())
                process.stdin.flush()
                answer: dict[str, Any] = json.loads(process.stdout.readline())
            except (BrokenPipeError, ValueError):
                raise RunFailed(f"{name}: its process ended: {_last_line(log)}") from None
            if "error" in answer:
                raise RunFailed(f"{name}: {answer['error']}; `harness data check` finds what is wrong with images")
            return Turn(**answer)

        try:
            yield read
        finally:
            process.kill()
            process.communicate()


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"


def as_json(turns: Mapping[str, Sequence[Turn]]) -> dict[str, Any]:
    """For scripts: medians and turns of each pipeline."""
    return {
        name: asdict(Speed.of(found)) | {"turns": [asdict(turn) for turn in found]} for name, found in turns.items()
    }

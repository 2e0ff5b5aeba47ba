"""ImageNet's images as TFRecord shards, in the form and under the names that the TensorFlow world gives them.

Controller side. All images are dealt to the shards before the first one is read, from a shuffle of the seed, so every
shard can be written by itself: by any process, in any order, again after an interruption, and always with the same bytes.
What is finished is in a journal, one line per shard; the manifest at the end is made from it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import IO, NamedTuple

import google_crc32c
import numpy as np

from harness import __version__
from harness.datasets import manifest, pool
from harness.datasets.manifest import Manifest
from harness.datasets.photograph import Photograph, photograph
from harness.datasets.sources import Images, Place, Source, shown
from harness.errors import InvalidInput, RunFailed
from harness.files import whole_file, write_atomically
from harness.worker.inputs import tfrecord
from harness.worker.inputs.errors import DataError

JOURNAL = ".convert.jsonl"
PARTIAL = ".partial"  # how the name of a shard ends that is being written; it begins with a dot
NAMED = 3  # bad images in the error


# --- what goes where ---------------------------------------------------------------------------------------------------


class Item(NamedTuple):
    """An image and what its example says of it."""

    name: str
    place: Place
    label: int
    text: str


class Task(NamedTuple):
    """A shard to write into ``folder``."""

    folder: str
    name: str
    items: list[Item]
    skip_bad: bool


@dataclass(frozen=True)
class Written:
    """A shard that was written. ``lengths`` are those of the records' data in bytes; ``skipped`` are names and reasons."""

    name: str
    bytes: int
    sha256: str
    lengths: Sequence[int]
    reencoded: Mapping[str, int]
    skipped: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Plan:
    """What to convert and how. ``shards`` is the number of them by split, ``texts`` what classes are called for people."""

    source: Source
    shards: Mapping[str, int]
    seed: int
    texts: Mapping[str, str]

    def header(self) -> dict[str, object]:
        """What a conversion must have been begun with to be gone on with, each under the name of what decides it."""
        return {
            "the source's images": self.source.digest(),
            "--shards and --validation-shards": dict(self.shards),
            "--seed": self.seed,
            "--class-names": hashlib.sha256(json.dumps(sorted(self.texts.items())).encode()).hexdigest(),
        }

    def names(self, split: str) -> list[str]:
        """The names of a split's shards."""
        return [f"{split}-{shard:05}-of-{self.shards[split]:05}" for shard in range(self.shards[split])]

    def deal(self, split: str) -> list[Sequence[int]]:
        """The numbers of the images in each shard: of all once, and evenly."""
        images, shards = len(self.source.splits[split]), self.shards[split]
        # Sorted by random() and not shuffled: of all of Random only that sequence is promised to stay the same.
        random = Random(f"{self.seed}/{split}")  # noqa: S311 - no secret
        keys = [random.random() for _ in range(images)]
        order = array("q", sorted(range(images), key=keys.__getitem__))
        return [order[shard::shards] for shard in range(shards)]

    def items(self, images: Images, numbers: Sequence[int]) -> list[Item]:
        """The images of a shard, given their numbers."""
        return [
            Item(name, images.where(number), label, self.texts.get(self.source.classes[label - 1], ""))
            for number in numbers
            for name, label in [(images.names[number], images.labels[number])]
        ]


def plan(source: Source, shards: int, validation_shards: int | None, seed: int, texts: Mapping[str, str]) -> Plan:
    """How to convert ``source``. Raises DataError when a shard would be empty."""
    # The proportion of the TensorFlow world's 1024 to 128.
    wanted = {"train": shards, "validation": max(1, shards // 8) if validation_shards is None else validation_shards}
    for split, images in source.splits.items():
        if len(images) < wanted[split]:
            option = "--shards" if split == "train" else "--validation-shards"
            raise DataError(f"{option} {wanted[split]}: there are only {len(images)} images in {split}")
    return Plan(source, {split: wanted[split] for split in source.splits}, seed, texts)


# --- converting --------------------------------------------------------------------------------------------------------


def convert(
    plan: Plan, folder: Path, workers: int, skip_bad: bool, progress: Callable[[int, int], None] = lambda done, of: None
) -> Manifest:
    """Write the shards of ``plan`` that are not in ``folder`` yet, then the offsets of records and the manifest.

    ``progress`` hears how many images are done, and of how many. Raises InvalidInput when the folder holds anything but
    this conversion, or another process works on it; RunFailed when images are bad (unless ``skip_bad``), or files cannot
    be read or written. Whatever happens, also KeyboardInterrupt, finished shards stay and nothing else has a shard's name.
    """
    with _journal(plan, folder) as (journal, finished):
        for left in folder.glob(f".*{PARTIAL}"):
            left.unlink()
        if not skip_bad:  # the images that were skipped may have been mended
            finished = {name: shard for name, shard in finished.items() if not shard.skipped}
        bad: list[tuple[str, str]] = []
        of = sum(len(images) for images in plan.source.splits.values())
        before = sum(len(shard.lengths) + len(shard.skipped) for shard in finished.values())

        def heard(shard: Written) -> None:
            if shard.skipped and not skip_bad:
                bad.extend(shard.skipped)
                return
            finished[shard.name] = shard
            _append(journal, asdict(shard))

        missing = sum(plan.shards.values()) - len(finished)
        if missing:
            tasks = _tasks(plan, folder, frozenset(finished), skip_bad)
            pool.run(write, tasks, min(workers, missing), heard, lambda done: progress(before + done, of))
        elif all((folder / name).exists() for name in [manifest.FILE_NAME, *map(offsets_file, plan.shards)]):
            return manifest.read(folder)
        if bad:
            raise RunFailed(_complaint(bad, of))
        return _conclude(plan, folder, finished)


def _tasks(plan: Plan, folder: Path, finished: frozenset[str], skip_bad: bool) -> Iterator[Task]:
    for split, images in plan.source.splits.items():
        for name, numbers in zip(plan.names(split), plan.deal(split), strict=True):
            if name not in finished:
                yield Task(str(folder), name, plan.items(images, numbers), skip_bad)


def _complaint(bad: list[tuple[str, str]], of: int) -> str:
    bad = sorted(bad)
    more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return (
        f"{len(bad)} of {of} images cannot be converted: "
        + "; ".join(f"{name}: {reason}" for name, reason in bad[:NAMED])
        + f"{more}. Mend them, or leave them out with --skip-bad; the shards without them are finished and stay"
    )


@contextmanager
def _journal(plan: Plan, folder: Path) -> Iterator[tuple[IO[str], dict[str, Written]]]:
    """The journal, locked, and what it says is finished. Raises InvalidInput, and RunFailed when it cannot be written."""
    file = folder / JOURNAL
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists() and any(folder.iterdir()):
            raise InvalidInput(f"{folder} is not empty, and no conversion was begun in it; name a new folder")
        journal = file.open("a+")
    except (FileExistsError, NotADirectoryError):
        raise InvalidInput(f"{folder} is not a folder; name a new one") from None
    except OSError as error:
        raise RunFailed(f"cannot write {error.filename or folder}: {error.strerror}") from None
    with journal:
        try:
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(f"another `harness data convert` is at work in {folder}") from None
        except OSError:
            pass  # a parallel file system without locks
        journal.seek(0)
        # A line that was cut off by a crash is none: its shard will be written again.
        lines = [line for line in journal if line.endswith("\n")]
        journal.truncate(sum(map(len, lines)))  # a character of it is a byte
        try:
            begun, shards = json.loads((lines or ["{}"])[0]), [Written(**json.loads(line)) for line in lines[1:]]
        except (TypeError, ValueError):
            raise InvalidInput(f"{file} is damaged, so that nothing can go on from it; name a new folder") from None
        header = plan.header()
        if not lines:
            _append(journal, header)
        elif others := [key for key in header if begun.get(key) != header[key]]:
            raise InvalidInput(f"{folder} was begun with another choice of {', '.join(others)}; name a new folder")
        yield journal, {shard.name: shard for shard in shards if _is_there(folder / shard.name, shard.bytes)}


def _is_there(file: Path, size: int) -> bool:
    return file.is_file() and file.stat().st_size == size


def _append(journal: IO[str], line: object) -> None:
    """Raises RunFailed when there is no room."""
    try:
        journal.write(json.dumps(line, separators=(",", ":")) + "\n")
        journal.flush()
        os.fsync(journal.fileno())
    except OSError as error:
        raise RunFailed(f"cannot write {journal.name}: {error.strerror}") from None


def _conclude(plan: Plan, folder: Path, finished: Mapping[str, Written]) -> Manifest:
    splits = {}
    try:
        for split in plan.source.splits:
            shards = [finished[name] for name in plan.names(split)]
            _write_offsets(folder / offsets_file(split), shards)
            splits[split] = _split(shards)
        found = Manifest(
            schema="harness.data/1",
            harness=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            source=shown(plan.source.path),
            images=plan.source.digest(),
            seed=plan.seed,
            classes=[
                manifest.Class(label=label, synset=shown(name), text=plan.texts.get(name, ""))
                for label, name in enumerate(plan.source.classes, 1)
            ],
            splits=splits,  # type: ignore[arg-type]
        )
        write_atomically(folder / manifest.FILE_NAME, found.model_dump_json(by_alias=True, indent=1) + "\n")
    except OSError as error:
        raise RunFailed(f"cannot write {error.filename or folder}: {error.strerror}") from None
    return found


def _split(shards: Sequence[Written]) -> manifest.Split:
    return manifest.Split(
        images=sum(len(shard.lengths) for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        shards=[
            manifest.Shard(name=shard.name, images=len(shard.lengths), bytes=shard.bytes, sha256=shard.sha256)
            for shard in shards
        ],
        reencoded=dict(sum((Counter(shard.reencoded) for shard in shards), Counter())),
        skipped=[manifest.Skipped(image=name, reason=reason) for shard in shards for name, reason in shard.skipped],
    )


def _write_offsets(file: Path, shards: Sequence[Written]) -> None:
    """Where the records of a split are, as ``tfrecord.scan`` would find them: so that a run need not."""
    lengths = [np.array(shard.lengths, np.int64) for shard in shards]
    with whole_file(file) as stream:
        np.savez(
            stream,
            counts=np.array([len(one) for one in lengths], np.int64),
            offsets=np.concatenate([offsets(one) for one in lengths]),
            lengths=np.concatenate(lengths),
        )


def offsets_file(split: str) -> str:
    """The name of the file with the arrays ``counts`` (of records per shard), ``offsets`` and ``lengths`` of their data."""
    return f"{split}.npz"


def offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where in a shard the data of its records begin, in bytes, given how long they are: int64 [images]."""
    before = [0, *accumulate(length + tfrecord.OVERHEAD for length in lengths)][:-1]
    return np.array(before, np.int64) + tfrecord.HEADER.size


# --- in the processes --------------------------------------------------------------------------------------------------


def write(task: Task) -> Written:
    """Write a shard: first under another name, which becomes its own when all of it is on the disk.

    Without ``skip_bad`` an image that is bad ends the writing but not the reading, so that all of them are known; then
    there is no shard. Raises RunFailed when a file cannot be read or written, ``pool.Stopped``.
    """
    warnings.simplefilter("ignore")  # Pillow's, of strange metadata
    target = Path(task.folder, task.name)
    partial = target.with_name(f".{task.name}{PARTIAL}")
    digest = hashlib.sha256()
    lengths: list[int] = []
    reencoded: Counter[str] = Counter()
    skipped: list[tuple[str, str]] = []
    try:
        with partial.open("wb") as file:
            for item in task.items:
                pool.advance(1)
                try:
                    image = photograph(_contents(item))
                except ValueError as error:
                    skipped.append((shown(item.name), str(error)))
                    continue
                if skipped and not task.skip_bad:
                    continue
                data = example(item, image)
                record = tfrecord.record(data, google_crc32c.value)
                file.write(record)
                digest.update(record)
                lengths.append(len(data))
                reencoded.update([image.was] if image.was else [])
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        if not skipped or task.skip_bad:
            partial.rename(target)
            _synchronise(task.folder)
    except OSError as error:
        raise RunFailed(f"cannot write {target}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    return Written(task.name, size, digest.hexdigest(), lengths, dict(reencoded), skipped)


def _contents(item: Item) -> bytes:
    try:
        return item.place.read()
    except OSError as error:  # the disk or the permissions: nothing that --skip-bad should make disappear
        raise RunFailed(f"cannot read {shown(item.name)} in {shown(item.place.path)}: {error.strerror}") from None


def _synchronise(folder: str) -> None:
    """Make a new name in ``folder`` survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def example(item: Item, image: Photograph) -> bytes:
    """A serialised tf.train.Example with the keys, and the values, of the TensorFlow world's ImageNet."""
    synset, _, file_name = item.name.partition("/")
    return tfrecord.example(
        {
            "image/height": [image.height],
            "image/width": [image.width],
            "image/colorspace": [b"RGB"],
            "image/channels": [3],
            "image/class/label": [item.label],
            "image/class/synset": [os.fsencode(synset)],
            "image/class/text": [item.text.encode()],
            "image/object/bbox/xmin": [],
            "image/object/bbox/xmax": [],
            "image/object/bbox/ymin": [],
            "image/object/bbox/ymax": [],
            "image/object/bbox/label": array("q"),
            "image/format": [b"JPEG"],
            "image/filename": [os.fsencode(file_name)],
            "image/encoded": [image.jpeg],
        }
    )

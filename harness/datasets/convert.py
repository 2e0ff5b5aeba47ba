"""ImageNet's images as TFRecord shards, in the form and under the names that the TensorFlow world gives them.

A shuffle of the seed deals all images to the shards before the first one is read, so every shard can be written by
itself: by any process, in any order, again after an interruption, and always with the same bytes. A journal has one line
per finished shard; the manifest at the end is made from it.
"""

import hashlib
import io
import json
import os
import warnings
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import IO, NamedTuple

import google_crc32c
import numpy as np
from PIL import Image, UnidentifiedImageError

from harness import __version__
from harness.core.progress import OnCount, uncounted
from harness.core.text import plural
from harness.datasets import manifest, pool, sources
from harness.datasets.manifest import Class, Manifest, Shard, ShardedSplit, Skipped
from harness.datasets.sources import Source, shown
from harness.errors import InvalidInput, RunFailed, writing
from harness.files import lock, whole_file, write_atomically
from harness.worker.inputs import tfrecord
from harness.worker.inputs.augmentation import FORMATS
from harness.worker.inputs.errors import DataError
from harness.worker.inputs.index import ShardIndex, name_of, offsets_file
from harness.worker.inputs.page_cache import Extent

JOURNAL = ".convert.jsonl"
PARTIAL = ".*-of-*.*"  # shards that a process was writing when it was killed
NAMED = 3  # bad images in the error
PLAIN = ("RGB", "L")  # a grey JPEG stays: every decoder that is asked for three channels repeats the one it has
QUALITY = 100  # as the TensorFlow world's converter for ImageNet has it


# --- what goes where ---------------------------------------------------------------------------------------------------


class Item(NamedTuple):
    """An image and what its example says of it."""

    name: str
    extent: Extent
    label: int
    text: str


class WrittenShard(Shard):
    """A shard that was written, as the journal has it. ``lengths`` are those of the records' data in bytes."""

    lengths: list[int]
    reencoded: dict[str, int]
    skipped: list[Skipped]


@dataclass(frozen=True)
class Plan:
    """The conversion of a source. ``shards`` is their number by split, ``texts`` has the names of classes for people."""

    source: Source
    shards: Mapping[str, int]
    seed: int
    texts: Mapping[str, str]

    def header(self) -> dict[str, object]:
        """The choices that must be the same for a conversion to be resumed, each under the name of its option."""
        return {
            "the source's images": self.source.digest(),
            "--shards and --validation-shards": dict(self.shards),
            "--seed": self.seed,
            "--class-names": hashlib.sha256(json.dumps(sorted(self.texts.items())).encode()).hexdigest(),
        }

    def names(self, split: str) -> list[str]:
        return [name_of(split, shard, self.shards[split]) for shard in range(self.shards[split])]

    def deal(self, split: str) -> Iterator[tuple[str, list[Item]]]:
        """The name and the images of each shard: of all once, and evenly."""
        images, shards = self.source.splits[split], self.shards[split]
        # Sorted by random() and not shuffled: of all of Random only that sequence is promised to stay the same.
        random = Random(f"{self.seed}/{split}")  # noqa: S311 - no secret
        keys = [random.random() for _ in range(len(images))]
        order = array("q", sorted(range(len(images)), key=keys.__getitem__))
        texts = ["", *(self.texts.get(name, "") for name in self.source.classes)]
        for shard, name in enumerate(self.names(split)):
            numbers = ((number, images.labels[number]) for number in order[shard::shards])
            yield name, [Item(images.paths[at], images.extent(at), label, texts[label]) for at, label in numbers]


def plan(source: Source, shards: int, validation_shards: int | None, seed: int, texts: Mapping[str, str]) -> Plan:
    """The plan to convert ``source``. Raises DataError when a shard would be empty."""
    # The proportion of the TensorFlow world's 1024 to 128.
    counts = {"train": shards, "validation": max(1, shards // 8) if validation_shards is None else validation_shards}
    for split, images in source.splits.items():
        if len(images) < counts[split]:
            option = "--shards" if split == "train" else "--validation-shards"
            raise DataError(f"{option} {counts[split]}: there are only {len(images)} images in {split}")
    return Plan(source, {split: counts[split] for split in source.splits}, seed, texts)


# --- converting --------------------------------------------------------------------------------------------------------


def convert(plan: Plan, folder: Path, processes: int, skip_bad: bool, progress: OnCount = uncounted) -> Manifest:
    """Write the shards of ``plan`` that are not in ``folder`` yet, then the offsets of records and the manifest.

    ``progress`` counts images. Raises InvalidInput when the folder holds anything but this conversion, or another process
    works on it; RunFailed when images are bad (unless ``skip_bad``), or cannot be read; OSError. Whatever happens, also
    KeyboardInterrupt, finished shards stay and nothing else has a shard's name.
    """
    with _journal(plan, folder) as (journal, finished):
        for partial_shard in folder.glob(PARTIAL):
            partial_shard.unlink()
        if not skip_bad:  # the images that were skipped may have been mended
            finished = {name: shard for name, shard in finished.items() if not shard.skipped}
        bad: list[Skipped] = []
        of = sum(map(len, plan.source.splits.values()))
        before = sum(shard.images + len(shard.skipped) for shard in finished.values())
        complete = [manifest.FILE_NAME, *map(offsets_file, plan.shards)]
        if len(finished) == sum(plan.shards.values()) and all((folder / name).exists() for name in complete):
            return manifest.read(folder)
        task = partial(write, folder, skip_bad)
        shards = (shard for split in plan.shards for shard in plan.deal(split) if shard[0] not in finished)
        for shard in pool.results(task, shards, processes, lambda done: progress(before + done, of)):
            if shard.skipped and not skip_bad:
                bad += shard.skipped
            else:
                finished[shard.name] = shard
                _append(journal, shard.model_dump())
        if bad:
            named = "; ".join(sorted(f"{image.image}: {image.reason}" for image in bad)[:NAMED])
            more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
            raise RunFailed(
                f"{len(bad)} of {plural(of, 'image')} cannot be converted: {named}{more}. Mend them, or leave them out "
                f"with --skip-bad; the shards without them are finished and stay"
            )
        return _conclude(plan, folder, finished)


@contextmanager
def _journal(plan: Plan, folder: Path) -> Iterator[tuple[IO[str], dict[str, WrittenShard]]]:
    """The journal, locked, and the shards that it has as finished. Raises InvalidInput, OSError."""
    file = folder / JOURNAL
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder; name a new one")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists() and any(folder.iterdir()):
            raise InvalidInput(f"{folder} is not empty, and no conversion was begun in it; name a new folder")
        journal = file.open("a+")
    with journal:
        if not lock(journal):
            raise InvalidInput(f"another `harness data convert` is at work in {folder}")
        journal.seek(0)
        # A line that was cut off by a crash is none: its shard will be written again.
        lines = [line for line in journal if line.endswith("\n")]
        journal.truncate(sum(map(len, lines)))  # a character of it is a byte
        try:
            begun = json.loads((lines or ["{}"])[0])
            shards = [WrittenShard.model_validate_json(line) for line in lines[1:]]
        except ValueError:
            raise InvalidInput(f"{file} is damaged, so that nothing can go on from it; name a new folder") from None
        header = plan.header()
        if not lines:
            _append(journal, header)
        elif others := [key for key in header if begun.get(key) != header[key]]:
            raise InvalidInput(f"{folder} was begun with another choice of {', '.join(others)}; name a new folder")
        sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
        yield journal, {shard.name: shard for shard in shards if sizes.get(shard.name) == shard.bytes}


def _append(journal: IO[str], line: object) -> None:
    journal.write(json.dumps(line, separators=(",", ":")) + "\n")
    journal.flush()
    os.fsync(journal.fileno())


def _conclude(plan: Plan, folder: Path, finished: Mapping[str, WrittenShard]) -> Manifest:
    """Write the offsets of records, as ``tfrecord.scan`` would find them so that a run need not, and the manifest."""
    splits = {}
    for split in plan.source.splits:
        shards = [finished[name] for name in plan.names(split)]
        counts = np.array([len(shard.lengths) for shard in shards], np.int64)
        lengths = np.array([length for shard in shards for length in shard.lengths], np.int64)
        with whole_file(folder / offsets_file(split)) as stream:
            np.savez(stream, **ShardIndex(str(folder), plan.names(split), counts, lengths).places)  # type: ignore[arg-type]
        splits[split] = ShardedSplit(
            images=len(lengths),
            bytes=sum(shard.bytes for shard in shards),
            shards=[*shards],  # of which it keeps what a ``Shard`` has
            reencoded=sum((Counter(shard.reencoded) for shard in shards), Counter()),
            skipped=[image for shard in shards for image in shard.skipped],
        )
    made = Manifest(
        schema="harness.data/1",
        harness=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        source=shown(plan.source.path),
        images=plan.source.digest(),
        seed=plan.seed,
        classes=[
            Class(label=label, synset=shown(name), text=plan.texts.get(name, ""))
            for label, name in enumerate(plan.source.classes, 1)
        ],
        splits=splits,  # type: ignore[arg-type]
    )
    write_atomically(folder / manifest.FILE_NAME, made.model_dump_json(by_alias=True, indent=1) + "\n")
    return made


# --- in the processes --------------------------------------------------------------------------------------------------


class Unwanted(Exception):
    """A shard lacks images that are bad, and must not be there."""


def write(folder: Path, skip_bad: bool, task: tuple[str, list[Item]]) -> WrittenShard:
    """Write a shard, given its name and its images.

    Without ``skip_bad`` a bad image ends the writing but not the reading, so that all of them are known; then there is no
    shard. Raises RunFailed when a file cannot be read or written, Interrupted.
    """
    warnings.simplefilter("ignore")  # Pillow's, of strange metadata
    name, items = task
    digest = hashlib.sha256()
    size = 0
    lengths: list[int] = []
    reencoded: Counter[str] = Counter()
    skipped: list[Skipped] = []
    try:
        with suppress(Unwanted), whole_file(folder / name) as file:
            for item in items:
                pool.advance(1)
                try:
                    image = photograph(sources.read(item.extent))
                except ValueError as error:
                    skipped.append(Skipped(image=shown(item.name), reason=str(error)))
                    continue
                if skipped and not skip_bad:
                    continue
                data = example(item, image)
                record = tfrecord.record(data, google_crc32c.value)
                size += file.write(record)
                digest.update(record)
                lengths.append(len(data))
                reencoded.update([image.was] if image.was else [])
            if skipped and not skip_bad:
                raise Unwanted
    except OSError as error:  # the disk or the permissions: nothing that --skip-bad should make disappear
        raise RunFailed(f"cannot make {name}: {shown(str(error.filename or folder))}: {error.strerror}") from None
    return WrittenShard(
        name=name,
        images=len(lengths),
        bytes=size,
        sha256=digest.hexdigest(),
        lengths=lengths,
        reencoded=reencoded,
        skipped=skipped,
    )


class Photograph(NamedTuple):
    """A JPEG, RGB or grey, of a size in pixels. ``was`` names the former encoding, such as CMYK or PNG, if any."""

    jpeg: bytes
    width: int
    height: int
    was: str | None


def photograph(contents: bytes) -> Photograph:
    """The JPEG or PNG in ``contents``. Raises ValueError with the reason if a decoder complains."""
    try:
        with Image.open(io.BytesIO(contents), formats=FORMATS) as image:
            image.load()
            # A JPEG with other pictures behind it, from a stereo camera say, is MPO to Pillow and a JPEG to all others.
            was = "PNG" if image.format == "PNG" else image.mode
            if was in PLAIN:
                return Photograph(contents, image.width, image.height, None)
            if image.mode.startswith("I"):  # Pillow would make white of all but its darkest values
                raise ValueError("a PNG with 16 bits per pixel, where 8 are expected")
            encoded = io.BytesIO()
            image.convert("RGB").save(encoded, "JPEG", quality=QUALITY)
            return Photograph(encoded.getvalue(), image.width, image.height, was)
    except UnidentifiedImageError:
        raise ValueError("neither JPEG nor PNG" if contents else "the file is empty") from None
    except Exception as error:  # damaged bytes raise OSError, SyntaxError, struct.error, EOFError, MemoryError…
        raise ValueError(str(error) or type(error).__name__) from None


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

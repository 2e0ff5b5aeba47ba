"""Is a data set whole? Shards of TFRecord files, converted here or elsewhere, and folders of images.

Controller side. One cause is one problem: what a damaged record also does to the size or the digest of its file is not
told again.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from harness.datasets import convert, manifest, pool, sources
from harness.datasets.photograph import first_sight, photograph
from harness.datasets.sources import Images, Place, shown
from harness.worker.inputs import tfrecord
from harness.worker.inputs.errors import DataError

LISTED = 100  # problems that are told one by one
CLASSES = 1000  # ImageNet's
CHUNK = 64  # images of a folder that a process looks at in one go
SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<of>\d{5})")

NEEDED = ("image/encoded", "image/class/label")  # what the pipelines read
ONE = {  # keys of our own examples with one value each, and its type
    "image/height": int,
    "image/width": int,
    "image/colorspace": bytes,
    "image/channels": int,
    "image/class/label": int,
    "image/class/synset": bytes,
    "image/class/text": bytes,
    "image/format": bytes,
    "image/filename": bytes,
    "image/encoded": bytes,
}
BOXES = ("image/object/bbox/xmin", "image/object/bbox/xmax", "image/object/bbox/ymin", "image/object/bbox/ymax")
OURS = (*ONE, *BOXES, "image/object/bbox/label")


class Problem(NamedTuple):
    """Something wrong with a file, at a byte of it where that is known."""

    file: str
    offset: int | None
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {'' if self.offset is None else f'at byte {self.offset}: '}{self.reason}"


@dataclass
class Findings:
    """What was looked at, and what is wrong with it: how many problems, and the first of them."""

    images: int = 0
    shards: int = 0
    problems: int = 0
    listed: list[Problem] = field(default_factory=list)

    def add(self, *problems: Problem) -> None:
        """Count problems, and keep the first."""
        self.problems += len(problems)
        self.listed += problems[: LISTED - len(self.listed)]

    def merge(self, other: Findings) -> None:
        """Add what another process has found."""
        self.add(*other.listed)
        self.problems += other.problems - len(other.listed)
        self.images += other.images

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return asdict(self) | {"listed": [problem._asdict() for problem in self.listed]}


@dataclass(frozen=True)
class Subject:
    """What is to be checked: shards by name, with what the manifest says of each (None without one); or images."""

    folder: Path
    shards: Mapping[str, manifest.Shard | None]
    images: Mapping[str, Images]
    manifest: manifest.Manifest | None
    classes: int
    decode: bool

    @property
    def unfinished(self) -> bool:
        """A conversion was begun and has not ended."""
        return self.manifest is None and (self.folder / convert.JOURNAL).exists()


def subject(path: Path, classes: int | None, decode: bool) -> Subject:
    """What there is to check at ``path``. Raises DataError when it is no data set, OSError."""
    if not path.is_dir():
        raise DataError(f"{path} is not a folder of shards or of images")
    try:
        known: manifest.Manifest | None = manifest.read(path)
    except FileNotFoundError:
        known = None
    there = sorted(file.name for file in path.iterdir() if SHARD.fullmatch(file.name))
    if known:
        told = {shard.name: shard for split in known.splits.values() for shard in split.shards}
        every = dict.fromkeys([*told, *there])
        return Subject(path, {name: told.get(name) for name in every}, {}, known, classes or len(known.classes), decode)
    if there:
        return Subject(path, dict.fromkeys(there), {}, None, classes or CLASSES, decode)
    try:
        found = sources.folders(path)
    except DataError as error:
        raise DataError(f"no shards such as train-00000-of-00016 in {path}, and {error}") from None
    if classes:
        raise DataError(f"--classes {classes}: {path} holds folders of images, whose labels are their folders")
    return Subject(path, {}, found.splits, None, len(found.classes), True)


def check(subject: Subject, workers: int, progress: Callable[[int, int], None] = lambda done, of: None) -> Findings:
    """Look at everything with ``workers`` processes. ``progress`` hears how many bytes of shards, or images, are done."""
    findings = Findings()
    if subject.shards:
        _check_shards(subject, workers, findings, progress)
    else:
        of = sum(map(len, subject.images.values()))
        tasks = list(_chunks(subject))
        pool.run(look_at_images, tasks, min(workers, len(tasks)), findings.merge, lambda done: progress(done, of))
    findings.listed.sort(key=lambda problem: (problem.file, problem.offset or 0))
    return findings


# --- shards ------------------------------------------------------------------------------------------------------------


class ShardTask(NamedTuple):
    """A shard to look at: what the manifest says of it, the highest label, whether all our keys must be there."""

    path: str
    told: manifest.Shard | None
    classes: int
    ours: bool
    decode: bool


@dataclass
class ShardFindings(Findings):
    """What is in a shard. ``lengths`` are those of the data of its records."""

    name: str = ""
    lengths: list[int] = field(default_factory=list)


def _check_shards(subject: Subject, workers: int, findings: Findings, progress: Callable[[int, int], None]) -> None:
    findings.add(*_missing(subject))
    there = [name for name in subject.shards if (subject.folder / name).is_file()]
    findings.shards = len(there)
    of = sum((subject.folder / name).stat().st_size for name in there)
    ours = subject.manifest is not None
    tasks = [
        ShardTask(str(subject.folder / name), subject.shards[name], subject.classes, ours, subject.decode)
        for name in there
    ]
    lengths: dict[str, list[int]] = {}

    def heard(found: ShardFindings) -> None:
        findings.merge(found)
        if not found.problems:
            lengths[found.name] = found.lengths

    if tasks:
        pool.run(look_at_shard, tasks, min(workers, len(tasks)), heard, lambda done: progress(done, of))
    if subject.manifest:
        for name, split in subject.manifest.splits.items():
            names = [shard.name for shard in split.shards]
            if all(shard in lengths for shard in names):
                findings.add(
                    *_wrong_offsets(subject.folder / convert.offsets_file(name), [lengths[one] for one in names])
                )


def _missing(subject: Subject) -> Iterator[Problem]:
    """Shards that are not there, and shards that should not be."""
    if subject.unfinished:
        reason = "is missing: the conversion has not ended; the same `harness data convert` goes on with it"
        yield Problem(manifest.FILE_NAME, None, reason)
    numbers: dict[str, set[int]] = {}
    for name in subject.shards:
        if match := SHARD.fullmatch(name):
            numbers.setdefault(match["split"], set()).add(int(match["of"]))
    for name, told in subject.shards.items():
        match = SHARD.fullmatch(name)
        if subject.manifest and told is None:
            yield Problem(name, None, "is not in the manifest")
        elif told and not (subject.folder / name).is_file():
            yield Problem(name, None, "is missing")
        elif match and int(match["number"]) >= int(match["of"]):
            yield Problem(name, None, f"has a number too high for one of {int(match['of'])} shards")
    if subject.manifest:
        return
    for split, totals in numbers.items():
        if len(totals) > 1:
            several = " and ".join(map(str, sorted(totals)))
            yield Problem(f"{split}-*", None, f"shards of several conversions are mixed: of {several} shards")
        for of in totals:
            for number in range(of):
                if (name := f"{split}-{number:05}-of-{of:05}") not in subject.shards:
                    yield Problem(name, None, f"is missing, one of {of} shards")


def _wrong_offsets(file: Path, lengths: Sequence[list[int]]) -> list[Problem]:
    """What is wrong with the file that tells runs where records are."""
    expected = {
        "counts": np.array([len(one) for one in lengths]),
        "offsets": np.concatenate([convert.offsets(one) for one in lengths]),
        "lengths": np.concatenate([np.array(one, np.int64) for one in lengths]),
    }
    try:
        with np.load(file) as arrays:
            wrong = [name for name, values in expected.items() if not np.array_equal(arrays[name], values)]
    except FileNotFoundError:
        return [Problem(file.name, None, "is missing")]
    except Exception as error:  # zipfile's, zlib's and NumPy's own
        return [Problem(file.name, None, f"cannot be read: {error}")]
    return [Problem(file.name, None, f"its {name} are not those of the shards") for name in wrong]


def look_at_shard(task: ShardTask) -> ShardFindings:
    """Every record and example of a shard. In a pool; ``advance`` counts bytes."""
    warnings.simplefilter("ignore")  # Pillow's, of strange metadata
    name = os.path.basename(task.path)  # noqa: PTH119
    found = ShardFindings(name=name)
    try:
        with open(task.path, "rb", buffering=0) as file:  # noqa: PTH123
            for offset, length in tfrecord.scan(task.path):
                pool.advance(length + tfrecord.OVERHEAD)
                found.images += 1
                found.lengths.append(length)
                try:
                    data = tfrecord.read(file.fileno(), task.path, offset, length, google_crc32c.value)
                    wrong = _wrong_example(tfrecord.parse(data), task)
                except tfrecord.BadShard as bad:
                    wrong = bad.reason
                except ValueError as error:
                    wrong = str(error)
                if wrong:
                    found.add(Problem(name, offset - tfrecord.HEADER.size, wrong))
        if task.told and not found.problems:
            found.add(*_unlike_the_manifest(task.path, task.told, found.images))
    except tfrecord.BadShard as bad:
        found.add(Problem(name, bad.offset, bad.reason))
    except OSError as error:
        found.add(Problem(name, None, f"cannot be read: {error.strerror}"))
    return found


def _unlike_the_manifest(path: str, told: manifest.Shard, images: int) -> Iterator[Problem]:
    """How a file whose records are sound is not the one that was written."""
    if images != told.images:
        yield Problem(told.name, None, f"has {images} images, {told.images} in the manifest")
        return
    with open(path, "rb") as file:  # noqa: PTH123
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != told.sha256:
        yield Problem(told.name, None, "its SHA-256 is not that in the manifest, though all of its records are sound")


def _wrong_example(features: Mapping[str, Sequence[Any]], task: ShardTask) -> str | None:
    """What is wrong with an example."""
    if lacks := [key for key in (OURS if task.ours else NEEDED) if key not in features]:
        return f"the example lacks {', '.join(lacks)}"
    for key, type_ in ONE.items():
        values = features.get(key, ())
        if (task.ours or key in NEEDED) and (len(values) != 1 or not isinstance(values[0], type_)):
            return f"the example's {key} is not one value of {'bytes' if type_ is bytes else 'an integer'}"
    (label,), (contents,) = features["image/class/label"], features["image/encoded"]
    if not 1 <= label <= task.classes:
        return f"the label is {label}, not one of 1 to {task.classes}"
    if wrong := first_sight(contents):
        return wrong
    return _undecodable(contents) if task.decode else None


# --- images ------------------------------------------------------------------------------------------------------------


class Chunk(NamedTuple):
    """Some images of a folder."""

    names: list[str]
    places: list[Place]


def _chunks(subject: Subject) -> Iterator[Chunk]:
    for images in subject.images.values():
        prefix = os.path.relpath(images.root, subject.folder.absolute())
        for begin in range(0, len(images), CHUNK):
            numbers = range(begin, min(begin + CHUNK, len(images)))
            names = [os.path.normpath(os.path.join(prefix, images.names[number])) for number in numbers]  # noqa: PTH118
            yield Chunk(names, [images.where(number) for number in numbers])


def look_at_images(chunk: Chunk) -> Findings:
    """Decode every image. In a pool; ``advance`` counts images."""
    warnings.simplefilter("ignore")  # Pillow's, of strange metadata
    found = Findings(images=len(chunk.names))
    for name, place in zip(chunk.names, chunk.places, strict=True):
        pool.advance(1)
        try:
            wrong = _undecodable(place.read())
        except OSError as error:
            wrong = f"cannot be read: {error.strerror}"
        if wrong:
            found.add(Problem(shown(name), None, wrong))
    return found


def _undecodable(contents: bytes) -> str | None:
    try:
        photograph(contents)
    except ValueError as error:
        return f"the image cannot be decoded: {error}"
    return None

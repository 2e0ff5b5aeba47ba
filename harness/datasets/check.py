"""Search for damage in TFRecord shards, from here or elsewhere, or in folders of images. One cause is one finding."""

import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from harness.core.progress import OnCount, uncounted
from harness.core.text import plural
from harness.datasets import convert, manifest, pool, sources
from harness.datasets.convert import Item, Photograph, example, photograph
from harness.worker.inputs import tfrecord
from harness.worker.inputs.augmentation import END, JPEG, PADDING, PNG
from harness.worker.inputs.errors import DataError
from harness.worker.inputs.index import SHARD_NAME, SPLITS, ImageIndex, ShardIndex, name_of, offsets_file
from harness.worker.inputs.page_cache import Extent

LISTED = 100  # findings that are named
CLASSES = 1000  # ImageNet's
CHUNK = 64  # images of a folder that a process looks at in one go

# The keys that pipelines read of an example, and all those of one of ours, with values of the right types.
NEEDED = ("image/encoded", "image/class/label")
OURS = tfrecord.parse(example(Item("class/file", Extent("", 0, 0), 1, "text"), Photograph(b"", 1, 1, None)))


class Damage(NamedTuple):
    """Something wrong with a file, at a byte of it where that is known."""

    file: str
    offset: int | None
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {'' if self.offset is None else f'at byte {self.offset}: '}{self.reason}"


@dataclass
class Findings:
    """The numbers of images, shards and problems, and the first problems."""

    images: int = 0
    shards: int = 0
    problems: int = 0
    listed: list[Damage] = field(default_factory=list)

    def add(self, findings: Sequence[Damage], images: int = 0) -> None:
        """Count them, and the images that were looked at, and keep the first."""
        self.images += images
        self.problems += len(findings)
        self.listed += findings[: LISTED - len(self.listed)]

    def __str__(self) -> str:
        unlisted = self.problems - len(self.listed)
        lines = [*map(str, self.listed), *([f"… and {unlisted} more"] if unlisted else [])]
        shards = f" in {plural(self.shards, 'shard')}" if self.shards else ""
        return "\n".join([*lines, f"{plural(self.images, 'image')}{shards} looked at"])


@dataclass(frozen=True)
class DataToCheck:
    """A data set to check: shards by name, with their entries in the manifest (None without one); or images."""

    folder: Path
    shards: Mapping[str, manifest.Shard | None]
    images: Mapping[str, ImageIndex]
    manifest: manifest.Manifest | None
    classes: int
    decode: bool
    left_out: str = ""  # which images are not, and why


def subject(path: Path, classes: int | None, decode: bool) -> DataToCheck:
    """The data set to check at ``path``. Raises DataError when it is no data set, OSError."""
    if not path.is_dir():
        raise DataError(f"{path} is not a folder of shards or of images")
    known = manifest.read(path) if (path / manifest.FILE_NAME).exists() else None
    shards: dict[str, manifest.Shard | None] = {}
    if known:
        shards = {shard.name: shard for split in known.splits.values() for shard in split.shards}
    for folder in (path, *(path / name for names in SPLITS.values() for name in names)):
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            if SHARD_NAME.fullmatch(file.name):
                shards.setdefault(str(file.relative_to(path)), None)
    if known or shards:
        return DataToCheck(path, shards, {}, known, classes or (len(known.classes) if known else CLASSES), decode)
    try:
        source = sources.find(path, None, 1)
    except DataError as error:
        raise DataError(f"no shards such as train-00000-of-00016 in {path}, and {error}") from None
    if classes:
        raise DataError(f"--classes {classes}: {path} holds folders of images, whose labels are their folders")
    return DataToCheck(path, {}, source.splits, None, len(source.classes), True, source.left_out)


def check(subject: DataToCheck, processes: int, progress: OnCount = uncounted) -> Findings:
    """Look at everything with ``processes``. ``progress`` counts bytes of shards, or images."""
    files = {name: subject.folder / name for name in subject.shards if (subject.folder / name).is_file()}
    findings = Findings(shards=len(files))
    findings.add([*_missing(subject)])
    of = sum(file.stat().st_size for file in files.values()) + sum(map(len, subject.images.values()))

    def count(done: int) -> None:
        progress(done, of)

    for damage, images in pool.results(look_at_images, _chunks(subject), processes, count):
        findings.add(damage, images)
    lengths: dict[str, list[int]] = {}
    look = partial(look_at_shard, subject.classes, subject.manifest is not None, subject.decode)
    tasks = [(name, str(file), subject.shards[name]) for name, file in files.items()]
    for name, damage, of_records in pool.results(look, tasks, processes, count):
        findings.add(damage, len(of_records))
        if not damage:
            lengths[name] = of_records
    for name, split in subject.manifest.splits.items() if subject.manifest else ():
        names = [shard.name for shard in split.shards]
        if lengths.keys() >= set(names):
            findings.add(_wrong_offsets(subject.folder / offsets_file(name), [lengths[shard] for shard in names]))
    findings.listed.sort(key=lambda finding: (finding.file, finding.offset or 0))
    return findings


def _missing(subject: DataToCheck) -> Iterator[Damage]:
    """Shards that are not there, and shards that should not be."""
    if subject.shards and subject.manifest is None and (subject.folder / convert.JOURNAL).exists():
        reason = "is missing: the conversion has not ended; the same `harness data convert` goes on with it"
        yield Damage(manifest.FILE_NAME, None, reason)
    totals: dict[str, set[int]] = {}
    for name, known in subject.shards.items():
        if known and not (subject.folder / name).is_file():
            yield Damage(name, None, "is missing")
        elif subject.manifest and known is None:
            yield Damage(name, None, "is not in the manifest")
        elif match := SHARD_NAME.fullmatch(name):
            totals.setdefault(match["split"], set()).add(int(match["of"]))
    for split, numbers in totals.items() if subject.manifest is None else ():
        if len(numbers) > 1:
            several = " and ".join(map(str, sorted(numbers)))
            yield Damage(f"{split}-*", None, f"shards of several conversions are mixed: of {several} shards")
        for of in numbers:
            for name in (name_of(split, number, of) for number in range(of)):
                if name not in subject.shards:
                    yield Damage(name, None, f"is missing, one of {of} shards")


def _wrong_offsets(file: Path, lengths: Sequence[Sequence[int]]) -> list[Damage]:
    """The problems of the file with the places of records."""
    counts = np.array([len(of_shard) for of_shard in lengths])
    records = np.array([length for of_shard in lengths for length in of_shard], np.int64)
    expected = ShardIndex("", [], counts, records).places
    try:
        with np.load(file) as arrays:
            wrong = [name for name, values in expected.items() if not np.array_equal(arrays[name], values)]
    except FileNotFoundError:
        return [Damage(file.name, None, "is missing")]
    except Exception as error:  # zipfile's, zlib's and NumPy's own
        return [Damage(file.name, None, f"cannot be read: {error}")]
    return [Damage(file.name, None, f"its {name} are not those of the shards") for name in wrong]


def look_at_shard(
    classes: int, ours: bool, decode: bool, task: tuple[str, str, manifest.Shard | None]
) -> tuple[str, list[Damage], list[int]]:
    """A shard's name, its damage, and its records' lengths. ``task`` has its name, path and entry in the manifest."""
    warnings.simplefilter("ignore")  # Pillow's, of strange metadata
    name, path, known = task
    findings: list[Damage] = []
    lengths: list[int] = []
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            for offset, length in tfrecord.scan(path):
                pool.advance(length + tfrecord.OVERHEAD)
                lengths.append(length)
                try:
                    data = tfrecord.read(file.fileno(), path, offset, length, google_crc32c.value)
                    _check_example(tfrecord.parse(data), classes, ours, decode)
                except ValueError as error:
                    reason = error.reason if isinstance(error, tfrecord.BadShard) else str(error)
                    findings.append(Damage(name, offset - tfrecord.HEADER.size, reason))
            if not lengths and not ours:
                findings.append(Damage(name, None, "holds no record"))
            if known and not findings:  # whether a file whose records are sound is the one that was written
                if len(lengths) != known.images:
                    findings.append(Damage(name, None, f"has {len(lengths)} images, {known.images} in the manifest"))
                elif hashlib.file_digest(file, "sha256").hexdigest() != known.sha256:
                    reason = "its SHA-256 is not that in the manifest, though all of its records are sound"
                    findings.append(Damage(name, None, reason))
    except tfrecord.BadShard as bad:
        findings.append(Damage(name, bad.offset, bad.reason))
    except OSError as error:
        findings.append(Damage(name, None, f"cannot be read: {error.strerror}"))
    return name, findings, lengths


def _check_example(features: Mapping[str, Sequence[Any]], classes: int, ours: bool, decode: bool) -> None:
    """Raise ValueError with the problem of an example, if it has one. One of ours must have all of our keys."""
    required = OURS if ours else {key: OURS[key] for key in NEEDED}
    if lacks := [key for key in required if key not in features]:
        raise ValueError(f"the example lacks {', '.join(lacks)}")
    for key, values in required.items():
        if [*map(type, features[key])] != [*map(type, values)]:
            right = f"one value of type {type(values[0]).__name__}" if values else "empty"
            raise ValueError(f"the example's {key} is not {right}")
    (label,), (contents,) = features["image/class/label"], features["image/encoded"]
    if not 1 <= label <= classes:
        raise ValueError(f"the label is {label}, not one of 1 to {classes}")
    if not contents.startswith((JPEG, PNG)):
        raise ValueError("the image is neither JPEG nor PNG")
    if contents.startswith(JPEG) and END not in contents[-PADDING:]:
        raise ValueError("the image is truncated: it has no end marker")
    if decode:
        _decode(contents)


# --- images ------------------------------------------------------------------------------------------------------------


def _chunks(subject: DataToCheck) -> Iterator[list[tuple[str, Extent]]]:
    """The images of a folder, some at a time: their names and where they are."""
    for images in subject.images.values():
        prefix = os.path.relpath(images.root, subject.folder.absolute())
        for begin in range(0, len(images), CHUNK):
            yield [
                (os.path.normpath(os.path.join(prefix, images.paths[number])), images.extent(number))  # noqa: PTH118
                for number in range(begin, min(begin + CHUNK, len(images)))
            ]


def look_at_images(chunk: list[tuple[str, Extent]]) -> tuple[list[Damage], int]:
    """The problems of images, all of which are decoded, and the number of images. In a pool; ``advance`` counts images."""
    warnings.simplefilter("ignore")  # Pillow's, of strange metadata
    findings = []
    for name, extent in chunk:
        pool.advance(1)
        try:
            _decode(sources.read(extent))
        except (OSError, ValueError) as error:
            reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            findings.append(Damage(sources.shown(name), None, reason))
    return findings, len(chunk)


def _decode(contents: bytes) -> None:
    try:
        photograph(contents)
    except ValueError as error:
        raise ValueError(f"the image cannot be decoded: {error}") from None

"""The contents of a converted data set: ``manifest.json``, schema ``harness.data/1``."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from harness.core.spec import Frozen
from harness.core.text import plural
from harness.core.validation import mistake
from harness.worker.inputs.errors import DataError

FILE_NAME = "manifest.json"


class Shard(Frozen):
    """A file of records."""

    name: str
    images: int
    bytes: int
    sha256: str


class Skipped(Frozen):
    """An image that is in no shard."""

    image: str
    reason: str


class ShardedSplit(Frozen):
    """The shards of training or of validation; how many of their images were re-encoded, by what they were."""

    images: int
    bytes: int
    shards: list[Shard]
    reencoded: dict[str, int]
    skipped: list[Skipped]


class Class(Frozen):
    """A class: its label counts from 1."""

    label: int
    synset: str
    text: str


class Manifest(Frozen):
    """A converted data set. ``created`` is ISO 8601 in UTC; ``images`` is the digest of all images' names and labels."""

    schema_: Literal["harness.data/1"] = Field(alias="schema")
    harness: str
    created: str
    source: str
    images: str
    seed: int
    classes: list[Class]
    splits: dict[Literal["train", "validation"], ShardedSplit]

    def summary(self) -> dict[str, object]:
        return {
            "source": self.source,
            "classes": len(self.classes),
            "splits": {
                name: split.model_dump(exclude={"shards", "skipped"})
                | {"shards": len(split.shards), "skipped": len(split.skipped)}
                for name, split in self.splits.items()
            },
        }

    def text(self, folder: Path) -> str:
        lines = [f"{len(self.classes)} classes in {folder}"]
        for name, split in self.splits.items():
            line = f"{split.images:,} images in {plural(len(split.shards), 'shard')}, {split.bytes / 1e6:,.1f} MB"
            line += "".join(f"; {count} re-encoded from {was}" for was, count in split.reencoded.items())
            line += f"; {len(split.skipped)} skipped, listed in {FILE_NAME}" if split.skipped else ""
            lines.append(f"  {name:10} {line}")
        return "\n".join(lines)


def read(folder: Path) -> Manifest:
    """The manifest in ``folder``. Raises DataError when there is none, or it is not valid."""
    file = folder / FILE_NAME
    try:
        return Manifest.model_validate_json(file.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from None
    except ValidationError as error:
        raise DataError(f"{file} is not a valid manifest: {': '.join(filter(None, mistake(error)))}") from None

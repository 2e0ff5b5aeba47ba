"""Records of all kinds of work, and how they are verified, sealed, written and read.

A record has two files. One has the spec, the place, the figures and the judgements. ``raw.json`` beside it has the raw
times and the evidence of each rank, and the processes of the plan.

A record is verified when it is made, and sealed when it is written: its last lines have the SHA-256 of the raw file, and of
all that stands before. Readers believe a seal that fits, and then need no raw times. A record that somebody has edited is
verified again; and so is every record by `harness results check`, as a seal keeps nobody from computing another one.
"""

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from harness.core import backend as backends
from harness.core.elsewhere import plain
from harness.core.spec import Frozen, RunSpec
from harness.core.validation import mistake
from harness.errors import InvalidInput
from harness.files import write_atomically

Status = Literal["completed", "failed", "interrupted"]

RAW = "raw.json"
ALONE = "within "  # begins the name of an allocation in which a run took no turns with others
NOT_SEEN = "the report of all ranks does not follow from the report of each"
# The file beside run directories with facts on the system that no record has, such as a limit of its links.
SYSTEM = "system.txt"
SEALED = "the record is as it was when it was verified"  # as the context of Pydantic's validation
# The last lines of a record: the digest of the raw file, and that of all that stands before.
_RAW, _SEAL = b',\n "raw": "%s"', b',\n "seal": "%s"\n}\n'
_RAW_BYTES, _SEAL_BYTES = (len(line % bytes(64)) for line in (_RAW, _SEAL))


LARGEST, LARGEST_RAW = 1 << 28, 1 << 32  # bytes of the files of a record
ID = r"[A-Za-z0-9_][A-Za-z0-9_.+:-]{0,199}"  # a file name, too
# Bytes of JSON in which a text has characters that are not shown, or that a terminal obeys.
_ODD = re.compile(
    rb"\\[bfr]|\\u(?:00[0189]|007f|20[0-6]|feff|d[89a-f])|\x7f|\xc2[\x80-\x9f]"
    rb"|\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]|\xef\xbb\xbf",
    re.IGNORECASE,
)


def _moment(value: str) -> str:
    with suppress(ValueError):
        if datetime.fromisoformat(value).tzinfo:
            return value
    raise ValueError("must be a date and time with its zone, such as 2026-01-31T12:00:00+00:00")


Moment = Annotated[str, AfterValidator(_moment)]


class Check(Frozen):
    """One condition that a repeat must meet for its times to count."""

    name: str
    passed: bool
    detail: str


class AnyRank(Frozen):
    """The report of a worker at the end of a repeat."""

    rank: int
    host: str
    evidence: dict[str, Any]


OneRank = TypeVar("OneRank", bound=AnyRank)


class Seen(Frozen):
    """The reports of all ranks of all repeats together: hosts, sorted; the carriers of gradients or messages, rank 0's
    first; why GPUs were slowed down (``worker/gpus.py``), nothing if none was, and where nobody looked.
    """

    hosts: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    throttled: tuple[str, ...] = ()


def seen_by(ranks: Sequence[AnyRank]) -> Seen:
    slowed = [reason for rank in ranks for reason in rank.evidence.get("gpu", {}).get("slowed", ())]
    return Seen(
        hosts=tuple(sorted({rank.host for rank in ranks})),
        transports=tuple(dict.fromkeys(rank.evidence["transport"] for rank in ranks)),
        throttled=tuple(dict.fromkeys(slowed)),
    )


class AnyRepeat(Frozen, Generic[OneRank]):
    """One measurement in fresh processes. On a cluster: by which batch job, after how many requeues, on which nodes.

    Without a batch system ``job`` names the session of several runs that took turns, and is None for a run by itself.
    ``ranks`` is empty if the raw file was not read.
    """

    number: int
    ranks: list[OneRank] = Field(default_factory=list)
    checks: list[Check]
    started: Moment
    ended: Moment
    job: str | None = None
    restart: int = 0
    nodes: list[str] = Field(default_factory=list)


class AnyRecord(Frozen):
    """The fields of every record. Times are ISO 8601 in UTC. ``tag`` is that of --tag.

    Without the raw file a plan has no processes. ``IN_RAW`` are the fields that are in it.
    """

    file_name: ClassVar[str]
    FIGURES: ClassVar[Iterable[str]]  # the fields that only a completed record may have
    IN_RAW: ClassVar[dict[str, Any]] = {"plan": {"processes"}, "repeats": {"__all__": {"ranks"}}}

    schema_: str = Field(alias="schema")
    id: str = Field(pattern=f"^{ID}$")
    status: Status
    reason: str | None
    spec: RunSpec
    plan: dict[str, Any]
    expected_updates: int
    machine: dict[str, Any]
    software: dict[str, Any]
    variables: dict[str, str]
    harness: dict[str, str | None]
    started: Moment
    ended: Moment
    site: str | None = None
    tag: str = Field("", max_length=200)

    model_config = ConfigDict(populate_by_name=True)

    @property
    def problem(self) -> str | None:
        """The reason for the failure of a command that asked for this; None for a success."""
        return self.reason

    @property
    def outcome(self) -> str:
        """The result in a few words; "" without one."""
        raise NotImplementedError

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True)

    def write(self, folder: Path) -> Path:
        """Write both files into ``folder``, the record last and whole or not at all. Raises OSError (a full disk, say)."""
        self.verify()
        raw = self.model_dump_json(include=self.IN_RAW) + "\n"
        write_atomically(folder / RAW, raw)
        content = self.model_dump_json(by_alias=True, indent=1, exclude=self.IN_RAW).removesuffix("\n}").encode()
        return write_atomically(folder / self.file_name, sealed(content + _RAW % digest(raw.encode())).decode())

    @classmethod
    def read(cls, path: Path, believing_seals: bool = True, figures: bool = False) -> Self:
        """Read one record (its file, or the folder that holds it); with ``figures``, without raw times if a seal fits.

        It is verified if there is no seal that fits. Without ``believing_seals`` it is in any case, and a seal has to fit.
        Raises InvalidInput with one line.
        """
        file = path / cls.file_name if path.is_dir() else path
        try:
            data = content_of(file)
            unchanged = data == sealed(data[:-_SEAL_BYTES])
            if unchanged and figures and believing_seals:
                content = data[: -_RAW_BYTES - _SEAL_BYTES] + b"\n}"
                # Most records are in ASCII without an escape, and a search for odd ones takes a quarter of parsing them.
                plain = content.isascii() and b"\\" not in content and b"\x7f" not in content
                if plain or not _ODD.search(content):
                    return cls.model_validate_json(content, context=SEALED)
                return cls.model_validate(as_text(json.loads(content)), context=SEALED)
            fields, raw = json.loads(data), content_of(file.resolve().with_name(RAW), LARGEST_RAW)
            digests = [fields.pop(name, "") for name in ("raw", "seal")]
            unchanged = unchanged and digests[0].encode() == digest(raw)
            record = cls.model_validate(
                as_text(merged(fields, json.loads(raw))), context=SEALED if unchanged and believing_seals else None
            )
        except OSError as error:
            if isinstance(error, FileNotFoundError) and file.exists():
                raise InvalidInput(f"{file}: {RAW}, which holds its raw times, is missing beside it") from None
            raise InvalidInput(f"{error.filename}: {error.strerror}") from None
        except ValidationError as error:
            reason = ": ".join(filter(None, mistake(error)))
        except json.JSONDecodeError as error:
            reason = f"Invalid JSON: {error}"
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            reason = f"{RAW} is not of this record"
        else:
            if unchanged or believing_seals:
                return record
            reason = "it has changed since it was written: its seal does not fit"
        raise InvalidInput(f"{file}: not a valid record: {reason}")

    @model_validator(mode="after")
    def _verified(self, info: ValidationInfo) -> Self:
        if problem := backends.wrong_option(self.spec):
            raise ValueError(problem)
        if info.context != SEALED:
            self.verify()
        return self

    def verify(self) -> None:
        """Raises ValueError if the record claims more than follows from its content."""
        if datetime.fromisoformat(self.ended) < datetime.fromisoformat(self.started):
            raise ValueError(f"it ended {self.ended}, before it started")
        if self.status != "completed":
            if any(getattr(self, name) is not None for name in self.FIGURES):
                raise ValueError(f"a run that is {self.status} has no figures")
            return
        if self.reason is not None:
            raise ValueError("a completed run has no reason for failure")
        makes_sense = False
        with suppress(LookupError, TypeError):
            devices = [process["devices"] for process in self.plan["processes"] if process["role"] == "worker"]
            makes_sense = sum(devices) == self.spec.workers and len(devices) == self.plan["world_size"]
        if not makes_sense:
            raise ValueError(f"the plan does not drive the {self.spec.workers} devices of the spec")
        self.verify_figures()

    def verify_figures(self) -> None:
        """Raises ValueError if a completed record lacks something, or its figures do not follow from the raw ones."""
        raise NotImplementedError


def content_of(file: Path, largest: int = LARGEST) -> bytes:
    """The content of a file of a record. Raises OSError, also for what is no regular file, or too large to be one."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is no regular file", str(file))
    if status.st_size > largest:
        raise OSError(errno.EFBIG, f"has {status.st_size:,} bytes, more than a record", str(file))
    return file.read_bytes()


def as_text(value: Any) -> Any:
    """JSON whose texts have no control characters but ends of lines."""
    if isinstance(value, str):
        return value if value.isprintable() else "\n".join(map(plain, value.split("\n")))
    if isinstance(value, dict):
        return {as_text(name): as_text(each) for name, each in value.items()}
    return list(map(as_text, value)) if isinstance(value, list) else value


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def sealed(content: bytes) -> bytes:
    """A record's JSON, given without its last brace, with the seal as its last field."""
    return content + _SEAL % digest(content)


def merged(content: dict[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """A record's JSON, which is changed, with the raw file's. Raises ValueError and others if they do not fit together."""
    for name, value in raw.items():
        if isinstance(value, dict):
            content[name].update(value)
        elif name in content:
            for each, more in zip(content[name], value, strict=True):
                each.update(more)
        else:
            content[name] = value
    return content


def judge_ranks(
    ranks: Sequence[AnyRank], made: Iterable[int], world_size: int, steps: int, expected_updates: int
) -> list[Check]:
    """The checks of a repeat, which counts if all ``world_size`` workers ``made`` the same ``steps``.

    It is judged when a repeat has ended, and again whenever its record is verified. A failure that a person would want to
    hear of first comes first.
    """
    evidence = [rank.evidence for rank in ranks]
    infinite = [rank.rank for rank in ranks if not rank.evidence["finite"]]
    parameters = len({facts["digest"] for facts in evidence})
    updates = sorted({facts["updates"] for facts in evidence})
    unchanged = [rank.rank for rank in ranks if not rank.evidence["changed"]]
    steps_made = sorted(set(made))
    not_finite = f"; not finite on ranks {infinite}" if infinite else ""
    changed = f"unchanged on ranks {unchanged}" if unchanged else "changed on every rank"
    updated = f"parameters were updated {updates} times, expected {expected_updates}"
    checks = all_there(ranks, world_size) | {
        "finite": (not infinite, f"loss {evidence[0]['loss']}{not_finite}"),
        "replicas_equal": (parameters == 1, f"{parameters} different sets of parameters on {len(ranks)} ranks"),
        "updates": (updates == [expected_updates], updated),
        "trained": (not unchanged, f"parameters {changed}"),
        "steps": (steps_made == [steps], f"{steps_made} steps made, expected {steps}"),
    }
    return checks_of(checks)


def all_there(ranks: Sequence[AnyRank], world_size: int) -> dict[str, tuple[bool, str]]:
    """The first checks: all ranks have reported, and saw each other."""
    reported = sorted(rank.rank for rank in ranks) == list(range(world_size))
    worlds = sorted({rank.evidence["world_size"] for rank in ranks})
    return {
        "all_ranks": (reported, f"{len(ranks)} of {world_size} reported"),
        "world_size": (worlds == [world_size], f"ranks saw {worlds}, planned {world_size}"),
    }


def checks_of(judgements: Mapping[str, tuple[bool, str]]) -> list[Check]:
    """The checks by name. A judgement is True for one that has passed, and has its figures."""
    return [Check(name=name, passed=passed, detail=detail) for name, (passed, detail) in judgements.items()]


def verify_repeats(spec: RunSpec, repeats: Sequence[AnyRepeat[OneRank]], judge: Callable[[Any], list[Check]]) -> None:
    """Raises ValueError unless all repeats of a completed run are there, and ``judge`` finds their ranks' evidence good."""
    if [repeat.number for repeat in repeats] != list(range(1, spec.repeats + 1)):
        raise ValueError(f"a completed run has repeats 1 to {spec.repeats}")
    for repeat in repeats:  # the verdicts that were written down do not count, but the evidence
        judged_again(f"repeat {repeat.number}", repeat.checks, partial(judge, repeat.ranks))


def judged_again(name: str, recorded: Sequence[Check], judge: Callable[[], list[Check]]) -> None:
    """Raises ValueError unless the evidence passes every check now, and did when it was recorded."""
    try:
        judged = judge()
    except (LookupError, TypeError, ValueError):
        raise ValueError(f"{name} lacks evidence") from None
    if [check.name for check in judged] != [check.name for check in recorded]:
        raise ValueError(f"{name} does not hold every check")
    if failed := [check.name for check in [*judged, *recorded] if not check.passed]:
        raise ValueError(f"{name} does not pass {', '.join(dict.fromkeys(failed))}")


def search(path: Path, names: Sequence[str]) -> Iterator[str]:
    """The files at or below ``path`` with one of these ``names``, in no particular order.

    Folders below one with a record belong to a run and are not searched, nor are hidden ones: results of 100,000 runs are
    found in about a second. A path that may be one and is not accessible is named too: its reader sees the reason. Raises
    InvalidInput for a path that does not exist.
    """
    try:
        if not path.is_dir():
            path.stat()
            yield str(path)
            return
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    folders, visited = [str(path)], set[tuple[int, int]]()
    while folders:
        folder = folders.pop()
        for file in (f"{folder}/{name}" for name in names):
            try:
                os.stat(file)  # noqa: PTH116 (100,000 Paths would cost a second)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                pass
            yield file
            break
        else:
            try:
                status = os.stat(folder)  # noqa: PTH116
                place = status.st_dev, status.st_ino
                if status.st_ino and place in visited:  # through a link, such as one to a folder above
                    continue
                visited.add(place)
                with os.scandir(folder) as entries:
                    folders += [entry.path for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
            except FileNotFoundError:  # gone meanwhile
                continue
            except OSError:
                yield folder

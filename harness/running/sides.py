"""The two sides of an A/B comparison: the settings that set each apart, the run that measures it, and its folder.

The folder of a comparison has ``ab.json``, and the run directories of A in ``a/`` and of B in ``b/``. Settings that no spec
holds (an environment, variables) are in the ``system.txt`` of ``a/`` or ``b/``, so that no table takes both sides for one
measurement.
"""

import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from harness.core.program import LAUNCHED, program_of
from harness.core.spec import RunSpec
from harness.core.subject import Subject
from harness.core.text import did_you_mean
from harness.core.validation import option_name
from harness.environments import pythons
from harness.errors import InvalidInput
from harness.files import write_atomically
from harness.records.kernel import kernel_of, sizes_of
from harness.records.record import SYSTEM, AnyRecord
from harness.running.notes import Notes, is_at_work
from harness.running.prepare import Place
from harness.running.run import Run, making
from harness.running.status import find
from harness.worker import machine

DIFFERENCE = 0.02  # that matters, if nothing else is said
COMMON = ("nodes", "device", "repeats")  # the sides take turns on the same nodes
VARIABLE = re.compile(r"var:([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Settings:
    """Settings that set a side apart: ``options`` of a spec, its backend or its program as text, and what no spec holds."""

    options: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    environment: Path | None = None

    @classmethod
    def read(cls, text: str, known: Mapping[str, str]) -> Self:
        """Read ``env=PATH,transport=mpi,var:NAME=VALUE``, or with ``;`` in place of each comma. Raises InvalidInput.

        ``known`` are the fields of options by their names, with ``_``.
        """
        parts = text.split(";") if ";" in text else re.split(r",(?=\s*[\w:-]+\s*=)", text)
        settings: dict[str, str] = {}
        for part in filter(None, map(str.strip, parts)):
            key, equals, value = (word.strip() for word in part.partition("="))
            name = known.get(key.replace("-", "_"), key)
            variable = VARIABLE.fullmatch(key)
            if not equals:
                raise InvalidInput(f"'{part}': must be KEY=VALUE, such as transport=mpi")
            if name in COMMON:
                raise InvalidInput(f"{key}: both sides have the same; give {option_name(name)} for both")
            if not variable and name not in ("env", *known.values()):
                others = "keys are env, var:NAME and the names of options"
                raise InvalidInput(f"unknown key '{key}'; {did_you_mean(key, ['env', *known]) or others}")
            if name in settings:
                raise InvalidInput(f"{key}: is there twice")
            if not (value or variable):
                raise InvalidInput(f"{key}: must not be empty")
            settings[name] = value
        variables = {match[1]: settings.pop(name) for name in list(settings) if (match := VARIABLE.fullmatch(name))}
        environment = settings.pop("env", "")
        return cls(settings, variables, Path(environment) if environment else None)

    @property
    def unsaid(self) -> str:
        """The settings that a spec does not hold."""
        environment = {"env": self.environment} if self.environment else {}
        return ", ".join(f"{name}={value}" for name, value in (environment | dict(self.variables)).items())


@dataclass(frozen=True)
class Side:
    """The settings of a side, and the run that measures it."""

    settings: Settings
    run: Run


def planned(comparison: "Comparison", subject: Subject, options: Mapping[str, Any], place: Place) -> "Planned":
    """Plan the comparison of two sides of a ``subject`` with these ``options``. Raises InvalidInput that names the side."""
    if not (comparison.a or comparison.b):
        raise InvalidInput("--b is required: KEY=VALUE that sets B apart from A, such as --b transport=mpi")
    folder = (place.folder / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-ab-{secrets.token_hex(4)}").absolute()
    sides, device = dict[str, Side](), place.device(options.get("device"))
    # What is usual for a kernel, but its repeats: one has no spread to judge by.
    usual = {name: value for name, value in subject.protocol.items() if name != "repeats"}
    for name, text in (("a", comparison.a), ("b", comparison.b)):
        secret = next(filter(machine.SECRET.search, VARIABLE.findall(text)), None)
        if secret:  # its value is not repeated here
            problem = "looks like a secret, and what sets a side apart is written into records and pages"
            raise InvalidInput(f"--{name}: var:{secret} {problem}: export it before, and both sides have it")
        try:
            settings = Settings.read(text, subject.names)
            of_side = {**options, **settings.options}
            spec = subject.spec(of_side, device, **usual)
            environment = settings.environment or place.environment
            if spec.program and environment:
                spec, environment = in_environment(spec, environment), None
            place_of_side = replace(place, environment=environment, variables=settings.variables)
            sides[name] = Side(settings, place_of_side.prepare(spec, folder / name))
        except InvalidInput as error:
            raise InvalidInput(f"--{name} {text}: {error}" if text else str(error)) from None
    check(sides["a"], sides["b"])
    return Planned(comparison, folder, sides)


def in_environment(spec: RunSpec, environment: Path) -> RunSpec:
    """``spec`` with a program's first word that is one of an environment (or ``python``) replaced. Raises InvalidInput."""
    program = program_of(spec)
    python = pythons.at(environment, LAUNCHED.environment("", "cpu"))
    for number, word in enumerate(program.command):
        replacement = python if re.fullmatch(r"python3?", word) else python.parent / word
        if "/" not in word and replacement.is_file():
            command = (*program.command[:number], str(replacement), *program.command[number + 1 :])
            return spec.model_copy(update={"program": program.model_copy(update={"command": command})})
    raise InvalidInput(f"env={environment}: no word of the command is a program in {python.parent}")


def check(a: Side, b: Side) -> None:
    """Check that there is something to compare, on the same nodes. Raises InvalidInput."""
    runs, plan, other = (a.run, b.run), a.run.plan, b.run.plan
    if (a.run.spec, a.run.python, a.settings.variables) == (b.run.spec, b.run.python, b.settings.variables):
        problem = "--a, --b: both sides are the same; give what differs as KEY=VALUE, such as --b transport=mpi"
    elif plan.nodes != other.nodes:
        problem = f"--a, --b: A takes {plan.nodes} nodes and B {other.nodes}, and both have to run on the same ones"
    elif a.run.spec.repeats < 2:
        problem = "--repeats 1: one repeat has no spread to judge by; give 2 or more"
    elif any(run.spec.program and not run.spec.program.pattern for run in runs):
        problem = "--pattern or --log is required: it says where the program's output has img/s (docs/launch.md)"
    elif sizes(a.run) != sizes(b.run):
        ranks = f"{plan.world_size} ranks of A and {other.world_size} of B"
        problem = f"--a, --b: not the same sizes can be divided among {ranks}; give sizes that both can divide"
    else:
        return
    raise InvalidInput(problem)


def sizes(run: Run) -> tuple[int, ...]:
    """The sizes of a kernel, each of which gets a verdict; of anything else 0, for img/s."""
    if not run.spec.kernel:
        return (0,)
    return kernel_of(run.spec).sizes(sizes_of(run.spec).sizes, run.plan.world_size)


class Comparison(Notes):
    """Notes about an A/B comparison: the settings of each side as text, and the difference that matters, as a share."""

    file_name = "ab.json"

    schema_: Literal["harness.ab/1"] = Field(alias="schema")
    a: str
    b: str
    difference: float = Field(gt=0, lt=1)


@dataclass(frozen=True)
class Planned:
    """A comparison that is to be made in ``folder``."""

    comparison: Comparison
    folder: Path
    sides: Mapping[str, Side]

    @property
    def runs(self) -> list[Run]:
        """The runs of A and of B, which the caller carries out."""
        return [side.run for side in self.sides.values()]

    @contextmanager
    def laid_out(self) -> Iterator[None]:
        """Make the folder, with its files beside the runs. It is removed at the end if no run has begun."""
        try:
            for name, side in self.sides.items():
                with making(self.folder):
                    (self.folder / name).mkdir(parents=True)
                    if side.settings.unsaid and not side.run.spec.program:  # whose records are in no table
                        write_atomically(self.folder / name / SYSTEM, side.settings.unsaid + "\n")
            self.comparison.write(self.folder)
            yield
        finally:
            if not any(run.folder.exists() for run in self.runs):
                shutil.rmtree(self.folder, ignore_errors=True)


def reopen(folder: Path) -> tuple[Comparison, list[Run], list[AnyRecord]]:
    """A comparison that was made, with the run and the record of A, then of B. Raises InvalidInput."""
    comparison = Comparison.read(folder)
    if comparison is None:
        problem = f"there is no {Comparison.file_name} in it"
        raise InvalidInput(f"--of {folder}: is no folder of an A/B comparison: {problem}")
    runs, problems = find([folder / name for name in ("a", "b")])
    if missing := next((run for run in runs if not run.record_file.exists()), None):
        if missing.submitted:
            problems.append(f"{missing.folder} has no record yet; see `harness jobs collect {folder}`")
        elif is_at_work(missing.folder):
            problems.append(f"{missing.folder} is being measured")
        else:
            problems.append("was not finished, and nobody is at work on it any more; measure it again")
    if problems:
        raise InvalidInput(f"--of {folder}: {problems[0]}")
    return comparison, runs, [run.RECORD.read(run.record_file) for run in runs]

"""The kinds of work there are: a measurement of img/s, a training to an accuracy.

A kind is a module with the names of ``Kind``. A new one is such a module and its name in ``KINDS``; whatever prepares,
launches, submits, collects or shows runs asks here, or the run, and knows no kind by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from harness.core.spec import RunSpec
from harness.launch.watch import Watch
from harness.records.record import AnyRecord
from harness.running import measure, train
from harness.running.prepare import Prepared
from harness.worker.agent.seating import Hosts


class Kind(Protocol):
    """What a module has to define to be a kind of work."""

    UNIT: str  # what its progress is counted in

    @property
    def RECORD(self) -> type[AnyRecord]:
        """The model of its record."""

    def wanted(self, spec: RunSpec) -> bool:
        """Whether ``spec`` asks for this kind of work."""

    def planned(self, spec: RunSpec) -> int:
        """How many of its units there are to be, at most."""

    def done(self, prepared: Prepared) -> int:
        """How many of them have ended, as the run directory tells."""

    def inputs(self, prepared: Prepared) -> Any:
        """What it needs besides the plan, looked for and checked. Raises InvalidInput; writes nothing."""

    def write_inputs(self, inputs: Any, folder: Path) -> None:
        """Write that into the run directory, for the workers and for ``record``. Raises DataError, OSError."""

    def named(self, number: int) -> str:
        """What messages call repeat ``number``."""

    def judge(
        self, prepared: Prepared, number: int, watch: Watch, started: str, ended: str, hosts: Hosts | None
    ) -> Any:
        """What the processes of a repeat have reported, all of which ended with code 0, with its ``checks``.

        Raises RunFailed for a report that is missing.
        """

    def record(self, prepared: Prepared, judged: list[Any], complete: bool, facts: dict[str, Any]) -> AnyRecord:
        """The record of what was judged; with its figures if it is ``complete``. ``facts`` are fields of every record."""

    def outcome(self, record: Any) -> str:
        """What a record has found, in a few words; nothing if that is nothing."""

    def continuation(self, folder: Path) -> str:
        """How a run that has ended too early can be gone on with, "" if it cannot."""


KINDS: tuple[Kind, ...] = (measure, train)


def kind_of(spec: RunSpec) -> Kind:
    """The kind of work that ``spec`` asks for."""
    return next(kind for kind in KINDS if kind.wanted(spec))

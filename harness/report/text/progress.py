"""Where runs are, in one line that follows them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.core.progress import ProgressLine
from harness.core.spec import RunSpec
from harness.launch.slurm import JobState, SlurmSilent
from harness.launch.watch import PHASES, Progress
from harness.records.record import AnyRecord
from harness.report.text import training
from harness.running.run import Listener, Run


class RunLine(ProgressLine, Listener):
    """Hears of runs, and shows the latest."""

    _phase_since = ("", 0.0)
    _epochs = 0  # that have their line

    def progress(self, run: Run, repeat: int, progress: Progress) -> None:
        """Show the progress of one repeat. The epochs of a training keep a line each."""
        for epoch in progress.epochs[self._epochs :]:
            self.keep(training.epoch(epoch))
        self._epochs = max(self._epochs, len(progress.epochs))
        key = f"{run.folder} {repeat} {progress.phase} {len(progress.epochs)}"
        if self._phase_since[0] != key:
            self._phase_since = (key, time.monotonic())
        if not self.due():
            return
        since_s = time.monotonic() - self._phase_since[1]
        if progress.phase == "training":
            self.show(training.under_way(run, progress, since_s))
        else:
            which = f"repeat {repeat}/{run.spec.repeats}  " if run.spec.repeats > 1 else ""
            self.show(f"{run.spec.backend} × {run.spec.nodes}  {which}{_phase(run.spec, progress, since_s)}")

    def queue(self, states: Sequence[JobState]) -> None:
        """Show which jobs wait, and for what."""
        if states and self.due():
            first = states[0]
            others = f" and {len(states) - 1} more" if len(states) > 1 else ""
            reason = f" ({first.reason})" if first.reason else ""
            starts = f", starts about {first.starts}" if first.starts and first.queued else ""
            self.show(f"job {first.id}{others}: {first.state.lower()}{reason}{starts}")

    def silence(self, error: SlurmSilent) -> None:
        """Say that Slurm does not answer."""
        if self.due():
            self.show(f"Slurm does not answer, asking again ({error})")

    def recorded(self, record: AnyRecord) -> None:
        """Say that a run has ended."""
        self.keep(f"{record.id} {record.status}{f': {record.outcome}' if record.outcome else ''}")


def _phase(spec: RunSpec, progress: Progress, since_s: float) -> str:
    """What the processes of a repeat do, for ``since_s`` seconds."""
    match progress.phase:
        case "launched" | "started":
            return f"starting: {_reached(progress, 'ready')} ranks ready, {since_s:.0f} s"
        case "ready" | "warmup":
            return f"warm-up, {spec.warmup_steps} steps, {since_s:.0f} s"
        case "window":
            expected_s = progress.step_s * spec.steps
            # Nothing is reported from inside the window, so this is an estimate from the warm-up steps.
            share = min(since_s / expected_s, 0.99) if expected_s else 0.0
            left_s = max(expected_s - since_s, 0.0)
            ranks = _reached(progress, progress.phase)
            return f"measuring {spec.steps} steps on {ranks} ranks: about {share:.0%}, {left_s:.0f} s left"
        case _:
            return "checking"


def _reached(progress: Progress, phase: str) -> str:
    """How many processes are in ``phase`` or a later one, and of how many."""
    return f"{sum(progress.phases[later] for later in PHASES[PHASES.index(phase) :])}/{progress.processes}"

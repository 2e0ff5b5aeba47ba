"""The progress of runs, in one line that follows them."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.core.progress import ProgressLine
from harness.core.spec import RunSpec
from harness.core.text import duration
from harness.errors import HarnessError
from harness.launch.slurm import JobState, SlurmSilent
from harness.launch.watch import PHASES, Progress
from harness.records.pairs import Preflight
from harness.records.record import AnyRecord
from harness.report.text.pairs import preflight
from harness.running.kinds import epochs_before, training_of
from harness.running.pace import Pace
from harness.running.run import Listener, Run


class RunLine(ProgressLine, Listener):
    """A line that hears of runs, and shows the latest."""

    _phase_since = ("", 0.0)
    _all_left: tuple[float, float] | None = None  # how many seconds there were to come, and since when

    def __init__(self, enabled: bool = True, prefix: Callable[[], str] = lambda: "") -> None:
        super().__init__(enabled, prefix)
        self._epochs: dict[Path, int] = {}  # by run directory: how many have their line

    def progress(self, run: Run, repeat: int, progress: Progress) -> None:
        """Show the progress of one repeat. The epochs of a training keep a line each, from rank 0's report."""
        shown = self._epochs.setdefault(run.folder, 0)
        of_run = f"{run.folder.name}  " if len(self._epochs) > 1 else ""
        for epoch in progress.epochs[shown:]:
            accuracy = "" if epoch["top1"] is None else f"  top-1 {epoch['top1']:.4f}  top-5 {epoch['top5']:.4f}"
            self.keep(
                f"{of_run}epoch {epoch['epoch']:>{len(str(epoch['epochs']))}}/{epoch['epochs']}  "
                f"loss {epoch['loss']:.4f}{accuracy}  {epoch['img_per_s']:.1f} img/s  "
                f"rate {epoch['rate']:.3g}  {duration(epoch['elapsed_s'])}"
            )
        self._epochs[run.folder] = max(shown, len(progress.epochs))
        key = f"{run.folder} {repeat} {progress.phase} {len(progress.epochs)} {progress.sizes}"
        if self._phase_since[0] != key:
            self._phase_since = (key, time.monotonic())
        if not self.due():
            return
        spec, since_s = run.spec, time.monotonic() - self._phase_since[1]
        which = f"repeat {repeat}/{spec.repeats}  " if spec.repeats > 1 else ""
        if spec.program:
            ended = progress.phases[PHASES[-1]]
            text = f"{which}{ended}/{progress.processes} workers have ended, {since_s:.0f} s"
        elif progress.phase == "training":
            text = _epoch(run, progress, since_s)
        else:
            if spec.kernel and progress.sizes < len(spec.kernel.sizes):
                which += f"{progress.sizes + 1} of {len(spec.kernel.sizes)} sizes  "
            text = f"{which}{_phase(spec, progress, since_s)}"
        if self._all_left:
            left_s, at = self._all_left
            text += f"; all: {_about(max(left_s - time.monotonic() + at, 0.0))}"
        self.show(f"{spec.backend} × {spec.nodes}  {text}")

    def checked(self, run: Run, checks: Preflight) -> None:
        for line in preflight(checks):
            self.keep(line)

    def ended(self, run: Run, repeat: int, pace: Pace, error: HarnessError | None = None) -> None:
        """Keep a line with the repeat's img/s, and how long everything that is left may take. Epochs have their own."""
        if len(pace.wanted) == 1 and (error or run.spec.repeats == 1):
            return  # the command ends with this, and tells more of it
        if error:
            outcome = f"failed: {str(error).partition(chr(10))[0]}"
        elif not (outcome := run.result()):
            return
        left, left_s = sum(pace.left.values()), pace.left_s
        rest = f"; {pace.done} of {pace.done + left} repeats" if left else ""
        self._all_left = None
        if left and left_s is not None:
            self._all_left = left_s, time.monotonic()
            rest += f", {_about(left_s)}{' when none waits' if run.submitted else ''}"
        self.keep(f"{pace.names[run.folder]}  repeat {repeat}/{run.spec.repeats}  {outcome}{rest}")

    def queue(self, states: Sequence[JobState]) -> None:
        if states and self.due():
            first = states[0]
            others = f" and {len(states) - 1} more" if len(states) > 1 else ""
            reason = f" ({first.reason})" if first.reason else ""
            starts = f", starts about {first.starts}" if first.starts and first.queued else ""
            self.show(f"job {first.id}{others}: {first.state.lower()}{reason}{starts}")

    def silence(self, error: SlurmSilent) -> None:
        if self.due():
            self.show(f"Slurm does not answer, asking again ({error})")

    def remark(self, line: str) -> None:
        self.keep(f"harness: {line}")

    def recorded(self, record: AnyRecord) -> None:
        self.keep(f"{record.id} {record.status}{f': {record.outcome}' if record.outcome else ''}")


def _about(left_s: float) -> str:
    return f"about {duration(left_s) if left_s >= 60 else f'{left_s:.0f} s'} left"


def _phase(spec: RunSpec, progress: Progress, since_s: float) -> str:
    """The activity of a repeat's processes, for ``since_s`` seconds."""

    def reached(phase: str) -> str:
        """The share of processes in ``phase`` or a later one: ``3/4``."""
        return f"{sum(progress.phases[later] for later in PHASES[PHASES.index(phase) :])}/{progress.processes}"

    match progress.phase:
        case "launched" | "started":
            return f"starting: {reached('ready')} ranks ready, {since_s:.0f} s"
        case "ready" | "warmup":
            return f"warm-up, {spec.warmup} steps, {since_s:.0f} s"
        case "window":
            expected_s = progress.step_s * spec.steps
            # Nothing is reported from inside the window, so this is an estimate from the warm-up steps.
            share = min(since_s / expected_s, 0.99) if expected_s else 0.0
            left_s = max(expected_s - since_s, 0.0)
            return f"measuring {spec.steps} steps on {reached('window')} ranks: about {share:.0%}, {left_s:.0f} s left"
        case _:
            return "checking"


def _epoch(run: Run, progress: Progress, since_s: float) -> str:
    """The epoch of a training, and the time that the rest may take; ``since_s`` seconds ago the last epoch ended."""
    training, before = training_of(run.spec), epochs_before(run.folder)
    done, planned = len(before) + len(progress.epochs), training.epochs
    ranks = f"{progress.phases['training']}/{progress.processes} ranks"
    text = f"epoch {min(done + 1, planned)}/{planned} on {ranks}: {duration(since_s)}"
    if not progress.epochs:
        return text
    before_s = before[-1].elapsed_s if before else 0.0
    usual_s = (progress.epochs[-1]["elapsed_s"] - before_s) / len(progress.epochs)
    left_s = max(usual_s * (planned - done) - since_s, 0.0)
    most = "at most " if training.until else ""
    return f"{text}, about {min(since_s / usual_s, 0.99):.0%}; {most}{duration(left_s)} left"

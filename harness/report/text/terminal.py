"""Results, plans and progress as text for a terminal. Pure except for the progress line."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from harness.analysis import traffic
from harness.analysis.io_overhead import IoOverhead, input_wait
from harness.analysis.labels import count
from harness.core.plan import LaunchPlan, Process
from harness.core.spec import SYNTHETIC, RunSpec
from harness.core.statistics import Summary
from harness.launch.script import Job, Step
from harness.launch.slurm import JobState, SlurmSilent
from harness.launch.watch import PHASES, Progress
from harness.records.measurement import AnyRecord, Record
from harness.records.training import TrainingRecord
from harness.report.text import training
from harness.report.text.table import table
from harness.running.batch import Standing
from harness.running.readiness import Readiness
from harness.running.run import AnyRun, Prepared, Run
from harness.running.training import TrainingRun

if TYPE_CHECKING:
    from harness.results.published import PublishedTable
    from harness.running import campaign

REFRESH_S = 0.5


def describe(spec: RunSpec) -> str:
    """A completed spec in one line."""
    devices = f"{spec.nodes} node{'s' * (spec.nodes > 1)} × {spec.devices_per_node} {spec.device}"
    own = " ".join(f"{name}={value}" for name, value in spec.options.items())
    return (
        f"{spec.backend} ({spec.framework}) · {spec.model} · {devices} · "
        f"batch {spec.batch_size} per device · {spec.image_size} px · {_data(spec)} · "
        f"{spec.transport} · {spec.precision} · {spec.threads} threads · {own}"
    )


def equal_terms(spec: RunSpec) -> str:
    """What is the same for all runs of a comparison, in one line."""
    return (
        f"{spec.model}, {_data(spec)}, {spec.image_size} px, batch {spec.batch_size} per device, "
        f"{spec.precision}, {spec.device}; "
        f"{spec.warmup_steps} warm-up and {spec.steps} measured steps, {spec.repeats} repeats in fresh processes"
    )


def _data(spec: RunSpec) -> str:
    return "synthetic data" if spec.data == SYNTHETIC else f"images from {spec.data}"


def summary(record: Record, path: str) -> str:
    """The outcome of one run, ending in the line that ReFrame checks of tf_cnn_benchmarks read."""
    if record.derived is None:
        return f"{record.status}: {record.reason}\nrecord: {path}"
    throughput, steps = record.derived.img_per_s, record.derived.step_times
    checks = record.repeats[0].checks
    transports = sorted({rank.evidence["transport"] for repeat in record.repeats for rank in repeat.ranks})
    slower = 100 * (steps.slowest_over_median - 1)
    return "\n".join(
        [
            describe(record.spec),
            f"  img/s      {with_interval(throughput)}",
            f"  step time  p50 {steps.p50_s * 1e3:.1f} ms, p99 {steps.p99_s * 1e3:.1f} ms, "
            f"jitter {steps.jitter_s * 1e3:.1f} ms; slowest rank {steps.slowest_rank} ({slower:+.1f} % of the median rank)",
            f"  gradients  {'; '.join(transports)}",
            *_traffic(record),
            *_input(record),
            f"  checks     {len(checks)} passed in each of {len(record.repeats)} repeats: "
            + ", ".join(check.name for check in checks),
            f"  record     {path}",
            f"total images/sec: {throughput.mean:.2f}",
        ]
    )


def io_overhead(found: IoOverhead, synthetic: Record, path: str) -> str:
    """What real images cost beside synthetic ones, and why; the summary of the real run follows it."""
    assert synthetic.derived
    low, high = found.interval or (None, None)
    interval = "" if low is None else f" (95 % interval {low:.1%} to {high:.1%})"
    lines = [
        f"I/O overhead {found.overhead:.1%}{interval}: (synthetic − real) / synthetic, in img/s",
        f"  a step takes {found.longer_s * 1e3:+.1f} ms with real images",
    ]
    if found.wait:
        lines[-1] += (
            f": {found.wait.per_step_s * 1e3:.1f} ms waiting for them, {found.elsewhere_s * 1e3:+.1f} ms elsewhere "
            f"(decoding takes processors, memory and network from the training)"
        )
    return "\n".join(
        [*lines, f"  synthetic  {with_interval(synthetic.derived.img_per_s)} img/s, record {path}", "with real images:"]
    )


def _input(record: Record) -> list[str]:
    wait = input_wait(record.repeats)
    if wait is None:
        return []
    shares = [
        rank.evidence["data_cache"]["left"]
        for repeat in record.repeats
        for rank in repeat.ranks
        if rank.evidence.get("data_cache", {}).get("left") is not None
    ]
    cached = (
        f"{min(shares):.0%} to {max(shares):.0%} of the images in memory before a repeat" if shares else "not known"
    )
    return [
        f"  input      {wait.per_step_s * 1e3:.1f} ms per step waited for images ({wait.share:.1%} of it), "
        f"most on rank {wait.rank}; page cache {record.spec.data_cache.replace('_', ' ')}: {cached}"
    ]


def _traffic(record: Record) -> list[str]:
    lines = []
    if moved := traffic.of_workers(record.repeats, record.spec.steps):
        over = f", over {', '.join(moved.interfaces)}" if moved.interfaces else ""
        lines.append(f"  traffic    {_sent_and_received(moved)} per step and worker{over}")
    for server in traffic.of_servers(record):
        label = "servers" if server.ps == 0 else ""
        lines.append(
            f"  {label:10} ps {server.ps}: {_sent_and_received(server)} per step, "
            f"planned {server.planned / 1e6:.1f} MB each way"
        )
    return lines


def _sent_and_received(moved: traffic.WorkerTraffic | traffic.ServerTraffic) -> str:
    return f"{moved.sent / 1e6:.1f} MB sent and {moved.received / 1e6:.1f} MB received"


def submitted(jobs: Sequence[tuple[Path, str]], by_hand: bool) -> str:
    """What was submitted, and how to go on."""
    if by_hand:
        return "\n".join(f"sbatch {path}" for path, _ in jobs)
    lines = [f"job {number}: {path}" for path, number in jobs]
    return "\n".join([*lines, "harness status, harness collect and harness cancel take its run directories"])


def standings(found: Sequence[Standing]) -> str:
    """How far runs on a cluster are, as a table."""
    units = dict.fromkeys(one.run.unit for one in found)
    rows: list[tuple[str, ...]] = [("run", "state", "/".join(units), "jobs", "")]
    for one in found:
        jobs = ", ".join(f"{state.id} {state.state}" for state in one.states)
        state = one.record.status if one.record else one.state
        told = outcome(one.record) if one.record and not one.record.problem else one.reason
        rows.append((one.run.folder.name, state, f"{one.done}/{one.run.planned}", jobs, told))
    return table(rows, right={2})


def outcome(record: AnyRecord) -> str:
    """What a record has found, in a few words; nothing if that is nothing."""
    if isinstance(record, TrainingRecord):
        return training.outcome(record)
    return f"{record.derived.img_per_s.mean:.2f} img/s" if isinstance(record, Record) and record.derived else ""


def study(found: Sequence[campaign.Standing]) -> str:
    """How far the points of a study are, as a table, and how many are how far."""
    rows: list[tuple[str, ...]] = [("point", "state", "repeats", "jobs", "img/s", "± 95 % CI", "")]
    for one in found:
        derived = one.record.derived if one.record else None
        throughput = f"{derived.img_per_s.mean:.2f}" if derived else ""
        interval = f"{derived.img_per_s.ci95:.2f}" if derived and derived.img_per_s.ci95 is not None else ""
        best = f"best of {one.tried} numbers of parameter servers" if one.tried else ""
        gone = "" if one.in_file else "not in the file any more"
        told = "; ".join(text for text in (one.reason, best, gone) if text)
        repeats = f"{one.repeats}/{one.entry.spec['repeats']}"
        rows.append((one.label, one.phase, repeats, _jobs(one.jobs), throughput, interval, told))
    return f"{table(rows, right={2, 4, 5})}\n\n{study_counts(found)}"


def _jobs(states: Sequence[JobState]) -> str:
    """``completed 31 34, pending 37``."""
    by_state: dict[str, list[str]] = {}
    for state in states:
        by_state.setdefault(state.state.lower(), []).append(state.id)
    return ", ".join(f"{state} {' '.join(ids)}".strip() for state, ids in by_state.items())


def study_counts(found: Sequence[campaign.Standing]) -> str:
    """``12 points: 8 completed, 3 queued, 1 failed``."""
    phases = [one.phase for one in found]
    told = ", ".join(f"{phases.count(phase)} {phase}" for phase in dict.fromkeys(phases))
    return f"{count(len(found), 'point')}: {told}"


def study_outcome(found: Sequence[campaign.Standing]) -> str:
    """What a study has found: the table of its numbers, the best numbers of parameter servers, and what has no number."""
    parts = []
    if records := [one.record for one in found if one.record and one.record.derived]:
        parts.append(comparison(records))
    if best := [one for one in found if one.tried]:
        lines = [f"  {one.label}  {one.img_per_s:.2f} img/s, best of {one.tried}" for one in best]
        parts.append("\n".join(["the best numbers of parameter servers:", *lines]))
    if without := [one for one in found if one.img_per_s is None]:
        rows = [(f"  {one.label}", one.phase, one.reason) for one in without]
        parts.append(table([("  no number", "state", "reason"), *rows], right=set()))
    return "\n\n".join([*parts, study_counts(found)])


def study_plan(found: Sequence[campaign.Standing], jobs: Sequence[Job], lanes: int, script: str) -> str:
    """What a study would do: its points, the jobs in their lanes, the first job's script."""
    points = table([("point", "state"), *((one.label, one.phase) for one in found)], right=set())
    parts = [points, study_counts(found)]
    if jobs:
        rows = [
            (str(number % lanes + 1), job.name, str(job.nodes), _repeats(job.steps)) for number, job in enumerate(jobs)
        ]
        queue = f"{count(len(jobs), 'job')} in {count(min(lanes, len(jobs)), 'lane')}, one at a time in each:"
        parts += [queue, table([("lane", "job", "nodes", "repeats"), *rows], right={0, 2})]
        parts += [f"the script of {jobs[0].name}:", script]
    return "\n\n".join(parts)


def _repeats(steps: Sequence[Step]) -> str:
    """Which repeats, of how many runs."""
    runs = len({step.run_dir for step in steps})
    numbers = sorted({step.repeat for step in steps})
    text = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
    return text + (f" of {runs} runs in turn" if runs > 1 else "")


def readiness(found: Sequence[Readiness]) -> str:
    """The backends with what they run on; below each, what it lacks here."""
    lines: list[str] = []
    for backend, group in groupby(found, key=lambda one: one.backend):
        rows = list(group)
        lines.append(f"{backend}: {rows[0].strategy}")
        for one in rows:
            state = "can run" if not one.lacks else "lacks " + ", ".join(one.lacks)
            lines.append(f"    {one.framework:11} {one.device:5} {', '.join(one.transports):16} {state}".rstrip())
    return "\n".join(lines)


def references(groups: Sequence[PublishedTable]) -> str:
    """The published measurements: what was measured where, by whom, at which sizes."""
    rows: list[tuple[str, ...]] = [
        ("system", "software", "backends", "model", "figure", "data", "devices", "rows", "source")
    ]
    rows += [
        (
            *(one.system, one.software, ", ".join(one.backends), one.model, one.what),
            *(", ".join(one.data), _sizes(one.workers), str(one.rows), one.source),
        )
        for one in groups
    ]
    return table(rows, right={7})


def _sizes(sizes: Sequence[int]) -> str:
    """``64, 128``, or ``1–128`` for more than three."""
    return ", ".join(map(str, sizes)) if len(sizes) <= 3 else f"{sizes[0]}–{sizes[-1]}"


def with_interval(values: Summary) -> str:
    """``12.34 ± 0.56 (95 % CI of 5 repeats)``."""
    if values.ci95 is None:
        return f"{values.mean:.2f} (one repeat: no confidence interval)"
    return f"{values.mean:.2f} ± {values.ci95:.2f} (95 % CI of {len(values.values)} repeats, stdev {values.stdev:.2f})"


def comparison(records: Sequence[Record]) -> str:
    """The table of several runs, as ``harness table`` prints it of their records."""
    from harness.report.text import comparison as comparisons
    from harness.results.columns import as_backends_say, frame  # here, as they are for tables only
    from harness.results.rows import row

    return comparisons.runs(as_backends_say(frame([row(record, record.id) for record in records])))


def plan(prepared: Prepared) -> str:
    """A launch plan for people: the common environment once, then every process with what is its own."""
    launch = prepared.plan
    common = _common_env(launch)
    lines = [
        describe(prepared.spec),
        f"run directory: {prepared.run_dir}",
        "environment of every process: " + shlex.join(f"{key}={value}" for key, value in common.items()),
        "",
        f"{'index':>5}  {'role':6} {'rank':>4}  {'node':>4}  {'host':12} {'listens on':21} command (with --repeat K)",
    ]
    lines += [_process(process, common) for process in launch.processes]
    if servers := launch.details.get("servers"):
        lines += ["", "parameters on each parameter server:"]
        lines += [
            f"{'ps':>9} {server['ps']:>4}  {server['bytes'] / 1e6:10.3f} MB in {server['pieces']} pieces"
            for server in servers
        ]
    return "\n".join(lines)


def _common_env(launch: LaunchPlan) -> dict[str, str]:
    first = launch.processes[0].env
    return {k: v for k, v in first.items() if all(process.env.get(k) == v for process in launch.processes)}


def _process(process: Process, common: dict[str, str]) -> str:
    own = [f"{key}={value}" for key, value in process.env.items() if key not in common]
    command = shlex.join([*own, *process.argv])
    listens = f"{process.address}:{process.port}"
    where = f"{process.role:6} {process.rank:>4}  {process.node:>4}  {process.host:12} {listens:21}"
    return f"{process.index:>5}  {where} {command}"


class ProgressLine:
    """One line on a terminal that says where the run is; silent elsewhere. Its text is rewritten twice a second at most.

    ``prefix`` says what comes before it: how far the whole is of which the run is a part.
    """

    def __init__(
        self, enabled: bool = True, stream: TextIO = sys.stderr, prefix: Callable[[], str] = lambda: ""
    ) -> None:
        self._prefix = prefix
        self._stream = stream
        self._live = enabled and stream.isatty()
        self._written_at = 0.0
        self._phase_since = ("", 0.0)
        self._epochs_told = 0

    def __call__(self, run: AnyRun, repeat: int, progress: Progress) -> None:
        """Show the progress of one repeat. The epochs of a training keep a line each."""
        if self._live and len(progress.epochs) > self._epochs_told:
            self.clear()
            for epoch in progress.epochs[self._epochs_told :]:
                self._stream.write(f"{training.epoch(epoch)}\n")
            self._epochs_told = len(progress.epochs)
        if not self._due():
            return
        now = time.monotonic()
        key = f"{run.folder} {repeat} {progress.phase} {len(progress.epochs)}"
        if self._phase_since[0] != key:
            self._phase_since = (key, now)
        since_s = now - self._phase_since[1]
        if isinstance(run, TrainingRun) and progress.phase == "training":
            self._show(training.under_way(run, progress, since_s))
            return
        which = f"repeat {repeat}/{run.spec.repeats}  " if isinstance(run, Run) else ""
        text = f"{run.spec.backend} × {run.spec.nodes}  {which}"
        self._show(text + self._where(run.spec, progress, since_s))

    progress = __call__

    def queue(self, states: Sequence[JobState]) -> None:
        """Show which jobs wait, and for what."""
        if states and self._due():
            first = states[0]
            others = f" and {len(states) - 1} more" if len(states) > 1 else ""
            reason = f" ({first.reason})" if first.reason else ""
            starts = f", starts about {first.starts}" if first.starts and first.queued else ""
            self._show(f"job {first.id}{others}: {first.state.lower()}{reason}{starts}")

    def silence(self, error: SlurmSilent) -> None:
        """Say that Slurm does not answer."""
        if self._due():
            self._show(f"Slurm does not answer, asking again ({error})")

    def recorded(self, record: AnyRecord) -> None:
        """A run has ended."""
        if self._live:
            self.clear()
            found = outcome(record)
            self._stream.write(f"{record.id} {record.status}{f': {found}' if found else ''}\n")

    def _due(self) -> bool:
        if not self._live or time.monotonic() - self._written_at < REFRESH_S:
            return False
        self._written_at = time.monotonic()
        return True

    def _show(self, text: str) -> None:
        text = self._prefix() + text
        self._stream.write("\r\x1b[2K" + text[: shutil.get_terminal_size().columns - 1])
        self._stream.flush()

    def clear(self) -> None:
        """Leave the line empty for other output."""
        if self._live:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    def _where(self, spec: RunSpec, progress: Progress, since_s: float) -> str:
        reached = f"{sum(progress.phases[phase] for phase in _from(progress.phase))}/{progress.processes} ranks"
        match progress.phase:
            case "launched" | "started":
                ready = sum(progress.phases[phase] for phase in _from("ready"))
                return f"starting: {ready}/{progress.processes} ranks ready, {since_s:.0f} s"
            case "ready" | "warmup":
                return f"warm-up, {spec.warmup_steps} steps, {since_s:.0f} s"
            case "window":
                expected_s = progress.step_s * spec.steps
                # Nothing is reported from inside the window, so this is an estimate from the warm-up steps.
                share = min(since_s / expected_s, 0.99) if expected_s else 0.0
                left = max(expected_s - since_s, 0.0)
                return f"measuring {spec.steps} steps on {reached}: about {share:.0%}, {left:.0f} s left"
            case _:
                return "checking"


class CountLine(ProgressLine):
    """How many of a known number are done, how fast, and when all will be. ``per`` of them are one of a ``unit``."""

    def __init__(self, unit: str, per: int = 1, enabled: bool = True, stream: TextIO = sys.stderr) -> None:
        super().__init__(enabled, stream)
        self._unit, self._per = unit, per
        self._first: tuple[int, float] | None = None

    def count(self, done: int, of: int) -> None:
        """Show how far it is. What was done at the first call was done before, and says nothing of the speed."""
        now = time.monotonic()
        self._first = self._first or (done, now)
        if not self._due():
            return
        text = f"{done // self._per:,} of {of // self._per:,} {self._unit}"
        rate = (done - self._first[0]) / (now - self._first[1]) if now > self._first[1] else 0.0
        if rate:
            text += f", {rate / self._per:,.0f} {self._unit}/s, {_duration((of - done) / rate)} left"
        self._show(text)


def _duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _from(phase: str) -> tuple[str, ...]:
    return PHASES[PHASES.index(phase) :]

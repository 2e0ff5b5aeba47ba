"""Progress and results of runs, trainings and studies, as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis.evidence import input_wait, server_traffic
from harness.core.statistics import Summary
from harness.core.text import duration, plural
from harness.records.carried import INTERFACE, carried
from harness.records.energy import Energy, Used
from harness.records.kernel import KernelRecord
from harness.records.measurement import Record
from harness.records.record import AnyRank
from harness.records.training import LABELS, Reached, TrainingRecord
from harness.report.text.pairs import preflight
from harness.report.text.plans import counts, describe
from harness.report.text.table import table, text
from harness.results.result import of_kernel, of_training, with_libraries
from harness.running.kinds import training_of
from harness.running.status import RunStatus

LEAST_SHARE = 0.01  # of the planned bytes that a card has to carry to be named

if TYPE_CHECKING:
    from harness.running import campaign


def summary(record: Record, path: Path) -> str:
    """The outcome of one run, ending in the line that ReFrame checks of tf_cnn_benchmarks read."""
    from harness.analysis import work  # here, as it needs NumPy

    if record.derived is None:
        return f"{record.status}: {record.reason}\nrecord: {path}"
    throughput, steps, checks = record.derived.img_per_s, record.derived.step_times, record.repeats[0].checks
    energy, joules = record.derived.energy, record.derived.energy.joules_per_image
    losses = work.of_one(record.derived.fingerprint, record.spec.precision, record.spec.device)
    of_image = []
    if image := record.software.get("image"):  # that the processes ran in
        of_image.append(f"  image      {image['platform']} {image['name']}, {image['digest'] or 'digest not known'}")
    lines = [
        describe(record.spec),
        *of_image,
        f"  img/s      {_with_interval(throughput, jobs=len({repeat.job for repeat in record.repeats}))}",
        f"  step time  p50 {steps.p50_s * 1e3:.1f} ms, p99 {steps.p99_s * 1e3:.1f} ms, "
        f"jitter {steps.jitter_s * 1e3:.1f} ms; "
        f"slowest rank {steps.slowest_rank} ({100 * (steps.slowest_over_median - 1):+.1f} % of the median rank)",
        f"  gradients  {'; '.join(sorted(record.seen.transports))}",
        *_traffic(record),
        *_energy("  energy     ", energy, f"{_with_interval(joules, '.3g')} J/img" if joules else ""),
        *(f"  {'' if number else 'work':10} {line}" for number, line in enumerate(losses)),
        *clocks([(f" in repeat {each.number}", each.ranks) for each in record.repeats]),
        *(f"  preflight  {line}" for line in preflight(record.preflight)),
    ]
    if wait := input_wait(record.repeats, record.spec.dilation):
        caches = [rank.evidence.get("data_cache", {}) for repeat in record.repeats for rank in repeat.ranks]
        shares = [cache["left"] for cache in caches if cache.get("left") is not None]
        cached = "not known"
        if shares:
            cached = f"{min(shares):.0%} to {max(shares):.0%} of the images in memory before a repeat"
        images = record.spec.steps * record.spec.global_batch / record.plan["world_size"]  # of a rank
        if read := [cache["read_bytes"] / images / cache["image_bytes"] for cache in caches if "read_bytes" in cache]:
            cached += f", {min(read):.0%} to {max(read):.0%} of their bytes read from storage within it"
        lines.append(
            f"  input      {wait.per_step_s * 1e3:.1f} ms per step waited for images ({wait.share:.1%} of it), "
            f"most on rank {wait.rank}; page cache {record.spec.data_cache.replace('_', ' ')}: {cached}"
        )
    names = ", ".join(check.name for check in checks)
    lines += [
        *(f"  NOTE       {note}" for note in record.derived.notes),
        f"  checks     {len(checks)} passed in each of {plural(len(record.repeats), 'repeat')}: {names}",
        f"  record     {path}",
        f"total images/sec: {throughput.mean:.2f}",
    ]
    return "\n".join(lines)


def _with_interval(values: Summary, form: str = ".2f", jobs: int = 0) -> str:
    """``12.34 ± 0.56 (95 % CI of 5 repeats of one job)``, with the number of ``jobs`` where it is given."""
    if values.ci95 is None:
        return f"{values.mean:{form}} (one repeat: no confidence interval)"
    of_jobs = f" of {'one job' if jobs == 1 else plural(jobs, 'job')}" if jobs else ""
    spread = f"95 % CI of {len(values.values)} repeats{of_jobs}, stdev {values.stdev:{form}}"
    return f"{values.mean:{form}} ± {values.ci95:{form}} ({spread})"


def _traffic(record: Record) -> list[str]:
    both = "{:.1f} MB sent and {:.1f} MB received per step".format
    lines, seen = [], record.seen
    if seen.sent_bytes_per_step is not None and seen.received_bytes_per_step is not None:
        over = f", over {', '.join(seen.interfaces)}" if seen.interfaces else ""
        moved = both(seen.sent_bytes_per_step / 1e6, seen.received_bytes_per_step / 1e6)
        lines.append(f"  traffic    {moved} and worker{over}")
    shares = carried(record.spec, record.plan, [repeat.ranks for repeat in record.repeats])
    if notable := [str(each) for each in shares if each.share >= LEAST_SHARE]:
        over_tcp = shares[0].card.startswith(INTERFACE)
        fell_back = over_tcp and any(not each.card.startswith(INTERFACE) for each in shares)
        lines.append(f"  cards      {', '.join(notable)} of the planned bytes{'; they fell back to TCP' * fell_back}")
    for server in server_traffic(record):
        label, moved = "servers" if server.ps == 0 else "", both(server.sent / 1e6, server.received / 1e6)
        lines.append(f"  {label:10} ps {server.ps}: {moved}, planned {server.planned / 1e6:.1f} MB each way")
    return lines


def _energy(label: str, energy: Energy | Used, figure: str) -> list[str]:
    """A ``figure`` with what it covers and leaves out, or why there is none."""
    notes = "; ".join(energy.notes)
    if not figure:
        return [f"{label}none: {notes}"] if notes else []
    return [f"{label}{figure} of {energy.covers}", *([" " * len(label) + notes] if notes else [])]


def clocks(parts: Sequence[tuple[str, Sequence[AnyRank]]], width: int = 10) -> list[str]:
    """A line with the clocks of the GPUs, and one for each rank whose GPU was slowed down, which marks the run.

    ``parts`` are the ranks of each repeat after words that say which it is; what lines begin with takes ``width``.
    """
    named = [(f"rank {rank.rank}{where}", rank) for where, ranks in parts for rank in ranks]
    watched = [(name, seen) for name, rank in named if (seen := rank.evidence.get("gpu"))]
    ranges = [seen["sm_mhz"] for _, seen in watched if "sm_mhz" in seen]
    lines = []
    if ranges:
        least, most = min(each[0] for each in ranges), max(each[2] for each in ranges)
        lines.append(f"  {'clocks':{width}} {least:.0f} to {most:.0f} MHz")
    lines += [
        f"  {'THROTTLED':{width}} {name}: {reason} in {count} of {seen['samples']} samples"
        for name, seen in watched
        for reason, count in seen.get("slowed", {}).items()
    ]
    return lines


def training(record: TrainingRecord, path: Path) -> str:
    spec, schedule, last, reached = record.spec, training_of(record.spec), record.epochs[-1], record.reached
    falls = ", ".join(map(str, schedule.decay_epochs))
    evaluated = [epoch for epoch in record.epochs if epoch.top1 is not None and epoch.top5 is not None]
    final, best = evaluated[-1], max(evaluated, key=lambda epoch: epoch.top1 or 0.0)
    accuracy = (
        f"top-1 {final.top1:.4f}, top-5 {final.top5:.4f} of {final.images:,} validation images (epoch {final.epoch})"
    )
    if best.top1 != final.top1:
        accuracy += f"; best top-1 {best.top1:.4f} (epoch {best.epoch})"
    if reached:
        took = f"{duration(reached.time_s)} to {_target(reached)}, {duration(reached.train_s)}"
        took += f" of it training: {plural(reached.epoch, 'epoch')}, {plural(reached.steps, 'step')}"
    else:
        took = f"{duration(last.elapsed_s)} for {plural(last.epoch, 'epoch')}, {duration(last.train_s)} of it training"
    lines = [
        describe(spec),
        f"  schedule    rate {spec.learning_rate * spec.global_batch / schedule.reference_batch:.4g} "
        f"({spec.learning_rate:g} × global batch {spec.global_batch} / {schedule.reference_batch}), "
        f"warm-up {schedule.warmup_epochs:g} epochs{f', × {schedule.decay:g} after epochs {falls}' if falls else ''}; "
        f"momentum {schedule.momentum:g}, weight decay {schedule.weight_decay:g}",
        f"  accuracy    {accuracy}",
        f"  time        {took}",
        f"  img/s       {record.img_per_s:.2f} while training",
        *_energy("  energy      ", record.energy or Used(), _joules_of_training(record)),
        *clocks([("", record.ranks)], width=11),
    ]
    if record.resumed:
        lines.append(f"  resumed     after {plural(record.resumed.epochs, 'epoch')} from {record.resumed.checkpoint}")
    lines += [
        f"  checks      {len(record.checks)} passed: {', '.join(check.name for check in record.checks)}",
        f"  checkpoint  {path.parent / record.checkpoints[-1] if record.checkpoints else 'none here'}",
        f"  record      {path}",
    ]
    return "\n".join(lines)


def _joules_of_training(record: TrainingRecord) -> str:
    """``0.12 J/img while training, 345 J to top-1 0.9``; "" if they are not known."""
    joules, reached = record.energy and record.energy.joules, record.reached
    if not joules:
        return ""
    per_image = joules.mean / (record.epochs[-1].steps * record.spec.global_batch)
    total = f"{sum(joules.values):.4g} J in {plural(len(joules.values), 'epoch')}"
    if reached and record.joules_to_accuracy:
        total = f"{record.joules_to_accuracy:.4g} J to {_target(reached)}"
    return f"{per_image:.3g} J/img while training, {total}"


def _target(reached: Reached) -> str:
    return f"{LABELS[reached.metric]} {reached.target:.4g}"


def runs(runs: Sequence[RunStatus]) -> str:
    """The progress of runs, as a table; jobs are in it where a batch system carries out some of them."""
    units = dict.fromkeys(each.run.UNIT for each in runs)
    in_jobs = any(each.run.submitted for each in runs)
    rows: list[tuple[str, ...]] = [("run", "state", "/".join(units), *(["jobs"] if in_jobs else []), "")]
    for each in runs:
        record, far = each.record, f"{each.done}/{each.run.planned()}"
        state = record.status if record else each.state
        jobs = ", ".join(f"{job.id} {job.state}" for job in each.jobs)
        result = record.outcome if record and not record.problem else each.reason
        rows.append((each.run.folder.name, state, far, *([jobs] if in_jobs else []), result))
    return table(rows, right={2})


def study(points: Sequence[campaign.PointStatus]) -> str:
    """The progress of the points of a study, as a table, and how many points have which state."""
    trained = not all(point.kernel for point in points)
    of_rates = ("img/s", "± 95 % CI") if trained else ()
    rows: list[tuple[str, ...]] = [("point", "state", "repeats", "jobs", *of_rates, "")]
    for point in points:
        figures = point.record.derived.img_per_s if isinstance(point.record, Record) and point.record.derived else None
        throughput = f"{figures.mean:.2f}" if figures else ""
        interval = f"{figures.ci95:.2f}" if figures and figures.ci95 is not None else ""
        gone = "" if point.in_file else "not in the file any more"
        remarks = "; ".join(filter(None, (point.outcome if point.kernel else point.reason, gone)))
        jobs: dict[str, list[str]] = defaultdict(list)
        for job in point.jobs:
            jobs[job.state.lower()].append(job.id)
        by_state = ", ".join(f"{state} {' '.join(ids)}".strip() for state, ids in jobs.items())
        repeats = f"{point.repeats}/{point.entry.spec['repeats']}"
        rates = (throughput, interval) if trained else ()
        rows.append((point.label, point.state, repeats, by_state, *rates, remarks))
    return f"{table(rows, right={2, 4, 5} if trained else {2})}\n\n{counts(points)}"


def of_study(points: Sequence[campaign.PointStatus]) -> str:
    """The results of a study: the tables of its runs and of its kernels, then that of its points."""
    records = [point.record for point in points if point.record and point.record.derived]
    parts = []
    if trained := [record for record in records if isinstance(record, Record)]:
        parts.append(comparison(trained))
    if of_kernels := [record for record in records if isinstance(record, KernelRecord)]:
        parts.append(comparison_of_kernels(of_kernels))
    return "\n\n".join([*parts, study(points)])


def comparison_of_kernels(records: Sequence[KernelRecord]) -> str:
    """The table of kernels, as ``harness table`` prints it of their records."""
    from harness.report.text import kernel_table  # here, as it needs NumPy

    results = [result for record in records for result in of_kernel(record, record.id)]
    return text(kernel_table.table_of(with_libraries(results)))


def comparison(records: Sequence[Record]) -> str:
    """The fastest one, and the table of several runs, as ``harness table`` prints it of their records."""
    from harness.analysis.fastest import races  # here, as it needs NumPy
    from harness.analysis.verdict import verdict
    from harness.report.text import fastest
    from harness.report.text.runs import table_of_runs

    results = with_libraries([of_training(record, record.id) for record in records])
    return f"{fastest.headline(races(results), verdict(results))}\n\n{text(table_of_runs(results))}"

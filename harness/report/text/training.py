"""Trainings to an accuracy as text for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.core.spec import RunSpec
from harness.core.text import duration, plural
from harness.launch.watch import Progress
from harness.records.training import LABELS, TrainingRecord
from harness.report.text.plans import describe
from harness.running.run import Run
from harness.running.train import epochs_before, training_of


def summary(record: TrainingRecord, path: Path) -> str:
    """The outcome of a completed training."""
    last = record.epochs[-1]
    lines = [describe(record.spec), f"  schedule    {_schedule(record.spec)}", f"  accuracy    {_accuracy(record)}"]
    if record.reached:
        reached = record.reached
        lines.append(
            f"  time        {duration(reached.time_s)} to {LABELS[reached.metric]} {reached.target:.4g}, "
            f"{duration(reached.train_s)} of it training: {plural(reached.epoch, 'epoch')}, {plural(reached.steps, 'step')}"
        )
    else:
        took = f"{duration(last.elapsed_s)} for {plural(last.epoch, 'epoch')}"
        lines.append(f"  time        {took}, {duration(last.train_s)} of it training")
    lines.append(f"  img/s       {record.img_per_s:.2f} while training")
    if record.resumed:
        lines.append(f"  resumed     after {plural(record.resumed.epochs, 'epoch')} from {record.resumed.checkpoint}")
    lines += [
        f"  checks      {len(record.checks)} passed: " + ", ".join(check.name for check in record.checks),
        f"  checkpoint  {path.parent / record.checkpoints[-1]}" if record.checkpoints else "  checkpoint  none here",
        f"  record      {path}",
    ]
    return "\n".join(lines)


def epoch(facts: dict[str, Any]) -> str:
    """One epoch in one line, from rank 0's report."""
    accuracy = ""
    if facts["top1"] is not None:
        accuracy = f"  top-1 {facts['top1']:.4f}  top-5 {facts['top5']:.4f}"
    return (
        f"epoch {facts['epoch']:>{len(str(facts['epochs']))}}/{facts['epochs']}  loss {facts['loss']:.4f}{accuracy}  "
        f"{facts['img_per_s']:.1f} img/s  rate {facts['rate']:.3g}  {duration(facts['elapsed_s'])}"
    )


def under_way(run: Run, progress: Progress, since_s: float) -> str:
    """Which epoch a training is in, and how long the rest may take; ``since_s`` seconds ago the last epoch ended."""
    training, before = training_of(run.spec), epochs_before(run.folder)
    done, planned = len(before) + len(progress.epochs), training.epochs
    ranks = f"{progress.phases['training']}/{progress.processes} ranks"
    text = f"{run.spec.backend} × {run.spec.nodes}  epoch {min(done + 1, planned)}/{planned} on {ranks}"
    text += f": {duration(since_s)}"
    if not progress.epochs:
        return text
    before_s = before[-1].elapsed_s if before else 0.0
    usual_s = (progress.epochs[-1]["elapsed_s"] - before_s) / len(progress.epochs)
    left_s = max(usual_s * (planned - done) - since_s, 0.0)
    most = "at most " if training.until else ""
    return f"{text}, about {min(since_s / usual_s, 0.99):.0%}; {most}{duration(left_s)} left"


def _schedule(spec: RunSpec) -> str:
    training = training_of(spec)
    peak = spec.learning_rate * spec.global_batch / training.reference_batch
    falls = ", ".join(map(str, training.decay_epochs))
    return (
        f"rate {peak:.4g} ({spec.learning_rate:g} × global batch {spec.global_batch} / {training.reference_batch}), "
        f"warm-up {training.warmup_epochs:g} epochs"
        + (f", × {training.decay:g} after epochs {falls}" if falls else "")
        + f"; momentum {training.momentum:g}, weight decay {training.weight_decay:g}"
    )


def _accuracy(record: TrainingRecord) -> str:
    """Of the last evaluation; the best one, if that was another."""
    measured = [one for one in record.epochs if one.top1 is not None and one.top5 is not None]
    last = measured[-1]
    text = f"top-1 {last.top1:.4f}, top-5 {last.top5:.4f} of {last.images:,} validation images (epoch {last.epoch})"
    best = max(measured, key=lambda one: one.top1 or 0.0)
    return text if best.top1 == last.top1 else f"{text}; best top-1 {best.top1:.4f} (epoch {best.epoch})"

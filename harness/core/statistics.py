"""Throughput and step-time figures from the raw times of a run's repeats."""

import statistics
from collections.abc import Sequence

from harness.core.spec import Frozen

MAD_TO_STDEV = 1.4826  # of normally distributed values: 1 / Φ⁻¹(3/4)

# Names the definition that a stored figure was computed with; change it whenever the definition changes.
FORMULA = (
    "img_per_s/3: workers * batch_size / period in which all ranks make a steady step (harness/worker/steady.py); "
    "mean of repeats, Student-t 95 % CI"
)
EMULATED_TIME = "; times are those of an emulated device: real ones over the dilation"


class Summary(Frozen):
    """The mean of repeated measurements. A single one has no spread to report."""

    mean: float
    stdev: float | None
    ci95: float | None  # half-width of the 95 % confidence interval of the mean
    values: tuple[float, ...]


class StepTimes(Frozen):
    """Step durations in seconds over all ranks and repeats; ``jitter_s`` is 1.4826 × the median absolute deviation."""

    p50_s: float
    p99_s: float
    jitter_s: float
    slowest_rank: int
    slowest_over_median: float


def summarise(values: Sequence[float]) -> Summary:
    """Mean, sample standard deviation and Student-t 95 % confidence interval of ``values``."""
    stdev = ci95 = None
    if len(values) > 1:
        from scipy.special import stdtrit  # the t quantile; scipy.stats takes ten times as long to import

        stdev = statistics.stdev(values)
        ci95 = float(stdtrit(len(values) - 1, 0.975)) * stdev / len(values) ** 0.5
    return Summary(mean=statistics.fmean(values), stdev=stdev, ci95=ci95, values=tuple(values))


def step_times(durations_s: Sequence[float], finished_s: Sequence[Sequence[float]]) -> StepTimes:
    """Step-time figures from the ``durations_s`` of all steps and ``finished_s[repeat][rank]``, both in seconds.

    The slowest rank is the one that took longest to finish its steps, averaged over the repeats.
    """
    import numpy as np  # here, so that commands that compute nothing answer at once

    durations = np.asarray(durations_s, dtype=float)
    p50, p99 = np.percentile(durations, [50, 99])
    finished = np.asarray(finished_s, dtype=float).mean(axis=0)
    slowest = int(finished.argmax())
    return StepTimes(
        p50_s=float(p50),
        p99_s=float(p99),
        jitter_s=MAD_TO_STDEV * float(np.median(np.abs(durations - p50))),
        slowest_rank=slowest,
        slowest_over_median=float(finished[slowest] / np.median(finished)),
    )


def scaling_efficiency(throughput: float, workers: int, base_throughput: float, base_workers: int) -> float:
    """Weak-scaling efficiency against a baseline: throughput per worker, relative (1.0 is ideal)."""
    return (throughput / workers) / (base_throughput / base_workers)

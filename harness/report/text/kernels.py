"""What was found about kernels: one over a transport, by size, or several transports beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness import kernels
from harness.core.statistics import Summary
from harness.core.text import plural, size
from harness.records.kernel import KernelRecord, SizeFigures, kernel_of
from harness.report.text.outcomes import describe
from harness.report.text.table import table

HEADING = ("p50, µs", "p99, µs", "GB/s", "bus GB/s", "95 % CI", "sent / size")


def kernel(record: KernelRecord, path: Path) -> str:
    """Latencies and bandwidths of a completed record, a line for each size."""
    rows = [(size(figures.bytes), *_cells(figures)) for figures in record.derived or []]
    lines = [describe(record.spec), f"  {_said(record)}", f"  over {'; '.join(record.transports)}", ""]
    return "\n".join([*lines, table([("size", *HEADING), *rows], right=set(range(7))), f"record: {path}"])


def network(records: Sequence[KernelRecord]) -> str:
    """A table for each kernel: what every transport takes for the smallest size, and what it carries with the largest."""
    parts = []
    for name in dict.fromkeys(record.spec.subject for record in records):
        those = [record for record in records if record.spec.subject == name and record.derived]
        rows = []
        for record in sorted(those, key=lambda record: -_ends(record)[1].bus_bytes_per_s.mean):
            spec, (p50, p99, *_), (*_, bus, interval, sent) = record.spec, *map(_cells, _ends(record))
            rows.append((spec.backend, str(spec.framework), str(spec.transport), p50, p99, bus, interval, sent))
        if those:
            least, most = (size(figures.bytes) for figures in _ends(those[0]))
            of_both = (f"p50 of {least}, µs", "p99, µs", f"bus GB/s with {most}")
            heading = ("backend", "framework", "transport", *of_both, *HEADING[-2:])
            title = f"{name} on {plural(those[0].spec.nodes, 'node')}: {_said(those[0])}"
            parts.append(f"{title}\n\n{table([heading, *rows], right=set(range(3, 8)))}")
    return "\n\n".join(parts)


def _ends(record: KernelRecord) -> tuple[SizeFigures, SizeFigures]:
    """The figures of the smallest and of the largest size."""
    assert record.derived
    return record.derived[0], record.derived[-1]


def _said(record: KernelRecord) -> str:
    spec = record.spec
    what = kernels.specification(kernel_of(spec).name).what
    return f"{what}; {plural(spec.repeats, 'repeat')} of {plural(spec.steps, 'step')}; every result was right"


def _cells(figures: SizeFigures) -> tuple[str, ...]:
    rate = (
        figures.algorithm_bytes_per_s
    )  # whose relative interval is that of the bus, which carries nothing for one rank
    return (
        f"{figures.p50_s * 1e6:,.1f}",
        f"{figures.p99_s * 1e6:,.1f}",
        _rate(rate),
        _rate(figures.bus_bytes_per_s),
        f"± {rate.ci95 / rate.mean:.1%}" if rate.ci95 is not None else "",
        "" if figures.sent_bytes is None else f"{figures.sent_bytes / figures.bytes:.2f}",
    )


def _rate(rate: Summary) -> str:
    return f"{rate.mean / 1e9:.3g}"

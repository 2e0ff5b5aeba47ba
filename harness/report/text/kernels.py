"""Results of kernels: of one over a transport, by size, or of several transports beside each other."""

from collections.abc import Sequence
from pathlib import Path

from harness.analysis.slow import pairs
from harness.core.statistics import Summary
from harness.core.text import plural, size
from harness.kernels.kernel import Kernel
from harness.records.energy import Used
from harness.records.kernel import KernelRecord, SizeFigures, kernel_of, size_text
from harness.report.text.outcomes import clocks
from harness.report.text.pairs import findings
from harness.report.text.plans import describe
from harness.report.text.table import table

OF_MESSAGES = ("size", "p50, µs", "p99, µs", "GB/s", "bus GB/s", "95 % CI", "sent / size")
OF_COMPUTING = ("size", "p50, ms", "p99, ms", "Gflop/s", "95 % CI", "MB sent")


def kernel(record: KernelRecord, path: Path) -> str:
    """Latencies and rates of a completed record, a line for each size."""
    of = kernel_of(record.spec)
    heading = OF_MESSAGES if of.in_bytes else OF_COMPUTING
    derived = record.derived or []
    rows = [(size_text(of, figures.size), *_cells(figures)) for figures in derived]
    if any(figures.work_per_joule for figures in derived):
        heading = (*heading, "J", "GB/J" if of.in_bytes else "Gflop/J")
        rows = [(*row, *_joules(figures)) for row, figures in zip(rows, derived, strict=True)]
    lines = [describe(record.spec), f"  {_protocol(record)}", f"  over {'; '.join(record.seen.transports)}", ""]
    lines.append(table([heading, *rows], right=range(len(heading))))
    lines += findings(pairs(record)) if of.own_times and derived else []
    for figures in derived:
        if figures.collected_s:
            times = f"{figures.collected_s * 1e3:,.2f} of {figures.time_s.mean * 1e3:,.2f} ms"
            lines.append(f"{size_text(of, figures.size)}: data are collected after {times}; the rest is the merge")
    lines += _energy(of, derived)
    lines += clocks([(f" in repeat {each.number}", each.ranks) for each in record.repeats])
    return "\n".join([*lines, f"record: {path}"])


def network(records: Sequence[KernelRecord]) -> str:
    """A table for each kernel: the times of every transport for the smallest message, and its rate with the largest.

    Then the nodes and links that are slow against the others, where nodes were compared.
    """
    parts = []
    derived = [record for record in records if record.derived]
    compared = [record for record in derived if kernel_of(record.spec).own_times]
    tabulated = [record for record in derived if record not in compared]
    for title in dict.fromkeys(map(_title, tabulated)):
        alike = [record for record in tabulated if _title(record) == title]
        least, most = (size(figures.size) for figures in _ends(alike[0]))
        of_both = (f"p50 of {least}, µs", "p99, µs", f"bus GB/s with {most}")
        rows = [("backend", "framework", "transport", *of_both, *OF_MESSAGES[-2:])]
        for record in sorted(alike, key=lambda record: -_ends(record)[1].rate.mean):
            spec, (p50, p99, *_), (*_, bus, interval, sent) = record.spec, *map(_cells, _ends(record))
            rows.append((spec.backend, str(spec.framework), spec.carrier, p50, p99, bus, interval, sent))
        parts.append(f"{title}: {_protocol(alike[0])}\n\n{table(rows, right=range(3, 8))}")
    for record in compared:
        title = f"nodes by pairs, over {record.spec.carrier} of {record.spec.backend}: {_protocol(record)}"
        parts.append("\n".join([title, "", *findings(pairs(record))]))
    return "\n\n".join(parts)


def _title(record: KernelRecord) -> str:
    ps = sum(each["role"] == "ps" for each in record.plan["processes"])
    servers = f", {plural(ps, 'server')}" if ps else ""
    return f"{record.spec.subject} on {plural(record.spec.nodes, 'node')}{servers}"


def _ends(record: KernelRecord) -> tuple[SizeFigures, SizeFigures]:
    """The figures of the smallest and of the largest size."""
    assert record.derived
    return record.derived[0], record.derived[-1]


def _protocol(record: KernelRecord) -> str:
    spec = record.spec
    of_repeats = f"{plural(spec.repeats, 'repeat')} of {plural(spec.steps, 'step')}"
    return f"{kernel_of(spec).summary}; {of_repeats}; every result was right"


def _cells(figures: SizeFigures) -> tuple[str, ...]:
    """The columns of ``OF_MESSAGES`` or, for what has no rate of a bus, of ``OF_COMPUTING``."""
    sent, bus, rate = figures.sent_bytes, figures.bus_bytes_per_s, _rate(figures.rate)
    interval = f"± {figures.rate.ci95 / figures.rate.mean:.1%}" if figures.rate.ci95 is not None else ""
    if bus is None:
        megabytes = "" if sent is None else f"{sent / 1e6:,.2f}"
        return f"{figures.p50_s * 1e3:,.2f}", f"{figures.p99_s * 1e3:,.2f}", rate, interval, megabytes
    share = "" if sent is None else f"{sent / figures.size:.2f}"
    # The interval is that of the rate: the bus carries nothing for one rank.
    return f"{figures.p50_s * 1e6:,.1f}", f"{figures.p99_s * 1e6:,.1f}", rate, _rate(bus), interval, share


def _joules(figures: SizeFigures) -> tuple[str, ...]:
    joules, per_joule = figures.energy.joules, figures.work_per_joule
    return (f"{joules.mean:.3g}", f"{per_joule / 1e9:.3g}") if joules and per_joule else ("", "")


def _energy(of: Kernel, derived: Sequence[SizeFigures]) -> list[str]:
    """The parts that joules cover and leave out, and why some sizes have none: of several sizes that of the first."""
    lines = []
    for counted in (True, False):
        read = [each for each in derived if each.energy != Used() and bool(each.energy.joules) == counted]
        if read:
            more = f" and {plural(len(read) - 1, 'more size')}" if len(read) > 1 else ""
            energy, without = read[0].energy, f"no J of {size_text(of, read[0].size)}{more}"
            start = f"J are of {energy.covers}" if counted else without
            lines.append(": ".join(filter(None, (start, "; ".join(energy.notes)))))
    return lines


def _rate(rate: Summary) -> str:
    return f"{rate.mean / 1e9:.3g}"

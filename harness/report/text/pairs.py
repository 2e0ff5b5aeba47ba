"""Nodes and links that are slow against the others, and the rates of all, for people."""

from collections.abc import Sequence

from harness.records.pairs import CheckedPairs, Preflight


def findings(pairs: CheckedPairs) -> list[str]:
    """A line for each thing that is slow; else one that says between which limits all rates are."""
    messages = [rate for row in pairs.bytes_per_s for rate in row if rate is not None]
    rates = f"messages {_range(messages, 'GB/s')}, arithmetic {_range(pairs.flop_per_s, 'Gflop/s')}"
    if pairs.slow:
        return [f"warning: {each.node} {each.sentence}" for each in pairs.slow]
    if pairs.unjudged:
        return [f"nothing was compared: {pairs.unjudged} ({rates})"]
    less = ", not compared: nodes share a machine's cores" if pairs.shared_cores else ""
    return [f"no node and no link is slow against the others: {rates}{less}"]


def preflight(check: Preflight | None) -> list[str]:
    """The findings of the check before a run, or why it has none; no line where nothing was to be checked."""
    if check is None:
        return []
    return findings(check.pairs) if check.pairs else [f"warning: the nodes were not checked: {check.problem}"]


def _range(rates: Sequence[float], unit: str) -> str:
    least, most = (f"{rate / 1e9:.3g}" for rate in (min(rates), max(rates)))
    return f"{least} to {most} {unit}"

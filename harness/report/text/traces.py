"""A trace for people: what a step waits for that nothing hides, in five lines."""

from collections.abc import Sequence

from harness.core.plain import json_text
from harness.core.text import plural
from harness.prediction.explain import seconds, size
from harness.tracing.expected import DIFFERS, Piece, first_difference, pieces
from harness.tracing.exposed import OTHER, Exposed
from harness.tracing.trace import Trace
from harness.worker.notes import APPLY, BACKWARD, FORWARD, PULL, PUSH

LINES = 4  # besides the first
PASSES = {FORWARD: "the forward pass computes", BACKWARD: "the backward pass computes"}


def explanation(trace: Trace, rows: Sequence[Exposed]) -> str:
    """The longest exposed times of a mean step; the last line has the sum of all others."""
    step_s = sum(row.seconds for row in rows)
    longer = f"{abs(trace.longer):.0%} {'longer' if trace.longer >= 0 else 'shorter'} than measured ones"
    lines = [
        f"{plural(len(trace.steps), 'traced step')} of {seconds(step_s)}, {longer}; "
        f"clocks agree within {seconds(trace.error_s)}"
    ]
    shown, others = rows[: LINES - 1], rows[LINES - 1 :]
    lines += [f"{seconds(row.seconds):>8}  {_text(row)}" for row in shown]
    if others:
        lines.append(f"{seconds(sum(row.seconds for row in others)):>8}  {plural(len(others), 'other cause')}")
    if trace.link_bytes_per_s:
        lines.append(_beside_the_law(trace, pieces(trace, trace.link_bytes_per_s)))
    return "\n".join(lines)


def _text(row: Exposed) -> str:
    """``ps-75 sends dense.kernel (8.2 MB) to 127 workers``: one exposed time."""
    first, more = row.tensors[:1], len(row.tensors) - 1
    moved = f"{' '.join(first)}{f' and {more} more' if more > 0 else ''} ({size(row.size)})"
    workers = plural(int(row.times), "worker")
    if row.phase in PASSES:
        return PASSES[row.phase]
    if row.phase == PULL:
        return f"{row.process} sends {moved} to {workers}"
    if row.phase == PUSH:
        return f"{row.process} receives the gradient of {moved} from {workers}"
    if row.phase == APPLY:
        return f"{row.process} applies the gradient of {moved}"
    if row.phase == OTHER:
        return "no event that is known of goes on"
    return f"{workers} sum the gradients of {moved}"


def _beside_the_law(trace: Trace, every: Sequence[Piece]) -> str:
    first = first_difference(every, trace.step_s)
    if first is None:
        return f"All {len(every)} pieces end as the law says, to {DIFFERS:.0%} of a step."
    late = first.measured_s - first.expected_s
    return (
        f"The first piece that ends otherwise than the law says: {first.phase} of {first.name}, after "
        f"{seconds(first.measured_s)}, {seconds(abs(late))} {'later' if late > 0 else 'sooner'}."
    )


def as_json(trace: Trace, rows: Sequence[Exposed]) -> str:
    """Seconds of a mean step by what takes them, and what is known of the trace itself."""
    about = {name: getattr(trace, name) for name in ("step_s", "measured_s", "longer", "error_s", "missing")}
    return json_text({**about, "steps": len(trace.steps), "exposed": [vars(row) for row in rows]})

"""Why a step takes as long as it does: what binds it, with its bytes, and what would help."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from harness import results
from harness.analysis.evidence import server_traffic
from harness.analysis.late import Late, late
from harness.core.text import plural
from harness.errors import InvalidInput
from harness.prediction.basis import StartingPoint, alone, basis, chosen
from harness.prediction.forecast import Basis, Bound, Prediction, What, at, best, held
from harness.prediction.law import COMPUTE, WORKER, profile
from harness.prediction.observations import step_of, unfit
from harness.records.measurement import Record
from harness.results.result import Result
from harness.results.sources import with_number

HELPS = 1.02  # an alternative is worth a word if it gives 2 % more
SLICE, PARTITIONING = "1MiB", "partitioning tensors to 1 MiB slices"


@dataclass(frozen=True)
class Explanation:
    """One size, what binds it, and other ways to do the same: what they are called, and what they would give."""

    what: What
    basis: Basis
    prediction: Prediction
    alternatives: tuple[tuple[str, Prediction], ...]

    @property
    def binding(self) -> Bound | None:
        """What the longest pass waits for; None if compute hides the network."""
        waits = [one for one in self.prediction.bounds if one.server != COMPUTE]
        return max(waits, key=lambda one: one.seconds) if waits else None

    @property
    def held(self) -> float:
        """Bytes that the binding server holds; 0 where none binds."""
        bound = self.binding
        return held(self.what, self.prediction.ps)[bound.server] if bound and bound.server >= 0 else 0.0

    def as_dict(self) -> dict[str, object]:
        bound = self.binding
        return self.prediction.as_dict() | {
            "bound": None if bound is None else bound.as_dict() | {"held_bytes": self.held},
            "alternatives": [
                {"what": name, "ps": one.ps, "img_per_s": one.img_per_s} for name, one in self.alternatives
            ],
            "explanation": list(sentences(self)),
            "basis": list(self.basis.told),
        }


@dataclass(frozen=True)
class Measured:
    """A measured step (s) beside the ``interval`` that was predicted of it (s), None where nothing is known of the spread:
    who was late, and what the fullest server sent.
    """

    step_s: float
    interval: tuple[float, float] | None
    late: tuple[Late, ...]
    counted: tuple[str, ...]

    @property
    def beyond(self) -> float:
        """By which share the step is longer than the interval's end, or (below 0) shorter than its beginning; 0: inside."""
        low, high = self.interval or (self.step_s, self.step_s)
        return max(self.step_s / high - 1, 0.0) or min(self.step_s / low - 1, 0.0)

    def as_dict(self) -> dict[str, object]:
        return {
            "measured_step_s": self.step_s,
            "predicted_step_interval_s": self.interval,
            "inside": None if self.interval is None else self.beyond == 0,
            "beyond": self.beyond,
            "late": [vars(one) for one in self.late],
        }


def explain(what: What, basis: Basis, nodes: int, ps: int | None = None) -> Explanation:
    """What binds a step on ``nodes`` nodes with ``ps`` servers, by default the best number, and what would help."""
    fastest = best(what, basis, [nodes])[0]
    prediction = fastest if ps is None else at(what, basis, nodes, ps)
    alternatives = []
    if what.has_servers:
        alternatives.append(("the best number of parameter servers", fastest))
        if not what.is_partitioned:
            alternatives.append((PARTITIONING, best(partitioned(what), basis, [nodes])[0]))
    return Explanation(what, basis, prediction, tuple(alternatives))


def explain_record(
    path: Path,
    sources: Sequence[str],
    start: StartingPoint,
    one_worker: Sequence[Result] | None,
    progress: Callable[[int, int], None],
    unreadable: Callable[[str], None],
) -> tuple[Explanation, Measured]:
    """Of the run in the record at ``path``: the explanation, and what was measured beside it.

    ``one_worker`` are results with what one trains alone. Unless ``start`` has a network, ``sources`` are results beside
    the record, by default those of its folder. Raises InvalidInput for a run without a number, and where the one worker was
    on another device.
    """
    record = Record.read(path)
    if record.derived is None:
        raise InvalidInput(f"{path}: this run has no number: {record.reason}")
    (run,) = results.load([path])
    if reason := unfit(run, run.data):
        raise InvalidInput(f"{path}: {reason}")
    fields = ("backend", "model", "batch_size", "devices_per_node")
    what = What(**{name: getattr(run, name) for name in fields}, image_size=run.image_size or None, options=run.tuned)
    # With a share of the bytes a link counts as so much faster.
    own_time = record.spec.dilation / record.spec.bytes_scale
    start = replace(start, transport=run.transport, device=run.device, dilation=own_time)
    if one_worker is not None:
        single = alone(one_worker, what)
        if single.device != start.device:
            raise InvalidInput(f"--single: one worker on {single.device}, but the run is one on {start.device}")
        start = replace(start, single=single.img_per_s, said=single.said)
    if start.networks:
        begin = chosen(what, start, None)
    else:
        nearby = [str(path), *(sources or [str(path.resolve().parent.parent)])]
        alike = attrgetter("system", "device", "software")  # another one's single worker would say nothing
        beside = [
            each
            for each in with_number(results.load(nearby, progress=progress, unreadable=unreadable))
            if alike(each) == alike(run)
        ]
        begin = basis(beside, what, start, strict=start.single is None)
    counted = tuple(
        f"measured: PS {server.ps} sent {size(server.sent)} and received {size(server.received)} per step; "
        f"planned {size(server.planned)} each way"
        for server in sorted(server_traffic(record), key=lambda server: -server.sent)[:1]
    )
    explained = explain(what, begin, run.nodes, run.ps)
    images = run.workers * run.batch_size
    ends = images / explained.prediction.high, images / explained.prediction.low
    # Of a single worker nothing is predicted.
    interval = ends if ends[1] > 1.0001 * ends[0] else None
    return explained, Measured(step_of(run), interval, tuple(late(record)), counted)


def partitioned(what: What) -> What:
    """``what`` with tensors cut into slices of 1 MiB."""
    options = json.loads(what.options) | {"placement": "partitioned", "slice_size": SLICE}
    return replace(what, options=json.dumps(options, sort_keys=True))


def sentences(one: Explanation) -> Sequence[str]:
    """The explanation for people: what binds, then what would help."""
    now = one.prediction.img_per_s
    told = [_binding(one)]
    for name, other in one.alternatives:
        servers = f" ({other.ps:,} PS)" if other.ps else ""
        if other.img_per_s > HELPS * now:
            told.append(f"{name}{servers} would give {rate(other.img_per_s)} instead of {rate(now)}")
        elif name.startswith("the best"):
            told.append(f"no other number of parameter servers would give {100 * (HELPS - 1):.0f} % more")
    return told


def _binding(one: Explanation) -> str:
    bound, prediction, p = one.binding, one.prediction, one.basis.parameters
    step, through = f"of the {seconds(prediction.law_s)} step", float(p.throughput)
    if bound is None:
        rest = prediction.law_s - one.basis.single_s
        more = f"; {seconds(rest)} are overhead" if rest > 0.02 * prediction.law_s else ""
        hidden = "what the network does is hidden behind it"
        return f"compute bounds the step: {seconds(one.basis.single_s)} {step}; {hidden}{more}"
    forward = bound.which == "forward"
    served, own = (float(factor) for factor in one.what.law(prediction.ps).factors(prediction.nodes, p))
    exchange = one.what.servers(prediction.ps)
    if exchange is None or bound.server == WORKER:  # the bytes are all of a pass, of which compute hides a part
        bytes_ = float(profile(one.what.model, one.what.image_size).bytes.sum()) * (own if exchange else served)
        compute = one.basis.single_s * (float(p.forward_share) if forward else 1 - float(p.forward_share))
        what = f"gradients go {p.summed}: each node sends and receives"
        if exchange:
            what = f"a worker node's own endpoint binds: it {'receives' if forward else 'sends'}"
        return (
            f"{what} {size(bytes_)} per step through {size(through)}/s = {seconds(bytes_ / through)}; "
            f"of that {bound.which} does not hide {seconds(bound.seconds - compute)} {step}"
        )
    remote = (prediction.nodes - exchange.shared_nodes) * exchange.workers_per_node
    both = exchange.pulls == "before_forward" and all(each.server >= 0 for each in prediction.bounds)
    also = "" if one.held < 1.01 * bound.tensor_bytes else f" and others, {size(one.held)} in all"
    verb = "pull and push" if both else "pull" if forward else "push"
    each_way = " each way" if both or exchange.pulls == "after_push" else ""
    # More than the workers, where many-to-many traffic takes longer than its bytes.
    crowded = served / remote
    many = "" if crowded < 1.01 else f" × {crowded:.2f} because every node sends to every other"
    spent = sum(each.seconds for each in prediction.bounds if each.server >= 0)
    twice = f", {seconds(spent)} for both," if both else ""
    return (
        f"{bound.name} holds {bound.tensor} ({size(bound.tensor_bytes)}){also}: {plural(remote, 'worker')} "
        f"{verb} {size(remote * one.held)}{each_way} per step through {size(through)}/s{many} = "
        f"{seconds(served * one.held / through)}{twice} {step}"
    )


def size(bytes_: float) -> str:
    """``8.2 MB``, ``1.04 GB``."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_ >= scale:
            return f"{bytes_ / scale:.3g} {unit}"
    return f"{bytes_:.0f} B"


def seconds(value: float) -> str:
    """``0.43 s``, ``21 ms``."""
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1e3:.3g} ms"


def rate(img_per_s: float) -> str:
    """``16.4 k img/s``, ``820 img/s``, ``2.05 img/s``."""
    if img_per_s >= 10_000:
        return f"{img_per_s / 1e3:.3g} k img/s"
    return f"{img_per_s:,.0f} img/s" if img_per_s >= 100 else f"{img_per_s:.3g} img/s"

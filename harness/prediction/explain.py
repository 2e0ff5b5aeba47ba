"""Explanations of a step's time: the cause that binds it, with its bytes, and alternatives that would help."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from harness import results
from harness.analysis.evidence import Late, late, server_traffic
from harness.core.text import plural
from harness.errors import InvalidInput
from harness.prediction.basis import StartingPoint, basis, chosen_basis
from harness.prediction.forecast import Basis, Bound, Prediction, at, best
from harness.prediction.law import COMPUTE, WORKER, profile
from harness.prediction.observations import step_of, unfit
from harness.prediction.workload import Workload
from harness.records.measurement import Record
from harness.results.result import Result
from harness.results.sources import with_number

HELPS = 1.02  # an alternative is worth a word if it gives 2 % more
# Other ways to do the same.
BEST, PARTITIONING = "the best number of parameter servers", "partitioning tensors to 1 MiB slices"


@dataclass(frozen=True)
class Explanation:
    """One size, the cause that binds it, and the predictions of alternatives, by their names."""

    workload: Workload
    basis: Basis
    prediction: Prediction
    alternatives: Mapping[str, Prediction]

    @property
    def binding(self) -> Bound | None:
        """The cause that the longest pass waits for; None if compute hides the network."""
        waits = [bound for bound in self.prediction.bounds if bound.server != COMPUTE]
        return max(waits, key=attrgetter("seconds"), default=None)

    @property
    def held_bytes(self) -> float:
        """Bytes that the binding server holds; 0 where none binds."""
        bound = self.binding
        return self.workload.held(self.prediction.ps)[bound.server] if bound and bound.server >= 0 else 0.0


@dataclass(frozen=True)
class Measured:
    """A measured step beside the interval that was predicted of it (s), None where nothing is known of the spread.

    ``beyond`` is the share by which it is longer than the interval's end, or (below 0) shorter than its beginning; 0:
    inside. ``late`` are the ranks that were late, ``counted`` has the bytes of the fullest server.
    """

    measured_step_s: float
    predicted_step_interval_s: tuple[float, float] | None
    inside: bool | None
    beyond: float
    late: tuple[Late, ...]
    counted: tuple[str, ...]


def explain(workload: Workload, basis: Basis, nodes: int, ps: int | None = None) -> Explanation:
    """Explain a step on ``nodes`` nodes with ``ps`` servers, by default the best number."""
    fastest = best(workload, basis, [nodes])[0]
    prediction = fastest if ps is None else at(workload, basis, nodes, ps)
    alternatives = {}
    if workload.has_servers:
        alternatives[BEST] = fastest
        if workload.can_be_sliced:
            alternatives[PARTITIONING] = best(workload.sliced(), basis, [nodes])[0]
    return Explanation(workload, basis, prediction, alternatives)


def explain_record(
    path: Path, sources: Sequence[str], start: StartingPoint, load: Callable[[Sequence[str]], Sequence[Result]]
) -> tuple[Explanation, Measured]:
    """Explain the run in the record at ``path``, and set the measurement beside the explanation.

    Unless ``start`` has a network, ``sources`` are results beside the record, by default those of its folder, which
    ``load`` reads. Raises InvalidInput for a run without a number, and where the one worker was on another device.
    """
    record = Record.read(path)
    if record.derived is None:
        raise InvalidInput(f"{path}: this run has no number: {record.reason}")
    (run,) = results.load([path])
    if reason := unfit(run, run.data):
        raise InvalidInput(f"{path}: {reason}")
    workload = Workload.of(run)
    single = start.one_worker(workload)
    if single and single.device not in ("auto", run.device):
        raise InvalidInput(f"--single: one worker on {single.device}, but the run is one on {run.device}")
    # With a share of the bytes a link counts as so much faster.
    own_time = record.spec.dilation / record.spec.bytes_scale
    start = replace(start, transport=run.transport, device=run.device, dilation=own_time)
    if start.network is not None:
        begin = chosen_basis(workload, start, None)
    else:
        nearby = [str(path), *(sources or [str(path.resolve().parent.parent)])]
        alike = attrgetter("system", "device", "software")  # another one's single worker would say nothing
        beside = [result for result in with_number(load(nearby)) if alike(result) == alike(run)]
        begin = basis(beside, workload, start, strict=single is None)
    explained = explain(workload, begin, run.nodes, run.ps)
    return explained, _beside(explained.prediction, run, record)


def _beside(predicted: Prediction, run: Result, record: Record) -> Measured:
    step_s, images = step_of(run), run.workers * run.batch_size
    low, high = images / predicted.high, images / predicted.low
    predicts = high > 1.0001 * low  # of a single worker nothing is predicted
    beyond = max(step_s / high - 1, 0.0) or min(step_s / low - 1, 0.0) if predicts else 0.0
    counted = tuple(
        f"measured: PS {server.ps} sent {size(server.sent)} and received {size(server.received)} per step; "
        f"planned {size(server.planned)} each way"
        for server in sorted(server_traffic(record), key=lambda server: -server.sent)[:1]
    )
    return Measured(
        measured_step_s=step_s,
        predicted_step_interval_s=(low, high) if predicts else None,
        inside=beyond == 0 if predicts else None,
        beyond=beyond,
        late=tuple(late(record)),
        counted=counted,
    )


def sentences(explanation: Explanation) -> list[str]:
    """The explanation for people: the cause that binds, then the alternatives that would help."""
    now = explanation.prediction.img_per_s
    texts = [_binding(explanation)]
    for name, other in explanation.alternatives.items():
        servers = f" ({other.ps:,} PS)" if other.ps else ""
        if other.img_per_s > HELPS * now:
            texts.append(f"{name}{servers} would give {rate(other.img_per_s)} instead of {rate(now)}")
        elif name == BEST:
            texts.append(f"no other number of parameter servers would give {100 * (HELPS - 1):.0f} % more")
    return texts


def _binding(explanation: Explanation) -> str:
    bound, prediction, basis = explanation.binding, explanation.prediction, explanation.basis
    workload, p, held_bytes = explanation.workload, basis.parameters, explanation.held_bytes
    if prediction.read_by:
        return f"reading bounds the step, which waits for images: {by_reading(basis, prediction)}"
    step, through = f"of the {seconds(prediction.law_s)} step", float(p.throughput)
    if bound is None:
        rest = prediction.law_s - basis.single_s
        more = f"; {seconds(rest)} are overhead" if rest > 0.02 * prediction.law_s else ""
        hidden = "the network's work is hidden behind it"
        return f"compute bounds the step: {seconds(basis.single_s)} {step}; {hidden}{more}"
    forward = bound.phase == "forward"
    factors = workload.law(prediction.ps).factors(prediction.nodes, p, workload.devices_per_node)
    served, at_worker = map(float, factors)
    exchange = workload.servers(prediction.ps)
    if exchange is None or bound.server == WORKER:  # the bytes are all of a pass, of which compute hides a part
        bytes_ = float(profile(workload.model, workload.image_size).bytes.sum()) * (at_worker if exchange else served)
        compute = basis.single_s * (float(p.forward_share) if forward else 1 - float(p.forward_share))
        cause = f"gradients go {p.summed}: each node sends and receives"
        if exchange:
            cause = f"a worker node's own endpoint binds: it {'receives' if forward else 'sends'}"
        return (
            f"{cause} {size(bytes_)} per step through {size(through)}/s = {seconds(bytes_ / through)}; "
            f"of that {bound.phase} does not hide {seconds(bound.seconds - compute)} {step}"
        )
    remote = (prediction.nodes - exchange.shared_nodes) * exchange.workers_per_node
    both = exchange.pulls == "before_forward" and all(passing.server >= 0 for passing in prediction.bounds)
    also = "" if held_bytes < 1.01 * bound.tensor_bytes else f" and others, {size(held_bytes)} in all"
    verb = "pull and push" if both else "pull" if forward else "push"
    each_way = " each way" if both or exchange.pulls == "after_push" else ""
    # More than the workers, where many-to-many traffic takes longer than its bytes.
    crowded = served / remote
    many = "" if crowded < 1.01 else f" × {crowded:.2f} because every node sends to every other"
    spent = sum(passing.seconds for passing in prediction.bounds if passing.server >= 0)
    twice = f", {seconds(spent)} for both," if both else ""
    return (
        f"{bound.name} holds {bound.tensor} ({size(bound.tensor_bytes)}){also}: {plural(remote, 'worker')} "
        f"{verb} {size(remote * held_bytes)}{each_way} per step through {size(through)}/s{many} = "
        f"{seconds(served * held_bytes / through)}{twice} {step}"
    )


def by_reading(basis: Basis, prediction: Prediction) -> str:
    """``180 img/s a node, 0.21 s of the 0.36 s step``, where a step waits for images."""
    of_node = prediction.read_by == "node"
    read = f"{rate(basis.reader.node)} a node" if of_node else f"{rate(basis.reader.shared)} for all nodes"
    return f"{read}, {seconds(prediction.read_wait_s)} of the {seconds(prediction.step_s)} step"


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

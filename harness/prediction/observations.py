"""The observations that the model is fitted to: steps of known exchanges, in groups that share one set of parameters."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from statistics import fmean, stdev
from typing import NamedTuple

from harness import models
from harness.core import backend as backends
from harness.core.emulation import profile as device_profile
from harness.core.spec import RunSpec
from harness.core.text import plural
from harness.errors import InvalidInput
from harness.prediction.law import Law, profile
from harness.prediction.parameters import Network, network
from harness.prediction.workload import Workload
from harness.results.result import Result

# The relative standard error of a mean step. Repeats do not vary with days and allocations, so it is never taken to be less
# than LEAST_ERROR. Where no spread was published it is taken to be UNPUBLISHED.
LEAST_ERROR, UNPUBLISHED = 0.01, 0.02
USUAL = 4
USUAL_BATCH = int(RunSpec.model_fields["batch_size"].default)
# The note of a published table on runs that are the best of a search, and the strategy that lost it.
SEARCHED = "best PS count for this size"
LOST = {"parameter_server": "distributed_replicated", "distributed_replicated": "parameter_server"}
# The fields in which workers are alike whose steps are the same.
WORK = ("model", "batch_size", "image_size", "data", "precision", "threads", "training")

# The fields in which runs of one configuration are alike.
SAME = (
    *("status", "origin", "system", "software", "backend", "framework", "transport", "mpi", "device", *WORK),
    *("nodes", "workers", "ps", "tuned", "published_efficiency", "published_base"),
)


class GroupKey(NamedTuple):
    """The facts that a set of parameters belongs to: a system with a software stack, one mechanism, one transport."""

    system: str
    software: str
    mechanism: str  # "servers" or "allreduce"
    transport: str
    device: str
    mpi: str = ""  # the library, where results have several


class Assumed(NamedTuple):
    """The assumed throughput of one worker (img/s) where only efficiencies are known, and the figure's source (or "")."""

    img_per_s: float
    origin: str = ""


@dataclass(frozen=True)
class Observation:
    """The mean step of one run.

    ``step_s`` is in seconds, or in steps of a single worker where only an efficiency was published (``relative``).
    ``single_s`` is a single worker's step (s), None where nobody measured it. Then runs with equal ``work`` have it in
    common, and the fit of an efficiency starts from ``assumed``. ``error`` is the relative standard error of ``step_s``.
    ``beaten`` are the laws of configurations that were tried in its place and were not faster.
    """

    workload: Workload
    law: Law
    nodes: int
    workers: int
    ps: int
    step_s: float
    single_s: float | None
    work: Hashable
    error: float
    relative: bool = False
    beaten: tuple[Law, ...] = ()
    assumed: Assumed | None = None

    @property
    def img_per_s(self) -> float:
        """Throughput of all workers; NaN where only an efficiency is known."""
        return math.nan if self.relative else self.workers * self.workload.batch_size / self.step_s

    @property
    def label(self) -> str:
        """``parameter_server, 128 workers, 116 ps``."""
        servers = f", {self.ps} ps" if self.ps else ""
        return f"{self.workload.backend}, {plural(self.workers, 'worker')}{servers}"


@dataclass(frozen=True)
class ObservationGroup:
    """Observations with one set of parameters. ``forward_share`` of their compute is None where nobody measured it.

    ``link_gb_s`` is the line rate of a node's link (GB/s), where a table says it.
    """

    key: GroupKey
    observations: tuple[Observation, ...]
    forward_share: float | None = None
    link_gb_s: float | None = None

    @property
    def name(self) -> str:
        """``Piz Daint XC50 P100, TensorFlow 1.1.0, servers over grpc``."""
        system, software, mechanism, transport, _, library = self.key
        return f"{system}, {software}, {mechanism}" + (f" over {library or transport}" if transport else "")

    @property
    def network(self) -> Network:
        """The facts that are known of the network, by the table or by the system's name."""
        return network(self.key.system, self.link_gb_s)

    @cached_property
    def selected_on(self) -> bool:
        """Whether the law was chosen with these very measurements in sight: then nothing of them was ever held out."""
        from harness.results import published

        known = {(row.system, row.framework) for row in published.select("")}
        as_in_2017 = all(run.workload.as_in_2017 for run in self.observations)
        return as_in_2017 and (self.key.system, self.key.software) in known


def groups(
    results: Sequence[Result], data: str = "synthetic", forward_share: float | None = None
) -> tuple[list[ObservationGroup], list[str]]:
    """Return the groups of the completed trainings among results, and the reasons why others were left out.

    Runs of one configuration are one observation, of their mean.

    Runs that read image files are left out unless ``data`` is "real": reading is not part of the law. So are
    runs of other training (asynchronous, 16 bit gradients), of models that are not in ``harness/models``, of backends
    that do not say what they exchange, and efficiencies that are known to be relative to several workers. An efficiency
    whose batch nobody published is taken to be of the usual one.
    """
    left_out = Counter[str]()
    fitted: dict[GroupKey, list[Result]] = defaultdict(list)
    for run, runs in _distinct([result for result in results if not result.kernel]):
        if reason := unfit(run, data):
            left_out[reason] += runs
        else:
            fitted[_key(run)].append(run if run.batch_size else replace(run, batch_size=USUAL_BATCH))
    # Mean steps of a single worker, by its work, and by that and its backend.
    steps: dict[Hashable, list[float]] = defaultdict(list)
    for run in chain(*fitted.values()):
        if run.workers == 1 and not math.isnan(run.img_per_s):
            for work in (work_of(run), (run.backend, run.transport, work_of(run))):
                steps[work].append(step_of(run))
    singles = {work: sum(values) / len(values) for work, values in steps.items()}
    made = []
    for key in sorted(fitted):
        spread = _usual_spread(fitted[key])
        assumed = _assumed(fitted[key])
        observations = [_observation(run, singles, spread, assumed.get(run.model)) for run in fitted[key]]
        observations.sort(key=attrgetter("workers", "workload.backend", "ps"))
        link_gb_s = next((run.link_gb_s for run in fitted[key] if not math.isnan(run.link_gb_s)), None)
        made.append(ObservationGroup(key, tuple(observations), forward_share, link_gb_s))
    return made, [f"{plural(count, 'run')}: {reason}" for reason, count in left_out.most_common()]


def _distinct(results: Sequence[Result]) -> list[tuple[Result, int]]:
    """Return a result for each configuration, with the mean and the number of its runs: the law is the same for all.

    The spread of several runs is that of their means, not of the repeats within them. Of several publications of
    one configuration the fastest counts, as the tables of 2017 have the fastest.
    """
    alike: dict[tuple[Hashable, ...], dict[tuple[str, ...], list[Result]]] = defaultdict(lambda: defaultdict(list))
    same = attrgetter(*SAME)
    for result in results:
        # NaN does not equal itself.
        alike[tuple("NaN" if value != value else value for value in same(result))][result.publication].append(result)
    distinct = []
    for publications in alike.values():
        first, *others = max(publications.values(), key=lambda runs: fmean(run.img_per_s for run in runs))
        means = tuple(run.img_per_s for run in (first, *others))
        if others:
            first = replace(first, values=means, rate=fmean(means), stdev=stdev(means))
        distinct.append((first, sum(map(len, publications.values()))))
    return distinct


def unfit(run: Result, data: str) -> str:
    """The reason why the law is not about a result; "" if it is."""
    if not run.completed:
        return "without a number"
    if run.data != data and not (run.data == "" and data == "synthetic"):
        return (
            f"{'synthetic data' if run.data == 'synthetic' else 'image files'}; the law leaves out what reading costs"
        )
    if run.model not in models.names():
        return f"model {run.model} is not known here" if run.model else "the model is not stated"
    if run.training:
        return f"{run.training}: the law is about synchronous steps of 32 bit gradients"
    if run.published_base > 1:
        return f"an efficiency relative to {run.published_base} workers; the law starts from a single one"
    with suppress(InvalidInput):
        if backends.backend(run.backend).exchange is not None:
            unknown = not (run.ps or math.isnan(run.img_per_s)) and Workload.of(run).has_servers
            return "the number of servers is not known" if unknown else ""
    return f"backend {run.backend} does not say what it exchanges"


def device_of(run: Result) -> str:
    """The device of a result; of published ones, which do not say it, only Xeon Phi nodes computed on a CPU."""
    return run.device or ("cpu" if "KNL" in run.system else "cuda")


def _key(run: Result) -> GroupKey:
    mechanism = "servers" if Workload.of(run).has_servers else "allreduce"
    return GroupKey(run.system, run.software, mechanism, run.transport, device_of(run), run.mpi)


def step_of(run: Result) -> float:
    """The mean step, in seconds; in steps of a single worker where only an efficiency was published."""
    if math.isnan(run.img_per_s):
        return 1.0 / run.published_efficiency
    return run.workers * run.batch_size / run.img_per_s


def work_of(run: Result) -> tuple[Hashable, ...]:
    """The work of one worker in a step, with its system and software."""
    return *(getattr(run, name) for name in ("system", "software", *WORK)), run.options.get("data_format")


def _assumed(runs: Sequence[Result]) -> dict[str, Assumed]:
    """Return the assumed throughput of one worker, by model, where ``runs`` of one group have efficiencies; else empty.

    It is from the file of the system's device, if there is one. For models that are not in it, throughputs of the group,
    and else 1 step per second, are scaled by multiply-adds.
    """
    relative = sorted({run.model for run in runs if math.isnan(run.img_per_s)})
    if not relative:
        return {}
    largest_first = sorted((run for run in runs if run.img_per_s > 0), key=lambda run: -run.workers)
    known = {run.model: Assumed(run.img_per_s / run.workers, f"runs on {run.workers}") for run in largest_first}
    if device := network(runs[0].system).device:
        steps = device_profile(device).steps.items()
        known |= {name: Assumed(step.img_per_s, f"{device}, by {step.source}") for name, step in steps}
    known = known or {relative[0]: Assumed(USUAL_BATCH)}
    (model, (img_per_s, origin)), *_ = known.items()
    per_s, scaled_from = img_per_s * profile(model).multiply_adds, origin and f"{model} on {origin}"
    return {name: Assumed(per_s / profile(name).multiply_adds, scaled_from) for name in relative} | known


def _observation(run: Result, singles: Mapping[Hashable, float], usual: float, assumed: Assumed | None) -> Observation:
    relative, work, workload = math.isnan(run.img_per_s), work_of(run), Workload.of(run)
    of_backend = (run.backend, run.transport, work)
    # A search that a published table notes was won against the other strategy with as many servers.
    lost = LOST.get(run.backend) if SEARCHED in run.note and run.workers > 1 else None
    return Observation(
        workload=workload,
        law=workload.law(run.ps),
        nodes=run.workers // workload.devices_per_node,
        workers=run.workers,
        ps=run.ps,
        step_s=step_of(run),
        single_s=singles.get(of_backend, singles.get(work)),
        work=work,
        error=_error(run, usual),
        relative=relative,
        beaten=(replace(workload, backend=lost).law(run.ps),) if lost else (),
        assumed=assumed if relative else None,
    )


def _usual_spread(runs: Sequence[Result]) -> float:
    """The relative standard deviation of our own repeats, of all configurations together; 0 where nothing was repeated."""
    repeated = [run for run in runs if run.measured and len(run.values) > 1]
    squares = sum((len(run.values) - 1) * _relative(run) ** 2 for run in repeated)
    freedom = sum(len(run.values) - 1 for run in repeated)
    return math.sqrt(squares / freedom) if freedom else 0.0


def _relative(run: Result) -> float:
    return run.stdev / run.img_per_s if run.stdev > 0 else 0.0


def _error(run: Result, usual: float) -> float:
    """The relative standard error of a run's mean step.

    Repeats of ours are independent. The spread of few is pooled with the ``usual`` one of the group, as if that were of
    ``USUAL`` degrees of freedom. A published standard deviation is taken as it is: few sources state its number of runs and
    allocations.
    """
    if not run.measured:
        return math.hypot(LEAST_ERROR, _relative(run)) if run.stdev >= 0 else UNPUBLISHED
    repeats = max(1, len(run.values))
    variance = (USUAL * usual**2 + (repeats - 1) * _relative(run) ** 2) / (USUAL + repeats - 1)
    return math.hypot(LEAST_ERROR, math.sqrt(variance / repeats))


def informative(observations: Sequence[Observation]) -> list[Observation]:
    """The observations that bear on the law: a measured single worker's step is taken as it is."""
    return [run for run in observations if not (run.workers == 1 and run.single_s is not None)]

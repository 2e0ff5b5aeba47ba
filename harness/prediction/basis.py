"""The start of a prediction: the measurements that tell the rate of the network, and those that tell a worker's step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from harness.core import backend as backends
from harness.core.spec import EMULATED, RunSpec
from harness.core.text import listed
from harness.core.validation import making_sense_of, option_name
from harness.core.written import positive, understood
from harness.errors import InvalidInput
from harness.prediction import carried, fitting, parameters
from harness.prediction.forecast import UNLIMITED, Basis, Reader, described, reader
from harness.prediction.law import profile
from harness.prediction.observations import Assumed, Observation, ObservationGroup, device_of, groups
from harness.prediction.parameters import Network, Parameters
from harness.prediction.problem import ASSUMED_WITHIN, RING, structures
from harness.prediction.workload import Workload
from harness.results.imported import network_rate
from harness.results.result import Result
from harness.results.selection import parted
from harness.results.sources import kernels, load, with_number

# Fields of a spec, and of results, that a prediction takes from results where nobody gives them.
_COUNTS = ("batch_size", "image_size", "devices_per_node")
DESCRIBED = ("model", *_COUNTS, "device")
_NO_SINGLE = (
    "no run of {model} on one{device} worker is there; add one, or give --single IMG_PER_S, what one trains alone"
)


def of_site(name: str) -> list[Result]:
    """The published results of the system that site ``name`` is. Raises InvalidInput if there are none."""
    from harness.results import published
    from harness.sites import site

    target = site.find(name).name
    known = parameters.network(target)
    if not known.system:
        having = ", ".join(sorted(network.site for network in parameters.networks() if network.site))
        raise InvalidInput(
            f"--site {name}: nothing was published about it, as was about {having}; give --from RESULTS, measured there"
        )
    return [result for result in published.results(published.select("")) if result.system == known.system]


class Alone(NamedTuple):
    """One worker's img/s, its device ("auto": not known), how time was dilated, and all of that but the first in words."""

    img_per_s: float
    device: str
    dilation: float
    origin: str


@dataclass(frozen=True)
class StartingPoint:
    """The facts that a person gives for the start of predictions, beside results or in place of them.

    ``single`` is the throughput of one worker alone (img/s), or runs that have it; ``forward_share`` is that of its step.
    ``network`` is one with a line rate, or results of kernels that were measured on it: more than a rate. While a second
    of an emulated device passes, ``dilation`` seconds of theirs do; None: as in the runs of ``single``. The ``reader`` is
    that of real images.
    """

    transport: str | None = None
    device: str = "auto"
    single: float | Sequence[Result] | None = None
    forward_share: float | None = None
    network: Network | Sequence[Result] | None = None
    dilation: float | None = None
    reader: Reader = UNLIMITED

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> StartingPoint:
        """Build it from options by name; reads records that stand in place of a number. A rate is in bytes/s, or a text."""

        def number_or(records: str, option: str, read: Callable[[Any], Any]) -> Any:
            value = given.get(option)
            if value is None or (isinstance(value, str | Path) and Path(parted(value)[0]).exists()):
                return value and ((option == "network" and _printed(Path(value))) or load([value]))
            try:
                return read(value)
            except ValueError as error:
                raise InvalidInput(f"--{option} {value!r}: {error}, or {records}") from None

        network = number_or("a folder with what `harness kernel network` has measured", "network", parameters.link)
        return cls(
            transport=given.get("transport"),
            device=given.get("device") or "auto",
            single=number_or("the record of a run on one worker", "single", positive),
            forward_share=given.get("forward_share"),
            network=kernels(network) if isinstance(network, list) else network,
            reader=understood(f"--read-rate {given.get('read_rate')!r}", given.get("read_rate"), reader),
        )

    @property
    def read(self) -> list[str]:
        """A line with the rates of the ``reader``, if there are any."""
        rates = [(self.reader.node, "a node"), (self.reader.shared, "for all nodes")]
        finite = [f"{rate:,g} img/s {which}" for rate, which in rates if rate < math.inf]
        return [f"data: {' and '.join(finite)}, as given"] if finite else []

    def one_worker(self, workload: Workload) -> Alone | None:
        """One worker with the model and the batch of ``workload``; None if it is not given. Raises InvalidInput."""
        if isinstance(self.single, Sequence):
            return single_worker(self.single, workload)
        return None if self.single is None else Alone(self.single, "auto", 1.0, "as given")


def _printed(file: Path) -> Network | None:
    """The link of which another suite's test has printed the rate into ``file``; None if that is no such file."""
    with making_sense_of(file):
        rate = network_rate(file) if file.is_file() else None
    return Network(line_rate_gb_s=rate / 1e9) if rate else None


def as_measured(results: Sequence[Result], backend: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec in ``DESCRIBED`` that are not ``given``, as they were in ``results``.

    The runs that count are synchronous, with synthetic images, of ``backend`` if there are any, and as ``given``; of
    several kinds the one that was measured on most sizes. Empty where no run has the model that was given.
    """
    runs = _usual(results)
    for name, value in {"backend": backend, **{name: given.get(name) for name in DESCRIBED}}.items():
        alike = [run for run in runs if str(getattr(run, name)) == str(value)]
        if name == "model" and value is not None and not alike:
            return {}
        runs = alike or runs
    if not runs:
        return {}
    kinds = defaultdict(list)
    for run in runs:
        kinds[tuple(getattr(run, name) for name in DESCRIBED if name != "devices_per_node")].append(run)
    kind = max(kinds.values(), key=lambda alike: (len({run.workers for run in alike}), len(alike)))
    # A run on one node may have used some of its devices only.
    most = max(kind, key=lambda run: run.devices_per_node)
    missing = [name for name in DESCRIBED if given.get(name) is None and getattr(most, name)]
    if most.device not in backends.backend(backend).devices:
        missing = [name for name in missing if name != "device"]
    return {name: getattr(most, name) for name in missing}


def single_worker(results: Sequence[Result], workload: Workload) -> Alone:
    """The one worker in ``results`` with the model and the batch of ``workload``. Raises InvalidInput."""
    work = (1, workload.model, workload.batch_size)
    alike = [run for run in _usual(results) if (run.workers, run.model, run.batch_size) == work]
    if not alike:
        raise InvalidInput(
            f"--single: no run of {workload.model} with {workload.batch_size} images on one worker is there"
        )
    first = alike[0]
    if any((run.device, str(run.dilation)) != (first.device, str(first.dilation)) for run in alike):
        raise InvalidInput("--single: of several devices, or with time dilated otherwise; give the record of one run")
    origin = f"as measured on {first.processor or first.device}{_dilated([first.dilation], first.device)}"
    return Alone(fmean(run.img_per_s for run in alike), first.device, first.dilation, origin)


def _dilated(dilations: Sequence[float], device: str) -> str:
    """``, its time dilated by 4 and 8`` of an emulated device."""
    return f", its time dilated by {listed(map('{:g}'.format, dilations))}" if device.startswith(EMULATED) else ""


def _usual(results: Sequence[Result]) -> list[Result]:
    """The runs with a number that trained synchronously, in 32 bits, with synthetic images: the law is about them."""
    return [run for run in with_number(results) if not run.training and run.data in ("synthetic", "")]


def workload_and_basis(
    spec: Callable[[dict[str, object]], RunSpec],
    given: Mapping[str, Any],
    load_results: Callable[[Sequence[str]], Sequence[Result]],
) -> tuple[Workload, Basis]:
    """The workload to predict, and its basis: as it was measured where a field of its spec is not ``given``.

    ``spec`` makes the spec with fields that are added. ``given`` are the options by name, in bytes/s, and ``load_results``
    reads those of its ``sources``. Raises InvalidInput.
    """
    backend = spec({}).backend  # a wrong option is refused before many records are read
    site, sources = given.get("site"), given.get("sources")
    if site and sources:
        raise InvalidInput("--site: instead of --from; for both give --from reference, too")
    start = StartingPoint.of(given)
    results = load_results(sources) if sources else of_site(site) if site else None
    single_runs = start.single if isinstance(start.single, Sequence) else None
    described_by = results if single_runs is None else single_runs
    taken = {} if described_by is None else as_measured(described_by, backend, given)
    workload = described(spec(taken))
    if single_runs is None and "device" in taken:
        start = replace(start, device=taken["device"])
    basis = chosen_basis(workload, start, results)
    if taken:
        as_it_was = " ".join(f"{option_name(name)} {value}" for name, value in taken.items())
        basis = replace(basis, made_from=(f"as it was measured: {as_it_was}", *basis.made_from))
    return workload, basis


def chosen_basis(workload: Workload, start: StartingPoint, results: Sequence[Result] | None) -> Basis:
    """The basis from ``results`` and ``start``, or from ``start`` alone.

    Raises InvalidInput where that is too little, or gives the same twice.
    """
    single = start.one_worker(workload)
    devices = backends.backend(workload.backend).devices
    if start.device == "auto" and single:
        start = replace(start, device=single.device)
    elsewhere = results is not None and not any(device_of(result) in devices for result in results)
    if start.device == "auto" and len(devices) == 1 and not elsewhere:
        start = replace(start, device=devices[0])
    if start.network is not None:
        if single is None:
            raise InvalidInput("--network: needs --single, too: what one worker trains alone, in img/s")
        if results is not None:
            raise InvalidInput("--network: instead of --site and --from, which say it themselves")
        return _from_little(workload, start, start.network, single)
    if results is None:
        raise InvalidInput("nothing to start from: give --site NAME, --from RESULTS, or --single with --network")
    known = basis(results, workload, start)
    if not elsewhere:
        return known
    assumed = (
        f"{workload.backend} runs on {listed(devices, 'or')} only: its workers are taken to compute as fast as these"
    )
    return replace(known, made_from=(*known.made_from, assumed))


def _from_little(workload: Workload, start: StartingPoint, network: Network | Sequence[Result], single: Alone) -> Basis:
    """The basis from a single worker's throughput and the network's; all else, and the intervals, come from priors."""
    transport = start.transport or backends.backend(workload.backend).transports[0]
    forward_share = start.forward_share or parameters.forward_share(start.device.replace("auto", "cuda"))
    possible = structures(workload.has_servers, transport, workload.has_servers and workload.law(1).order_is_known)
    nominal: float | None
    if isinstance(network, Network):
        known = network.quantities(transport, workload.has_servers)
        line_rate_gb_s = network.line_rate_gb_s or 0.0
        nominal, nodes = line_rate_gb_s * 1e9 * parameters.PAYLOAD, 1
        by = "" if network.rdma is None else " by RDMA" if transport in network.rdma else " through sockets"
        origin = f"line rate {line_rate_gb_s:g} GB/s{by}, as given"
        origin += "; nothing was measured on several nodes, so all else is assumed"
    else:
        dilation = single.dilation if start.dilation is None else start.dilation
        measured = carried.priors(network, workload.backend, transport, workload.has_servers, dilation)
        known = Network().quantities(transport, workload.has_servers)
        known = [replace(q, prior=measured.get(q.name, q.prior)) for q in known]
        possible = possible if workload.has_servers else (RING,)  # that is how kernels' rates are counted
        named = [(q, q.prior.at(0.0)) for q in known if q.name in measured]
        shown = [f"{q.name} {value * q.scale:.4g} {q.unit}".rstrip() for q, value in named if value]
        times = f"; a second of the device is {dilation:g} of theirs" if dilation != 1 else ""
        nominal, nodes = None, max(run.nodes for run in network)
        origin = f"{', '.join(shown)}, as kernels over {transport} say{times}; nothing was fitted"
    typical: dict[str, Any] = {q.name: q.prior.at(0.0) for q in known}
    single_s = workload.batch_size / single.img_per_s
    rate, two_lines = _link(nominal, typical["throughput"], "kernels say")
    return Basis(
        parameters=Parameters(forward_share=forward_share, **typical | dict([possible[0]])),
        single_s=single_s,
        draws=fitting.beforehand(known, forward_share, possible),
        single_draws=single_s,
        made_from=(
            f"one worker: {single.img_per_s:g} img/s, {single.origin}",
            f"network: {origin}",
            two_lines,
            *start.read,
        ),
        rate=rate,
        reader=start.reader,
        nodes=nodes,
    )


def _link(nominal: float | None, known: float, how: str) -> tuple[float, str]:
    """The rate of a link for two lines (bytes/s), and its origin: the nominal one, else the ``known`` one."""
    rate = nominal or known
    which = "the nominal rate without headers" if nominal else f"the rate that {how}, as no nominal rate is known"
    return rate, f"two lines: a link carries {rate / 1e9:.4g} GB/s, {which}"


def basis(results: Sequence[Result], workload: Workload, start: StartingPoint, strict: bool = False) -> Basis:
    """The basis of predictions of ``workload`` from ``results``.

    Of several groups with the right mechanism (and the transport of ``start``) the one with most sizes is taken, of the
    backend if it was measured on several nodes. A single worker's step comes from it, too, else from another group; of
    another batch it is scaled. ``start`` may have one instead of it, and a forward share instead of the usual one.
    The single worker's step is one on the device of ``start``; what was fitted to others still tells of the network.
    ``strict`` requires a measured single worker. Raises InvalidInput where something is not known.
    """
    single = start.one_worker(workload)
    every, _ = groups(results, forward_share=start.forward_share)
    if single is not None:
        every = [_completed(group, workload, single) for group in every]
    chosen = _most_telling(every, workload, start.transport)
    if strict and not any(_alike(run, workload) and run.single_s for group in every for run in group.observations):
        raise InvalidInput(_NO_SINGLE.format(model=workload.model, device=""))
    fit = fitting.fit(chosen)
    others = [group for group in every if group.key.system == chosen.key.system and group is not chosen]
    toolkit = chosen.key.software.partition(" ")[0]  # any version of it comes before another toolkit
    ours = [chosen, *sorted(others, key=lambda group: group.key.software.partition(" ")[0] != toolkit)]
    if single is not None:
        single_s = single_draws = workload.batch_size / single.img_per_s
        origin = f"{single.img_per_s:g} img/s, {single.origin}"
    else:
        single_s, single_draws, origin = _one_worker(ours, workload, start.device)
    trained = [run.workload for group in ours for run in group.observations]
    nominal = parameters.nominal_rate(chosen.key.system, chosen.link_gb_s)
    rate, two_lines = _link(nominal, float(fit.parameters.throughput), "was fitted")
    dilations = sorted({run.dilation for run in results if run.system == chosen.key.system})
    network = f"network: fitted to {chosen.name}{_dilated(dilations, chosen.key.device)}"
    assumed = [estimate.quantity.name.replace("_", " ") for estimate in fit.estimates if not estimate.identified]
    more = [f"not identified by those runs, and mostly assumed: {', '.join(assumed)}"] if assumed else []
    of_fit = (
        "this is computed with the most probable parameters, from which the medians of harness model fit may be far"
    )
    return Basis(
        parameters=fit.parameters,
        single_s=single_s,
        draws=fit.draws,
        single_draws=single_draws,
        made_from=(f"one worker: {origin}", network, two_lines, *start.read, *more),
        warning=f"{chosen.name}: {fit.misfit.contradiction}; {of_fit}" if fit.misfit.contradiction else "",
        rate=rate,
        reader=start.reader,
        nodes=max(run.nodes for run in chosen.observations),
        batches=tuple(sorted({run.batch_size for run in trained if run.model == workload.model})),
    )


def _completed(group: ObservationGroup, workload: Workload, single: Alone) -> ObservationGroup:
    """``group`` with the step of the ``single`` worker where nobody measured that of ``workload``.

    Its throughput is also assumed of other models, by multiply-adds, if nobody has a figure of them.
    """
    work = single.img_per_s * profile(workload.model).multiply_adds

    def completed(run: Observation) -> Observation:
        if run.single_s is None and _alike(run, workload):
            return replace(run, single_s=run.workload.batch_size / single.img_per_s)
        if run.assumed and not run.assumed.origin:
            return replace(run, assumed=Assumed(work / profile(run.workload.model).multiply_adds))
        return run

    return replace(group, observations=tuple(map(completed, group.observations)))


def _most_telling(every: Sequence[ObservationGroup], workload: Workload, transport: str | None) -> ObservationGroup:
    """The group that tells most of the network of ``workload``. Raises InvalidInput for none, or several systems."""
    mechanism = "servers" if workload.has_servers else "allreduce"
    suitable = [
        group
        for group in every
        if group.key.mechanism == mechanism
        and transport in (None, group.key.transport)
        and any(run.nodes > 1 for run in group.observations)
    ]
    if not suitable:
        raise InvalidInput(
            f"no results on several nodes with {'parameter servers' if workload.has_servers else 'an allreduce'}"
            f"{f' over {transport}' if transport else ''} to start from; give others, or --single and --network"
        )
    if len(systems := sorted({group.key.system for group in suitable})) > 1:
        raise InvalidInput(f"results of {len(systems)} systems to start from ({', '.join(systems)}); give those of one")
    # Runs of the same backend tell more than another's with the same mechanism.
    return max(
        suitable,
        key=lambda group: (
            any(run.workload.backend == workload.backend and run.nodes > 1 for run in group.observations),
            len({run.workers for run in group.observations}),
            len(group.observations),
        ),
    )


def _alike(run: Observation, workload: Workload, batch: int | None = None) -> bool:
    same, images = run.workload.model == workload.model, run.workload.image_size in (None, workload.image_size)
    return same and images and batch in (None, run.workload.batch_size)


def _one_worker(every: Sequence[ObservationGroup], workload: Workload, device: str) -> tuple[float, Any, str]:
    """A single worker's step (s), draws of it, and its origin: from the first of the groups that has one.

    Workers with the work of those on several nodes come first: on one machine a node alone has more threads. Efficiencies
    come last, if there is a figure of one worker beside them.
    """
    for relative, batch in product((False, True), (workload.batch_size, None)):
        for group in every:
            runs = [run for run in group.observations if _alike(run, workload, batch) and run.relative == relative]
            runs = [run for run in runs if run.single_s or not run.assumed or run.assumed.origin]
            if not runs or device not in ("auto", group.key.device):
                continue
            usual = {run.work for run in group.observations if run.nodes > 1}
            same = [run for run in runs if run.work in usual] or runs
            first = next((run for run in same if run.single_s is not None), same[0])
            if first.single_s is not None:
                draws: Any = first.single_s
                step_s, how = first.single_s, "measured"
            else:
                fit = fitting.fit(group)
                draws = fit.single_draws[first.work]
                step_s, how = fit.singles[first.work], "fitted"
            origin = f"{how}, {first.workload.batch_size / step_s:,.4g} img/s ({group.name})"
            if first.assumed and not first.single_s:
                origin += f"; assumed beforehand: {first.assumed.img_per_s:.4g} img/s, within a factor of "
                origin += f"{ASSUMED_WITHIN:g} ({first.assumed.origin})"
            if any(run.workers == 1 and run.single_s is not None and run not in same for run in runs):
                origin += "; the worker that was measured alone has other threads, data or software"
            if (factor := workload.batch_size / first.workload.batch_size) != 1:
                origin += f", and scaled from {first.workload.batch_size} to {workload.batch_size} images per step"
            return step_s * factor, draws * factor, origin
    raise InvalidInput(_NO_SINGLE.format(model=workload.model, device="" if device == "auto" else f" {device}"))

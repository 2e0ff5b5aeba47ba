"""What a prediction starts from: which of the measurements say how fast the network is, and which how long a step takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from harness.core import backend as backends
from harness.core.spec import EMULATED, RunSpec
from harness.core.text import listed
from harness.core.validation import option_name
from harness.errors import InvalidInput
from harness.prediction import carried, fitting, parameters
from harness.prediction.forecast import Basis, What, described
from harness.prediction.observations import Observation, ObservationGroup, groups
from harness.prediction.parameters import Network, Parameters
from harness.prediction.problem import RING, quantities, structures
from harness.results.result import Result
from harness.results.sources import with_number

# What a prediction takes from results where nobody says it: fields of a spec, and of results.
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
        having = ", ".join(sorted(one.site for one in parameters.networks() if one.site))
        raise InvalidInput(
            f"--site {name}: nothing was published about it, as was about {having}; give --from RESULTS, measured there"
        )
    return [result for result in published.results(published.select("")) if result.system == known.system]


@dataclass(frozen=True)
class StartingPoint:
    """What somebody says of where predictions start, beside results or in place of them.

    ``single`` is what one worker trains alone (img/s), and ``said`` where that is from; ``forward_share`` is that of its
    step's compute. ``throughput`` is what a node sends, ``line_rate`` that of the network (bytes/s),
    ``overhead`` that of a step of several workers (s). ``kernels`` are results measured on that network: more than a rate.
    While a second of an emulated device passes, ``dilation`` seconds of theirs do.
    """

    transport: str | None = None
    device: str = "auto"
    single: float | None = None
    said: str = "as given"
    forward_share: float | None = None
    throughput: float | None = None
    line_rate: float | None = None
    overhead: float | None = None
    kernels: Sequence[Result] | None = None
    dilation: float = 1.0

    @property
    def networks(self) -> dict[str, object]:
        """What it says of the network, by option."""
        network = self.kernels if self.line_rate is None else self.line_rate
        given = {"--throughput": self.throughput, "--network": network}
        return {option: value for option, value in given.items() if value is not None}


NOTHING_SAID = StartingPoint()


def as_measured(results: Sequence[Result], backend: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What nobody has ``given`` of the fields of a spec in ``DESCRIBED``, as it was in ``results``.

    Those are the synchronous runs with synthetic images, of ``backend`` if there are any, that are as ``given``; of several
    kinds the one that was measured on most sizes. Empty where no run has the model that was given.
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


class Alone(NamedTuple):
    """One worker's img/s, its device, how time was dilated, and all of that but the first in words."""

    img_per_s: float
    device: str
    dilation: float
    said: str


def alone(results: Sequence[Result], what: What) -> Alone:
    """What one worker in ``results`` trains with the model and the batch of ``what``. Raises InvalidInput."""
    wanted = (1, what.model, what.batch_size)
    alike = [run for run in _usual(results) if (run.workers, run.model, run.batch_size) == wanted]
    if not alike:
        raise InvalidInput(f"--single: no run of {what.model} with {what.batch_size} images on one worker is there")
    first = alike[0]
    if any((run.device, str(run.dilation)) != (first.device, str(first.dilation)) for run in alike):
        raise InvalidInput("--single: of several devices, or with time dilated otherwise; give the record of one run")
    said = f"as measured on {first.processor or first.device}{_dilated([first.dilation], first.device)}"
    return Alone(fmean(run.img_per_s for run in alike), first.device, first.dilation, said)


def _dilated(dilations: Sequence[float], device: str) -> str:
    """``, its time dilated by 4 and 8`` of an emulated device."""
    return f", its time dilated by {listed(f'{one:g}' for one in dilations)}" if device.startswith(EMULATED) else ""


def _usual(results: Sequence[Result]) -> list[Result]:
    """The runs with a number that trained synchronously, in 32 bits, with synthetic images: those that the law is about."""
    return [run for run in with_number(results) if not run.training and run.data in ("synthetic", "")]


def measured(site: str | None, load: Callable[[], Sequence[Result]] | None) -> Sequence[Result] | None:
    """The results that ``load`` gives, or what was published of ``site``; None without either. Raises InvalidInput."""
    if site and load:
        raise InvalidInput("--site: instead of --from; for both give --from reference, too")
    return load() if load else of_site(site) if site else None


def asked(
    spec: Callable[[dict[str, object]], RunSpec],
    given: Mapping[str, Any],
    start: StartingPoint,
    results: Sequence[Result] | None,
    one_worker: Sequence[Result] | None = None,
) -> tuple[What, Basis]:
    """What is to be predicted, and from what: as it was measured where nobody has ``given`` a field of its spec.

    ``spec`` makes the spec with fields that are added. ``results`` are those of ``measured``; those of ``one_worker`` say
    what one trains alone, in place of a number in ``start``. Raises InvalidInput.
    """
    said = results if one_worker is None else one_worker
    taken = {} if said is None else as_measured(said, spec({}).backend, given)
    what = described(spec(taken))
    device = given.get("device") or taken.get("device")
    if one_worker is not None:
        single, measured_on, dilation, told = alone(one_worker, what)
        start, device = replace(start, single=single, said=told, dilation=dilation), given.get("device") or measured_on
    found = chosen(what, replace(start, device=device or "auto"), results)
    if taken:
        as_it_was = " ".join(f"{option_name(name)} {value}" for name, value in taken.items())
        found = replace(found, told=(f"as it was measured: {as_it_was}", *found.told))
    return what, found


def chosen(what: What, start: StartingPoint, results: Sequence[Result] | None) -> Basis:
    """From ``results`` and what ``start`` says beside them, or from ``start`` alone.

    Raises InvalidInput where that is too little, or says the same twice.
    """
    # The kind of device that one worker computes on; None where the backend leaves it open.
    devices = backends.backend(what.backend).devices
    device = start.device if start.device != "auto" else devices[0] if len(devices) == 1 else None
    options = list(start.networks)
    if len(options) > 1:
        raise InvalidInput("--throughput: instead of --network; give one of them")
    if options:
        if start.single is None:
            raise InvalidInput(f"{options[0]}: needs --single, too: what one worker trains alone, in img/s")
        if results is not None:
            raise InvalidInput(f"{options[0]}: instead of --site and --from, which say it themselves")
        return _from_little(what, start, start.single, device or "cuda")
    if start.overhead is not None:
        raise InvalidInput("--overhead: only with --throughput or --network; results say it themselves")
    if results is None:
        raise InvalidInput(
            "nothing to start from: give --site NAME, --from RESULTS, or --single with --network or --throughput"
        )
    return basis(results, what, start, device=device)


def _from_little(what: What, start: StartingPoint, single: float, device: str) -> Basis:
    """From a single worker's throughput and the network's; all else, and the intervals, are what is known beforehand."""
    transport = start.transport or backends.backend(what.backend).transports[0]
    forward_share = start.forward_share or parameters.forward_share(device)
    possible = structures(what.has_servers, transport, what.has_servers and what.law(1).order_is_known)
    given = {"throughput": start.throughput, "overhead": start.overhead, "replica_overhead": start.overhead}
    fixed = {name: value for name, value in given.items() if value is not None}
    line = Network(line_rate_gb_s=start.line_rate and start.line_rate / 1e9)
    nodes = 1
    known = quantities(line.throughput(transport), what.has_servers)
    if start.kernels is None:
        network = f"line rate {start.line_rate / 1e9:g} GB/s" if start.line_rate else ""
        network += f"a node sends {start.throughput / 1e9:g} GB/s" if start.throughput else ""
        network += f", {start.overhead * 1e3:g} ms of overhead" if start.overhead else ""
        network += ", as given; nothing was measured on several nodes, so all else is assumed"
    else:
        found = carried.priors(start.kernels, what.backend, transport, what.has_servers, start.dilation)
        known = [replace(q, prior=found.get(q.name, q.prior)) for q in known]
        possible = possible if what.has_servers else (RING,)  # that is how kernels' rates are counted
        named = [(q, q.prior.at(0.0)) for q in known if q.name in found]
        shown = [f"{q.name} {value * q.scale:.4g} {q.unit}".rstrip() for q, value in named if value]
        times = f"; a second of the device is {start.dilation:g} of theirs" if start.dilation != 1 else ""
        nodes = max(each.nodes for each in start.kernels)
        network = f"{', '.join(shown)}, as kernels over {transport} say{times}; nothing was fitted"
    typical: dict[str, Any] = {q.name: q.prior.at(0.0) for q in known} | fixed
    single_s = what.batch_size / single
    nominal = start.line_rate and start.line_rate * parameters.PAYLOAD
    rate, two_lines = _link(nominal, typical["throughput"], "kernels say" if nodes > 1 else "was given")
    return Basis(
        parameters=Parameters(forward_share=forward_share, **typical | dict([possible[0]])),
        single_s=single_s,
        draws=fitting.beforehand(known, forward_share, possible, fixed),
        single_draws=single_s,
        told=(f"one worker: {single:g} img/s, {start.said}", f"network: {network}", two_lines),
        rate=rate,
        nodes=nodes,
    )


def _link(nominal: float | None, known: float, how: str) -> tuple[float, str]:
    """The rate of a link for two lines (bytes/s), and where it is from: its nominal one, else what is ``known``."""
    rate = nominal or known
    which = "the nominal rate without headers" if nominal else f"the rate that {how}, as no nominal rate is known"
    return rate, f"two lines: a link carries {rate / 1e9:.4g} GB/s, {which}"


def basis(
    results: Sequence[Result],
    what: What,
    start: StartingPoint = NOTHING_SAID,
    strict: bool = False,
    device: str | None = None,
) -> Basis:
    """What ``results`` say about ``what``.

    Of several groups with the right mechanism (and the transport of ``start``) the one with most sizes is taken, of the
    backend if it was measured on several nodes. A single worker's step comes from it, too, else from another group; of
    another batch it is scaled. ``start`` may have one instead of it, and a forward share instead of the usual one.
    ``strict`` wants a single worker measured. With ``device`` ("cpu" or "cuda") the single worker's step is one on that;
    what was fitted to others still tells of the network. Raises InvalidInput where something is not known.
    """
    transport, single = start.transport, start.single
    found, _ = groups(results, forward_share=start.forward_share)
    if single is not None:

        def completed(one: Observation) -> Observation:
            nobody_measured = one.single_s is None and _alike(one, what)
            return replace(one, single_s=one.batch / single) if nobody_measured else one

        found = [replace(group, observations=tuple(map(completed, group.observations))) for group in found]
    mechanism = "servers" if what.has_servers else "allreduce"
    suitable = [
        group
        for group in found
        if group.key.mechanism == mechanism
        and transport in (None, group.key.transport)
        and any(one.nodes > 1 for one in group.observations)
    ]
    if not suitable:
        raise InvalidInput(
            f"no results on several nodes with {'parameter servers' if what.has_servers else 'an allreduce'}"
            f"{f' over {transport}' if transport else ''} to start from; give others, or --single and --network"
        )
    if strict and not any(_alike(one, what) and one.single_s for group in found for one in group.observations):
        raise InvalidInput(_NO_SINGLE.format(model=what.model, device=""))
    if len(systems := sorted({group.key.system for group in suitable})) > 1:
        raise InvalidInput(f"results of {len(systems)} systems to start from ({', '.join(systems)}); give those of one")
    # The backend's own runs say more than another's with the same mechanism.
    chosen = max(
        suitable,
        key=lambda one: (
            any(each.backend == what.backend and each.nodes > 1 for each in one.observations),
            len({each.workers for each in one.observations}),
            len(one.observations),
        ),
    )
    fit = fitting.fit(chosen)

    if single is not None:
        single_s = single_draws = what.batch_size / single
        said = f"{single:g} img/s, {start.said}"
    else:
        others = [group for group in found if group.key.system == systems[0] and group is not chosen]
        single_s, single_draws, said = _one_worker([chosen, *others], what, device)
    p, drawn = fit.parameters, fit.draws.parameters
    if all(one.relative for one in chosen.observations):
        p, drawn = p.in_units_of(single_s), drawn.in_units_of(single_s)
    assumed = [one.quantity.name.replace("_", " ") for one in fit.estimates if not one.identified]
    more = [f"not identified by those runs, and mostly assumed: {', '.join(assumed)}"] if assumed else []
    of_fit = "this is computed with the most probable parameters, from which the medians of harness fit may be far"
    warning = f"{chosen.name}: {fit.misfit.contradiction}; {of_fit}" if fit.misfit.contradiction else ""
    rate, two_lines = _link(parameters.nominal_rate(systems[0]), float(p.throughput), "was fitted")
    dilated = _dilated(sorted({run.dilation for run in results if run.system == systems[0]}), chosen.key.device)
    told = (f"one worker: {said}", f"network: fitted to {chosen.name}{dilated}", two_lines, *more)
    nodes = max(one.nodes for one in chosen.observations)
    own = [group for group in found if group.key.system == systems[0]]
    batches = tuple(sorted({one.batch for group in own for one in group.observations if one.model == what.model}))
    return Basis(p, single_s, replace(fit.draws, parameters=drawn), single_draws, told, warning, rate, nodes, batches)


def _alike(one: Observation, what: What, batch: int | None = None) -> bool:
    return one.model == what.model and one.image_size in (0, what.image_size or 0) and batch in (None, one.batch)


def _one_worker(found: Sequence[ObservationGroup], what: What, device: str | None) -> tuple[float, Any, str]:
    """A single worker's step (s), draws of it, and where it is from: the first of the groups that says it.

    Workers that do what those on several nodes do come first: on one machine a node alone has more threads.
    """
    for batch in (what.batch_size, None):
        for group in found:
            runs = [one for one in group.observations if _alike(one, what, batch) and not one.relative]
            if not runs or device not in (None, group.key.device):
                continue
            usual = {run.work for run in group.observations if run.nodes > 1}
            same = [run for run in runs if run.work in usual] or runs
            one = next((run for run in same if run.single_s is not None), same[0])
            if one.single_s is not None:
                draws: Any = one.single_s
                step_s, how = one.single_s, "measured"
            else:
                fit = fitting.fit(group)
                draws = fit.single_draws[one.work]
                step_s, how = fit.singles[one.work], "fitted"
            said = f"{how}, {one.batch / step_s:,.4g} img/s ({group.name})"
            if any(run.workers == 1 and run.single_s is not None and run not in same for run in runs):
                said += "; the worker that was measured alone has other threads, data or software"
            if (factor := what.batch_size / one.batch) != 1:
                said += f", and scaled from {one.batch} to {what.batch_size} images per step"
            return step_s * factor, draws * factor, said
    raise InvalidInput(_NO_SINGLE.format(model=what.model, device=f" {device}" if device else ""))

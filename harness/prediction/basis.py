"""What a prediction starts from: which of the measurements say how fast the network is, and which how long a step takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.core import backend as backends
from harness.errors import InvalidInput
from harness.prediction import fitting, parameters
from harness.prediction.fitting import Fit
from harness.prediction.forecast import Basis, What
from harness.prediction.observations import Observation, ObservationGroup, groups
from harness.prediction.parameters import FORWARD_SHARE, Network, Parameters
from harness.prediction.problem import quantities, structures

if TYPE_CHECKING:
    import pandas


_NO_SINGLE = (
    "no run of {model} on one{device} worker is there; add one, or give --single IMG_PER_S, what one trains alone"
)


def of_site(name: str) -> pandas.DataFrame:
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
    frame = published.frame(published.select(""))
    return frame[frame["system"] == known.system]


@dataclass(frozen=True)
class Start:
    """What somebody says of where predictions start, beside results or in place of them.

    ``single`` is what one worker trains alone (img/s), ``forward_share`` that of its step's compute. ``throughput`` is what
    a node sends, ``line_rate`` that of the network (bytes/s), ``overhead`` that of a step of several workers (s).
    """

    transport: str | None = None
    device: str = "auto"
    single: float | None = None
    forward_share: float | None = None
    throughput: float | None = None
    line_rate: float | None = None
    overhead: float | None = None


def chosen(what: What, start: Start, site: str | None, load: Callable[[], pandas.DataFrame] | None) -> Basis:
    """The basis of a prediction: from results that ``load`` gives, from what was published of ``site``, or from ``start``.

    Raises InvalidInput where that is too little, or says the same twice.
    """
    networks = {"--throughput": start.throughput, "--network": start.line_rate}
    told = [option for option, value in networks.items() if value is not None]
    if len(told) > 1:
        raise InvalidInput("--throughput: instead of --network; give one of them")
    if told:
        if start.single is None:
            raise InvalidInput(f"{told[0]}: needs --single, too: what one worker trains alone, in img/s")
        if site or load:
            raise InvalidInput(f"{told[0]}: instead of --site and --from, which say it themselves")
        return from_little(what, start)
    if start.overhead is not None:
        raise InvalidInput("--overhead: only with --throughput or --network; results say it themselves")
    if site and load:
        raise InvalidInput("--site: instead of --from; for both give --from reference, too")
    if load:
        frame = load()
    elif site:
        frame = of_site(site)
    else:
        raise InvalidInput(
            "nothing to start from: give --site NAME, --from RESULTS, or --single with --network or --throughput"
        )
    return basis(frame, what, start.transport, start.single, start.forward_share, device=_device(what, start))


def _device(what: What, start: Start) -> str | None:
    """The kind of device that one worker computes on; None where the backend leaves it open."""
    devices = backends.backend(what.backend).devices
    return start.device if start.device != "auto" else devices[0] if len(devices) == 1 else None


def from_little(what: What, start: Start) -> Basis:
    """From a single worker's throughput, and the network's line rate or what a node sends over it.

    An overhead is taken as given if it is; all else is what is known beforehand, and so are the intervals.
    """
    assert start.single is not None
    transport = start.transport or backends.backend(what.backend).transports[0]
    forward_share = start.forward_share or FORWARD_SHARE[_device(what, start) or "cuda"]
    possible = structures(what.has_servers, transport)
    known = Network(line_rate_gb_s=start.line_rate and start.line_rate / 1e9).throughput(transport)
    fixed: dict[str, float] = {}
    if start.throughput is not None:
        fixed["throughput"] = start.throughput
        network = f"a node sends {start.throughput / 1e9:g} GB/s"
    else:
        network = f"line rate {(start.line_rate or 0) / 1e9:g} GB/s"
    if start.overhead is not None:
        fixed |= {"overhead": start.overhead, "replica_overhead": start.overhead}
        network += f", {start.overhead * 1e3:g} ms of overhead"
    typical: dict[str, Any] = {q.name: q.prior.at(0.0) for q in quantities(known, what.has_servers)} | fixed
    single_s = what.batch_size / start.single
    return Basis(
        parameters=Parameters(forward_share=forward_share, **typical | dict(possible[0])),
        single_s=single_s,
        draws=fitting.beforehand(known, forward_share, possible, fixed),
        single_draws=single_s,
        told=(
            f"one worker: {start.single:g} img/s, as given",
            f"network: {network}, as given; nothing was measured on several nodes, so all else is assumed",
        ),
    )


def basis(
    frame: pandas.DataFrame,
    what: What,
    transport: str | None = None,
    single: float | None = None,
    forward_share: float | None = None,
    strict: bool = False,
    device: str | None = None,
) -> Basis:
    """What the results in a DataFrame of ``results.load`` say about ``what``.

    Of several groups with the right mechanism (and ``transport``) the one with most sizes is taken. A single worker's step
    comes from it, too, else from another group; of another batch it is scaled. ``single`` (img/s) is given instead of it,
    ``forward_share`` instead of the usual one. ``strict`` wants a single worker measured. With ``device`` ("cpu" or
    "cuda") the single worker's step is one on that; what was fitted to others still tells of the network. Raises
    InvalidInput where something is not known.
    """
    found, _ = groups(frame, forward_share=forward_share)
    if single is not None:
        found = [_told_single(group, what, single) for group in found]
    mechanism = "servers" if what.has_servers else "allreduce"
    suitable = [one for one in found if one.key.mechanism == mechanism and transport in (None, one.key.transport)]
    suitable = [one for one in suitable if any(each.nodes > 1 for each in one.observations)]
    if not suitable:
        raise InvalidInput(
            f"no results on several nodes with {'parameter servers' if what.has_servers else 'an allreduce'}"
            f"{f' over {transport}' if transport else ''} to start from; give others, or --single and --network"
        )
    if strict and not any(_alike(each, what, None) and each.single_s for one in found for each in one.observations):
        raise InvalidInput(_NO_SINGLE.format(model=what.model, device=""))
    if len(systems := sorted({one.key.system for one in suitable})) > 1:
        raise InvalidInput(f"results of {len(systems)} systems to start from ({', '.join(systems)}); give those of one")
    found = [one for one in found if one.key.system == systems[0]]
    chosen = max(suitable, key=lambda one: (len({each.workers for each in one.observations}), len(one.observations)))
    fit = fitting.fit(chosen)
    single_s, single_draws, told = _single(fit, found, what, single, device)
    p, drawn = fit.parameters, fit.draws.parameters
    if all(one.relative for one in chosen.observations):
        p, drawn = p.in_units_of(single_s), drawn.in_units_of(single_s)
    assumed = [one.quantity.name.replace("_", " ") for one in fit.estimates if not one.identified]
    more = [f"not identified by those runs, and mostly assumed: {', '.join(assumed)}"] if assumed else []
    warning = f"{chosen.name}: {fit.misfit.contradiction}" if fit.misfit.contradiction else ""
    told = (*told, f"network: fitted to {chosen.name}", *more)
    return Basis(p, single_s, replace(fit.draws, parameters=drawn), single_draws, told, warning)


def _single(
    fit: Fit, found: Sequence[ObservationGroup], what: What, single: float | None, device: str | None
) -> tuple[float, Any, tuple[str, ...]]:
    """A single worker's step (s), draws of it, and where it is from. ``single`` (img/s) is what was given instead."""
    if single is not None:
        step_s = what.batch_size / single
        return step_s, step_s, (f"one worker: {single:g} img/s, as given",)
    ordered = [fit.group, *(one for one in found if one is not fit.group)]
    for batch in (what.batch_size, None):
        for group in (one for one in ordered if device in (None, one.key.device)):
            those = [one for one in group.observations if _alike(one, what, batch)]
            measured = next((one for one in those if one.single_s is not None and not one.relative), None)
            if measured is not None:
                assert measured.single_s is not None
                return _scaled(measured.single_s, measured.single_s, measured, what, group, "measured")
            if those:
                its = fit if group is fit.group else fitting.fit(group)
                one = those[0]
                if one.relative:
                    continue
                return _scaled(its.singles[one.work], its.single_draws[one.work], one, what, group, "fitted")
    raise InvalidInput(_NO_SINGLE.format(model=what.model, device=f" {device}" if device else ""))


def _told_single(group: ObservationGroup, what: What, single: float) -> ObservationGroup:
    """``group`` with what a single worker does in the runs that are alike, where nobody measured it."""
    observations = (
        replace(one, single_s=one.batch / single) if one.single_s is None and _alike(one, what, None) else one
        for one in group.observations
    )
    return replace(group, observations=tuple(observations))


def _alike(one: Observation, what: What, batch: int | None) -> bool:
    image = what.image_size or 0
    model, size = one.model, one.image_size
    return model == what.model and size in (0, image) and batch in (None, one.batch)


def _scaled(
    step_s: float, draws: Any, one: Observation, what: What, group: ObservationGroup, how: str
) -> tuple[float, Any, tuple[str, ...]]:
    factor = what.batch_size / one.batch
    told = f"one worker: {how}, {one.batch / step_s:,.4g} img/s ({group.name})"
    if factor != 1:
        told += f", and scaled from {one.batch} to {what.batch_size} images per step"
    return step_s * factor, draws * factor, (told,)

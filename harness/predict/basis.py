"""What a prediction starts from: which of the measurements say how fast the network is, and which how long a step takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from harness import backend as backends
from harness.errors import InvalidInput
from harness.predict import fitting, parameters
from harness.predict.fitting import DRAWN, Fit
from harness.predict.forecast import Basis, What
from harness.predict.observations import Group, Observation, groups
from harness.predict.parameters import REPLICA_OVERHEAD, Parameters
from harness.predict.profile import Floats

if TYPE_CHECKING:
    import pandas


_NO_SINGLE = (
    "no run of {model} on one{device} worker is there; add one, or give --single IMG_PER_S, what one trains alone"
)


def of_site(name: str) -> pandas.DataFrame:
    """The published results of the system that site ``name`` is. Raises InvalidInput if there are none."""
    from harness import published, site

    target = site.find(name).name
    known = parameters.network(target)
    if not known.system:
        having = ", ".join(sorted(one.site for one in parameters.networks() if one.site))
        raise InvalidInput(
            f"--site {name}: nothing was published about it, as was about {having}; give --from RESULTS, measured there"
        )
    frame = published.frame(published.select(""))
    return frame[frame["system"] == known.system]


def by_hand(single: float, throughput: float, overhead: float, what: What, forward_share: float) -> Basis:
    """From a single worker's throughput (img/s), a node's (bytes/s), the overhead of a step (s), and the forward share."""
    return Basis(
        parameters=Parameters(throughput, overhead, forward_share=forward_share),
        single_s=what.batch_size / single,
        told=(f"{single:g} img/s of one worker, {throughput / 1e9:g} GB/s, {overhead * 1e3:g} ms: as given",),
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
    if transport is not None:
        backend_ = backends.backend(what.backend)
        if transport not in (*backend_.transports, *backend_.cuda_transports):
            raise InvalidInput(f"--transport {transport}: {what.backend} has {', '.join(backend_.transports)}")
    suitable = [one for one in found if one.key.mechanism == mechanism and transport in (None, one.key.transport)]
    suitable = [one for one in suitable if any(each.nodes > 1 for each in one.observations)]
    if not suitable:
        raise InvalidInput(
            f"no results on several nodes with {'parameter servers' if what.has_servers else 'an allreduce'}"
            f"{f' over {transport}' if transport else ''} to start from; give others, or --single and --throughput"
        )
    if strict and not any(_alike(each, what, None) and each.single_s for one in found for each in one.observations):
        raise InvalidInput(_NO_SINGLE.format(model=what.model, device=""))
    if len(systems := sorted({one.key.system for one in suitable})) > 1:
        raise InvalidInput(f"results of {len(systems)} systems to start from ({', '.join(systems)}); give those of one")
    found = [one for one in found if one.key.system == systems[0]]
    chosen = max(suitable, key=lambda one: (len({each.workers for each in one.observations}), len(one.observations)))
    fit = fitting.fit(chosen)
    single_s, single_draws, told = _single(fit, found, what, single, device)
    p, draws, more = _with_replicas(fit, what)
    if all(one.relative for one in chosen.observations):
        p, draws = (_in_seconds(each, single_s) for each in (p, draws))
    return Basis(p, single_s, draws, single_draws, (*told, f"network: fitted to {chosen.name}", *more))


def _single(
    fit: Fit, found: Sequence[Group], what: What, single: float | None, device: str | None
) -> tuple[float, Floats, tuple[str, ...]]:
    """A single worker's step (s), draws of it, and where it is from. ``single`` (img/s) is what was given instead."""
    if single is not None:
        step_s = what.batch_size / single
        return step_s, np.full(DRAWN, step_s), (f"one worker: {single:g} img/s, as given",)
    ordered = [fit.group, *(one for one in found if one is not fit.group)]
    for batch in (what.batch_size, None):
        for group in (one for one in ordered if device in (None, one.key.device)):
            those = [one for one in group.observations if _alike(one, what, batch)]
            measured = next((one for one in those if one.single_s is not None and not one.relative), None)
            if measured is not None:
                assert measured.single_s is not None
                return _scaled(measured.single_s, np.full(DRAWN, measured.single_s), measured, what, group, "measured")
            if those:
                its = fit if group is fit.group else fitting.fit(group)
                one = those[0]
                if one.relative:
                    continue
                return _scaled(its.singles[one.work], its.single_draws[one.work], one, what, group, "fitted")
    raise InvalidInput(_NO_SINGLE.format(model=what.model, device=f" {device}" if device else ""))


def _told_single(group: Group, what: What, single: float) -> Group:
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
    step_s: float, draws: Floats, one: Observation, what: What, group: Group, how: str
) -> tuple[float, Floats, tuple[str, ...]]:
    factor = what.batch_size / one.batch
    told = f"one worker: {how}, {one.batch / step_s:,.4g} img/s ({group.name})"
    if factor != 1:
        told += f", and scaled from {one.batch} to {what.batch_size} images per step"
    return step_s * factor, draws * factor, (told,)


def _in_seconds(p: Parameters, single_s: float) -> Parameters:
    """Parameters that were fitted in steps of a single worker, for one whose step takes ``single_s``."""
    scaled = {name: getattr(p, name) * single_s for name in parameters.NAMES}
    return p.with_values(scaled | {"throughput": p.throughput / single_s})


def _with_replicas(fit: Fit, what: What) -> tuple[Parameters, Parameters, tuple[str, ...]]:
    """The fit's parameters, with what is known beforehand of copying back if nothing there was copied back."""
    if not what.law(int(what.has_servers)).copies_back or fit.group.replicas:
        return fit.parameters, fit.draws, ()
    mean, deviation = parameters.normal(REPLICA_OVERHEAD.prior)
    drawn = np.exp(mean + deviation * np.random.default_rng(fitting.SEED).standard_normal(DRAWN))
    typical = REPLICA_OVERHEAD.prior.typical
    told = f"copying back: {typical * 1e3:g} ms per step are assumed; nothing there was copied back"
    return replace(fit.parameters, replica_overhead=typical), replace(fit.draws, replica_overhead=drawn), (told,)

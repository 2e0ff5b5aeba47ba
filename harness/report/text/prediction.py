"""Predictions, fits and explanations as text for a terminal, and as plain data for scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.text import plural
from harness.prediction.curves import CURVES, LAW, beside
from harness.prediction.explain import Explanation, rate, seconds, sentences, size
from harness.prediction.fitting import LEVEL, Fit, mean_error
from harness.prediction.forecast import Basis, Prediction, What
from harness.prediction.holdout import HeldOut
from harness.prediction.law import COMPUTE
from harness.prediction.observations import Observation, informative
from harness.report.text.table import table

Fitted = tuple[Fit, tuple[float, ...], HeldOut | None]  # with the errors of leaving one out


def predictions(what: What, basis: Basis, found: Sequence[Prediction]) -> str:
    """A line for each size and number of servers, with what each was made from."""
    servers = what.has_servers
    header = ["nodes", "workers", *(["ps"] if servers else []), "img/s", f"{LEVEL:.0%} interval", "efficiency", "step"]
    rows = [[*header, "waits for"]]
    for one in found:
        interval = "" if math.isnan(one.low) else f"{one.low:,.0f} – {one.high:,.0f}"
        rows.append(
            [
                *(f"{one.nodes:,}", f"{one.workers:,}", *([f"{one.ps:,}"] if servers else [])),
                *(f"{one.img_per_s:,.0f}", interval, f"{one.efficiency:.1%}", seconds(one.step_s)),
                waits_for(one),
            ]
        )
    right = set(range(len(header)))
    title = f"{what.backend}, {what.model}, {what.batch_size} images per device and step"
    told = [f"  {line}" for line in basis.told]
    return "\n".join([*_warning(basis), title, "", table(rows, right), "", "made from", *told])


def _warning(basis: Basis) -> list[str]:
    return [f"MISFIT: {basis.warning}"] if basis.warning else []


def waits_for(one: Prediction) -> str:
    """``forward and backward: PS 75 with dense.kernel (8.2 MB)``."""
    bound = [each for each in one.bounds if each.server != COMPUTE]
    if not bound:
        return "compute"
    said: dict[str, list[str]] = {}
    for each in bound:
        said.setdefault(f"{each.name} with {each.tensor} ({size(each.tensor_bytes)})", []).append(each.which)
    return "; ".join(f"{' and '.join(passes)}: {what}" for what, passes in said.items())


def explanation(one: Explanation, measured_s: float | None = None, counted: Sequence[str] = ()) -> str:
    """What binds a step, and what would help; with a measured step beside the predicted one."""
    prediction = one.prediction
    servers = f", {prediction.ps} PS" if prediction.ps else ""
    title = f"{one.what.backend}, {one.what.model}, {plural(prediction.nodes, 'node')}{servers}: "
    title += f"{rate(prediction.img_per_s)} predicted, {seconds(prediction.step_s)} per step"
    if measured_s is not None:
        title += f"; measured {seconds(measured_s)} ({measured_s / prediction.step_s - 1:+.1%})"
    said = [f"  {line}" for line in sentences(one)]
    return "\n".join(
        [
            *_warning(one.basis),
            *(title, *said, *(f"  {line}" for line in counted), "", "made from"),
            *map("  {}".format, one.basis.told),
        ]
    )


def fits(found: Sequence[Fitted], left_out: Sequence[str]) -> str:
    """Which fits the measurements contradict; how well the law does, group by group, beside curves that know nothing of
    networks; and the parameters.
    """
    tests = any(one[2] is not None for one in found)
    # What the law was chosen on was never held out, whatever is left out of a fit.
    kept = {"selected on" if fit.group.selected_on else "held out" for fit, _, unseen in found if unseen}
    name = " / ".join(sorted(kept))
    header = ["system", "software", "mechanism", "runs", "numbers", "MAPE", "worst", "at", "χ²", "p", "left one out"]
    rows = [[*header, *([name, "their MAPE", "worst", "at", "in 90 %"] if tests else [])]]
    rows += [_accuracy(fit, alone, unseen, tests) for fit, alone, unseen in found]
    said = [f"MISFIT: {fit.group.name}: {fit.misfit.told}" for fit, _, _ in found if fit.misfit.contradicts]
    said += [*([""] if said else []), table(rows, {3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15}), ""]
    curves = [_beside(fit, unseen, tests) for fit, _, unseen in found]
    header = ["system", "software", "mechanism", LAW, *CURVES, "least"]
    header += [LAW, *CURVES, "least"] if tests else []
    said += [f"MAPE beside that of curves that know nothing of networks{f', then on runs {name}' * tests}", ""]
    said += [table([header, *curves], {3, 4, 5, 6, 8, 9, 10, 11}), ""]
    for fit, _, _ in found:
        said += [fit.group.name, *(f"  {line}" for line in parameters(fit)), ""]
    every = [error for _, _, unseen in found if unseen for error in unseen.errors]
    if every:
        worst = max(every, key=abs)
        inside = sum(unseen.covered for _, _, unseen in found if unseen)
        said.append(
            f"{name[0].upper()}{name[1:]}: {plural(len(every), 'run')}, MAPE {mean_error(every):.1%}, worst {worst:+.1%}, "
            f"{inside} of them in their intervals."
        )
    if "selected on" in kept:
        said.append("Selected on: left out of the fit, but the law was chosen with these measurements in sight.")
    said.append("Errors are predicted over measured throughput, minus 1. Intervals hold 90 %.")
    said.append("Numbers: how many the runs determine. χ²: of the runs, with measurement errors alone.")
    said += [f"left out: {one}" for one in left_out]
    return "\n".join(said)


def _accuracy(fit: Fit, alone: Sequence[float], held: HeldOut | None, wide: bool) -> list[str]:
    key, misfit = fit.group.key, fit.misfit
    these = list(zip(informative(fit.group.observations), fit.errors, strict=True))
    line = [key.system, key.software, _mechanism(fit), str(len(these)), f"{fit.fitted:.1f}", *_mean_and_worst(these)]
    line += [f"{misfit.chi2:.1f}", "–" if misfit.p_value is None else f"{misfit.p_value:.2g}"]
    line.append(f"{mean_error(alone):.1%}" if alone else "–")
    if wide and held:
        unseen = list(zip(held.unseen, held.errors, strict=True))
        line += [str(len(unseen)), *_mean_and_worst(unseen), f"{held.covered} of {len(unseen)}"]
    return line + ["–"] * (5 * wide + 11 - len(line))


def _mechanism(fit: Fit) -> str:
    return fit.group.key.mechanism + (f" over {fit.group.key.transport}" if fit.group.key.transport else "")


def _beside(fit: Fit, held: HeldOut | None, wide: bool) -> list[str]:
    """The law's mean error and those of the curves, and which is the least; then the same for runs that were left out."""
    key = fit.group.key
    line = [key.system, key.software, _mechanism(fit)]
    line += _ranked(_means(fit))
    if wide:
        line += _ranked(beside(held.errors, held.seen, held.unseen) if held else {})
    return line


def _means(fit: Fit) -> dict[str, float]:
    runs = fit.group.observations
    return beside(fit.errors, runs, informative(runs))


def _ranked(means: Mapping[str, float]) -> list[str]:
    """Mean errors, and the name of the smallest."""
    shown = [f"{means[name]:.1%}" if name in means else "–" for name in (LAW, *CURVES)]
    return [*shown, min(means, key=lambda name: means[name]) if len(means) > 1 else "–"]


def _mean_and_worst(errors: Sequence[tuple[Observation, float]]) -> tuple[str, str, str]:
    worst, error = max(errors, key=lambda one: abs(one[1]))
    return f"{mean_error([one for _, one in errors]):.1%}", f"{error:+.1%}", _size(worst)


def _size(one: Observation) -> str:
    return f"{one.workers:,} workers" + (f", {one.ps} ps" if one.ps else "")


def parameters(fit: Fit) -> list[str]:
    """Each parameter's median with its interval, unit, and where it is from; then what else the fit rests on."""
    lines = []
    for one in fit.estimates:
        q = one.quantity
        value, low, high = (f"{each * q.scale:.3g}" for each in (one.value, one.low, one.high))
        unit = f" {q.unit}" if q.unit else ""
        lines.append(f"{q.name.replace('_', ' ')}: {value}{unit} ({low} – {high}); {one.how}: {q.meaning}")
    lines += [
        f"only the sum is identified: {' + '.join(one.names)} = {seconds(one.value)} "
        f"({seconds(one.low)} – {seconds(one.high)})"
        for one in fit.sums
    ]
    p = fit.parameters
    if all(one.relative for one in fit.group.observations):
        lines.append("only efficiencies were published: a single worker's step counts as 1 s in GB/s and ms")
    how = "assumed; see docs/scaling-model.md" if fit.group.forward_share is None else "as given"
    lines.append(f"forward share of compute: {fit.problems[0].share.typical:g} ({how})")
    lines += _structure(fit)
    for work, step_s in fit.singles.items():
        run = next(one for one in fit.group.observations if one.work == work)
        lines.append(f"one worker, {run.model}: {seconds(step_s)} per step ({run.batch / step_s:,.4g} img/s; fitted)")
    if fit.searches:
        agreed = sum(longer > 1 for _, longer in fit.searches)
        lines.append(f"of {len(fit.searches)} published searches, what lost is slower by the law, too, in {agreed}")
    lines.append(f"{fit.misfit.chances}; {fit.effective:,.0f} effective draws from the posterior distribution")
    if p.tree and p.switch_nodes > 1:
        lines.append(f"levels of the tree within {p.switch_nodes} nodes are taken to be free")
    return lines


def _structure(fit: Fit) -> list[str]:
    """What the law leaves open, and with what probability it is one or the other."""
    if len(fit.chances) == 1:
        return []
    first = fit.chances[0]
    if fit.group.key.mechanism == "servers":
        return [f"parameters are pulled in the order of their use: with probability {first:.0%}, else in none"]
    return [f"gradients are summed around a ring: with probability {first:.0%}, else along a tree"]


def fits_as_json(found: Sequence[Fitted], left_out: Sequence[str]) -> str:
    """The same for scripts."""
    return json.dumps({"fits": [_fit_as_dict(*one) for one in found], "left_out": list(left_out)})


def _fit_as_dict(fit: Fit, alone: tuple[float, ...], held: HeldOut | None) -> dict[str, Any]:
    runs, means = informative(fit.group.observations), _means(fit)
    return {
        **fit.group.key._asdict(),
        "numbers": fit.fitted,
        "mape": means[LAW],
        "misfit": {
            "contradicts": fit.misfit.contradicts,
            "chi2": fit.misfit.chi2,
            "degrees_of_freedom": fit.misfit.freedom,
            "p": fit.misfit.p_value,
        },
        "curves": {name: means.get(name) for name in CURVES},
        "effective_draws": fit.effective,
        "selected_on": fit.group.selected_on,
        "left_one_out_mape": mean_error(alone) if alone else None,
        "parameters": {
            one.quantity.name: {
                "value": one.value,
                "low": one.low,
                "high": one.high,
                "unit": one.quantity.si,
                "identified": one.identified,
                "how": one.how,
            }
            for one in fit.estimates
        },
        "sums": [{"names": one.names, "value": one.value, "low": one.low, "high": one.high} for one in fit.sums],
        "forward_share": fit.problems[0].share.typical,
        "structures": [
            {**problem.structure, "probability": chance}
            for problem, chance in zip(fit.problems, fit.chances, strict=True)
        ],
        "runs": [_run(one, error) for one, error in zip(runs, fit.errors, strict=True)],
        "held_out": [_run(one, error) for one, error in zip(held.unseen, held.errors, strict=True)] if held else [],
    }


def _run(one: Observation, error: float) -> dict[str, Any]:
    return {
        "backend": one.backend,
        "nodes": one.nodes,
        "workers": one.workers,
        "ps": one.ps,
        "step": one.step_s,
        "error": error,
    }


def predictions_as_json(what: What, basis: Basis, found: Sequence[Prediction]) -> str:
    """The same for scripts; times in seconds, an interval is null where nothing is known of the spread."""
    points = [
        {
            "nodes": one.nodes,
            "workers": one.workers,
            "ps": one.ps,
            "img_per_s": one.img_per_s,
            "interval": None if math.isnan(one.low) else [one.low, one.high],
            "efficiency": one.efficiency,
            "step_s": one.step_s,
            "bounds": [each.as_dict() for each in one.bounds],
        }
        for one in found
    ]
    return json.dumps(
        {
            "backend": what.backend,
            "model": what.model,
            "warning": basis.warning or None,
            "made_from": list(basis.told),
            "predictions": points,
        }
    )

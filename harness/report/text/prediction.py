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

_Cells = tuple[str, ...]
_GROUP = ("system", "software", "mechanism")
Fitted = tuple[Fit, tuple[float, ...], HeldOut | None]  # with the errors of leaving one out


def predictions(what: What, basis: Basis, sizes: Sequence[Prediction]) -> str:
    """A line for each size and number of servers, with what each was made from."""
    rows: list[_Cells] = [
        ("nodes", "workers", "ps", "img/s", f"{LEVEL:.0%} interval", "efficiency", "step", "waits for")
    ]
    for one in sizes:
        interval = "" if math.isnan(one.low) else f"{one.low:,.0f} – {one.high:,.0f}"
        counts = (f"{number:,}" for number in (one.nodes, one.workers, one.ps))
        rows.append(
            (*counts, f"{one.img_per_s:,.0f}", interval, f"{one.efficiency:.1%}", seconds(one.step_s), waits_for(one))
        )
    title = f"{what.backend}, {what.model}, {what.batch_size} images per device and step"
    shown = rows if what.has_servers else [row[:2] + row[3:] for row in rows]
    return "\n".join(
        [*_warning(basis), title, "", table(shown, right=range(len(shown[0]) - 1)), "", *_made_from(basis)]
    )


def _warning(basis: Basis) -> list[str]:
    return [f"MISFIT: {basis.warning}"] if basis.warning else []


def _made_from(basis: Basis) -> list[str]:
    return ["made from", *(f"  {line}" for line in basis.told)]


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
    lines = [f"  {line}" for line in (*sentences(one), *counted)]
    return "\n".join([*_warning(one.basis), title, *lines, "", *_made_from(one.basis)])


def fits(fitted: Sequence[Fitted], left_out: Sequence[str]) -> str:
    """Which fits the measurements contradict; how well the law does, group by group, beside curves that know nothing of
    networks; and the parameters.
    """
    # What the law was chosen on was never held out, whatever is left out of a fit.
    kept = {"selected on" if fit.group.selected_on else "held out" for fit, _, unseen in fitted if unseen}
    name = " / ".join(sorted(kept))
    misfits = [f"MISFIT: {fit.group.name}: {fit.misfit.told}" for fit, _, _ in fitted if fit.misfit.contradicts]
    accuracy: list[_Cells] = [(*_GROUP, "runs", "numbers", "MAPE", "worst", "at", "χ²", "p", "left one out")]
    accuracy += [_accuracy(fit, alone) for fit, alone, _ in fitted]
    curves: list[_Cells] = [
        (*_GROUP, LAW, *CURVES, "least"),
        *((*_group(fit), *_ranked(_means(fit))) for fit, _, _ in fitted),
    ]
    if kept:
        unseen_rows: list[_Cells] = [
            (name, "their MAPE", "worst", "at", "in 90 %"),
            *(_unseen(unseen) for _, _, unseen in fitted),
        ]
        accuracy = [first + second for first, second in zip(accuracy, unseen_rows, strict=True)]
        means = [beside(one.errors, one.seen, one.unseen) if one else {} for _, _, one in fitted]
        ranked: list[_Cells] = [(LAW, *CURVES, "least"), *map(_ranked, means)]
        curves = [first + second for first, second in zip(curves, ranked, strict=True)]
    lines = [*misfits, ""] if misfits else []
    lines += [table(accuracy, {3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15}), ""]
    lines += [f"MAPE beside that of curves that know nothing of networks{f', then on runs {name}' if kept else ''}", ""]
    lines += [table(curves, {3, 4, 5, 6, 8, 9, 10, 11}), ""]
    for fit, _, _ in fitted:
        lines += [fit.group.name, *(f"  {line}" for line in parameters(fit)), ""]
    tests = [unseen for _, _, unseen in fitted if unseen]
    if errors := [error for unseen in tests for error in unseen.errors]:
        worst, inside = max(errors, key=abs), sum(unseen.covered for unseen in tests)
        lines.append(
            f"{name[0].upper()}{name[1:]}: {plural(len(errors), 'run')}, MAPE {mean_error(errors):.1%}, "
            f"worst {worst:+.1%}, {inside} of them in their intervals."
        )
    if "selected on" in kept:
        lines.append("Selected on: left out of the fit, but the law was chosen with these measurements in sight.")
    lines.append("Errors are predicted over measured throughput, minus 1. Intervals hold 90 %.")
    lines.append("Numbers: how many the runs determine. χ²: of the runs, with measurement errors alone.")
    return "\n".join([*lines, *(f"left out: {reason}" for reason in left_out)])


def _group(fit: Fit) -> _Cells:
    key = fit.group.key
    return key.system, key.software, key.mechanism + (f" over {key.transport}" if key.transport else "")


def _accuracy(fit: Fit, alone: Sequence[float]) -> _Cells:
    runs, misfit = informative(fit.group.observations), fit.misfit
    p = "–" if misfit.p_value is None else f"{misfit.p_value:.2g}"
    left_one_out = f"{mean_error(alone):.1%}" if alone else "–"
    errors = _mean_and_worst(fit.errors, runs)
    return (*_group(fit), str(len(runs)), f"{fit.fitted:.1f}", *errors, f"{misfit.chi2:.1f}", p, left_one_out)


def _unseen(held: HeldOut | None) -> _Cells:
    if held is None:
        return ("–",) * 5
    count = len(held.unseen)
    return str(count), *_mean_and_worst(held.errors, held.unseen), f"{held.covered} of {count}"


def _mean_and_worst(errors: Sequence[float], runs: Sequence[Observation]) -> _Cells:
    error, worst = max(zip(errors, runs, strict=True), key=lambda pair: abs(pair[0]))
    at = f"{worst.workers:,} workers" + (f", {worst.ps} ps" if worst.ps else "")
    return f"{mean_error(errors):.1%}", f"{error:+.1%}", at


def _means(fit: Fit) -> dict[str, float]:
    """The law's mean error and those of the curves."""
    runs = fit.group.observations
    return beside(fit.errors, runs, informative(runs))


def _ranked(means: Mapping[str, float]) -> _Cells:
    """Mean errors, and the name of the smallest."""
    shown = (f"{means[name]:.1%}" if name in means else "–" for name in (LAW, *CURVES))
    return *shown, min(means, key=lambda name: means[name]) if len(means) > 1 else "–"


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
    if len(fit.chances) > 1:
        either = f"with probability {fit.chances[0]:.0%}, else"
        servers = f"parameters are pulled in the order of their use: {either} in none"
        ring = f"gradients are summed around a ring: {either} along a tree"
        lines.append(servers if fit.group.key.mechanism == "servers" else ring)
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

"""Predictions, fits and explanations as text for a terminal, and as plain data for scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from harness.predict.explain import Explanation, rate, seconds, sentences, size
from harness.predict.fitting import LEVEL, Fit, mean_error, tested
from harness.predict.forecast import Basis, Prediction, What
from harness.predict.holdout import HeldOut
from harness.predict.law import COMPUTE
from harness.predict.observations import Observation
from harness.report.table import table
from harness.report.text import plural

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
    return "\n".join([title, "", table(rows, right), "", "made from", *told])


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
        [title, *said, *(f"  {line}" for line in counted), "", "made from", *map("  {}".format, one.basis.told)]
    )


def fits(found: Sequence[Fitted], left_out: Sequence[str]) -> str:
    """How well the law does, system by system and backend by backend, and the parameters."""
    held = any(one[2] is not None for one in found)
    header = ["system", "software", "backend", "transport", "runs", "fitted", "MAPE", "worst", "at", "left one out"]
    rows = [[*header, *(["held out", "their MAPE", "worst", "at"] if held else [])]]
    for fit, alone, unseen in found:
        for backend in sorted({one.backend for one in tested(fit.group.observations)}):
            rows.append(_accuracy(fit, alone, unseen if held else None, backend, held))
    right = {4, 5, 6, 7, 9, 10, 11, 12}
    said = [table(rows, right), ""]
    for fit, _, _ in found:
        said += [fit.group.name, *(f"  {line}" for line in parameters(fit)), ""]
    errors = [error for _, _, unseen in found if unseen for error in unseen.errors]
    if errors:
        worst = max(errors, key=abs)
        said.append(f"Held out: {plural(len(errors), 'run')}, MAPE {mean_error(errors):.1%}, worst {worst:+.1%}.")
    said.append("Errors are predicted over measured throughput, minus 1. Intervals hold 90 %.")
    said += [f"left out: {one}" for one in left_out]
    return "\n".join(said)


def _accuracy(fit: Fit, alone: Sequence[float], held: HeldOut | None, backend: str, wide: bool) -> list[str]:
    key = fit.group.key
    runs = tested(fit.group.observations)
    these = [(one, error) for one, error in zip(runs, fit.errors, strict=True) if one.backend == backend]
    others = [error for one, error in zip(runs, alone, strict=False) if one.backend == backend]
    line = [key.system, key.software, backend, key.transport, str(len(these)), str(fit.fitted), *_mean_and_worst(these)]
    line.append(f"{mean_error(others):.1%}" if others else "–")
    if wide:
        unseen = list(zip(held.unseen, held.errors, strict=True)) if held else []
        unseen = [(one, error) for one, error in unseen if one.backend == backend]
        line += [str(len(unseen)), *_mean_and_worst(unseen)] if unseen else ["–"] * 4
    return line


def _mean_and_worst(errors: Sequence[tuple[Observation, float]]) -> tuple[str, str, str]:
    worst, error = max(errors, key=lambda one: abs(one[1]))
    return f"{mean_error([one for _, one in errors]):.1%}", f"{error:+.1%}", _size(worst)


def _size(one: Observation) -> str:
    return f"{one.workers:,} workers" + (f", {one.ps} ps" if one.ps else "")


def parameters(fit: Fit) -> list[str]:
    """Each parameter with its interval, unit, and where it is from."""
    lines = []
    for one in fit.estimates:
        q = one.quantity
        value, low, high = (f"{each * q.scale:.3g}" for each in (one.value, one.low, one.high))
        lines.append(f"{q.name.replace('_', ' ')}: {value} {q.unit} ({low} – {high}); {one.how}: {q.meaning}")
    p = fit.parameters
    if len(fit.errors) < fit.fitted:
        lines.append("fewer runs than numbers fitted: what was known beforehand decides much of it")
    if all(one.relative for one in fit.group.observations):
        lines.append("only efficiencies were published: a single worker's step counts as 1 s in GB/s and ms")
    how = "assumed; see docs/scaling-model.md" if fit.group.forward_share is None else "as given"
    lines.append(f"forward share of compute: {p.forward_share:g} ({how})")
    if fit.group.key.mechanism == "allreduce":
        free = f", levels within {p.switch_nodes} nodes free" if p.algorithm == "tree" and p.switch_nodes > 1 else ""
        lines.append(f"gradients summed: {p.summed}{free}")
    for work, step_s in fit.singles.items():
        run = next(one for one in fit.group.observations if one.work == work)
        lines.append(f"one worker, {run.model}: {seconds(step_s)} per step ({run.batch / step_s:,.4g} img/s; fitted)")
    return lines


def fits_as_json(found: Sequence[Fitted], left_out: Sequence[str]) -> str:
    """The same for scripts."""
    return json.dumps({"fits": [_fit_as_dict(*one) for one in found], "left_out": list(left_out)})


def _fit_as_dict(fit: Fit, alone: tuple[float, ...], held: HeldOut | None) -> dict[str, Any]:
    runs = tested(fit.group.observations)
    return {
        **fit.group.key._asdict(),
        "fitted": fit.fitted,
        "mape": mean_error(fit.errors),
        "left_one_out_mape": mean_error(alone) if alone else None,
        "parameters": {
            one.quantity.name: {
                "value": one.value,
                "low": one.low,
                "high": one.high,
                "unit": one.quantity.si,
                "how": one.how,
            }
            for one in fit.estimates
        },
        "forward_share": fit.parameters.forward_share,
        "algorithm": fit.parameters.algorithm if fit.group.key.mechanism == "allreduce" else None,
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
        {"backend": what.backend, "model": what.model, "made_from": list(basis.told), "predictions": points}
    )

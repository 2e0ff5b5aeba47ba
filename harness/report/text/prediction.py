"""Predictions, fits and explanations as text for a terminal, and as JSON for scripts: in bytes, seconds and img/s."""

from collections.abc import Sequence

from harness.core.plain import json_text
from harness.core.text import plural
from harness.prediction.explain import Explanation, Measured, by_reading, rate, seconds, sentences, size
from harness.prediction.fitting import LEVEL, Fit, mean_error
from harness.prediction.forecast import Basis, Prediction
from harness.prediction.holdout import HeldOut
from harness.prediction.law import COMPUTE
from harness.prediction.observations import Observation, informative
from harness.prediction.problem import ASSUMED_WITHIN
from harness.prediction.workload import Workload
from harness.report.text.table import table

Fitted = tuple[Fit, tuple[float, ...], HeldOut | None]  # with the errors of leaving one out
_ACCURACY = ("MAPE", "worst", "at", "two lines")


def predictions(workload: Workload, basis: Basis, sizes: Sequence[Prediction], left_out: Sequence[str]) -> str:
    """A line for each size and number of servers, their origin, and the reasons why some are ``left_out``."""
    interval = f"{LEVEL:.0%} interval"
    rows = [
        {
            "nodes": f"{size.nodes:,}",
            "workers": f"{size.workers:,}",
            "ps": f"{size.ps:,}",
            "img/s": _figure(size.img_per_s),
            # A single worker's throughput is where predictions start from: nothing is predicted of it.
            interval: f"{_figure(size.low)} – {_figure(size.high)}" if size.high > 1.0001 * size.low else "",
            "efficiency": f"{size.efficiency:.1%}" if size.efficiency >= 0.1 else f"{100 * size.efficiency:#.3g}%",
            "step": seconds(size.step_s),
            "img/s by two lines": _figure(size.workers * workload.batch_size / size.two_lines_s),
            "waits for": _waits_for(size, basis),
        }
        for size in sizes
    ]
    shown = [heading for heading in rows[0] if heading != "ps" or workload.has_servers]
    cells = ([row[heading] for heading in shown] for row in rows)
    title = f"{workload.backend}, {workload.model}, {plural(workload.batch_size, 'image')} per device and step"
    largest = max(sizes, key=lambda size: size.nodes)
    reasons = ["", "left out", *(f"  {reason}" for reason in left_out)] if left_out else []
    return _with_basis(basis, largest, [title, "", table([shown, *cells], right=range(len(shown) - 1)), *reasons])


def _with_basis(basis: Basis, largest: Prediction, lines: Sequence[str]) -> str:
    warning = [f"MISFIT: {basis.warning}"] if basis.warning else []
    if largest.extrapolates:
        warning.append(
            f"EXTRAPOLATES {largest.extrapolates}: nothing was measured in between, and intervals may be too narrow"
        )
    return "\n".join([*warning, *lines, "", "made from", *(f"  {line}" for line in basis.made_from)])


def _figure(value: float) -> str:
    """At least three significant digits: ``11,171``, ``22.4``, ``3.02``."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def _waits_for(prediction: Prediction, basis: Basis) -> str:
    """``forward and backward: PS 75 with dense.kernel (8.2 MB)``; the overhead of a step where nothing waits."""
    if prediction.read_by:
        return f"data: {by_reading(basis, prediction)}"
    passes: dict[str, list[str]] = {}
    for bound in prediction.bounds:
        if bound.server != COMPUTE:
            tensor = f"with {bound.tensor} ({size(bound.tensor_bytes)})"
            reason = f"{bound.name} {tensor if bound.server >= 0 else f'({size(bound.bytes)})'}"
            passes.setdefault(reason, []).append(bound.phase)
    if passes:
        return "; ".join(f"{' and '.join(which)}: {reason}" for reason, which in passes.items())
    overhead = prediction.law_s - basis.single_s
    return "nothing" if overhead < 0.02 * prediction.law_s else f"nothing; {seconds(overhead)} of overhead"


def predictions_as_json(workload: Workload, basis: Basis, sizes: Sequence[Prediction], left_out: Sequence[str]) -> str:
    document = {"backend": workload.backend, "model": workload.model, "warning": basis.warning or None}
    return json_text(document | {"left_out": left_out, "made_from": basis.made_from, "predictions": sizes})


def explanation(explained: Explanation, measured: Measured | None = None) -> str:
    """The cause that binds a step, and what would help; with a measured step beside it, and who was late in it."""
    prediction = explained.prediction
    servers = f", {prediction.ps} PS" if prediction.ps else ""
    title = f"{explained.workload.backend}, {explained.workload.model}, {plural(prediction.nodes, 'node')}{servers}: "
    title += f"{rate(prediction.img_per_s)} predicted, {seconds(prediction.step_s)} per step"
    lines = sentences(explained)
    if measured:
        lines = [*_beside(measured, prediction), *lines, *measured.counted]
    lines = [*lines, f"two lines say {seconds(prediction.two_lines_s)} per step"]
    return _with_basis(explained.basis, prediction, [title, *(f"  {line}" for line in lines)])


def explanation_as_json(explained: Explanation, measured: Measured | None = None) -> str:
    document = vars(explained.prediction) | {
        "binding": explained.binding,
        "held_bytes": explained.held_bytes,
        "alternatives": explained.alternatives,
        "explanation": sentences(explained),
        "made_from": explained.basis.made_from,
    }
    return json_text(document | (vars(measured) if measured else {}))


def _beside(measured: Measured, prediction: Prediction) -> list[str]:
    """The comparison of the run with its prediction and, if it was slower, the late ranks."""
    beside = f"measured {seconds(measured.measured_step_s)}, predicted {seconds(prediction.step_s)}"
    if measured.predicted_step_interval_s is None:
        return [beside]
    beside += f" ({' to '.join(map(seconds, measured.predicted_step_interval_s))})"
    if measured.beyond <= 0:
        return [f"{beside}: {'inside' if measured.inside else f'outside, faster by {-measured.beyond:.1%}'}"]
    unknown = ["no rank says that it was late; `harness run --preflight` compares nodes and links before a run"]
    slower = f"{beside}: outside, slower by {measured.beyond:.1%} than its node and its network explain"
    return [slower, *(list(map(str, measured.late)) or unknown)]


def fits(fitted: Sequence[Fitted], left_out: Sequence[str]) -> str:
    """The fits that measurements contradict; the law's errors beside two lines, group by group; the parameters."""
    held_outs = [held for _, _, held in fitted if held]
    # Runs that the law was chosen on were never held out, whatever is left out of a fit.
    kept = sorted({"selected on" if held.fit.group.selected_on else "held out" for held in held_outs})
    name = " / ".join(kept)
    heading = ("system", "software", "mechanism", "runs", "numbers", *_ACCURACY, "χ²", "p", "left one out")
    rows: list[tuple[str, ...]] = [heading, *(_seen(fit, alone) for fit, alone, _ in fitted)]
    if kept:
        unseen = [(name, "their MAPE", *_ACCURACY[1:], "in 90 %"), *(_unseen(held) for _, _, held in fitted)]
        rows = [(*seen, *cells) for seen, cells in zip(rows, unseen, strict=True)]
    lines = [
        f"MISFIT: {fit.group.name}: {fit.misfit.contradiction}" for fit, _, _ in fitted if fit.misfit.contradiction
    ]
    lines += [*[""] * bool(lines), table(rows, {3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 16, 17}), ""]
    for fit, _, _ in fitted:
        lines += [fit.group.name, *(f"  {line}" for line in parameters(fit)), ""]
    if errors := [error for held in held_outs for error in held.errors]:
        lines.append(
            f"{name[0].upper()}{name[1:]}: {plural(len(errors), 'run')}, MAPE {mean_error(errors):.1%}, "
            f"worst {max(errors, key=abs):+.1%}, {sum(held.covered for held in held_outs)} of them in their intervals."
        )
    if "selected on" in kept:
        lines.append("Selected on: left out of the fit, but the law was chosen with these measurements in sight.")
    lines.append("Errors are predicted over measured throughput, minus 1. Intervals hold 90 %.")
    lines.append("Two lines: MAPE of the simplest law that knows where bytes go (docs/scaling-model.md).")
    lines.append("Numbers: how many the runs determine. χ²: of the runs, with measurement errors alone.")
    return "\n".join([*lines, *(f"left out: {reason}" for reason in left_out)])


def _seen(fit: Fit, alone: Sequence[float]) -> tuple[str, ...]:
    """The cells of a fit and of the runs that it has seen; ``alone`` are errors of those left out one at a time."""
    key, misfit, runs = fit.group.key, fit.misfit, informative(fit.group.observations)
    over = f" over {key.mpi or key.transport}" if key.transport else ""
    p_value = "–" if misfit.p_value is None else f"{misfit.p_value:.2g}"
    cells = (key.system, key.software, key.mechanism + over, str(len(runs)), f"{fit.fitted:.1f}")
    left_one_out = f"{mean_error(alone):.1%}" if alone else "–"
    return *cells, *_accuracy(fit, runs, fit.errors), f"{misfit.chi2:.1f}", p_value, left_one_out


def _unseen(held: HeldOut | None) -> tuple[str, ...]:
    if held is None:
        return ("–",) * 6
    runs = held.unseen
    return str(len(runs)), *_accuracy(held.fit, runs, held.errors), f"{held.covered} of {len(runs)}"


def _accuracy(fit: Fit, runs: Sequence[Observation], errors: Sequence[float]) -> tuple[str, str, str, str]:
    worst, run = max(zip(errors, runs, strict=True), key=lambda pair: abs(pair[0]))
    servers = f", {run.ps} ps" if run.ps else ""
    size_of_worst = f"{run.workers:,} workers{servers}"
    return f"{mean_error(errors):.1%}", f"{worst:+.1%}", size_of_worst, f"{fit.two_lines(runs):.1%}"


def parameters(fit: Fit) -> list[str]:
    """Each parameter's median with its interval, unit, and origin; then the other facts that the fit rests on."""
    lines = []
    for estimate in fit.estimates:
        quantity = estimate.quantity
        in_si = (estimate.value, estimate.low, estimate.high)
        value, low, high = (f"{number * quantity.scale:.3g}" for number in in_si)
        name, unit = quantity.name.replace("_", " "), f" {quantity.unit}" if quantity.unit else ""
        lines.append(f"{name}: {value}{unit} ({low} – {high}); {estimate.how}: {quantity.meaning}")
    p = fit.parameters
    if all(run.relative for run in fit.group.observations):
        lines.append(f"only efficiencies were published: a worker's step is known to a factor of {ASSUMED_WITHIN:g}")
    how = "assumed; see docs/scaling-model.md" if fit.group.forward_share is None else "as given"
    lines.append(f"forward share of compute: {fit.problems[0].share.typical:g} ({how})")
    if len(fit.chances) > 1:
        either = f"with probability {fit.chances[0]:.0%}, else"
        servers = f"parameters are pulled in the order of their use: {either} in none"
        ring = f"gradients are summed around a ring: {either} along a tree"
        lines.append(servers if fit.group.key.mechanism == "servers" else ring)
    for work, step_s in fit.singles.items():
        run = next(run for run in fit.group.observations if run.work == work)
        img_per_s = run.workload.batch_size / step_s
        lines.append(f"one worker, {run.workload.model}: {seconds(step_s)} per step ({img_per_s:,.4g} img/s; fitted)")
    if fit.searches:
        agreed = sum(longer > 1 for _, longer in fit.searches)
        lines.append(f"of {len(fit.searches)} published searches, what lost is slower by the law, too, in {agreed}")
    lines.append(f"{fit.misfit.chances}; {fit.effective:,.0f} effective draws from the posterior distribution")
    if p.tree and p.switch_nodes > 1:
        lines.append(f"levels of the tree within {p.switch_nodes} nodes are taken to be free")
    return lines


def fits_as_json(fitted: Sequence[Fitted], left_out: Sequence[str]) -> str:
    return json_text({"fits": [_fit_as_json(*fit) for fit in fitted], "left_out": left_out})


def _fit_as_json(fit: Fit, alone: Sequence[float], held: HeldOut | None) -> dict[str, object]:
    group, runs = fit.group, informative(fit.group.observations)
    structures = zip(fit.problems, fit.chances, strict=True)
    return {
        **group.key._asdict(),
        "selected_on": group.selected_on,
        "numbers": fit.fitted,
        "mape": mean_error(fit.errors),
        "two_lines_mape": fit.two_lines(runs),
        "left_one_out_mape": mean_error(alone) if alone else None,
        "misfit": vars(fit.misfit) | {"contradiction": fit.misfit.contradiction},
        "effective_draws": fit.effective,
        "parameters": {
            each.quantity.name: vars(each) | {"quantity": each.quantity.meaning, "unit": each.quantity.si}
            for each in fit.estimates
        },
        "forward_share": fit.problems[0].share.typical,
        "structures": [dict([problem.structure, ("probability", chance)]) for problem, chance in structures],
        "runs": _runs(runs, fit.errors),
        "held_out": _runs(held.unseen, held.errors) if held else [],
        "two_lines_held_out_mape": held.fit.two_lines(held.unseen) if held else None,
    }


def _runs(runs: Sequence[Observation], errors: Sequence[float]) -> list[dict[str, object]]:
    names = ("nodes", "workers", "ps", "step_s")
    return [
        {"backend": run.workload.backend, **{name: getattr(run, name) for name in names}, "error": error}
        for run, error in zip(runs, errors, strict=True)
    ]

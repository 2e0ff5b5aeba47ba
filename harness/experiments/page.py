"""An analysis as a page: Markdown with figures, and the same numbers as CSV and JSON. And as text for a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.text import interval, plural
from harness.errors import InvalidInput
from harness.experiments import ANALYSIS
from harness.experiments.findings import Analysis, Compared
from harness.files import whole_file
from harness.report.text.table import table

if TYPE_CHECKING:
    import pandas

INDEX, POINTS = "index.md", "points.csv"
FORMATS = ("png",)
HEAD = ("point", "repeats", "fullest server, MB", "measured, s", "95 %", "predicted, s", "error", "no limit, s")
RIGHT = {1, 2, 3, 4, 5, 6, 7}


def write(analysis: Analysis, frame: pandas.DataFrame, folder: Path, note: str | None = None) -> list[Path]:
    """Write the page, its figures and its data into ``folder``. Raises InvalidInput if that cannot be written."""
    from harness.report.page import static

    drawn = static.write(analysis.figures, folder, FORMATS)
    texts = {
        INDEX: markdown(analysis, frame, note),
        POINTS: _csv(analysis, folder),
        ANALYSIS: json.dumps(_relative(analysis, folder), indent=1) + "\n",
    }
    try:
        for name, text in texts.items():
            with whole_file(folder / name) as file:
                file.write(text.encode())
    except OSError as error:
        raise InvalidInput(f"{folder}: cannot be written: {error.strerror}") from None
    return [*drawn, *(folder / name for name in texts)]


def markdown(analysis: Analysis, frame: pandas.DataFrame, note: str | None) -> str:
    """The page."""
    parts = [
        f"# {analysis.title}",
        "Made by `harness experiment "
        f"{analysis.name}`; every figure below is computed from the records in this folder. {_where(frame)}"
        + (f" {note}" if note else ""),
        f"    harness experiment {analysis.name} --site SITE          # measures, and makes this page\n"
        f"    harness experiment {analysis.name} --analyse-only DIR    # makes it from records",
        f"The law: {analysis.law}. {_rates(analysis)}",
        *(f"## {one.question}\n\n**{one.answer.capitalize()}.** {one.because}" for one in analysis.findings),
        "## Figures",
        *(f"![{one.title}]({one.name}.png)\n\n{one.note}" for one in analysis.figures),
        f"## Every point\n\n{_markdown_table(rows(analysis.compared))}",
        f"{_remarks(analysis.compared)} The same as [CSV]({POINTS}) and [JSON]({ANALYSIS}).",
    ]
    return "\n\n".join(parts) + "\n"


def text(analysis: Analysis) -> str:
    """The findings and every point, for a terminal."""
    told = [f"{one.question}\n  {one.answer}: {one.because}" for one in analysis.findings]
    return "\n\n".join([*told, _rates(analysis), table(rows(analysis.compared), RIGHT), _remarks(analysis.compared)])


def rows(compared: Sequence[Compared]) -> list[tuple[str, ...]]:
    """Every point as a row of cells, below a head."""
    return [HEAD, *map(_row, compared)]


def _row(one: Compared) -> tuple[str, ...]:
    point = one.point
    return (
        point.label + " *" * one.fitted,
        str(len(point.steps_s)),
        f"{point.fullest / 1e6:.2f}" if point.servers else "",
        f"{point.step_s:.3f}",
        interval(one.interval, 3),
        "" if one.predicted_s is None else f"{one.predicted_s:.3f}",
        "" if one.error is None else f"{one.error:+.1%}",
        "" if one.processor_s is None else f"{one.processor_s:.3f}",
    )


def _markdown_table(cells: Sequence[Sequence[str]]) -> str:
    rule = ["---:" if column in RIGHT else "---" for column in range(len(HEAD))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], rule, *cells[1:]])


def _rates(analysis: Analysis) -> str:
    if not analysis.rates:
        return "No throughput could be fitted."
    told = ", ".join(f"{rate / 1e6:.2f} MB/s over {transport}" for transport, rate in analysis.rates.items())
    used = sum(one.fitted for one in analysis.compared)
    return f"R, fitted to the {plural(used, 'point')} marked * : {told}."


def _remarks(compared: Sequence[Compared]) -> str:
    """How well the law does where it was not fitted, and which points the processors slow down."""
    errors = [abs(one.error) for one in compared if one.error is not None and not one.fitted]
    told = [
        "Intervals are 95 % confidence intervals, with the spread of the repeats of all points of several nodes together."
    ]
    if errors:
        errors.sort()
        told.append(
            f"Over the {plural(len(errors), 'point')} that nothing was fitted to, the error is "
            f"{errors[len(errors) // 2]:.1%} at the median and {errors[-1]:.1%} at most."
        )
    known = [one for one in compared if one.processor_s is not None]
    if known:
        told.append(
            "The last column is the same step on links without a limit: what the machine's processors take for it. "
            "Where that is a large part of the step, the law, which knows of the network alone, says too little."
        )
    return " ".join(told)


def _where(frame: pandas.DataFrame) -> str:
    """Where and when the runs were made, and by what."""
    systems = ", ".join(sorted(set(frame["system"])))
    processors = ", ".join(sorted(set(frame["processor"])))
    software = "; ".join(sorted(set(frame["software"])))
    first, last = min(frame["started"])[:10], max(frame["ended"])[:10]
    when = first if first == last else f"{first} to {last}"
    return f"{plural(len(frame), 'run')} on {systems} ({processors}), {when}, {software}."


def _csv(analysis: Analysis, folder: Path) -> str:
    out = io.StringIO()
    listed = [_flat(one) for one in _relative(analysis, folder)["points"]]
    writer = csv.DictWriter(out, fieldnames=list(listed[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return out.getvalue()


def _flat(point: dict[str, Any]) -> dict[str, Any]:
    """A point for a table: the ends of its interval in columns of their own."""
    low, high = point["interval_s"] or (None, None)
    flat = {"low_s": low, "high_s": high}
    return {
        key: value
        for name, told in point.items()
        for key, value in (flat.items() if name == "interval_s" else ((name, told),))
    }


def _relative(analysis: Analysis, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The analysis for scripts, with records named as they lie from ``folder``, wherever that is."""
    found = analysis.as_dict()
    for one in found["points"]:
        one["source"] = os.path.relpath(one["source"], folder)
    return found

"""What there is: backends, models, environments, sites, published results, baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from harness.core.text import minute
from harness.report.text.table import table

if TYPE_CHECKING:
    from harness.results.baselines import Baseline
    from harness.running.readiness import Readiness


def backends(found: Sequence[Readiness]) -> str:
    """The backends with what they run on; below each, what it lacks here."""
    lines: list[str] = []
    for backend, group in groupby(found, key=lambda one: one.backend):
        rows = list(group)
        lines.append(f"{backend}: {rows[0].strategy}")
        for row in rows:
            state = "can run" if not row.lacks else "lacks " + ", ".join(row.lacks)
            lines.append(f"    {row.framework:11} {row.device:5} {', '.join(row.transports):16} {state}".rstrip())
    return "\n".join(lines)


def models() -> str:
    """The models, with their parameters and sizes."""
    from harness import models

    lines = []
    for name in models.names():
        try:
            model = models.specification(name)
        except models.UnknownModel as error:  # another package announces it and is broken
            lines.append(f"{name:12} {error}")
            continue
        largest = max(model.tensors, key=lambda tensor: tensor.elements)
        lines.append(
            f"{name:12} {model.parameters / 1e6:6.2f} M parameters  "
            f"{model.bytes / 1e6:6.1f} MB in {len(model.tensors)} tensors, largest {largest.bytes / 1e6:.2f} MB  "
            f"{model.image_size} px  {model.description}"
        )
    return "\n".join(lines)


def environments() -> str:
    """The backends' environments, for each kind of device that they train on, with their state and folder."""
    from harness import environments
    from harness.core import backend

    lines = []
    for each in backend.working():
        for framework in each.frameworks:
            for wanted in (each.environment(framework, variant) for variant in each.devices):
                try:
                    where = str(environments.path(wanted))
                except environments.EnvironmentProblem as problem:
                    where = str(problem)
                state = environments.status(wanted)
                lines.append(f"{each.name:22} {framework:10} {wanted.variant:5} {state:8} {where}")
    return "\n".join(lines)


def references(groups: Sequence[Mapping[str, Any]]) -> str:
    """The published measurements: what was measured where, by whom, at which sizes; and how they are named."""
    rows = [("system", "software", "backends", "model", "figure", "data", "devices", "rows", "source")]
    for group in groups:
        sizes = group["workers"]
        devices = ", ".join(map(str, sizes)) if len(sizes) <= 3 else f"{sizes[0]}–{sizes[-1]}"
        backends, data = ", ".join(group["backends"]), ", ".join(group["data"])
        what = group["system"], group["software"], backends, group["model"], group["what"], data
        rows.append((*what, devices, str(group["rows"]), group["source"]))
    return (
        f"{table(rows, right={7})}\n\n"
        "`reference` stands for all of them where a command takes results, `reference:TEXT` for those that name TEXT:\n"
        "    harness report reference:daint\n"
        "    harness export reference --format csv"
    )


def baselines(saved: Sequence[Baseline]) -> str:
    """The saved baselines, with what they hold."""
    rows = [("name", "records", "saved", "harness", "from", "note")]
    for one in saved:
        rows.append((one.name, str(one.records), minute(one.saved), one.harness, " ".join(one.sources), one.note))
    return table(rows, right={1})

"""What the scaling model says of every point of the study, before it is measured. Nothing is fitted.

    .venv/bin/python studies/emulated-p100/predictions.py > studies/emulated-p100/predictions.csv

Known are a device's step, the rate of links (less the headers of Ethernet, IP and TCP in frames of 9000 bytes), and what
is exchanged; overhead and cost per message are 0. ``queues_s`` is the law with that alone, and ``contention_s`` with what
was then taken to be typical of many-to-many traffic. Parameters come in order where ``order`` says so.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Sequence

from measure import FILES, Table, parts

from harness import models
from harness.core import backend as backends
from harness.core.emulation import emulation
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.prediction.law import law, profile
from harness.prediction.parameters import PAYLOAD, Parameters
from harness.results import Result
from harness.running.study import Study, StudyPoint, labels

COMMON = {"model": "inception3", "device": "emulated:p100", "batch-size": 64}
CONTENTION = 0.5


def predicted(spec: RunSpec, links: float) -> tuple[float, float]:
    """``queues_s`` and ``contention_s`` of a complete spec on links of so many GB/s in the device's time."""
    return by_law(spec)(links)


def by_law(spec: RunSpec) -> Callable[[float], tuple[float, float]]:
    """``predicted`` of a spec, for several rates of links."""
    spec = spec.model_copy(update={"bytes_scale": 1.0})
    device, exchange = emulation(spec), backends.backend(spec.backend).exchange
    assert device
    assert exchange
    of_step, step_s = law(exchange(spec), profile(spec.model)), device.step_s

    def on(links: float) -> tuple[float, float]:
        known = [Parameters(links * 1e9 * PAYLOAD, contention=crowd) for crowd in (0.0, CONTENTION)]
        queues, contention = (float(of_step.seconds(spec.nodes, spec.workers, step_s, each)) for each in known)
        return queues, contention

    return on


def points(name: str, tables: Sequence[Table]) -> list[StudyPoint]:
    return Study.model_validate({"name": name, "matrix": tables}).points(lambda _: "cpu")


def of_run(run: Result) -> tuple[RunSpec, float]:
    """The spec of a run, and the rate of its links in GB/s. Raises InvalidInput."""
    if not (links := re.search(r"links of ([\d.]+) GB/s", run.system)):
        raise InvalidInput(f"{run.source}: its links have no rate")
    spec = {**run.spec, "dilation": run.dilation, "device": run.device, "steps": run.steps}
    return RunSpec.model_validate(spec), float(links[1])


def complete(spec: RunSpec) -> RunSpec:
    """``spec`` with the defaults of its model and its backend."""
    backend = backends.backend(spec.backend)
    usual = {
        "image_size": models.specification(spec.model).image_size,
        "framework": spec.framework or backend.frameworks[0],
        "transport": spec.transport or backend.transports[0],
    }
    return spec.model_copy(update=usual)


def completed(**table: object) -> RunSpec:
    """The spec of a configuration, as a table of a study has it."""
    (point,) = points("one", [COMMON | table])
    return complete(point.spec)


def main() -> None:
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(["links_gb_per_s", "model", "point", "id", "queues_s", "contention_s"])
    for part in (part for file in FILES for part in parts(file)):
        asked = points(part.name, part.tables)
        for point, label in zip(asked, labels([point.spec.model_dump() for point in asked]), strict=True):
            seconds = predicted(complete(point.spec), part.links.rate)
            rows.writerow([part.links.rate, point.spec.model, label, point.id, *(f"{each:.4f}" for each in seconds)])


if __name__ == "__main__":
    main()

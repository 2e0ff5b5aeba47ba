"""The prediction of the scaling model for every point of the study, before it is measured. Nothing is fitted.

    .venv/bin/python studies/emulated-p100/predictions.py > studies/emulated-p100/predictions.csv

Known are a device's step, the rate of links (less the headers of Ethernet, IP and TCP in frames of 9000 bytes), and the
exchange; overhead and cost per message are 0. ``queues_s`` is the law with that alone, and ``contention_s`` with the
contention that was then taken to be typical of many-to-many traffic. Parameters come in order where ``order`` says so.
"""

import csv
import sys
from collections.abc import Sequence
from typing import NamedTuple

from measure import FILES, Table, parts

from harness import models
from harness.core import backend as backends
from harness.core.emulation import emulation
from harness.core.spec import RunSpec
from harness.prediction.law import law, profile
from harness.prediction.parameters import PAYLOAD, Parameters
from harness.running.study import Study, StudyPoint, labels

CONTENTION = 0.5


class Steps(NamedTuple):
    """A step (s) by the law, the law with ``CONTENTION``, and two lines."""

    queues_s: float
    contention_s: float
    two_lines_s: float


def predicted(spec: RunSpec, links: float) -> Steps:
    """A step of a complete spec, with all bytes, on links of so many GB/s in the device's time."""
    spec = spec.model_copy(update={"bytes_scale": 1.0})
    device, exchange = emulation(spec), backends.backend(spec.backend).exchange
    assert device
    assert exchange
    of_step, rate = law(exchange(spec), profile(spec.model)), links * 1e9 * PAYLOAD
    queues_s, contention_s = (
        float(of_step.seconds(spec.nodes, spec.workers, device.step_s, Parameters(rate, contention=crowd)))
        for crowd in (0.0, CONTENTION)
    )
    return Steps(queues_s, contention_s, of_step.two_lines_s(spec.nodes, device.step_s, device.forward_share, rate))


def points(name: str, tables: Sequence[Table]) -> list[StudyPoint]:
    return Study.model_validate({"name": name, "matrix": tables}).points(lambda _: "cpu")


def complete(spec: RunSpec) -> RunSpec:
    """``spec`` with the defaults of its model and its backend."""
    backend = backends.backend(spec.backend)
    usual = {
        "image_size": models.specification(spec.model).image_size,
        "framework": spec.framework or backend.frameworks[0],
        "transport": spec.transport or backend.transports[0],
    }
    return spec.model_copy(update=usual)


def main() -> None:
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(["links_gb_per_s", "model", "point", "id", "queues_s", "contention_s"])
    for part in (part for file in FILES for part in parts(file)):
        asked = points(part.name, part.tables)
        for point, label in zip(asked, labels([point.spec.model_dump() for point in asked]), strict=True):
            steps = predicted(complete(point.spec), part.links.rate)
            seconds = (f"{step_s:.4f}" for step_s in (steps.queues_s, steps.contention_s))
            rows.writerow([part.links.rate, point.spec.model, label, point.id, *seconds])


if __name__ == "__main__":
    main()

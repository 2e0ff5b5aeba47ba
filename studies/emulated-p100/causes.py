"""Which cause makes the drop of 2017: each is switched alone, from servers with all of them and from servers with none.

    .venv/bin/python studies/emulated-p100/causes.py RESULTS... [-o DIR]

RESULTS are the records that measure.py keeps in ``causes``, and those in ``steady``, which say how far jobs agree. The
page is printed, or written with its data into DIR; ``causes.md.j2`` is the page. The drop is how many times longer a step
takes on 32 nodes than on 16, on links of a quarter of 2.25 GB/s: by the law that is the drop from 64 to 128 nodes on
whole ones (causes.toml).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from steady import Outcome, Point, Questions, Ratio, Spread, answer_of, command, grouped, spread

GRPC, GLOO, MPI = "parameter_server over grpc", "torch_parameter_server over gloo", "torch_parameter_server over mpi"
# A setting of servers: the runtime, their numbers on 16 and on 32 nodes, and the other options that differ.
Setting = Mapping[str, Any]
BOTH: Setting = {"order": "forward", "threads": 1, "ps": (16, 32), "slow": False}
ALL: Setting = {**BOTH, "runtime": GRPC, "placement": "greedy", "sync": "barrier"}
NONE: Setting = {**BOTH, "runtime": GLOO, "placement": "partitioned", "sync": "accumulate"}
# Each cause, and its switch from servers with all of them, and from servers with none; None: there is none.
LARGEST = "the largest tensor is whole"
SWITCHES: dict[str, tuple[Setting | None, Setting | None]] = {
    "nothing is switched": ({}, {}),
    LARGEST: ({"placement": "partitioned"}, {"placement": "greedy"}),
    "placement: dealt in turn, not by size": ({"placement": "round_robin"}, None),
    "order: parameters come in none": ({"order": "none"}, {"order": "none"}),
    "number of servers: 16 on both sizes": ({"ps": (16, 16)}, {"ps": (16, 16)}),
    "barrier of tokens": ({"sync": "accumulate"}, {"runtime": GRPC, "sync": "barrier"}),
    "gRPC: Gloo and no barrier with all, gRPC with none": ({"runtime": GLOO, "sync": "accumulate"}, {"runtime": GRPC}),
    "MPI: with no barrier": ({"runtime": MPI, "sync": "accumulate"}, {"runtime": MPI}),
    "threads of a server: two": ({"threads": 2}, None),
    "a slow node: its link has a tenth of the rate": (None, {"slow": True}),
}
LARGE, NO_DROP = 1.4, 1.1  # from which drop on it counts as that of 2017, and up to which it counts as none


class Drop(NamedTuple):
    """Steps on 16 and 32 nodes, and how many times longer the second is."""

    few: Point
    many: Point
    ratio: Ratio


def setting(point: Point) -> Setting:
    """The setting as in ``ALL``, but that ``ps`` is a number."""
    spec, options = point.spec, point.spec.options
    chosen = {name: options.get(name, "accumulate") for name in ("placement", "order", "sync")}
    runtime, slow = f"{spec.backend} over {spec.transport}", "-slow-" in point.study
    return chosen | {"runtime": runtime, "threads": spec.threads or 1, "ps": point.ps, "slow": slow}


def drop(points: Sequence[Point], known: Spread, start: Setting, switch: Setting | None) -> Drop | None:
    """The drop of servers set as ``start`` but for ``switch``; None where a size has no number."""
    if switch is None:
        return None
    switched = {**start, **switch}
    sizes = [(nodes, switched | {"ps": ps}) for nodes, ps in zip((16, 32), switched["ps"], strict=True)]
    measured = [point for point in points if point.study.startswith("causes")]
    few, many = ([point for point in measured if (point.spec.nodes, setting(point)) == size] for size in sizes)
    return Drop(few[-1], many[-1], known.ratio(many[-1:], few[-1:])) if few and many else None


def drops(points: Sequence[Point]) -> dict[str, tuple[Drop | None, Drop | None]]:
    """By cause: from servers with all causes, and from servers with none."""
    known = spread(points)
    return {
        name: (drop(points, known, ALL, off), drop(points, known, NONE, on)) for name, (off, on) in SWITCHES.items()
    }


def heavier(start: Setting, switch: Setting | None) -> bool:
    """Whether the fullest server sends 1.5 to 2.1 times the bytes on 32 nodes, by its placement; else 1.12 times."""
    switched = {**start, **(switch or {})}
    few, many = switched["ps"]
    return bool(switched["placement"] != "partitioned" or few == many)


def root_cause(points: Sequence[Point]) -> Outcome:
    whole, sliced, ratios = list[Ratio](), list[Ratio](), dict[str, Ratio]()
    for name, both in drops(points).items():
        for side, start, switch, measured in zip(("all", "none"), (ALL, NONE), SWITCHES[name], both, strict=True):
            if measured:
                ratios[f"{name}, from {side}"] = measured.ratio
                (whole if heavier(start, switch) else sliced).append(measured.ratio)
    needed = {f"{name}, from {side}" for name in ("nothing is switched", LARGEST) for side in ("all", "none")}
    if not needed <= ratios.keys():
        return "cannot say", ratios
    yes = min(ratio.low for ratio in whole) > LARGE and max(ratio.high for ratio in sliced) < NO_DROP
    no = min(ratio.high for ratio in whole) < LARGE or max(ratio.low for ratio in sliced) > NO_DROP
    return answer_of(yes, no), ratios


def searched(points: Sequence[Point], links: float) -> Outcome:
    """Check that the smaller number of servers is better, on links of this rate."""
    known, ratios = spread(points), {}
    tried = [point for point in points if point.study.startswith("search") and point.links == links]
    for name, alike in grouped(tried, lambda point: f"{point.spec.backend} on {point.spec.nodes} nodes").items():
        by_ps = {point.ps: point for point in alike}
        few, many = min(by_ps), max(by_ps)
        if few < many:
            ratios[f"{name}, {few} beside {many}"] = known.ratio([by_ps[few]], [by_ps[many]])
    faster = [ratio.high < 1 for ratio in ratios.values()]
    slower = [ratio.low > 1 for ratio in ratios.values()]
    return answer_of(all(faster), all(slower)), ratios


QUESTIONS: Questions = {
    "root_cause": (
        "Is there a drop wherever the fullest server sends 1.5 times the bytes or more on 32 nodes, and nowhere else?",
        root_cause,
    ),
    "search": (
        "Are 4 servers on 16 nodes and 12 on 32, as 2017 chose, faster than 6 and 20?",
        partial(searched, links=2.25),
    ),
    "more_servers": (
        "Are as many servers as workers faster than two on each node?",
        partial(searched, links=0.5625),
    ),
}


if __name__ == "__main__":
    command(__file__, QUESTIONS, __doc__, drops=drops)

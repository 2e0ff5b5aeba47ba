"""Which cause makes the drop of 2017: each is switched alone, from servers with all of them and from servers with none.

    .venv/bin/python studies/emulated-p100/causes.py RESULTS... [-o DIR]

RESULTS are the records that measure.py keeps in ``causes``, and those in ``steady``, which say how far jobs agree. The
page is printed, or written with its data into DIR; ``causes.md.j2`` is the page. The drop is how many times longer a step
takes on 32 nodes than on 16, on links of a quarter of 2.25 GB/s: by the law that is the drop from 64 to 128 nodes on
whole ones (causes.toml).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from steady import Outcome, Point, Questions, Ratio, Spread, answer_of, command, page, spread

GRPC, GLOO, MPI = "parameter_server over grpc", "torch_parameter_server over gloo", "torch_parameter_server over mpi"
# How servers may be set: what exchanges, as many of them on 16 and on 32 nodes, and what else differs.
Setting = Mapping[str, object]
BOTH: Setting = {"order": "forward", "threads": 1, "ps": (16, 32), "slow": False}
ALL: Setting = {**BOTH, "runtime": GRPC, "placement": "greedy", "sync": "barrier"}
NONE: Setting = {**BOTH, "runtime": GLOO, "placement": "partitioned", "sync": "accumulate"}
# Each cause, and what switches it from servers with all of them, and from servers with none; None: nothing does.
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
    """As in ``ALL``, but that ``ps`` is a number."""
    spec, options = point.spec, point.spec.options
    own = {name: options.get(name, "accumulate") for name in ("placement", "order", "sync")}
    runtime, slow = f"{spec.backend} over {spec.transport}", "-slow-" in point.study
    return own | {"runtime": runtime, "threads": spec.threads or 1, "ps": point.ps, "slow": slow}


def drop(points: Sequence[Point], known: Spread, start: Setting, switch: Setting | None) -> Drop | None:
    """The drop of servers set as ``start`` but for ``switch``; None where a size has no number."""
    if switch is None:
        return None
    wanted: dict[str, object] = {**start, **switch}
    sizes = dict(zip((16, 32), wanted["ps"], strict=True))  # type: ignore[call-overload]
    alike = {
        point.spec.nodes: point
        for point in points
        if point.study.startswith("causes")
        and point.spec.nodes in sizes
        and setting(point) == wanted | {"ps": sizes[point.spec.nodes]}
    }
    return Drop(alike[16], alike[32], known.ratio(alike[32], alike[16])) if len(alike) == len(sizes) else None


def drops(points: Sequence[Point]) -> dict[str, tuple[Drop | None, Drop | None]]:
    """By cause: from servers with all causes, and from servers with none."""
    known = spread(points)
    return {
        name: (drop(points, known, ALL, off), drop(points, known, NONE, on)) for name, (off, on) in SWITCHES.items()
    }


def root_cause(points: Sequence[Point]) -> Outcome:
    measured = {(name, side): each for name, both in drops(points).items() for side, each in enumerate(both) if each}
    if any((name, side) not in measured for name in ("nothing is switched", LARGEST) for side in (0, 1)):
        return None
    ratios = {key: each.ratio for key, each in measured.items()}
    whole = [ratio for (name, side), ratio in ratios.items() if (name == LARGEST) == (side == 1)]
    sliced = [ratio for (name, side), ratio in ratios.items() if (name == LARGEST) != (side == 1)]
    yes = min(ratio.low for ratio in whole) > LARGE and max(ratio.high for ratio in sliced) < NO_DROP
    no = min(ratio.high for ratio in whole) < LARGE or max(ratio.low for ratio in sliced) > NO_DROP
    return answer_of(yes, no), {
        f"{name}, from {('all', 'none')[side]}": ratio for (name, side), ratio in ratios.items()
    }


def searched(points: Sequence[Point], links: float) -> Outcome:
    """Whether the smaller number of servers is better, on links of this rate."""
    known, alike = spread(points), dict[str, dict[int, Point]]()
    for point in (point for point in points if point.study.startswith("search") and point.links == links):
        alike.setdefault(f"{point.spec.backend} on {point.spec.nodes} nodes", {})[point.ps] = point
    ratios = {
        f"{name}, {min(by)} beside {max(by)}": known.ratio(by[min(by)], by[max(by)])
        for name, by in alike.items()
        if len(by) > 1
    }
    yes, no = (all(ratio.high < 1 for ratio in ratios.values()), all(ratio.low > 1 for ratio in ratios.values()))
    return (answer_of(yes, no), ratios) if ratios else None


QUESTIONS: Questions = {
    "root_cause": ("Does the largest whole tensor make the drop, and nothing else?", root_cause),
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
    command(Path(__file__), partial(page, drops=drops), QUESTIONS, __doc__)

"""What kernels say of a transport, as parameters of the law: measured on a few nodes, and fitted to no training.

docs/kernels.md says what the kernels do. Gradients are taken to travel as their largest messages do: S bytes in t seconds.
A message costs its bytes alone: what a small one takes by itself is hidden where many are under way. Predictions with that
latency for each tensor were too slow by up to 39 % (docs/scaling-model.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.errors import InvalidInput
from harness.prediction.parameters import CONTENTION, Prior, Share

if TYPE_CHECKING:
    import pandas

KERNELS = {True: ("incast", "outcast"), False: ("allreduce",)}  # with servers, and without
# How sure a figure is beside the interval of its own repeats: another message, another day, more nodes.
THROUGHPUT_WITHIN, CONTENTION_WITHIN = 1.03, 1.5
NONE = Prior(0.0, 1.0)


def priors(
    frame: pandas.DataFrame, backend: str, transport: str, servers: bool, dilation: float
) -> dict[str, Prior | Share]:
    """What is known of a step's exchange, by parameter, from a DataFrame of ``results.kernels.load``, in the device's time.

    Of several backends whose kernels went over ``transport`` the one that is asked for counts, else any. What a step costs
    in addition is nothing: the messages of kernels begin and end where gradients are. Runs with several servers or workers
    on a node are left out. Raises InvalidInput where a kernel is missing.
    """
    done = frame[(frame["status"] == "completed") & (frame["transport"] == transport) & (frame["workers"] > 1)]
    done = done[~done["options"].str.contains("_per_node")]
    measured = []
    for name in KERNELS[servers]:
        those = done[done["kernel"] == name]
        if those.empty:
            raise InvalidInput(
                f"--network: no {name} over {transport} on several nodes is there; "
                "`harness network --nodes 4 --output DIR` measures what a prediction needs"
            )
        having = those["backend"]
        measured.append(those[having == (backend if (having == backend).any() else having.iloc[0])])
    few = [_of(rows[rows["ps"] == rows["ps"].min()]) for rows in measured]
    throughput = len(few) / sum(1 / rate for rate, _ in few) * dilation
    within = max(error for _, error in few)
    found: dict[str, Prior | Share] = {
        "throughput": Prior(throughput, (1 + within / 2) * THROUGHPUT_WITHIN),
        "overhead": NONE,
        "message": NONE,
    }
    return found | {"replica_overhead": NONE, "contention": _contention(measured)} if servers else found


def _of(rows: pandas.DataFrame) -> tuple[float, float]:
    """Bytes/s of the endpoint that all wait for, by the largest message, and half its interval relative to that."""
    largest = rows[rows["nodes"] == rows["nodes"].max()].sort_values("size").iloc[-1]
    return _passes(largest) * largest["rate"], _error(largest)


def _passes(row: pandas.Series[Any]) -> float:
    """How often a byte of those that a worker exchanges goes through the endpoint that all wait for."""
    if not row["ps"]:
        return float(2 * (row["workers"] - 1) / row["workers"])
    return float((row["workers"] - _beside(row)) / row["ps"])


def _beside(row: pandas.Series[Any]) -> int:
    """1 where a server's messages to the worker on its own node leave no node."""
    return int(json.loads(row["spec"])["options"].get("ps_nodes", "shared") == "shared")


def _error(row: pandas.Series[Any]) -> float:
    return 0.0 if math.isnan(row["ci95"]) else float(row["ci95"] / row["rate"])


def _contention(measured: Sequence[pandas.DataFrame]) -> Prior | Share:
    """How much longer the exchange of everybody with everybody takes than that with few servers, if both were measured."""
    found = []
    for rows in measured:
        few, many = (rows[rows["ps"] == number] for number in (rows["ps"].min(), rows["ps"].max()))
        peers = int(many["workers"].max()) - _beside(many.iloc[0])
        if many["ps"].iloc[0] >= many["workers"].max() and len(rows["ps"].unique()) > 1 and peers > 1:
            found.append((_of(few)[0] / _of(many)[0] - 1) / (1 - 1 / peers))
    if not found:
        return CONTENTION.prior
    return Prior(max(sum(found) / len(found), 0.0), CONTENTION_WITHIN)

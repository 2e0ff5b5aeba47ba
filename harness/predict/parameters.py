"""The parameters of the scaling model: few, physical, each with its unit and what is known of it beforehand.

What is known beforehand ("prior") is a typical value and a factor by which reality may differ from it. Where measurements
say much they overrule it; where they say nothing it keeps a parameter from absurd values, and the tables say so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.published import FOLDER

Value = float | NDArray[np.float64]
Algorithm = Literal["ring", "tree"]

# The share of a training step that is its forward pass. Multiply-adds alone give 1/3: backward computes two products for
# every one of forward. Measured on GPUs with cuDNN 5: 0.29 on a K40c (ResNet-50, VGG-16), 0.31 to 0.33 on a GTX 1080
# (ResNet-18, ResNet-50), where batch norms and memory count too; on CPUs 0.37 (ResNet-50, two Xeon E5-2630 v3).
# Source: the tables of github.com/jcjohnson/cnn-benchmarks.
FORWARD_SHARE = {"cuda": 0.30, "cpu": 0.37}
FORWARD_SHARE_DEVIATION = 0.02


@dataclass(frozen=True)
class Prior:
    """A typical value, and the factor that a standard deviation is away from it (of the logarithm)."""

    typical: float
    factor: float


@dataclass(frozen=True)
class Quantity:
    """One parameter: what it means, the unit it is shown in (``scale`` of it make one SI unit), and what is known of it."""

    name: str
    unit: str
    scale: float
    meaning: str
    prior: Prior

    @property
    def si(self) -> str:
        """The unit of its values."""
        return "B/s" if self.unit == "GB/s" else "s"


# gRPC as users of 2017 reported it: 0.1 to 0.2 GB/s before August of that year, 0.8 GB/s after. Where a network's line rate
# is known, toolkits reach a share of it: gRPC about a fifth, MPI and NCCL about a half.
UNKNOWN_THROUGHPUT = Prior(0.5e9, 4.5)
SHARE_OF_LINE = {"grpc": Prior(0.2, 2.7), "": Prior(0.5, 2.7)}

THROUGHPUT = Quantity(
    "throughput",
    "GB/s",
    1e-9,
    "what one node sends, and at the same time receives, with this transport",
    UNKNOWN_THROUGHPUT,
)
# Gradients leave a GPU and come back through the host once per step: 2 × 95 MB at 5 GB/s are 0.04 s.
OVERHEAD = Quantity(
    "overhead", "ms", 1e3, "what a step of several workers costs besides, whatever their number", Prior(0.04, 2.7)
)
REPLICA_OVERHEAD = Quantity(
    "replica_overhead",
    "ms",
    1e3,
    "what copying back variable by variable adds (distributed_replicated)",
    Prior(0.04, 2.7),
)
NAMES = (
    "throughput",
    "overhead",
    "replica_overhead",
    "message",
)  # of those that are fitted, in the order of Parameters
MESSAGE = Quantity("message", "µs", 1e6, "what a message costs a node besides its bytes", Prior(1e-6, 2.7))


@dataclass(frozen=True)
class Parameters:
    """The values of a system and transport, or arrays of them. ``throughput`` is in bytes/s, all times are in seconds.

    ``forward_share`` is that of a step's compute. ``algorithm`` is how gradients are summed without servers: in a ring, or
    along a tree. ``switch_nodes`` nodes share a switch; the levels of a tree that lie within a switch cost nothing.
    """

    throughput: Value
    overhead: Value = 0.0
    replica_overhead: Value = 0.0
    message: Value = 0.0
    forward_share: Value = FORWARD_SHARE["cuda"]
    algorithm: Algorithm = "ring"
    switch_nodes: int = 1

    @property
    def summed(self) -> str:
        """How gradients are summed, in words."""
        return {"ring": "around a ring", "tree": "along a tree"}[self.algorithm]

    def with_values(self, values: Mapping[str, Value]) -> Parameters:
        """With other ``values`` of some of ``NAMES``."""
        changed = [values.get(name, getattr(self, name)) for name in NAMES]
        throughput, overhead, replica_overhead, message = changed
        return Parameters(
            throughput, overhead, replica_overhead, message, self.forward_share, self.algorithm, self.switch_nodes
        )


@dataclass(frozen=True)
class Network:
    """What is known of a system's network. ``line_rate`` (bytes/s) is what its own benchmark moves between two nodes."""

    system: str = ""
    site: str = ""
    line_rate: float | None = None
    switch_nodes: int = 1
    source: str = ""

    def throughput(self, transport: str) -> Quantity:
        """``THROUGHPUT`` with what is known of it on this network."""
        if self.line_rate is None:
            return THROUGHPUT
        share = SHARE_OF_LINE.get(transport, SHARE_OF_LINE[""])
        return replace(THROUGHPUT, prior=Prior(share.typical * self.line_rate, share.factor))


@cache
def networks() -> tuple[Network, ...]:
    """The networks that are known, from ``results/reference/networks.toml``."""
    content = tomllib.loads((FOLDER / "networks.toml").read_text(encoding="utf-8"))
    return tuple(
        Network(
            system=one["system"],
            site=one.get("site", ""),
            line_rate=one["line_rate_gb_s"] * 1e9 if "line_rate_gb_s" in one else None,
            switch_nodes=one.get("switch_nodes", 1),
            source=one["source"],
        )
        for one in content["network"]
    )


def network(system: str) -> Network:
    """What is known of the network of ``system`` (or of a site with that name); nothing if it is not listed."""
    return next((one for one in networks() if system in (one.system, one.site)), Network())


def normal(prior: Prior) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm."""
    return log(prior.typical), log(prior.factor)

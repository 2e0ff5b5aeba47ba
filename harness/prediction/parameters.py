"""The parameters of the scaling model: few, physical, each with its unit and its prior.

A prior is a typical value and a factor by which reality may differ from it. Measurements that tell much overrule it; where
they tell nothing it keeps a parameter from absurd values, and the tables show that.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.emulation import profile
from harness.core.spec import EMULATED
from harness.core.written import positive
from harness.errors import InvalidInput
from harness.results.published import FOLDER

Floats = NDArray[np.float64]
Number = float | Floats

# The share of a training step that is its forward pass. Multiply-adds alone give 1/3: backward computes two products for
# every one of forward. Measured on GPUs with cuDNN 5: 0.29 on a K40c (ResNet-50, VGG-16), 0.31 to 0.33 on a GTX 1080
# (ResNet-18, ResNet-50), where batch norms and memory count too; on CPUs 0.37 (ResNet-50, two Xeon E5-2630 v3).
# Source: the tables of github.com/jcjohnson/cnn-benchmarks.
FORWARD_SHARE = {"cuda": 0.30, "cpu": 0.37}
FORWARD_SHARE_DEVIATION = 0.02


def forward_share(device: str) -> float:
    """The share of a step on a kind of device, as a spec has it; that of an emulated one is in its file, if it is here."""
    if not device.startswith(EMULATED):
        return FORWARD_SHARE[device]
    with suppress(InvalidInput):
        return profile(device.removeprefix(EMULATED)).forward_share
    return FORWARD_SHARE["cuda"]


@dataclass(frozen=True)
class Prior:
    """A typical value, and the factor that a standard deviation is away from it (of the logarithm)."""

    typical: float
    factor: float

    def at(self, score: Number) -> Number:
        """The value that is ``score`` standard deviations above the typical one."""
        return self.typical * self.factor**score


@dataclass(frozen=True)
class Share:
    """A typical share, and its standard deviation; values end at 0 and 1."""

    typical: float
    deviation: float

    def at(self, score: Number) -> Number:
        return np.clip(self.typical + self.deviation * score, 0.0, 1.0)


@dataclass(frozen=True)
class Quantity:
    """One parameter: its meaning, the unit it is shown in (``scale`` of it make one SI unit), and its prior."""

    name: str
    unit: str
    scale: float
    meaning: str
    prior: Prior | Share

    @property
    def si(self) -> str:
        """The unit of its values; "" for a pure number."""
        return {"GB/s": "B/s", "": ""}.get(self.unit, "s")


# gRPC as users of 2017 reported it: 0.1 to 0.2 GB/s before August of that year, 0.8 GB/s after. Where a network's line rate
# is known, toolkits reach a share of it, and MPI no more than some GB/s, for it sums and copies in host memory. By RDMA the
# share is larger. Through sockets a core copies all that MPI sends and receives at the same time: osu_bw in one direction
# moves 3.1 GB/s through sockets on links of Alps that carry 24. All other figures are what the tables in results/reference
# say themselves, so they are no independent knowledge there (benchmarks/zero_shot.py). gRPC reaches 0.24 on both of Uber's
# networks and 0.26 on Daint. MPI reaches 0.7 of 3.1 GB/s and 2.7 GB/s by RDMA, 1.3 GB/s through sockets. NCCL reaches 0.8
# by RDMA, and 0.45 through sockets, as on Daint: it has no other way to Aries.
SHARE_OF_LINE = {
    ("grpc", None): (Prior(0.26, 1.6), math.inf),
    ("mpi", True): (Prior(0.7, 1.3), 2.7e9),
    ("mpi", False): (Prior(0.7, 1.5), 1.3e9),
    ("mpi", None): (Prior(0.5, 1.5), 2.4e9),
    ("nccl", True): (Prior(0.8, 1.3), math.inf),
    ("nccl", False): (Prior(0.45, 1.4), math.inf),
    ("nccl", None): (Prior(0.55, 1.5), math.inf),
}  # by transport, and whether it is by RDMA (None: nobody knows): the share, and the most (bytes/s)
OF_ANOTHER = (Prior(0.5, 2.0), math.inf)

NODE_SENDS = "rate at which a node sends, and at the same time receives, with this transport"
THROUGHPUT = Quantity("throughput", "GB/s", 1e-9, NODE_SENDS, Prior(0.5e9, 4.5))
# Gradients leave a GPU and come back through the host once per step: 2 × 95 MB at 5 GB/s are 0.04 s. NCCL copies nothing:
# on Daint a step of two nodes is 6 to 11 ms longer than of one.
OVERHEADS = {"nccl": Prior(0.01, 1.8), "mpi": Prior(0.02, 2.0), "": Prior(0.03, 2.0)}
OVERHEAD = Quantity(
    "overhead", "ms", 1e3, "added cost of a step of several workers, the same for any number", OVERHEADS[""]
)
REPLICA_OVERHEAD = Quantity(
    "replica_overhead",
    "ms",
    1e3,
    "the same where parameters are copied back to replicas (distributed_replicated); once more for every doubling of nodes",
    OVERHEADS[""],
)
# A ring through host memory crosses it once more for each further device of a node, as it does for the link. Devices that
# reach each other, as NCCL's do, hardly delay it, unless a virtual machine keeps them apart. With servers each device may
# exchange by itself, or the node's sum: 4 devices a node took 3.2 times as long as one of VGG-16's exchanges in 2017.
BESIDES = {"mpi": Prior(0.6, 1.4), "nccl": Prior(0.03, 3.0), "": Prior(0.6, 2.0)}
BESIDE = Quantity(
    "beside", "", 1.0, "cost of each further device of a node, as a share of the link's own use", BESIDES[""]
)
MESSAGE = Quantity("message", "µs", 1e6, "cost of a message for an endpoint in addition to its bytes", Prior(1e-6, 2.7))
TOKEN = Quantity(
    "token", "µs", 1e6, "cost of a token of the step's barrier for the server that holds its queue", Prior(1e-6, 2.7)
)
# On links with shallow queues, slices on 4 of 4 and 8 of 8 nodes, it was 0.64 (results/experiments/ps-bottleneck), and
# sockets without a framework took 1.4 times as long as the law on 8 and 16 nodes, 1.7 times on 32. On links with deep
# queues (emulated devices at commit c699d9e) the law was better without it, so none is what is typical.
CONTENTION = Quantity(
    "contention",
    "",
    1.0,
    "how much longer an exchange takes when every node sends to and receives from every other as much as it can",
    Share(0.0, 0.5),
)
# In the same experiment a step with one server took 1.5 to 1.7 times its bytes at the throughput, where 1 is no share and 2
# all of it. Those of 2017 ran on another TensorFlow, so anything is possible beforehand.
SERIAL = Quantity(
    "serial",
    "",
    1.0,
    "the share of a server's gradients that must be there before parameters come back (distributed_replicated)",
    Share(0.5, 0.5),
)


@dataclass(frozen=True)
class Parameters:
    """The values of a system and transport, or arrays of them. ``throughput`` is in bytes/s, all times are in seconds.

    The fields of which there is a quantity are explained there. ``forward_share`` is that of a step's compute. ``ordered``
    is 1 where parameters are pulled in the order of their use, so that a forward pass hides most of that, and 0 where they
    come in no order, so that it begins when the last one is there. ``tree`` is 1 where gradients are summed along a tree,
    and 0 where they go around a ring. ``switch_nodes`` nodes share a switch; the levels of a tree that lie within a switch
    cost nothing.
    """

    throughput: Number
    overhead: Number = 0.0
    replica_overhead: Number = 0.0
    message: Number = 0.0
    token: Number = 0.0
    contention: Number = 0.0
    serial: Number = 0.0
    beside: Number = 0.0
    forward_share: Number = FORWARD_SHARE["cuda"]
    ordered: Number = 1.0
    tree: Number = 0.0
    switch_nodes: int = 1

    @property
    def summed(self) -> str:
        return "along a tree" if float(self.tree) > 0.5 else "around a ring"

    def plain(self) -> Parameters:
        values: dict[str, Any] = {part.name: float(getattr(self, part.name)) for part in fields(self)}
        return Parameters(**values | {"switch_nodes": self.switch_nodes})


PAYLOAD = 8948 / 9014  # of a link's rate, in frames of 9000 bytes: without 20 of IP, 32 of TCP, and Ethernet's 14


@dataclass(frozen=True)
class Network:
    """The known facts of a system's network, as in ``results/reference/networks.toml``.

    ``line_rate_gb_s`` (GB/s) is the rate of its own benchmark between two nodes. ``rdma`` are the transports that use RDMA
    there, where all others go through sockets; None: unknown. ``device`` is that of a node, by the name of its file in
    ``harness/core/devices``.
    """

    system: str = ""
    site: str = ""
    device: str = ""
    line_rate_gb_s: float | None = None
    rdma: Sequence[str] | None = None
    switch_nodes: int = 1
    source: str = ""

    def quantities(self, transport: str, servers: bool) -> list[Quantity]:
        """The unknown quantities of an exchange over ``transport``, each with its prior on this network."""
        throughput = THROUGHPUT
        if self.line_rate_gb_s is not None:
            way = (transport, None if self.rdma is None else transport in self.rdma)
            share, most = SHARE_OF_LINE.get(way) or SHARE_OF_LINE.get((transport, None), OF_ANOTHER)
            typical = min(share.typical * self.line_rate_gb_s * 1e9, most)
            throughput = replace(throughput, prior=Prior(typical, share.factor))
        overhead = replace(OVERHEAD, prior=OVERHEADS.get(transport, OVERHEADS[""]))
        beside = replace(BESIDE, prior=BESIDES.get(transport, BESIDES[""]))
        of_servers = [REPLICA_OVERHEAD, TOKEN, CONTENTION, SERIAL] if servers else []
        return [throughput, overhead, MESSAGE, beside, *of_servers]


def link(rate: float | str) -> Network:
    """A network of links that carry so many bytes/s, or 9.5GB/s, 25Gbit/s or 200 Mb/s; ``rdma:25Gbit/s`` if transports use
    RDMA, and ``sockets:25Gbit/s`` if they do not. B is a byte, b and bit are a bit. Raises ValueError.
    """
    if not isinstance(rate, str):
        return Network(line_rate_gb_s=positive(rate) / 1e9)
    match = re.fullmatch(r"\s*(?:(rdma|sockets):)?\s*(\d+(?:\.\d+)?|\.\d+)\s*([kKMGT]?)(B|b|bit)(?:/s|ps)\s*", rate)
    if not match or float(match[2]) <= 0:
        raise ValueError("must be a rate such as 9.5GB/s, 25Gbit/s or rdma:200Gb/s")
    scale = 1000.0 ** " kMGT".index(match[3].replace("K", "k") or " ")
    bytes_per_s = float(match[2]) * scale / (1 if match[4] == "B" else 8)
    by = {None: None, "rdma": ("mpi", "nccl"), "sockets": ()}
    return Network(line_rate_gb_s=bytes_per_s / 1e9, rdma=by[match[1]])


@cache
def networks() -> tuple[Network, ...]:
    content = tomllib.loads((FOLDER / "networks.toml").read_text(encoding="utf-8"))
    return tuple(Network(**entry) for entry in content["network"])


def nominal_rate(system: str, link_gb_s: float | None = None) -> float | None:
    """The nominal rate of a link of ``system``, without headers (bytes/s); None if it is unknown."""
    emulated = re.search(r"(?:links of|at) ([\d.]+) GB/s", system)
    nominal_gb_s = float(emulated[1]) if emulated else network(system, link_gb_s).line_rate_gb_s
    return nominal_gb_s and nominal_gb_s * 1e9 * PAYLOAD


def network(system: str, link_gb_s: float | None = None) -> Network:
    """The network of ``system`` (or of a site with that name), with the line rate of a table where that has one."""
    known = next((network for network in networks() if system in (network.system, network.site)), Network())
    return replace(known, line_rate_gb_s=link_gb_s) if link_gb_s else known

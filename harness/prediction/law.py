"""The law: how long a synchronous step takes, from what is exchanged and how fast that can be.

A node computes forward, then backward, and its network works at the same time. Pieces of the model queue for it in the
order in which they are needed: parameters in that of the forward pass, gradients in that of the backward pass. Such a phase
ends when the piece ends that finished last, and for every piece i that is a straight line,

    phase = max over i (compute until or after i + bytes of the queue up to or after i / throughput),

so that a step is the sum of two upper envelopes of lines. Compute is the slope-free part; the bytes that a parameter server
sends and receives grow with the number of workers, and the fullest queue wins. No event simulation is needed, and the
binding line names the server and the tensor that bound the step. ``timeline`` simulates the same queues event by event, and
a test holds the two together.

Every endpoint is full duplex: what it sends does not slow down what it receives. Two things soften that picture, both
found in measurements (docs/scaling-model.md): many-to-many traffic takes longer than any one endpoint's bytes
(``Parameters.contention``), and gradients of several tensors share a link, so that the first complete one comes late
(``Parameters.serial``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from harness.core.exchange import AllreduceExchange, Exchange, ServerExchange
from harness.core.placement import bytes_per_server
from harness.prediction.parameters import Parameters
from harness.prediction.profile import Floats, Integers, Profile, of_pieces

WORKER = -1  # in place of a server's number: what binds is a worker's own endpoint
COMPUTE = -2  # nothing of the network binds
FEW = 24  # lines of which it does not pay to leave some out


class Cost(NamedTuple):
    """What a byte and a message cost at an endpoint, in seconds."""

    per_byte: Any
    per_message: Any


@dataclass(frozen=True, eq=False)
class Queue:
    """Lines ``work × pass + bytes × seconds per byte + messages × seconds per message``, one for each piece [pieces].

    ``work`` is a share of the pass; ``server`` is who the piece queues at. ``again`` are the bytes that still have to come
    back when all ``bytes`` have been pushed, at least; 0 where nothing comes back.
    """

    work: Floats
    bytes: Floats
    again: Floats
    messages: Floats
    piece: Integers
    server: Integers

    def longest(self) -> Queue:
        """The lines that can be the longest: those that no other one beats in every part."""
        mine = np.stack([self.work, self.bytes, self.again, self.messages])
        as_long = np.all(mine[:, :, None] <= mine[:, None, :], axis=0)
        longer = as_long & np.any(mine[:, :, None] < mine[:, None, :], axis=0)
        return self.chosen(~np.any(longer, axis=1))._corners()

    def _corners(self) -> Queue:
        """Without lines between others: a line that is the longest for some costs is a corner of all lines' convex hull."""
        if len(self.work) < FEW:
            return self
        from scipy.spatial import ConvexHull, QhullError

        corners = np.stack([self.work, self.bytes, self.again, self.messages], axis=-1)
        corners = corners[:, np.ptp(corners, axis=0) > 0]
        try:
            return self.chosen(np.sort(ConvexHull(corners / np.ptp(corners, axis=0)).vertices))
        except QhullError:  # all of them lie in one plane
            return self

    def chosen(self, which: Any) -> Queue:
        return Queue(*(getattr(self, part.name)[which] for part in fields(self)))

    def seconds(self, pass_s: Floats | float, cost: Cost, ordered: Any = 1.0, serial: Any = 0.0) -> Floats:
        """When each line ends: [..., lines] for arguments of shape [...].

        With ``ordered`` 0 every piece has to wait for, or keeps waiting, the whole pass.
        """
        a_pass, per_byte, per_message, order, share = (
            np.asarray(one)[..., None] for one in (pass_s, *cost, ordered, serial)
        )
        work = 1 - (1 - self.work) * order
        bytes_ = self.bytes + np.maximum(self.again, share * self.bytes * (self.again > 0))
        ends: Floats = work * a_pass + bytes_ * per_byte + self.messages * per_message
        return ends


class Phase(NamedTuple):
    """A pass: what queues at those who serve all workers, and what queues at a worker itself."""

    served: Queue
    own: Queue | None


@dataclass(frozen=True, eq=False)
class Law:
    """How long a step takes with one exchange of one model. ``buffers`` are what an allreduce sums at a time."""

    exchange: Exchange
    forward: Phase | None
    backward: Phase
    buffers: tuple[tuple[int, ...], ...] = ()

    @property
    def copies_back(self) -> bool:
        """Whether variables are copied back to replicas, piece by piece, when they have been pushed."""
        return isinstance(self.exchange, ServerExchange) and self.exchange.pulls == "after_push"

    def seconds(self, nodes: Any, workers: Any, step_s: Any, parameters: Parameters) -> Floats:
        """Seconds of a step: arrays of any one shape, or numbers.

        ``nodes`` have one endpoint each, ``workers`` counts devices, ``step_s`` is a single worker's step. The values of
        ``parameters`` may be arrays as well.
        """
        return self.parts(nodes, workers, step_s, parameters).total

    def parts(self, nodes: Any, workers: Any, step_s: Any, parameters: Parameters) -> Parts:
        p = parameters
        nodes, workers, step_s, share, rate = np.broadcast_arrays(
            *(np.asarray(one, float) for one in (nodes, workers, step_s, p.forward_share, p.throughput))
        )
        forward_s, backward_s = share * step_s, (1 - share) * step_s
        served, own = (Cost(factor / rate, factor * p.message) for factor in self.factors(nodes, p))
        forward = _end(self.forward, forward_s, served, own, ordered=p.ordered)
        backward = _end(self.backward, backward_s, served, own, serial=p.serial)
        return Parts(forward, backward, (workers > 1) * self.overhead(nodes, p), self.tokens(nodes) * p.token)

    def overhead(self, nodes: Any, p: Parameters) -> Any:
        """Seconds that a step of several workers costs in addition."""
        return p.replica_overhead * (1 + np.log2(nodes)) if self.copies_back else p.overhead

    def factors(self, nodes: Any, p: Parameters) -> tuple[Floats, Floats]:
        """How often a byte of a queue passes through the endpoint that serves all, and through a worker's own."""
        nodes = np.asarray(nodes, float)
        beyond: Floats = np.asarray(nodes > 1, float)
        if isinstance(self.exchange, ServerExchange):
            served = nodes - float(self.exchange.shared_nodes)
            if self.exchange.shared_nodes:  # with a server beside every worker, none exchanges the whole model
                beyond = beyond * np.where(nodes <= self.exchange.servers, self._distant, 1.0)
            crowded = 1 + np.asarray(p.contention) * self.crowding(nodes)
            return served * crowded, beyond * crowded
        # Each node of a ring passes on (n − 1)/n of the sum twice: Patarasuk and Yuan 2009. A tree's sums go up to the root
        # and down again, one whole sum at every level that leaves a switch.
        levels = np.ceil(np.log2(np.maximum(nodes / p.switch_nodes, 1)) - 1e-9)
        tree = 2 * np.where(nodes > 1, np.maximum(levels, 1), 0)
        served = np.where(np.asarray(p.tree) > 0.5, tree, 2 * (nodes - 1) / nodes)
        return served, beyond

    def crowding(self, nodes: Any) -> Floats:
        """How much the exchange is one of everybody with everybody, from 0 to 1, as arrays of the shape of ``nodes``.

        The share of the fullest endpoint's bytes that an average node has, to the fourth power, and none between pairs. The
        power was chosen on results/experiments/ps-bottleneck: slices on every node take 1.35 and 1.5 times as long there,
        whole tensors, whose fullest server has 1.4 times the mean, at most 1.06 times.
        """
        assert isinstance(self.exchange, ServerExchange)
        nodes = np.asarray(nodes, float)
        peers = np.minimum(nodes, self.exchange.servers) - float(self.exchange.shared_nodes)
        mean = self._held.sum() / np.maximum(nodes, self.exchange.servers)
        share = np.minimum(mean / self._held.max(), 1.0)
        return np.asarray(np.where(peers > 1, (1 - 1 / np.maximum(peers, 1)) * share**4, 0.0))

    @cached_property
    def _held(self) -> Floats:
        assert isinstance(self.exchange, ServerExchange)
        return np.asarray(bytes_per_server(self.exchange.pieces, self.exchange.servers), float)

    @cached_property
    def _distant(self) -> float:
        """With a server beside every worker, the largest share of the model that a worker's other servers hold.

        Measured: two nodes with two servers take half as long as with all bytes (docs/experiments.md).
        """
        return float(1 - self._held.min() / self._held.sum())

    def tokens(self, nodes: Any) -> Any:
        """Tokens of a step's barrier that the busiest server puts into its queues (see ``ServerExchange``)."""
        if not isinstance(self.exchange, ServerExchange) or self.exchange.tokens == "none":
            return 0.0 * nodes
        each = nodes * (nodes - 1)
        if self.exchange.tokens == "all_to_all":
            return each
        return each * len(self.exchange.pieces) / self.exchange.servers

    def unhidden(self) -> Law:
        """The same exchange if nothing travelled while anything is computed."""

        def late(queue: Queue) -> Queue:
            return replace(queue, work=np.ones_like(queue.work))

        forward, backward = (
            phase and Phase(late(phase.served), phase.own and late(phase.own))
            for phase in (self.forward, self.backward)
        )
        assert backward is not None
        return replace(self, forward=forward, backward=backward)


class Parts(NamedTuple):
    """Seconds of a step, by what they are spent on. Passes include the network's time that compute does not hide."""

    forward: Floats
    backward: Floats
    overhead: Any
    barrier: Any

    @property
    def total(self) -> Floats:
        total: Floats = self.forward + self.backward + self.overhead + self.barrier
        return total


def _end(phase: Phase | None, pass_s: Floats, served: Cost, own: Cost, ordered: Any = 1.0, serial: Any = 0.0) -> Floats:
    """When a pass ends: with its compute, or with the last line."""
    ends = pass_s
    for queue, cost in zip(phase or (), (served, own), strict=False):
        if queue is not None and any(map(np.any, cost)):  # on one node there is nothing to wait for
            ends = np.maximum(ends, queue.seconds(pass_s, cost, ordered, serial).max(axis=-1))
    return ends


def law(exchange: Exchange, profile: Profile) -> Law:
    if isinstance(exchange, AllreduceExchange):
        return _allreduce(exchange, profile)
    left, bytes_, server = of_pieces(profile, exchange.pieces)
    again = exchange.pulls == "after_push"
    served = [_queue(left, bytes_, server, these, again) for these in _by_server(server, exchange.servers)]
    worker = _queue(left, bytes_, np.full(len(bytes_), WORKER), np.arange(len(bytes_)), again)
    phase = Phase(_joined(served).longest(), worker.longest())
    return Law(exchange, None if again else phase, phase)


def _allreduce(exchange: AllreduceExchange, profile: Profile) -> Law:
    """Buffers are filled from the last tensor to the first, and summed one after the other.

    Those that wait for nothing but the one before them end as single tensors would, as far as bytes go; how many there are
    depends on the network, and one message is counted.
    """
    free = exchange.waits == "until_free"
    buffers = [[tensor] for tensor in reversed(range(len(profile.bytes)))] if free else _filled(exchange, profile)
    sizes = np.array([profile.bytes[one].sum() for one in buffers])
    last = np.array([one[-1] for one in buffers])
    queue = Queue(
        work=profile.left[last],
        bytes=np.cumsum(sizes[::-1])[::-1],
        again=np.zeros(len(buffers)),
        messages=np.ones(len(buffers)) if free else np.arange(len(buffers), 0, -1.0),
        piece=last,
        server=np.full(len(buffers), WORKER),
    )
    return Law(exchange, None, Phase(queue.longest(), None), tuple(map(tuple, buffers)))


def _filled(exchange: AllreduceExchange, profile: Profile) -> list[list[int]]:
    buffers: list[list[int]] = []
    held = 0.0
    for tensor in reversed(range(len(profile.bytes))):
        size = float(profile.bytes[tensor])
        if not buffers or (held and held + size > exchange.buffer_bytes):
            buffers.append([])
            held = 0.0
        buffers[-1].append(tensor)
        held += size
    return buffers


def _by_server(server: Integers, servers: int) -> list[Integers]:
    """The pieces of each server, in the order of the model."""
    order = np.argsort(server, kind="stable")
    ends = np.searchsorted(server[order], np.arange(servers + 1))
    return [order[start:end] for start, end in pairwise(ends) if end > start]


def _queue(left: Floats, bytes_: Floats, server: Integers, these: Integers, pulled_again: bool) -> Queue:
    """The lines of one endpoint, for the pieces that queue there.

    Pulled, piece i has come when all bytes up to it have, and then the rest of the forward pass is left. Pushed, piece i
    exists when that same share of the backward pass is done, and then it and all pieces before it follow. So both passes
    have the same lines.

    Pulled again as soon as they are pushed, pieces pass two machines in the same order. The second one ends, for the piece
    i that binds the first and the piece k that binds the second, after the bytes from i on and once more those of k; the
    largest k binds (the two-machine flow shop of Johnson 1954).
    """
    left, bytes_ = left[these], bytes_[these]
    again = np.maximum.accumulate(bytes_) * pulled_again
    return Queue(left, np.cumsum(bytes_), again, np.arange(1.0, len(bytes_) + 1) + pulled_again, these, server[these])


def _joined(queues: list[Queue]) -> Queue:
    return Queue(*(np.concatenate([getattr(one, part.name) for one in queues]) for part in fields(Queue)))

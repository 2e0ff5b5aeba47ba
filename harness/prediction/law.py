"""The law: the time of a synchronous step, from its exchange and the rate of that.

A node computes forward, then backward, and its network works at the same time. Pieces of the model queue for it in the
order in which they are needed: parameters in that of the forward pass, gradients in that of the backward pass. Such a phase
ends when the piece ends that finished last, and for every piece i that is a straight line,

    phase = max over i (compute until or after i + bytes of the queue up to or after i / throughput),

so that a step is the sum of two upper envelopes of lines. Compute is the slope-free part; the bytes that a parameter server
sends and receives grow with the number of workers, and the fullest queue wins. No event simulation is needed, and the
binding line names the server and the tensor that bound the step. A test simulates the same queues event by event.

Every endpoint is full duplex: sending does not slow down receiving. Two things soften that picture, both
found in measurements (docs/scaling-model.md): many-to-many traffic takes longer than any one endpoint's bytes
(``Parameters.contention``), and gradients of several tensors share a link, so that the first complete one comes late
(``Parameters.serial``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness import models
from harness.core.exchange import AllreduceExchange, Exchange, ServerExchange, bytes_per_server
from harness.prediction.parameters import Floats, Number, Parameters

Integers = NDArray[np.int64]
WORKER = -1  # in place of a server's number: a worker's own endpoint binds
COMPUTE = -2  # nothing of the network binds
FEW = 24  # lines of which it does not pay to leave some out


@dataclass(frozen=True, eq=False)
class ModelProfile:
    """A model's tensors in creation order, which is that of the forward pass, with their names.

    ``left`` is the share of a forward pass that is still to be computed when tensor i is first needed. The backward pass
    goes the other way and has the same shares: ``left`` is also what of it is done when tensor i's gradient exists.
    ``multiply_adds`` are those of a forward pass, per image.
    """

    names: tuple[str, ...]
    bytes: Floats  # [tensors]
    left: Floats  # [tensors], from 1 down to 0
    multiply_adds: float


@cache
def profile(model: str, image_size: int | None = None) -> ModelProfile:
    """The profile of ``model`` for square images of ``image_size`` pixels per side, by default the published size.

    Compute is counted as multiply-adds of convolutions and the classifier. Other work (batch norm, pooling) is taken to be
    spread like them.
    """
    specification = models.specification(model)
    work = np.array(specification.multiply_adds(image_size or specification.image_size), float)
    return ModelProfile(
        names=tuple(tensor.name for tensor in specification.tensors),
        bytes=np.array([tensor.bytes for tensor in specification.tensors], float),
        left=np.cumsum(work[::-1])[::-1] / work.sum(),
        multiply_adds=float(work.sum()),
    )


@dataclass(frozen=True, eq=False)
class Queue:
    """Lines ``work × pass + bytes × seconds per byte + messages × seconds per message``, one for each piece.

    ``lines`` are their work (a share of the pass), bytes, the bytes that still have to come back at least when all those
    have been pushed (0 where nothing comes back), and messages: [4, pieces]. ``server`` is where the piece queues.
    """

    lines: Floats
    piece: Integers
    server: Integers

    def longest(self) -> Queue:
        """The lines that can be the longest: no other one beats them in every part, and they lie between no others.

        A line that is the longest for some costs is a corner of the convex hull of all lines.
        """
        as_long = np.all(self.lines[:, :, None] <= self.lines[:, None, :], axis=0)
        longer = as_long & np.any(self.lines[:, :, None] < self.lines[:, None, :], axis=0)
        unbeaten = self._chosen(~np.any(longer, axis=1))
        if len(unbeaten.piece) < FEW:
            return unbeaten
        from scipy.spatial import ConvexHull, QhullError

        corners = unbeaten.lines[np.ptp(unbeaten.lines, axis=1) > 0].T
        try:
            return unbeaten._chosen(np.sort(ConvexHull(corners / np.ptp(corners, axis=0)).vertices))
        except QhullError:  # all of them lie in one plane
            return unbeaten

    def _chosen(self, which: NDArray[np.integer[Any]]) -> Queue:
        return Queue(self.lines[:, which], self.piece[which], self.server[which])

    def seconds(
        self, pass_s: Number, per_byte: Number, per_message: Number, ordered: Number = 1.0, serial: Number = 0.0
    ) -> Floats:
        """The end of each line: [lines, draws] for arguments [draws], or [lines] for numbers; they are seconds and shares.

        With ``ordered`` 0 every piece has to wait for, or keeps waiting, the whole pass. ``serial`` is the share of its
        bytes that comes back after all of them have been pushed, if that is more than what has to.
        """
        ends, pushed = self._per_cost
        costs = np.empty((3, *np.broadcast(pass_s, per_byte, per_message, ordered, serial).shape))
        costs[0], costs[1], costs[2] = pass_s * ordered, per_byte, per_message
        longest = ends @ costs
        if pushed is not None:
            costs[1] *= 1 + serial
            longest = np.maximum(longest, pushed @ costs)
        return np.asarray(longest + pass_s * (1 - ordered))

    @cached_property
    def _per_cost(self) -> tuple[Floats, Floats | None]:
        """The lines [pieces, 3] until all has come back, and until all is pushed, if something comes back at all."""
        work, bytes_, again, messages = self.lines
        ends, pushed = (np.stack([work, each, messages], axis=-1) for each in (bytes_ + again, bytes_))
        return ends, pushed if again.any() else None


class Phase(NamedTuple):
    """A pass: the queues at the endpoints that serve all workers, and at a worker itself."""

    served: Queue
    at_worker: Queue | None


class Parts(NamedTuple):
    """Seconds of a step, by their use. Passes include the network's time that compute does not hide."""

    forward: Number
    backward: Number
    overhead: Number
    barrier: Number

    @property
    def total(self) -> Floats:
        return np.asarray(self.forward + self.backward + self.overhead + self.barrier)


@dataclass(frozen=True, eq=False)
class Law:
    """The time of a step with one exchange of one model. ``buffers`` are the tensors that an allreduce sums at a time."""

    exchange: Exchange
    forward: Phase | None
    backward: Phase
    buffers: tuple[tuple[int, ...], ...] = ()

    @property
    def servers(self) -> ServerExchange | None:
        """The exchange, if it is one with servers."""
        return self.exchange if isinstance(self.exchange, ServerExchange) else None

    @property
    def copies_back(self) -> bool:
        """Whether variables are copied back to replicas, piece by piece, when they have been pushed."""
        return self.servers is not None and self.servers.pulls == "after_push"

    @property
    def pieces(self) -> int:
        """The number of pieces that tensors are cut into for servers; 0 without them."""
        return len(self.servers.pieces) if self.servers else 0

    @property
    def order_is_known(self) -> bool:
        """Whether a run says in which order parameters come before its forward pass, or none do."""
        return self.forward is None or (self.servers is not None and self.servers.ordered is not None)

    def ordered(self, p: Parameters) -> Number:
        """1 where parameters come in the order of their use, 0 where in none: as the run says, else as is assumed."""
        known = self.servers.ordered if self.servers else None
        return p.ordered if known is None else float(known)

    def seconds(self, nodes: Number, workers: Number, step_s: Number, parameters: Parameters) -> Floats:
        """Seconds of a step: arrays of one dimension and one length, or numbers.

        ``nodes`` have one endpoint each, ``workers`` counts devices, ``step_s`` is a single worker's step. The values of
        ``parameters`` may be arrays as well.
        """
        return self.parts(nodes, workers, step_s, parameters).total

    def parts(self, nodes: Number, workers: Number, step_s: Number, parameters: Parameters) -> Parts:
        p = parameters
        nodes, workers = np.asarray(nodes, float), np.asarray(workers)
        factors = self.factors(nodes, p, workers / nodes)

        def end(phase: Phase | None, pass_s: Number, ordered: Number, serial: Number) -> Number:
            ends = pass_s
            for queue, factor in zip(phase or (), factors, strict=False):
                if queue is not None:
                    lines = queue.seconds(pass_s, factor / p.throughput, factor * p.message, ordered, serial)
                    ends = np.maximum(ends, lines.max(axis=0))
            return ends

        tokens: Number = 0.0  # of a step's barrier, that the busiest server puts into its queues
        if self.servers and self.servers.tokens != "none":
            of_each = 1.0 if self.servers.tokens == "all_to_all" else self.pieces / self.servers.servers
            processes = nodes * self.servers.workers_per_node
            tokens = processes * (processes - 1) * of_each
        return Parts(
            end(self.forward, p.forward_share * step_s, self.ordered(p), 0.0),
            end(self.backward, (1 - p.forward_share) * step_s, 1.0, p.serial),
            np.asarray(workers > 1, float) * self.overhead(nodes, p),
            tokens * p.token,
        )

    def overhead(self, nodes: Number, p: Parameters) -> Number:
        """The additional seconds of a step of several workers."""
        return p.replica_overhead * (1 + np.log2(nodes)) if self.copies_back else p.overhead

    def factors(self, nodes: Number, p: Parameters, devices: Number = 1.0) -> tuple[Floats, Floats]:
        """The times that a byte of a queue passes through the endpoint that serves all, and through a worker's own.

        ``devices`` are those of a node.
        """
        nodes = np.asarray(nodes, float)
        beyond: Floats = np.asarray(nodes > 1, float)
        if isinstance(self.exchange, ServerExchange):
            each = self.exchange.workers_per_node * (1 if self.copies_back else 1 + p.beside * (devices - 1))
            served = (nodes - float(self.exchange.shared_nodes)) * each
            if self.exchange.shared_nodes:
                # With a server beside every worker, none exchanges the whole model, but at most what its other servers
                # hold. Measured: two nodes with two servers take half as long as with all bytes (docs/experiments.md).
                distant = 1 - self._held.min() / self._held.sum()
                beyond = beyond * np.where(nodes <= self.exchange.servers, distant, 1.0)
            crowded = 1 + np.asarray(p.contention) * self._crowding(self.exchange, nodes)
            return served * crowded, beyond * each * crowded
        # Each node of a ring passes on (n − 1)/n of the sum twice: Patarasuk and Yuan 2009. A tree's sums go up to the root
        # and down again, one whole sum at every level that leaves a switch.
        levels = np.ceil(np.log2(np.maximum(nodes / p.switch_nodes, 1)) - 1e-9)
        tree = 2 * np.where(nodes > 1, np.maximum(levels, 1), 0)
        served = np.where(np.asarray(p.tree) > 0.5, tree, 2 * (nodes - 1) / nodes)
        return served + 2 * p.beside * (devices - 1), beyond

    def _crowding(self, exchange: ServerExchange, nodes: Floats) -> Floats:
        """The degree to which all nodes exchange with all, from 0 to 1, as arrays of the shape of ``nodes``.

        The share of the fullest endpoint's bytes that an average node has, to the fourth power, and none between pairs. The
        power was chosen on results/experiments/ps-bottleneck: slices on every node take 1.35 and 1.5 times as long there,
        whole tensors, whose fullest server has 1.4 times the mean, at most 1.06 times.
        """
        peers = np.minimum(nodes, exchange.servers) - float(exchange.shared_nodes)
        mean = self._held.sum() / np.maximum(nodes, exchange.servers)
        share = np.minimum(mean / self._held.max(), 1.0)
        return np.asarray(np.where(peers > 1, (1 - 1 / np.maximum(peers, 1)) * share**4, 0.0))

    def two_lines_s(self, nodes: int, single_s: float, forward_share: float, rate: float) -> float:
        """Seconds of a step by the simplest law that knows where bytes go; ``rate`` is in bytes/s, ``single_s`` in seconds.

        With servers it is max(forward, b / rate) + max(backward, b / rate), where the fullest one sends b bytes to other
        nodes, and receives as many; with parameters in no order forward + b / rate is its first part. Around a ring it is
        max(step, forward + 2 (n − 1) / n · B / rate), where B are all bytes. Source: docs/scaling-model.md.
        """
        uses, _ = self.factors(nodes, Parameters(rate))
        network_s = float(uses * self.backward.served.lines[1].max()) / rate
        forward_s, backward_s = forward_share * single_s, (1 - forward_share) * single_s
        if isinstance(self.exchange, AllreduceExchange):
            return max(single_s, forward_s + network_s)
        first_s = forward_s + network_s if self.exchange.ordered is False else max(forward_s, network_s)
        return first_s + max(backward_s, network_s)

    @cached_property
    def _held(self) -> Floats:
        assert isinstance(self.exchange, ServerExchange)
        return np.asarray(bytes_per_server(self.exchange.pieces, self.exchange.servers), float)

    def unhidden(self) -> Law:
        """The same exchange if nothing travelled during computation."""

        def late(queue: Queue) -> Queue:
            return replace(queue, lines=np.stack([np.ones_like(queue.lines[0]), *queue.lines[1:]]))

        def all_late(phase: Phase) -> Phase:
            return Phase(late(phase.served), phase.at_worker and late(phase.at_worker))

        return replace(self, forward=self.forward and all_late(self.forward), backward=all_late(self.backward))


def law(exchange: Exchange, profile: ModelProfile) -> Law:
    if isinstance(exchange, AllreduceExchange):
        summed = _allreduce(exchange, profile)
        return summed if exchange.overlapped else summed.unhidden()
    positions = {name: number for number, name in enumerate(profile.names)}
    left = profile.left[[positions[piece.tensor] for piece in exchange.pieces]]
    bytes_ = np.array([piece.bytes for piece in exchange.pieces], float)
    server = np.array([piece.ps for piece in exchange.pieces])
    again = exchange.pulls == "after_push"
    phase = Phase(_queue(left, bytes_, server, again).longest(), _at_worker(left.tobytes(), bytes_.tobytes(), again))
    return Law(exchange, None if again else phase, phase)


@lru_cache(maxsize=64)
def _at_worker(left: bytes, piece_bytes: bytes, again: bool) -> Queue:
    """The longest lines at a worker, which exchanges all pieces, wherever they are."""
    sizes = np.frombuffer(piece_bytes)
    return _queue(np.frombuffer(left), sizes, np.full(len(sizes), WORKER), again).longest()


def _queue(left: Floats, bytes_: Floats, server: Integers, pulled_again: bool) -> Queue:
    """The lines of the pieces, which queue at their servers in the order of the model.

    Pulled, piece i has come when all bytes up to it have, and then the rest of the forward pass is left. Pushed, piece i
    exists when that same share of the backward pass is done, and then it and all pieces before it follow. So both passes
    have the same lines.

    Pulled again as soon as they are pushed, pieces pass two machines in the same order. The second one ends, for the piece
    i that binds the first and the piece k that binds the second, after the bytes from i on and once more those of k; the
    largest k binds (the two-machine flow shop of Johnson 1954).
    """
    pieces = np.argsort(server, kind="stable")
    sizes, server = bytes_[pieces], server[pieces]
    first = np.flatnonzero(np.diff(server, prepend=server[0] - 1))  # of each server's pieces
    counts = np.diff(first, append=len(pieces))
    total = sizes.cumsum()
    bytes_ = total - np.repeat(total[first] - sizes[first], counts)
    messages = np.arange(1.0, len(pieces) + 1) - np.repeat(first, counts) + pulled_again
    again = np.zeros(len(pieces))
    if pulled_again:
        again = np.concatenate([np.maximum.accumulate(of_server) for of_server in np.split(sizes, first[1:])])
    return Queue(np.stack([left[pieces], bytes_, again, messages]), pieces, server)


def _allreduce(exchange: AllreduceExchange, profile: ModelProfile) -> Law:
    """Buffers are filled from the last tensor to the first, and summed one after the other.

    Those that wait for nothing but the one before them end as single tensors would, as far as bytes go; how many there are
    depends on the network, and one message is counted.
    """
    free = exchange.waits == "until_free"
    buffers: list[list[int]] = []
    held = 0.0
    for tensor in reversed(range(len(profile.bytes))):
        size = float(profile.bytes[tensor])
        if free or not buffers or (held and held + size > exchange.buffer_bytes):
            buffers.append([])
            held = 0.0
        buffers[-1].append(tensor)
        held += size
    sizes = np.array([profile.bytes[buffer].sum() for buffer in buffers])
    last = np.array([buffer[-1] for buffer in buffers])
    none = np.zeros(len(buffers))
    messages = none + 1 if free else np.arange(len(buffers), 0, -1.0)
    lines = np.stack([profile.left[last], np.cumsum(sizes[::-1])[::-1], none, messages])
    queue = Queue(lines, last, np.full(len(buffers), WORKER))
    return Law(exchange, None, Phase(queue.longest(), None), tuple(map(tuple, buffers)))

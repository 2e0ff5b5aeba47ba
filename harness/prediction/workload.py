"""A training as the scaling model sees it, at any size: its exchange, and the law of its step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from harness.core import backend as backends
from harness.core.exchange import ServerExchange, Tokens, bytes_per_server
from harness.core.spec import RunSpec
from harness.prediction.law import Law, law, profile
from harness.results.result import Result

SLICE = "1MiB"
OwnOptions = tuple[tuple[str, object], ...]  # by name, sorted


@dataclass(frozen=True)
class Workload:
    """A training. ``options`` are the backend's own by name, without the number of servers; batch is per device.

    ``as_in_2017``: with the barriers of the software that published results with servers were measured with.
    """

    backend: str
    model: str
    batch_size: int
    image_size: int | None = None
    devices_per_node: int = 1
    options: OwnOptions = ()
    as_in_2017: bool = False

    @classmethod
    def of(cls, run: Result) -> Workload:
        """The workload of a training; a table of efficiencies does not give its number of nodes."""
        return cls(
            run.backend,
            run.model,
            run.batch_size,
            run.image_size or None,
            devices_per_node=run.workers // (run.nodes or run.workers),
            options=tuple(run.options.items()),
            as_in_2017=not run.measured,
        )

    def law(self, ps: int) -> Law:
        """The law with ``ps`` servers, 0 where there are none."""
        return _law(self.backend, self.model, self.image_size, ps, self.options, self.as_in_2017)

    def way(self, law: Law) -> tuple[str, str, int]:
        """The facts of runs for which the law is wrong in the same way: backend, model, and the cuts of tensors."""
        return self.backend, self.model, law.pieces

    def servers(self, ps: int) -> ServerExchange | None:
        """The exchange of ``ps`` servers; None where there are none."""
        return self.law(ps).servers

    @property
    def has_servers(self) -> bool:
        return self.servers(1) is not None

    def held(self, ps: int) -> list[int]:
        """Bytes that each server holds, or the servers of each node, in server order; empty without servers."""
        exchange = self.servers(ps)
        return bytes_per_server(exchange.pieces, exchange.servers) if exchange else []

    def most_servers(self, nodes: int) -> int:
        """The most servers that find a place, and something to hold."""
        exchange = self.servers(1)
        assert exchange
        places = nodes * exchange.ps_per_node if exchange.shared_nodes else math.inf
        return int(min(places, len(exchange.pieces)))

    @property
    def can_be_sliced(self) -> bool:
        return self.has_servers and dict(self.options).get("placement") != "partitioned"

    def sliced(self) -> Workload:
        """The same with tensors cut into slices of 1 MiB."""
        options = dict(self.options) | {"placement": "partitioned", "slice_size": SLICE}
        return replace(self, options=tuple(sorted(options.items())))


@lru_cache(maxsize=65536)
def _law(backend: str, model: str, image_size: int | None, ps: int, options: OwnOptions, as_in_2017: bool) -> Law:
    known = backends.backend(backend)
    assert known.exchange is not None
    given = dict(options) | ({"ps": ps} if ps else {})
    fields = {name: value for name, value in given.items() if name in known.options.model_fields}
    complete = known.options(**fields).model_dump()
    spec = RunSpec.validated(backend=known.name, model=model, image_size=image_size, nodes=max(1, ps), options=complete)
    exchange = known.exchange(spec)
    if isinstance(exchange, ServerExchange):
        # The order in which parameters came is not published, and may be left open in a prediction.
        if as_in_2017 or ("order" in complete and "order" not in given):
            exchange = replace(exchange, ordered=None)
        # The barriers of tf_cnn_benchmarks, which all published runs with servers had: tokens from each worker to each
        # other, in ``distributed_replicated`` for every variable.
        if as_in_2017:
            tokens: Tokens = "all_to_all_per_piece" if exchange.pulls == "after_push" else "all_to_all"
            exchange = replace(exchange, tokens=tokens)
    return law(exchange, profile(model, image_size))

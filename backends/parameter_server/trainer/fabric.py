"""What carries gradients to TensorFlow's parameter servers, by itself: additions to variables on servers, over gRPC."""

from __future__ import annotations

from typing import Any, Callable, Tuple

import numpy as np
import tensorflow as tf

from harness.backends.parameter_server.trainer.cluster import (
    Gate,
    assign,
    configuration,
    host,
    new_variable,
    on_server,
    serve,
    start_server,
)
from harness.worker.fabric import Fabric
from harness.worker.frameworks.tensorflow import addresses_seen
from harness.worker.job import Job

__all__ = ["create", "serve"]

v1 = tf.compat.v1


class Servers(Fabric):
    """One worker, which meets the others at the servers. Each size has a graph and a session of its own."""

    def __init__(self, job: Job) -> None:
        self._job, self.rank, self.size = job, job.rank, job.world_size
        self._servers, self._server = len(job.processes("ps")), start_server(job)
        with tf.Graph().as_default() as graph:
            self._gate = Gate(job)
        self._session = self._opened(graph)

    def pushing(self, values: np.ndarray) -> Tuple[Callable[[], None], Callable[[], np.ndarray]]:
        """Adds ``values`` on the servers, and says what all workers' sums are."""
        parts = np.array_split(values, self._servers)
        with tf.Graph().as_default() as graph:
            mine, held, added = [], [], []
            for ps, part in enumerate(parts):
                with tf.device(host(self._job)):
                    mine.append(new_variable(f"mine_{ps}", part.shape))
                with on_server(ps):
                    held.append(new_variable(f"pushed_{len(values)}_{ps}", part.shape))
                    added.append(held[-1].assign_add(mine[-1].read_value(), read_value=False))
            sums = [variable.read_value() for variable in held]
        session = self._opened(graph)
        session.run([variable.initializer for variable in mine])
        if self.rank == 0:
            session.run([variable.initializer for variable in held])
        assign(session, zip(mine, parts))
        self.barrier()
        return session.make_callable(added), lambda: np.concatenate(session.run(sums))

    def barrier(self) -> None:
        self._gate.total(self._session, [1])

    def transport(self) -> str:
        devices = [device.name for device in self._session.list_devices()]
        return "grpc to " + ", ".join(addresses_seen(self._job, "ps", devices))

    def close(self) -> None:
        self._gate.leave(self._session)

    def _opened(self, graph: Any) -> Any:
        config = configuration(self._job, ["/job:ps", f"/job:worker/task:{self.rank}"])
        return v1.Session(self._server.target, graph=graph, config=config)


create = Servers

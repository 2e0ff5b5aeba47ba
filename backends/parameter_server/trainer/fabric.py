"""The operations of TensorFlow's parameter servers without a training: variables and queues on servers, over gRPC."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any, Callable, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from harness import kernels
from harness.backends.parameter_server.trainer import cluster
from harness.backends.parameter_server.trainer.cluster import Gate, assign, host, new_variable, on_server, start_server
from harness.backends.parameter_server.trainer.programs import Programs
from harness.worker.fabric import Transfer
from harness.worker.frameworks.tensorflow import prepare
from harness.worker.job import Job

Parts = Sequence[np.ndarray]


class Servers(Programs):
    """One worker, which meets the others at the servers. What is pushed or pulled has a graph and a session of its own."""

    def __init__(self, job: Job) -> None:
        prepare(job)
        self._server = start_server(job)
        super().__init__(job, self._server)
        with self._graph.as_default():
            self._gate = Gate(job)

    def pushing(self, parts: Parts) -> Transfer:
        with tf.Graph().as_default() as graph:
            mine, held = self._variables(parts)
            added = []
            for ps, (here, there) in enumerate(zip(mine, held)):
                with on_server(ps):
                    added.append(there.assign_add(here.read_value(), read_value=False))
            sums = [there.read_value() for there in held]
        session = cluster.open_session(self._job, self._server, graph)
        assign(session, zip(mine, parts))
        self._hold(session, held, [np.zeros_like(part) for part in parts])
        return session.make_callable(added), lambda: np.concatenate(session.run(sums))

    def pulling(self, parts: Parts) -> Transfer:
        with tf.Graph().as_default() as graph:
            mine, held = self._variables(parts)
            with tf.device(host(self._job)):
                pulled = [here.assign(there.read_value(), read_value=False) for here, there in zip(mine, held)]
            arrived = [here.read_value() for here in mine]
        session = cluster.open_session(self._job, self._server, graph)
        assign(session, [(here, np.zeros_like(part)) for here, part in zip(mine, parts)])
        self._hold(session, held, parts)
        return session.make_callable(pulled), lambda: np.concatenate(session.run(arrived))

    def barrier(self) -> None:
        self._gate.total(self._session, [1])

    def transport(self) -> str:
        return cluster.carrier(self._job, self._session)

    def close(self) -> None:
        self._gate.leave(self._session)

    def _variables(self, parts: Parts) -> Tuple[List[Any], List[Any]]:
        """A variable here for each part, and one on its server."""
        count = sum(len(part) for part in parts)
        with tf.device(host(self._job)):
            mine = [new_variable(f"mine_{count}_{ps}", part.shape) for ps, part in enumerate(parts)]
        held = []
        for ps, part in enumerate(parts):
            with on_server(ps):
                held.append(new_variable(f"held_{count}_{ps}", part.shape))
        return mine, held

    def _hold(self, session: Any, held: List[Any], parts: Parts) -> None:
        """Have the servers hold these parts, for all workers."""
        if self.rank == 0:
            assign(session, zip(held, parts))
        self.barrier()


def serve(job: Job, ready: Callable[[], None]) -> None:
    """Be a parameter server, with the reducers of a kernel that has some. Those go on until the process ends."""
    server, name, loops = start_server(job), job.kernel["name"], []
    if reducer := kernels.reducer(name):
        programs = Programs(job, server)
        for size in kernels.specification(name).sizes(job.kernel["sizes"], job.world_size):
            loops += reducer(programs, size, job.spec["seed"])
    pool = ThreadPoolExecutor(1 + len(loops))
    serving = [pool.submit(cluster.serve, job, ready, server), *(pool.submit(_repeat, loop) for loop in loops)]
    for ended in wait(serving, return_when=FIRST_COMPLETED).done:
        ended.result()


def _repeat(loop: Callable[[], Any]) -> None:
    while True:
        loop()


create = Servers

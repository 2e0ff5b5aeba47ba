"""One worker of a backend with parameter servers: a graph, a session with all servers, and the devices of its node.

Between-graph replication on TensorFlow's graph-mode runtime. A backend says what the devices compute with, and what becomes
of the gradients.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from harness.backends.parameter_server.trainer.cluster import FirstValue, Gate, set_all, start_server, worker_session
from harness.backends.parameter_server.trainer.learning import ServerLearner
from harness.backends.parameter_server.trainer.pieces import Pieces
from harness.backends.parameter_server.trainer.tower import Tower, device, sum_on_host
from harness.worker.frameworks.tensorflow import Tensors, addresses_seen, bad_images_named, prepare, reads
from harness.worker.job import Job
from harness.worker.trainer import State

v1 = tf.compat.v1


class ServerTrainer(ServerLearner):
    """The base of trainers with parameter servers. A step has ended, on every device, when ``session.run`` returns.

    ``_copies`` are variables of this worker that hold parameters, by device, if it has any.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._world_size = 0  # what the last barrier counted
        self._waited: List[float] = []
        self._copies: List[Dict[str, Any]] = []

    def build_parameters(self) -> List[FirstValue]:
        """Add to the graph what the devices compute with. Returns the first values of this worker's own variables."""
        raise NotImplementedError

    def tensors(self, number: int) -> Tensors:
        """What device ``number`` computes with, by name: whole tensors, each read once per step."""
        raise NotImplementedError

    def exchange(self, gradients: Tensors) -> Any:
        """The operation that ends when this worker may start its next step. ``gradients``: the sum of its devices'."""
        raise NotImplementedError

    def setup(self) -> None:
        """Start the server, build the graph, initialise (worker 0: the variables on the servers) and meet the others."""
        job = self._job
        prepare(job)
        server = start_server(job)
        with tf.Graph().as_default() as graph:
            v1.set_random_seed(job.spec["seed"])
            initialisers, first_values = self._build()
            of_servers = self._pieces.initial() if job.rank == 0 else []
        graph.finalize()
        self._session = worker_session(job, server, graph)
        self._session.run(initialisers)
        set_all(self._session, first_values)
        if job.rank == 0:
            self._session.run(
                [variable.initializer for variable in (self._pieces.updates, *self._pieces.velocities.values())]
            )
            set_all(self._session, of_servers)
        self.barrier()
        self._train = self._session.make_callable([self._loss, self._waits, self._step])

    def step(self) -> None:
        """Compute, exchange, and (synchronous modes) wait for the updated parameters."""
        with bad_images_named(self._job):
            loss, waited, _ = self._train()
        self._losses.append(float(loss))
        if waited:
            self._waited.append(float(max(waited)))

    def barrier(self) -> None:
        """The workers meet through parameter server 0."""
        self._world_size = self._gate.wait(self._session)

    def server_bytes(self) -> List[Tuple[int, int]]:
        return self._gate.server_bytes(self._session)

    def state(self) -> State:
        """The parameters as they are on the servers, and the number of updates counted there."""
        held, copies, updates = self._session.run([self._held, self._read_copies, self._updates])
        for number, copy in enumerate(copies):
            if differing := [name for name in held if not np.array_equal(copy[name], held[name], equal_nan=True)]:
                raise RuntimeError(f"device {number} and the parameter servers differ in {', '.join(differing[:3])} …")
        servers = addresses_seen(self._job, "ps", [seen.name for seen in self._session.list_devices()])
        return State(
            parameters=held,
            losses=self._losses,
            updates=int(updates),
            world_size=self._world_size,
            transport="grpc to " + ", ".join(sorted(servers)),
            device=", ".join(device(self._job, number) for number in range(self._job.devices)),
            details={"tensorflow": tf.__version__},
            input_wait_s=self._waited,
        )

    def close(self) -> None:
        """Release the parameter servers."""
        self._gate.leave(self._session)

    def _build(self) -> Tuple[List[Any], List[FirstValue]]:
        """Build the graph. Returns this worker's initialisers, then the first values to set after them."""
        job = self._job
        self._pieces = Pieces(job)
        first_values = self.build_parameters()
        towers = [Tower(job, number, self.tensors(number)) for number in range(job.devices)]
        exchanged = self.exchange(sum_on_host(job, towers))
        self._step = tf.group(exchanged, *[operation for tower in towers for operation in tower.after])
        self._loss = tf.add_n([tower.loss for tower in towers]) / len(towers)
        self._waits = [tower.waited for tower in towers if tower.waited is not None]
        self._held = self._pieces.whole(reads(self._pieces.variables))
        self._updates = self._pieces.updates.read_value()
        self._read_copies = [reads(copy) for copy in self._copies]
        self._gate = Gate(job)
        if job.training:
            self._build_learning(self._pieces, towers, self.tensors(0), self._copies)
        initialisers = [initialiser for tower in towers for initialiser in tower.initialisers]
        return initialisers, first_values + [first for tower in towers for first in tower.first_values]

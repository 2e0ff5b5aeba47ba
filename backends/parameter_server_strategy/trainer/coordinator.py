"""TensorFlow's coordinator: variables that it has put on the servers, and functions that it has workers run.

A worker runs one function at a time. Which one runs it is the coordinator's choice, and nothing of its interface changes
that: whoever is free takes the next. To have every worker run a function once, each one that has begun waits until all
have. The messages for that are two tokens for each, on server 0, while the parameters are on their way.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping

import numpy as np
import tensorflow as tf

from harness.backends.parameter_server.trainer.cluster import on_server
from harness.models.initial import initial_values
from harness.worker.checkpoint import velocity
from harness.worker.frameworks.base import Sgd
from harness.worker.frameworks.tensorflow import Tensors, descend
from harness.worker.job import Job
from harness.worker.network import listen

Work = Callable[[Tensors, Callable[[Tensors], Any]], None]
See = Callable[[Any, Tensors], None]


class Coordinator:
    """The client of all workers and servers, which listen already.

    To a traced function ``work(parameters, push)`` adds what a worker does with the parameters, and ``push(gradients)``
    when it has them; ``see(updates, parameters)`` has the worker keep what it sees.
    """

    def __init__(self, job: Job, work: Work, see: See) -> None:
        self._job, self._sgd, self._work, self._see = job, Sgd.of(job.spec), work, see
        strategy = _strategy(job)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        values = initial_values(job.specification, job.spec["seed"])
        with strategy.scope():
            self._held = {
                tensor.name: _parts(tf.Variable(values[tensor.name], name=tensor.name.replace(".", "/")))
                for tensor in job.specification.tensors
            }
        if (pieces := self._pieces()) != job.plan["details"]["pieces"]:
            raise RuntimeError(f"TensorFlow has placed the variables as {pieces}, which is not as planned")
        momentum, self._accumulates = self._sgd.momentum, job.spec["options"]["sync"] == "accumulate"
        self._velocities = {
            name: _beside(held) if momentum else [None] * len(held) for name, held in self._held.items()
        }
        self._sums = {name: _beside(held) for name, held in self._held.items()} if self._accumulates else {}
        with on_server(0):
            self._updates = tf.Variable(0, dtype=tf.int64)
            self._begun, self._go = (tf.queue.FIFOQueue(job.world_size, [tf.bool], [[]]) for _ in range(2))
        rate = tf.TensorSpec([], tf.float32)
        # Traced once: the numbers of the Python functions in them must be those of the other ranks.
        self._step, self._look = (
            tf.function(function, autograph=False).get_concrete_function(rate) for function in (self._train, self._show)
        )
        self._meet = tf.function(self._let_all_go, autograph=False)
        self._apply = tf.function(self._apply_sums, autograph=False)

    def step(self, rate: Any) -> None:
        """One step of all workers; without ``accumulate`` as many steps as there are workers, of whoever is free."""
        if self._accumulates:
            self._everywhere(self._step, rate)
            self._apply(rate)
        else:
            self._schedule(self._step, rate)

    def join(self) -> None:
        """Wait until all functions have ended. Raises the error of one that has failed."""
        self._coordinator.join()

    def look(self) -> None:
        """Have every worker see the servers' values."""
        self._everywhere(self._look, tf.constant(0.0))

    def values(self) -> Dict[str, np.ndarray]:
        """Parameters and velocities, by name."""
        return {name: np.concatenate([part.numpy() for part in parts]) for name, parts in self._everything().items()}

    def assign(self, values: Mapping[str, np.ndarray]) -> None:
        """Set the parameters and velocities that are in ``values``."""
        for name, parts in self._everything().items():
            if name in values:
                ends = np.cumsum([part.shape[0] for part in parts])[:-1]
                for part, value in zip(parts, np.split(values[name], ends)):
                    part.assign(value)

    def _everything(self) -> Dict[str, List[Any]]:
        velocities = {velocity(name): parts for name, parts in self._velocities.items() if parts[0] is not None}
        return {**self._held, **velocities}

    def _pieces(self) -> List[List[Any]]:
        """The pieces as TensorFlow has placed them: tensor, server, first element, and that behind the last."""
        pieces = []
        for name, parts in self._held.items():
            begin = 0
            for part in parts:
                end = begin + int(part.shape.num_elements())
                pieces.append([name, int(part.device.split("/task:")[1].split("/")[0]), begin, end])
                begin = end
        return pieces

    def _schedule(self, function: Any, rate: Any) -> None:
        for _ in range(self._job.world_size):
            self._coordinator.schedule(function, args=(rate,))

    def _everywhere(self, function: Any, rate: Any) -> None:
        """Have each worker run a function that begins with ``_once`` once."""
        self._schedule(function, rate)
        self._meet()
        self.join()

    # Traced functions. The runtime places what uses a variable or a queue with it, and the rest on the worker.

    def _once(self) -> Any:
        """The operation that says that this worker has begun. The function does not end before all have."""
        begun = self._begun.enqueue(True)
        with tf.control_dependencies([begun]):
            self._go.dequeue()
        return begun

    def _let_all_go(self) -> None:
        self._go.enqueue_many([self._begun.dequeue_many(self._job.world_size)])

    def _pulled(self) -> Tensors:
        """All parameters, on the worker."""
        pulled = {name: [part.read_value() for part in parts] for name, parts in self._held.items()}
        return {name: parts[0] if len(parts) == 1 else tf.concat(parts, 0) for name, parts in pulled.items()}

    def _train(self, rate: Any) -> None:
        def push(gradients: Tensors) -> Any:
            """Add the gradients to their sums, or apply them at once."""
            pushed = []
            for name, parts in self._held.items():
                sizes = [part.shape[0] for part in parts]
                gradient = [gradients[name]] if len(parts) == 1 else tf.split(gradients[name], sizes)
                for number, part in enumerate(parts):
                    with tf.device(part.device):
                        if self._accumulates:
                            pushed.append(self._sums[name][number].assign_add(gradient[number], read_value=False))
                        else:
                            pushed.append(self._descend(name, number, gradient[number], rate))
            applied = tf.group(*pushed)
            if self._accumulates:
                return applied
            with on_server(0), tf.control_dependencies([applied]):
                return self._updates.assign_add(1, read_value=False)

        pulled = self._pulled()
        # Said first, so that nobody waits for a worker that has begun and failed.
        with tf.control_dependencies([self._once()] if self._accumulates else []):
            self._work(pulled, push)

    def _apply_sums(self, rate: Any) -> None:
        """The step of SGD, run where the sums are, when no function runs."""
        for name, sums in self._sums.items():
            for number, summed in enumerate(sums):
                with tf.device(summed.device):
                    self._descend(name, number, summed.read_value(), rate)
                    summed.assign(tf.zeros(summed.shape), read_value=False)
        with on_server(0):
            self._updates.assign_add(1, read_value=False)

    def _descend(self, name: str, number: int, gradient: Any, rate: Any) -> Any:
        variable, speed = self._held[name][number], self._velocities[name][number]
        return descend(self._sgd, name, variable, gradient / self._job.world_size, rate, speed)

    def _show(self, rate: Any) -> None:
        with tf.control_dependencies([self._once()]):
            self._see(self._updates.read_value(), self._pulled())


def _strategy(job: Job) -> Any:
    """The strategy, connected to all. The coordinator listens, too; workers learn where when it connects."""
    address = job.process["address"]
    with listen(address, 0) as free:
        port = free.getsockname()[1]
    cluster = {role: job.addresses(role) for role in ("ps", "worker")}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({**cluster, "chief": [f"{address}:{port}"]}),
        task_type="chief",
        task_id=0,
        rpc_layer="grpc",
    )
    partitioner = None
    if job.spec["options"]["placement"] == "partitioned":
        partitioner = tf.distribute.experimental.partitioners.MaxSizePartitioner(job.plan["details"]["slice_bytes"])
    return tf.distribute.ParameterServerStrategy(resolver, partitioner)


def _parts(variable: Any) -> List[Any]:
    """The variables that hold a tensor, a part of its first axis each."""
    return list(getattr(variable, "variables", [variable]))


def _beside(parts: List[Any]) -> List[Any]:
    """A variable of zeros for each part, in the same place."""
    beside = []
    for part in parts:
        with tf.device(part.device):
            beside.append(tf.Variable(tf.zeros(part.shape), trainable=False))
    return beside

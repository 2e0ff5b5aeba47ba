"""The parameters as the servers hold them: one variable for each piece of the plan, on its server."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from harness import models
from harness.backends.parameter_server.trainer.cluster import FirstValue, Setter, new_variable, on_server
from harness.backends.parameter_server.trainer.tower import host
from harness.models.initial import initial_values
from harness.worker.frameworks.tensorflow import Tensors, descend
from harness.worker.job import Job
from harness.worker.sgd import Sgd, velocity

v1 = tf.compat.v1
Piece = Tuple[str, int]  # a tensor's name and the first of its elements that the piece holds
NEVER_STALE = np.iinfo(np.int64).max  # accumulators drop gradients older than this step count; ours never are


class Pieces:
    """Every worker builds these; the same piece on a server is the same variable in all workers.

    Whole tensors keep their shape, slices are flat.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sgd = Sgd.of(job.spec)
        self._tensors = models.specification(job.spec["model"]).tensors
        self._bounds: Dict[str, List[Tuple[int, int]]] = {tensor.name: [] for tensor in self._tensors}
        self.variables: Dict[Piece, Any] = {}
        self.velocities: Dict[Piece, Any] = {}
        self.servers: Dict[Piece, int] = {}
        shapes = {tensor.name: tensor.shape for tensor in self._tensors}
        elements = {tensor.name: tensor.elements for tensor in self._tensors}
        for name, ps, begin, end in job.plan["details"]["pieces"]:
            shape = shapes[name] if end - begin == elements[name] else (end - begin,)
            with on_server(ps):
                self.variables[name, begin] = new_variable(f"{name}/{begin}", shape)
                if self._sgd.momentum:
                    self.velocities[name, begin] = new_variable(f"{velocity(name)}/{begin}", shape)
            self.servers[name, begin] = ps
            self._bounds[name].append((begin, end))
        with on_server(0):
            self.updates = new_variable("updates", (), tf.int64)
        if job.training:
            with tf.device(host(job)):
                self.rate = new_variable("learning_rate", ())
                self._rate = self.rate.read_value()

    def whole(self, values: Dict[Piece, Any]) -> Tensors:
        """Tensors by name, put together from the values of their pieces."""
        return {tensor.name: self._join(values, tensor.name, tensor.shape) for tensor in self._tensors}

    def cut(self, values: Tensors) -> Dict[Piece, Any]:
        """The pieces' shares of tensors given by name."""
        return {
            (name, begin): values[name] if len(bounds) == 1 else tf.reshape(values[name], [-1])[begin:end]
            for name, bounds in self._bounds.items()
            for begin, end in bounds
        }

    def descend(self, key: Piece, gradient: Any) -> Any:
        """One step of SGD, where the piece is, with the sum of the gradients of all devices, or a part of that sum."""
        name, variable, devices = key[0], self.variables[key], self._job.world_size * self._job.devices
        with v1.colocate_with(variable.handle):
            if not self._job.training:
                return descend(self._sgd, name, variable, gradient, self._sgd.rate / devices)
            return descend(self._sgd, name, variable, gradient / devices, self._rate, self.velocities.get(key))

    def accumulate(self, key: Piece, gradient: Any) -> Tuple[Any, Any]:
        """Operations that add a worker's gradient to the sum of a piece and, from all workers' sum, descend once.

        The second one belongs into worker 0's step alone; it waits until every worker has added its gradient.
        """
        variable = self.variables[key]
        with v1.colocate_with(variable.handle):
            accumulator = v1.ConditionalAccumulator(
                tf.float32, shape=variable.shape, shared_name=variable.op.name + "/sum", reduction_type="SUM"
            )
            push = accumulator.apply_grad(gradient, local_step=NEVER_STALE)
            if self._job.rank != 0:
                return push, None
            return push, self.descend(key, accumulator.take_grad(self._job.world_size))

    def count_update(self, after: List[Any]) -> Any:
        """Count one update, on server 0, once ``after`` is done."""
        with tf.control_dependencies([tf.group(*after)]), on_server(0):
            return self.updates.assign_add(1, read_value=False)

    def initial(self) -> List[FirstValue]:
        """The one initialisation of all frameworks, cut as the servers hold it. For worker 0."""
        values = initial_values(models.specification(self._job.spec["model"]), self._job.spec["seed"])
        return [
            (Setter(self.variables[name, begin]), values[name].reshape(-1)[begin:end])
            for name, bounds in self._bounds.items()
            for begin, end in bounds
        ]

    def _join(self, values: Dict[Piece, Any], name: str, shape: Tuple[int, ...]) -> Any:
        parts = [values[name, begin] for begin, _ in self._bounds[name]]
        return parts[0] if len(parts) == 1 else tf.reshape(tf.concat(parts, 0), shape)

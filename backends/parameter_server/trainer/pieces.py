"""The parameters as the servers hold them: one variable for each piece of the plan, on its server."""

from __future__ import annotations

import math
from itertools import groupby
from operator import itemgetter
from typing import Any, Dict, Iterable, List, Mapping, Tuple

import numpy as np
import tensorflow as tf

from harness.backends.parameter_server.trainer.cluster import host, new_variable, on_server
from harness.worker.checkpoint import velocity
from harness.worker.frameworks.base import Sgd
from harness.worker.frameworks.tensorflow import Tensors, descend
from harness.worker.job import Job

v1 = tf.compat.v1
Piece = Tuple[str, int]  # a tensor's name and the first of its elements that the piece holds
NEVER_STALE = np.iinfo(np.int64).max  # accumulators drop gradients older than this step count; ours never are


class Pieces:
    """Every worker builds these; the same piece on a server is the same variable in all workers.

    Whole tensors keep their shape, slices are flat. ``servers`` says which server holds a piece.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sgd = Sgd.of(job.spec)
        tensors = job.specification.tensors
        self._shapes = {name: tensor.shape for tensor in tensors for name in (tensor.name, velocity(tensor.name))}
        self.variables: Dict[Piece, Any] = {}
        self.velocities: Dict[Piece, Any] = {}
        self.servers: Dict[Piece, int] = {}
        for name, ps, begin, end in job.plan["details"]["pieces"]:
            whole = end - begin == math.prod(self._shapes[name])
            shape = self._shapes[name] if whole else (end - begin,)
            self.servers[name, begin] = ps
            with on_server(ps):
                self.variables[name, begin] = new_variable(f"{name}/{begin}", shape)
                if self._sgd.momentum:
                    self.velocities[velocity(name), begin] = new_variable(f"{velocity(name)}/{begin}", shape)
        with on_server(0):
            self.updates = new_variable("updates", (), tf.int64)
        if job.training:
            with tf.device(host(job)):
                self.rate = new_variable("learning_rate", ())
                self._rate = self.rate.read_value()

    def whole(self, values: Mapping[Piece, Any]) -> Tensors:
        """Tensors by name, put together from the values of their pieces."""
        whole = {}
        for name, pieces in groupby(values, key=itemgetter(0)):
            parts = [values[piece] for piece in pieces]
            whole[name] = parts[0] if len(parts) == 1 else tf.reshape(tf.concat(parts, 0), self._shapes[name])
        return whole

    def cut(self, values: Mapping[str, Any]) -> Dict[Piece, Any]:
        """The pieces' shares of tensors given by name."""
        return {
            (name, begin): values[name]
            if variable.shape == self._shapes[name]
            else tf.reshape(values[name], [-1])[begin : begin + variable.shape.num_elements()]
            for (name, begin), variable in self.variables.items()
        }

    def shares(self, values: Mapping[str, np.ndarray]) -> List[Tuple[Any, np.ndarray]]:
        """The servers' variables, each with its share of the parameters and velocities that are in ``values``."""
        return [
            (variable, values[name].reshape(-1)[begin : begin + variable.shape.num_elements()])
            for (name, begin), variable in {**self.variables, **self.velocities}.items()
            if name in values
        ]

    def descend(self, key: Piece, gradient: Any) -> Any:
        """One step of SGD, where the piece is, with the sum of the gradients of all devices, or a part of that sum."""
        (name, begin), variable, devices = key, self.variables[key], self._job.world_size * self._job.devices
        with v1.colocate_with(variable.handle):
            if not self._job.training:
                return descend(self._sgd, name, variable, gradient, self._sgd.rate / devices)
            speed = self.velocities.get((velocity(name), begin))
            return descend(self._sgd, name, variable, gradient / devices, self._rate, speed)

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

    def count_update(self, after: Iterable[Any]) -> Any:
        """Count one update, on server 0, once ``after`` is done."""
        with tf.control_dependencies([tf.group(*after)]), on_server(0):
            return self.updates.assign_add(1, read_value=False)

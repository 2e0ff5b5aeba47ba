"""TensorFlow's distributed_replicated, beside the framework: workers compute on replicas of their own.

Once per step every worker sends its gradients to the servers, which keep a copy of each variable. A server applies the
mean of all workers' gradients when the last one has arrived, and then lets every worker copy the new value back into its
replicas. All this happens variable by variable, while gradients of other variables are still being computed.

tf_cnn_benchmarks' mode of this name applies the sum of the gradients, each worker its own, where this one applies the mean.
Its barrier is ours too: a queue for each variable and worker. Here worker 0's step puts the tokens in.
"""

from __future__ import annotations

from typing import Any, Dict, List

import tensorflow as tf

from harness import models
from harness.backends.parameter_server.trainer.cluster import (
    FirstValue,
    Setter,
    new_variable,
    on_server,
    serve,
    token_queues,
)
from harness.backends.parameter_server.trainer.pieces import Piece
from harness.backends.parameter_server.trainer.tower import device, host
from harness.backends.parameter_server.trainer.worker import ServerTrainer
from harness.models.initial import initial_values
from harness.worker.frameworks.tensorflow import Tensors, reads

__all__ = ["create", "serve"]


class SendAndCopyBack(ServerTrainer):
    """The parameters live on every device, and once more on the servers."""

    def build_parameters(self) -> List[FirstValue]:
        job = self._job
        specification = models.specification(job.spec["model"])
        values = initial_values(specification, job.spec["seed"])
        for number in range(job.devices):
            with tf.device(device(job, number)):
                copy = {t.name: new_variable(f"device{number}/{t.name}", t.shape) for t in specification.tensors}
            self._copies.append(copy)
        return [(Setter(copy[name]), values[name]) for copy in self._copies for name in copy]

    def tensors(self, number: int) -> Tensors:
        """The device's own copies."""
        return reads(self._copies[number])

    def exchange(self, gradients: Tensors) -> Any:
        """Send the gradients, and assign each variable when its new value has come back."""
        job = self._job
        servers = self._pieces.servers
        fresh: Dict[Piece, Any] = {}
        applied, released = [], []
        for key, gradient in self._pieces.cut(gradients).items():
            pushed, descended = self._pieces.accumulate(key, gradient)
            ranks = list(range(job.world_size)) if job.rank == 0 else [job.rank]
            copy_back = token_queues(f"copy_back/{key[0].replace('.', '/')}/{key[1]}", ranks, servers[key])
            if job.rank == 0:
                applied.append(descended)
                with tf.control_dependencies([descended]), on_server(servers[key]):
                    released += [queue.enqueue(True) for queue in copy_back]
            with tf.control_dependencies([pushed]):
                token = copy_back[0].dequeue()
            with tf.control_dependencies([token]):
                value = self._pieces.variables[key].read_value()
            with tf.device(host(job)):  # once per node, whatever the number of its devices
                fresh[key] = tf.identity(value)
        with tf.device(host(job)):
            whole = self._pieces.whole(fresh)
        assigned = [copy[name].assign(whole[name], read_value=False) for copy in self._copies for name in copy]
        counted = [self._pieces.count_update(applied)] if job.rank == 0 else []
        return tf.group(*assigned, *released, *counted)


create = SendAndCopyBack

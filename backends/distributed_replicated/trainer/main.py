"""TensorFlow's distributed_replicated, beside the framework: workers compute on replicas of their own.

A server applies the mean of all workers' gradients of a variable when the last one has arrived, and then lets every worker
copy the new value back into its replicas, while gradients of other variables are still being computed. The barrier is that
of tf_cnn_benchmarks: a queue for each variable and worker. Here worker 0's step puts the tokens in.
"""

from __future__ import annotations

from typing import Any, Dict, List

import tensorflow as tf

from harness.backends.parameter_server.trainer.cluster import device, host, new_variable, permission, serve
from harness.backends.parameter_server.trainer.pieces import Piece
from harness.backends.parameter_server.trainer.worker import ServerTrainer
from harness.worker.frameworks.tensorflow import Tensors, reads

__all__ = ["create", "serve"]


class SendAndCopyBack(ServerTrainer):
    """The parameters live on every device, and once more on the servers."""

    def parameters(self) -> List[Tensors]:
        for number in range(self._job.devices):
            with tf.device(device(self._job, number)):
                tensors = self._specification.tensors
                self._copies.append({t.name: new_variable(f"device{number}/{t.name}", t.shape) for t in tensors})
        return [reads(copy) for copy in self._copies]

    def exchange(self, gradients: Tensors) -> Any:
        job, pieces = self._job, self._pieces
        fresh: Dict[Piece, Any] = {}
        applied, released = [], []
        for key, gradient in pieces.cut(gradients).items():
            pushed, descended = pieces.accumulate(key, gradient)
            queue = f"copy_back/{key[0].replace('.', '/')}/{key[1]}"
            returned, grants = permission(job, queue, pieces.servers[key], descended, [pushed])
            applied.append(descended)
            released += grants
            with tf.control_dependencies([returned]):
                value = pieces.variables[key].read_value()
            with tf.device(host(job)):  # once per node, whatever the number of its devices
                fresh[key] = tf.identity(value)
        with tf.device(host(job)):
            whole = pieces.whole(fresh)
        assigned = [copy[name].assign(whole[name], read_value=False) for copy in self._copies for name in copy]
        counted = [pieces.count_update(applied)] if job.rank == 0 else []
        return tf.group(*assigned, *released, *counted)


create = SendAndCopyBack

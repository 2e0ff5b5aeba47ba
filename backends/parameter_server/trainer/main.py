"""TensorFlow parameter servers, beside the framework: each worker pulls every variable once per step and pushes gradients.

``--sync`` decides how gradients are applied (docs/definitions.md). With ``accumulate`` no worker can see a variable of
the wrong step: a gradient exists only after its worker has read all variables, so an update that waits for all workers'
gradients comes after all their reads.
"""

from __future__ import annotations

from typing import Any, Dict, List

import tensorflow as tf

from harness.backends.parameter_server.trainer.cluster import host, on_server, permission, queue, serve
from harness.backends.parameter_server.trainer.pieces import Piece
from harness.backends.parameter_server.trainer.worker import ServerTrainer
from harness.worker.frameworks.tensorflow import Tensors

__all__ = ["create", "serve"]


class PullAndPush(ServerTrainer):
    """The parameters live on the servers alone."""

    def parameters(self) -> List[Tensors]:
        return [self._pieces.whole(self._pulled())] * self._job.devices

    def _pulled(self) -> Dict[Piece, Any]:
        """Each piece, read once and to the host: it moves to this worker once per step, whatever the number of its devices.

        By itself TensorFlow requests all pieces at once, and they come in no order. With ``--order forward`` a piece is
        requested once the piece that the plan names has come.
        """
        pieces = self._pieces
        after = self._job.plan["details"].get("asked_after", [None] * len(pieces.variables))
        pulled: List[Any] = []
        for variable, number in zip(pieces.variables.values(), after):
            come = [] if number is None else [pulled[number]]
            with tf.device(host(self._job)), tf.control_dependencies(come):
                pulled.append(tf.identity(variable.read_value()))
        return dict(zip(pieces.variables, pulled))

    def exchange(self, gradients: Tensors) -> Any:
        job, pieces, mode = self._job, self._pieces, self._job.spec["options"]["sync"]
        pushed = pieces.cut(gradients)
        if mode != "accumulate" or job.world_size == 1:
            applied = pieces.count_update([pieces.descend(key, gradient) for key, gradient in pushed.items()])
            return self._meet(applied) if mode == "barrier" and job.world_size > 1 else applied
        # Summed on the servers; worker 0 lets them apply each sum once it is complete, and then lets everyone go on.
        sent, applied = zip(*[pieces.accumulate(key, gradient) for key, gradient in pushed.items()])
        counted = pieces.count_update(applied) if job.rank == 0 else None
        proceed, released = permission(job, "go_on", 0, counted, sent)
        return tf.group(proceed, *released)

    def _meet(self, after: Any) -> Any:
        """The barrier of 2017: each worker gives every other one a token, then takes all of its own."""
        job = self._job
        queues = [queue(f"barrier_{rank}", 0) for rank in range(job.world_size)]
        with tf.control_dependencies([after]), on_server(0):
            tokens = [tokens.enqueue(True) for rank, tokens in enumerate(queues) if rank != job.rank]
        with tf.control_dependencies(tokens):
            return queues[job.rank].dequeue_many(job.world_size - 1)


create = PullAndPush

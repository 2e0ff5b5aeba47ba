"""TensorFlow parameter servers, beside the framework: each worker pulls every variable once per step and pushes gradients.

What happens with the gradients is the meaning of ``--sync``:

- ``accumulate``: each server sums the workers' gradients of a variable and applies their mean once all have arrived, while
  other gradients are still under way. A worker starts its next step when every variable is updated. No worker can see a
  variable of the wrong step: a gradient exists only after its worker has read all variables, so an update that waits for
  all workers' gradients comes after all their reads.
- ``barrier``: each worker applies its own gradient, scaled by 1/workers, then meets the others. A slow worker may read
  variables that fast ones have already updated. This is what tf_cnn_benchmarks did in 2017 (which did not scale).
- ``none``: as ``barrier``, without meeting.
"""

from __future__ import annotations

from typing import Any, Dict, List

import tensorflow as tf

from harness.backends.parameter_server.trainer.cluster import FirstValue, on_server, serve, token_queues
from harness.backends.parameter_server.trainer.pieces import Piece
from harness.backends.parameter_server.trainer.tower import host
from harness.backends.parameter_server.trainer.worker import ServerTrainer
from harness.worker.frameworks.tensorflow import Tensors, reads

__all__ = ["create", "serve"]


class PullAndPush(ServerTrainer):
    """The parameters live on the servers alone."""

    def build_parameters(self) -> List[FirstValue]:
        # Read once and to the host: the runtime then moves each variable to this worker once per step, whatever the number
        # of its devices.
        with tf.device(host(self._job)):
            pulled = {key: tf.identity(value) for key, value in reads(self._pieces.variables).items()}
            self._pulled = self._pieces.whole(pulled)
        return []

    def tensors(self, number: int) -> Tensors:
        """The pulled values, the same for every device."""
        return self._pulled

    def exchange(self, gradients: Tensors) -> Any:
        """What one step does with the gradients, by ``--sync``."""
        job = self._job
        pushed = self._pieces.cut(gradients)
        mode = job.spec["options"]["sync"]
        if mode == "accumulate" and job.world_size > 1:
            return self._accumulate(pushed)
        applied = self._apply_own(pushed)
        return self._meet(applied) if mode == "barrier" else applied

    def _accumulate(self, gradients: Dict[Piece, Any]) -> Any:
        """Sum on the servers; worker 0 lets them apply each sum once it is complete, and then lets everyone go on."""
        job = self._job
        both = [self._pieces.accumulate(key, gradient) for key, gradient in gradients.items()]
        # A queue of its own per worker: from a common one a fast worker could take a slow one's permission.
        go_on = token_queues("go_on", list(range(job.world_size)) if job.rank == 0 else [job.rank])
        released = []
        if job.rank == 0:
            counted = self._pieces.count_update([applied for _, applied in both])
            with tf.control_dependencies([counted]), on_server(0):
                released = [queue.enqueue(True) for queue in go_on]
        with tf.control_dependencies([pushed for pushed, _ in both]):
            proceed = go_on[0].dequeue()
        return tf.group(proceed, *released)

    def _apply_own(self, gradients: Dict[Piece, Any]) -> Any:
        return self._pieces.count_update([self._pieces.descend(key, gradient) for key, gradient in gradients.items()])

    def _meet(self, after: Any) -> Any:
        """The barrier of 2017: each worker gives every other one a token, then takes all of its own."""
        job = self._job
        if job.world_size == 1:
            return after
        queues = token_queues("barrier", list(range(job.world_size)))
        with tf.control_dependencies([after]), on_server(0):
            tokens = [queue.enqueue(True) for rank, queue in enumerate(queues) if rank != job.rank]
        with tf.control_dependencies(tokens):
            return queues[job.rank].dequeue_many(job.world_size - 1)


create = PullAndPush

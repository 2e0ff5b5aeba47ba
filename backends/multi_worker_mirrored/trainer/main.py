"""TensorFlow's collective allreduce, beside the framework: MultiWorkerMirroredStrategy around the model of all backends.

Every process has one device and a replica on it. The strategy's replica context sums the gradients over all processes:
with a ring over gRPC, or with NCCL.
"""

from __future__ import annotations

import time
from typing import Any, List, Sequence, Tuple

import tensorflow as tf

from harness.backends.multi_worker_mirrored.trainer.world import FETCHED_S, carrier, options, strategy
from harness.worker.frameworks.tensorflow import TensorFlowTrainer
from harness.worker.trainer import State


class MultiWorkerMirroredTrainer(TensorFlowTrainer):
    """The replica context of a MultiWorkerMirroredStrategy sums the gradients."""

    def setup(self) -> None:
        job = self._job
        how, self._strategy = options(job), strategy(job)
        self.build()

        def add(numbers: Any) -> Any:
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, numbers, how)

        def step(*batch: Any) -> Any:
            loss, tape, variables = self.loss_on_tape(*batch)
            self.apply([gradient / job.world_size for gradient in add(tape.gradient(loss, variables))])
            return loss

        self._step = tf.function(lambda *batch: self._strategy.run(step, batch), autograph=False)
        # Copied to this replica's device: what comes from outside is on none.
        self._add = tf.function(lambda numbers: self._strategy.run(lambda: add(tf.identity(numbers))), autograph=False)

    def total(self, numbers: Sequence[float]) -> List[float]:
        return self._add(tf.constant(numbers, tf.float64)).numpy().tolist()

    def averaged(self) -> List[Tuple[str, int]]:
        """TensorFlow does not say which gradients are in a pack, nor their bytes."""
        return [(f"pack-{number}", 0) for number in range(len(self._specification.tensors))]

    def state(self) -> State:
        return self._state(self._world_size, carrier(self._job))

    def close(self) -> None:
        """TensorFlow's server ends with the process, but not before the others have fetched what the last barrier sums."""
        time.sleep(FETCHED_S)


create = MultiWorkerMirroredTrainer

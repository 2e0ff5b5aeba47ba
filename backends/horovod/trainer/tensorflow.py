"""Horovod with TensorFlow: its DistributedGradientTape, in a tf.function, around the model of all backends.

No Keras: with Keras 3 Horovod's optimizer wrapper does nothing, without an error, and the ranks drift apart.
"""

from __future__ import annotations

from typing import Any, List, Sequence

import horovod.tensorflow as hvd
import tensorflow as tf

from harness.backends.horovod.trainer import world
from harness.worker.frameworks.tensorflow import TensorFlowTrainer
from harness.worker.trainer import State


class HorovodTensorFlowTrainer(TensorFlowTrainer):
    """Horovod averages the gradients that its tape returns."""

    def setup(self) -> None:
        world.join(self._job, hvd)
        self.build()
        compression = hvd.Compression.fp16 if self._job.spec["options"]["fp16_allreduce"] else hvd.Compression.none

        def step(*batch: Any) -> Any:
            loss, tape, variables = self.loss_on_tape(*batch)
            distributed = hvd.DistributedGradientTape(tape, compression=compression, op=hvd.Average)
            self.apply(distributed.gradient(loss, variables))
            return loss

        self._step = tf.function(step, autograph=False)

    def total(self, numbers: Sequence[float]) -> List[float]:
        """Numbers of each length have a name of their own: Horovod remembers a name's shape."""
        mine = tf.constant(numbers, tf.float64)
        return hvd.allreduce(mine, op=hvd.Sum, name=f"total_{len(numbers)}").numpy().tolist()

    def state(self) -> State:
        return self._state(self._world_size, world.transport(self._job, hvd))

    def close(self) -> None:
        hvd.shutdown()


create = HorovodTensorFlowTrainer

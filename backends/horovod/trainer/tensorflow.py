"""Horovod with TensorFlow: its DistributedGradientTape, in a tf.function, around the model of all backends.

No Keras: with Keras 3 Horovod's optimizer wrapper does nothing, without an error, and the ranks drift apart.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import horovod.tensorflow as hvd
import tensorflow as tf

from harness.backends.horovod.trainer import world
from harness.worker.frameworks.tensorflow import Replica, prepare, set_threads
from harness.worker.job import Job
from harness.worker.trainer import ReplicaLearner, State


class HorovodTensorFlowTrainer(ReplicaLearner):
    """One rank: one process, one device."""

    _replica: Replica

    def __init__(self, job: Job) -> None:
        self._job = job
        self._world_size = 0
        self.clock = Replica.clock

    def setup(self) -> None:
        """Join Horovod's world, build the model, trace the step."""
        job = self._job
        set_threads(job)
        prepare(job)
        world.join(job, hvd)
        replica = self._replica = Replica(job)
        compression = hvd.Compression.fp16 if job.spec["options"]["fp16_allreduce"] else hvd.Compression.none

        def step(*batch: Any) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(replica.variables)
                loss = replica.loss(*batch)
            distributed = hvd.DistributedGradientTape(tape, compression=compression, op=hvd.Average)
            replica.apply(distributed.gradient(loss, replica.variables))
            return loss

        self._step = tf.function(step, autograph=False)

    def step(self) -> None:
        """Forward, backward with the allreduce inside, SGD."""
        self._replica.run(self._step)

    def synchronize(self) -> None:
        """Nothing to wait for: ``step`` waits for its loss."""

    def barrier(self) -> None:
        """Wait for all ranks; the sum of a one from each says how many there are."""
        self._world_size = int(hvd.allreduce(tf.constant(1), op=hvd.Sum, name="barrier"))

    def total(self, numbers: Sequence[float]) -> List[float]:
        """The sums over all ranks. Of each length by a name of its own: Horovod remembers a name's shape."""
        mine = tf.constant(numbers, tf.float64)
        summed: List[float] = hvd.allreduce(mine, op=hvd.Sum, name=f"total_{len(numbers)}").numpy().tolist()
        return summed

    def server_bytes(self) -> List[Tuple[int, int]]:
        """There are no servers."""
        return []

    def state(self) -> State:
        """This rank's parameters and what carried the gradients."""
        return self._replica.state(self._world_size, world.transport(self._job, hvd))

    def close(self) -> None:
        """Leave Horovod's world."""
        hvd.shutdown()

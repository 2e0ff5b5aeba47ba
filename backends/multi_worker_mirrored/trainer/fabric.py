"""The operations of TensorFlow's collectives without a training: those of a replica context."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf

from harness.backends.multi_worker_mirrored.trainer.world import FETCHED_S, carrier, options, strategy
from harness.worker.fabric import Fabric, of_tensorflow
from harness.worker.frameworks.tensorflow import prepare
from harness.worker.job import Job


class Mirrored(Fabric):
    """One replica for each process."""

    arithmetic = of_tensorflow()

    def __init__(self, job: Job) -> None:
        prepare(job)
        tf.config.threading.set_intra_op_parallelism_threads(job.spec["threads"])
        self._job, self.rank, self.size = job, job.rank, job.world_size
        how, run = options(job), strategy(job).run

        def replica(operate: Any) -> Any:
            # Copied to this replica's device: what comes from outside is on none.
            return tf.function(lambda array: run(lambda: operate(tf.identity(array))), autograph=False)

        context = tf.distribute.get_replica_context
        self._sum = replica(lambda array: context().all_reduce(tf.distribute.ReduceOp.SUM, array, how))
        self._gather = replica(lambda array: context().all_gather(array, 0, how))

    def array(self, values: np.ndarray) -> Any:
        return tf.constant(values)

    def values(self, array: Any) -> np.ndarray:
        return array.numpy()

    def allreduce(self, array: Any) -> Any:
        self._last = self._sum(array)
        return self._last

    def allgather(self, mine: Any, every: Any) -> Any:
        self._last = self._gather(mine)
        return self._last

    def synchronize(self) -> None:
        """A function's result is there on a CPU when it returns, on a GPU when one of its numbers has come from there."""
        self._last[:1].numpy()

    def barrier(self) -> None:
        self.allreduce(tf.zeros(1))

    def transport(self) -> str:
        return carrier(self._job)

    def close(self) -> None:
        time.sleep(FETCHED_S)


create = Mirrored

"""TensorFlow's collective allreduce, beside the framework: MultiWorkerMirroredStrategy around the model of all backends.

Every process has one device and a replica on it. The strategy's replica context sums the gradients over all processes:
with a ring over gRPC, or with NCCL.
"""

from __future__ import annotations

import time
from typing import Any, List, Sequence, Tuple

import tensorflow as tf

from harness.worker.frameworks.tensorflow import Replica, addresses_seen, prepare, set_threads
from harness.worker.job import Job
from harness.worker.trainer import ReplicaLearner, State

FETCHED_S = 1.0  # a sum over gRPC is fetched by whoever waits for it
IMPLEMENTATIONS = {
    "grpc": tf.distribute.experimental.CommunicationImplementation.RING,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
}


def create(job: Job) -> MultiWorkerMirroredTrainer:
    """The trainer of one worker."""
    return MultiWorkerMirroredTrainer(job)


class MultiWorkerMirroredTrainer(ReplicaLearner):
    """One rank: one process, one device."""

    _replica: Replica

    def __init__(self, job: Job) -> None:
        self._job = job
        self._world_size = 0
        self.clock = Replica.clock

    def setup(self) -> None:
        """Join the others, build the model, trace the step."""
        job = self._job
        set_threads(job)
        prepare(job)
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=int(job.spec["options"]["pack_mb"] * 2**20),
            implementation=IMPLEMENTATIONS[job.spec["transport"]],
        )
        addresses = [f"{process['address']}:{process['port']}" for process in job.processes("worker")]
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec({"worker": addresses}), task_type="worker", task_id=job.rank, rpc_layer="grpc"
            ),
            options,
        )
        replica = self._replica = Replica(job)

        def step(*batch: Any) -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(replica.variables)
                loss = replica.loss(*batch)
            gradients = tape.gradient(loss, replica.variables)
            summed = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients, options)
            replica.apply([gradient / job.world_size for gradient in summed])
            return loss

        def add(numbers: Any) -> Any:
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, numbers, options)

        self._step = tf.function(lambda *batch: self._strategy.run(step, batch), autograph=False)
        self._meet = tf.function(lambda: self._strategy.run(lambda: add(tf.constant(1))), autograph=False)
        # Copied to this replica's device: what comes from outside is on none.
        self._add = tf.function(lambda numbers: self._strategy.run(lambda: add(tf.identity(numbers))), autograph=False)

    def step(self) -> None:
        """Forward, backward, allreduce, SGD."""
        self._replica.run(self._step)

    def synchronize(self) -> None:
        """Nothing to wait for: ``step`` waits for its loss."""

    def barrier(self) -> None:
        """Wait for all ranks; the sum of a one from each says how many there are."""
        self._world_size = int(self._meet())

    def total(self, numbers: Sequence[float]) -> List[float]:
        """The sums over all ranks."""
        summed: List[float] = self._add(tf.constant(numbers, tf.float64)).numpy().tolist()
        return summed

    def server_bytes(self) -> List[Tuple[int, int]]:
        """There are no servers."""
        return []

    def state(self) -> State:
        """This rank's parameters and what carried the gradients."""
        return self._replica.state(self._world_size, self._transport())

    def close(self) -> None:
        """TensorFlow's server ends with the process, but not before the others have fetched what the last barrier sums."""
        time.sleep(FETCHED_S)

    def _transport(self) -> str:
        if self._job.spec["transport"] == "nccl":
            return f"nccl {tf.sysconfig.get_build_info().get('nccl_version', '')}".strip()
        devices = [device.name for device in tf.config.list_logical_devices()]
        return "grpc among " + ", ".join(addresses_seen(self._job, "worker", devices))

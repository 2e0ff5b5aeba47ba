"""TensorFlow's collective allreduce, beside the framework: MultiWorkerMirroredStrategy around the model of all backends.

Every process has one device and a replica on it. The strategy's replica context sums the gradients over all processes:
with a ring over gRPC, or with NCCL.
"""

from __future__ import annotations

from typing import Any, List, Tuple

import tensorflow as tf

from harness.frameworks.tensorflow import Replica, addresses_seen, prepare, set_threads
from harness.worker.job import Job
from harness.worker.trainer import State

IMPLEMENTATIONS = {
    "grpc": tf.distribute.experimental.CommunicationImplementation.RING,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
}


def create(job: Job) -> MultiWorkerMirroredTrainer:
    """The trainer of one worker."""
    return MultiWorkerMirroredTrainer(job)


class MultiWorkerMirroredTrainer:
    """One rank: one process, one device."""

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

        def step() -> Any:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(replica.variables)
                loss = replica.loss()
            gradients = tape.gradient(loss, replica.variables)
            summed = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients, options)
            replica.apply([gradient / job.world_size for gradient in summed])
            return loss

        def meet() -> Any:
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1), options)

        self._step = tf.function(lambda: self._strategy.run(step), autograph=False)
        self._meet = tf.function(lambda: self._strategy.run(meet), autograph=False)

    def step(self) -> None:
        """Forward, backward, allreduce, SGD."""
        self._replica.run(self._step)

    def synchronize(self) -> None:
        """Nothing to wait for: ``step`` waits for its loss."""

    def barrier(self) -> None:
        """Wait for all ranks; the sum of a one from each says how many there are."""
        self._world_size = int(self._meet())

    def server_bytes(self) -> List[Tuple[int, int]]:
        """There are no servers."""
        return []

    def state(self) -> State:
        """This rank's parameters and what carried the gradients."""
        return self._replica.state(self._world_size, self._transport())

    def close(self) -> None:
        """Nothing to leave: TensorFlow's server ends with the process."""

    def _transport(self) -> str:
        if self._job.spec["transport"] == "nccl":
            return f"nccl {tf.sysconfig.get_build_info().get('nccl_version', '')}".strip()
        devices = [device.name for device in tf.config.list_logical_devices()]
        return "grpc among " + ", ".join(addresses_seen(self._job, "worker", devices))

"""TensorFlow's collective allreduce, beside the framework: MultiWorkerMirroredStrategy around the model of all backends.

Every process has one device and a replica on it. The strategy's replica context sums the gradients over all processes:
with a ring over gRPC, or with NCCL.
"""

from __future__ import annotations

import time
from typing import Any, List, Sequence

import tensorflow as tf

from harness.worker.frameworks.tensorflow import TensorFlowTrainer, addresses_seen
from harness.worker.trainer import State

FETCHED_S = 1.0  # a sum over gRPC is fetched by whoever waits for it
IMPLEMENTATIONS = {
    "grpc": tf.distribute.experimental.CommunicationImplementation.RING,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
}


class MultiWorkerMirroredTrainer(TensorFlowTrainer):
    """The replica context of a MultiWorkerMirroredStrategy sums the gradients."""

    def setup(self) -> None:
        job = self._job
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=int(job.spec["options"]["pack_mb"] * job.spec.get("bytes_scale", 1.0) * 2**20),
            implementation=IMPLEMENTATIONS[job.spec["transport"]],
        )
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": job.addresses("worker")}),
            task_type="worker",
            task_id=job.rank,
            rpc_layer="grpc",
        )
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
        self.build()

        def add(numbers: Any) -> Any:
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, numbers, options)

        def step(*batch: Any) -> Any:
            loss, tape, variables = self.loss_on_tape(*batch)
            self.apply([gradient / job.world_size for gradient in add(tape.gradient(loss, variables))])
            return loss

        self._step = tf.function(lambda *batch: self._strategy.run(step, batch), autograph=False)
        # Copied to this replica's device: what comes from outside is on none.
        self._add = tf.function(lambda numbers: self._strategy.run(lambda: add(tf.identity(numbers))), autograph=False)

    def step(self) -> None:
        self.run(self._step)

    def total(self, numbers: Sequence[float]) -> List[float]:
        summed: List[float] = self._add(tf.constant(numbers, tf.float64)).numpy().tolist()
        return summed

    def state(self) -> State:
        if self._job.spec["transport"] == "nccl":
            transport = f"nccl {tf.sysconfig.get_build_info().get('nccl_version', '')}".strip()
        else:
            devices = [device.name for device in tf.config.list_logical_devices()]
            transport = "grpc among " + ", ".join(addresses_seen(self._job, "worker", devices))
        return self._state(self._world_size, transport)

    def close(self) -> None:
        """TensorFlow's server ends with the process, but not before the others have fetched what the last barrier sums."""
        time.sleep(FETCHED_S)


create = MultiWorkerMirroredTrainer

"""TensorFlow's world of workers: joining it, and the carrier of its messages."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from harness.worker.frameworks.tensorflow import addresses_seen
from harness.worker.job import Job
from harness.worker.network import nccl, nccl_meets_on

FETCHED_S = 1.0  # a sum over gRPC is fetched by whoever waits for it
IMPLEMENTATIONS = {
    "grpc": tf.distribute.experimental.CommunicationImplementation.RING,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
}


def options(job: Job) -> Any:
    return tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=int(job.spec["options"]["pack_mb"] * job.bytes_scale * 2**20),
        implementation=IMPLEMENTATIONS[job.spec["transport"]],
    )


def strategy(job: Job) -> Any:
    """The strategy of this process, once all others are there."""
    if job.spec["transport"] == "nccl":
        nccl_meets_on(job.process["address"], job.repeat_dir / "logs")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": job.addresses("worker")}),
        task_type="worker",
        task_id=job.rank,
        rpc_layer="grpc",
    )
    return tf.distribute.MultiWorkerMirroredStrategy(resolver, options(job))


def carrier(job: Job) -> str:
    """The carrier of the messages, as TensorFlow names it."""
    if job.spec["transport"] == "nccl":
        return nccl(tf.sysconfig.get_build_info().get("nccl_version", ""))
    devices = [device.name for device in tf.config.list_logical_devices()]
    return "grpc among " + ", ".join(addresses_seen(job, "worker", devices))

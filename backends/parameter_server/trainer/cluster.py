"""TensorFlow's distributed runtime, reduced to what a benchmark needs: servers, queues, and a gate for all workers."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from harness.worker import traffic
from harness.worker.emulation import INTER_OP_THREADS
from harness.worker.frameworks.tensorflow import addresses_seen
from harness.worker.job import Job

v1 = tf.compat.v1
COUNT, LEAVE = 0, 1  # a worker's messages to a server
FAREWELL_S = 5.0


def start_server(job: Job) -> Any:
    """Start this process's gRPC server. It stays reachable until the process ends."""
    cluster = {role: job.addresses(role) for role in ("ps", "worker")}
    return v1.train.Server(cluster, job.process["role"], job.rank, config=configuration(job, []))


def carrier(job: Job, session: Any) -> str:
    """The carrier of gradients, as a session's devices show it: gRPC, to the servers by rank."""
    return "grpc to " + ", ".join(addresses_seen(job, "ps", [device.name for device in session.list_devices()]))


def configuration(job: Job, device_filters: List[str]) -> Any:
    """The settings to run a graph with. This process sees the devices that match a filter (or, without filters, all)."""
    config = v1.ConfigProto(
        device_filters=device_filters, intra_op_parallelism_threads=job.spec["threads"] * job.devices
    )
    if job.emulation:
        config.inter_op_parallelism_threads = INTER_OP_THREADS * job.devices
    config.gpu_options.allow_growth = True
    if job.spec["device"] == "cpu" and job.spec["precision"] == "amp":
        # It would fuse a bfloat16 convolution with its bias into an operator that a distributed session refuses.
        config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
    config.allow_soft_placement = job.spec["device"] == "cuda"  # a few small operators have no GPU kernel
    if job.process["role"] == "ps":
        config.device_count["GPU"] = 0
    elif job.spec["device"] == "cpu":
        config.device_count["CPU"] = job.devices
    return config


def open_session(job: Job, server: Any, graph: Any) -> Any:
    """A session that sees this process and, of a worker, every server, but no other worker: so it waits for none."""
    here = f"/job:{job.process['role']}/task:{job.rank}"
    filters = [here] if job.process["role"] == "ps" else ["/job:ps", here]
    return v1.Session(server.target, graph=graph, config=configuration(job, filters))


def serve(job: Job, ready: Callable[[], None], server: Any = None) -> None:
    """Be a parameter server until the workers release it (see ``Gate``), and say how many bytes it has moved when asked."""
    server = server or start_server(job)
    with tf.Graph().as_default() as graph:
        message = queue(f"said_to_{job.rank}", job.rank, tf.int32).dequeue()
        counted = v1.placeholder(tf.int64, [2])
        answer = queue(f"counted_by_{job.rank}", job.rank, tf.int64, [2]).enqueue(counted)
    leaving = job.world_size if job.rank == 0 else 1
    with open_session(job, server, graph) as session:
        ready()
        while leaving:
            if session.run(message) == LEAVE:
                leaving -= 1
            else:
                session.run(answer, {counted: traffic.total()})


class Gate:
    """The workers' meeting point, queues on the servers: sums of their numbers, the servers' bytes, farewells.

    Built inside a graph. Messages per use: linear in processes.
    """

    def __init__(self, job: Job) -> None:
        self._rank = job.rank
        ranks, servers = (
            (range(job.world_size), range(len(job.processes("ps")))) if job.rank == 0 else ([job.rank], [0])
        )
        arrivals = queue("numbers", 0, tf.float64, None)
        totals = [queue(f"total_{rank}", 0, tf.float64, None) for rank in ranks]
        self._numbers = v1.placeholder(tf.float64, [None])
        self._give, self._total = arrivals.enqueue(self._numbers), totals[0].dequeue()
        messages = [queue(f"said_to_{ps}", ps, tf.int32) for ps in servers]
        # Only the sums use server 0 once the parameters are read; the others can go as soon as worker 0 says so.
        self._farewells = [message.enqueue(LEAVE) for message in reversed(messages)]
        if job.rank == 0:
            self._gather = [arrivals.dequeue() for _ in ranks]
            self._release = [total.enqueue(self._numbers) for total in totals]
            self._ask = [message.enqueue(COUNT) for message in messages]
            self._answers = [queue(f"counted_by_{ps}", ps, tf.int64, [2]).dequeue() for ps in servers]

    def total(self, session: Any, numbers: Sequence[float]) -> List[float]:
        """The sums of as many numbers from each worker, the same for all. Worker 0 adds them up, in the order of ranks."""
        session.run(self._give, {self._numbers: [self._rank, *numbers]})
        if self._rank == 0:
            # A rank that came twice counts once.
            by_rank = {rank: values for rank, *values in session.run(self._gather)}
            session.run(self._release, {self._numbers: np.sum([by_rank[rank] for rank in sorted(by_rank)], axis=0)})
        return session.run(self._total).tolist()

    def server_bytes(self, session: Any) -> List[Tuple[int, int]]:
        """Bytes that each server has sent and received since its start, by rank; empty if unknown. Worker 0 asks."""
        if self._rank != 0:
            return []
        session.run(self._ask)
        return traffic.known(session.run(self._answers))

    def leave(self, session: Any) -> None:
        """Say to the parameter servers that this worker needs them no more. They end when all workers have said so.

        A server takes its last farewell and is gone before it has answered. TensorFlow mostly calls that an error, and
        rarely waits for the answer for ever; so nobody here waits for it any longer than ``FAREWELL_S``.
        """

        def send(farewell: Any) -> None:
            with suppress(tf.errors.UnavailableError):
                session.run(farewell)

        for farewell in self._farewells:  # one at a time: a server that goes would cancel the others' in the same step
            thread = threading.Thread(target=send, args=(farewell,), daemon=True)
            thread.start()
            thread.join(FAREWELL_S)


def permission(job: Job, name: str, ps: int, granted: Any, before: Sequence[Any]) -> Tuple[Any, List[Any]]:
    """Worker 0 lets all workers go on. Returns the operation that waits for it, after ``before``, and those of worker 0.

    The latter follow ``granted``. Each worker has a queue on server ``ps``: from a common one a fast worker could take
    the permission of a slow one.
    """
    ranks = range(job.world_size) if job.rank == 0 else [job.rank]
    queues = [queue(f"{name}_{rank}", ps) for rank in ranks]
    grants = []
    if job.rank == 0:
        with tf.control_dependencies([granted]), on_server(ps):
            grants = [tokens.enqueue(True) for tokens in queues]
    with tf.control_dependencies(before):
        return queues[0].dequeue(), grants


def queue(name: str, ps: int, dtype: tf.DType = tf.bool, shape: Optional[Sequence[int]] = ()) -> Any:
    """The queue of this name on a server, the same in all processes. Its values have one shape or, with None, any."""
    with on_server(ps):
        shapes = None if shape is None else [shape]
        return v1.FIFOQueue(-1, [dtype], shapes=shapes, shared_name=name, name=name)


def new_variable(name: str, shape: Any, dtype: tf.DType = tf.float32) -> Any:
    """A resource variable of zeros on the current device; on a server, a name is the same variable in every worker."""
    return v1.get_variable(
        name.replace(".", "/"), shape, dtype, initializer=v1.zeros_initializer(), use_resource=True, trainable=False
    )


def assign(session: Any, values: Iterable[Tuple[Any, np.ndarray]]) -> None:
    """Give variables arrays of as many elements, fed in place of what their initialisers would set."""
    feeds = {variable.initializer: (variable, value) for variable, value in values}
    session.run(
        list(feeds),
        {initialiser.inputs[1]: value.reshape(variable.shape) for initialiser, (variable, value) in feeds.items()},
    )


def on_server(ps: int) -> Any:
    return tf.device(f"/job:ps/task:{ps}/device:CPU:0")


def device(job: Job, number: int) -> str:
    """TensorFlow's name of a device that this worker drives."""
    return f"/job:worker/task:{job.rank}/device:{'GPU' if job.spec['device'] == 'cuda' else 'CPU'}:{number}"


def host(job: Job) -> str:
    return f"/job:worker/task:{job.rank}/device:CPU:0"

"""TensorFlow's distributed runtime, reduced to what a benchmark needs: servers, sessions, and a gate for all workers."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from harness.worker import traffic
from harness.worker.job import Job

v1 = tf.compat.v1
COUNT, LEAVE = 0, 1  # what workers say to a server
FAREWELL_S = 5.0
UNKNOWN = (-1, -1)  # the answer of a server whose kernel does not count


def start_server(job: Job) -> Any:
    """Start this process's gRPC server. It stays reachable until the process ends."""
    cluster = {
        role: [f"{process['address']}:{process['port']}" for process in job.processes(role)]
        for role in ("ps", "worker")
    }
    config = _config(job, device_filters=[])
    return v1.train.Server(cluster, job.process["role"], job.rank, config=config)


def worker_session(job: Job, server: Any, graph: tf.Graph) -> Any:
    """A session that sees this worker and every parameter server, but no other worker, and so waits for none."""
    filters = ["/job:ps", f"/job:worker/task:{job.rank}"]
    return v1.Session(server.target, graph=graph, config=_config(job, filters))


def serve(job: Job, ready: Callable[[], None]) -> None:
    """Be a parameter server until the workers release it (see ``Gate``), and say how many bytes it has moved when asked."""
    server = start_server(job)
    with tf.Graph().as_default() as graph:
        message = _queue(f"said_to_{job.rank}", job.rank, tf.int32).dequeue()
        counted = v1.placeholder(tf.int64, [2])
        answer = _queue(f"counted_by_{job.rank}", job.rank, tf.int64, [2]).enqueue(counted)
    leaving = job.world_size if job.rank == 0 else 1
    with v1.Session(server.target, graph=graph, config=_config(job, [f"/job:ps/task:{job.rank}"])) as session:
        ready()
        while leaving:
            if session.run(message) == LEAVE:
                leaving -= 1
            else:
                session.run(answer, {counted: traffic.total() or UNKNOWN})


class Gate:
    """Barriers and farewells of the workers, through queues on the servers. Messages per use: linear in processes.

    Built inside a graph. Every worker says its rank; worker 0 counts the different ranks and tells everyone the count,
    so that each worker learns the true size of the world.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        arrivals = _queue("arrivals", 0, tf.int32)
        self._arrive = arrivals.enqueue(job.rank)
        self._all_arrived = arrivals.dequeue_many(job.world_size)
        self._seen = v1.placeholder(tf.int32, [])
        self._release, self._released = _to_all(job, "release", self._seen)
        servers = range(len(job.processes("ps")) if job.rank == 0 else 1)
        say = [_queue(f"said_to_{ps}", ps, tf.int32) for ps in servers]
        self._ask = [queue.enqueue(COUNT) for queue in say if job.rank == 0]
        self._answers = [_queue(f"counted_by_{ps}", ps, tf.int64, [2]).dequeue() for ps in servers if job.rank == 0]
        # Only the barrier uses server 0 once the parameters are read; the others can go as soon as worker 0 says so.
        self._farewells = [queue.enqueue(LEAVE) for queue in reversed(say)]

    def wait(self, session: Any) -> int:
        """Wait for every worker. Returns the number of different workers that came."""
        session.run(self._arrive)
        if self._job.rank == 0:
            seen = len(set(session.run(self._all_arrived).tolist()))
            session.run(self._release, {self._seen: seen})
        return int(session.run(self._released))

    def server_bytes(self, session: Any) -> List[Tuple[int, int]]:
        """Bytes that each server has sent and received since its start, by rank; empty if unknown. Worker 0 asks."""
        session.run(self._ask)
        counts = [(int(sent), int(received)) for sent, received in session.run(self._answers)]
        return [] if UNKNOWN in counts else counts

    def leave(self, session: Any) -> None:
        """Say to the parameter servers that this worker needs them no more. They end when all workers have said so.

        A server takes its last farewell and is gone before it has answered. TensorFlow mostly calls that an error, and
        rarely waits for the answer for ever; so nobody here waits for it any longer than ``FAREWELL_S``.
        """
        for farewell in self._farewells:  # one at a time: a server that goes would cancel the others' in the same step
            thread = threading.Thread(target=_say, args=(session, farewell), daemon=True)
            thread.start()
            thread.join(FAREWELL_S)


class WorkerSums:
    """Sums of numbers of all workers, through queues on server 0. Worker 0 adds them up, in the order of the ranks.

    Built inside a graph.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        numbers = _queue("numbers", 0, tf.float64, None)
        self._numbers = v1.placeholder(tf.float64, [None])
        self._give, self._take = numbers.enqueue(self._numbers), numbers.dequeue()
        self._release, self._released = _to_all(job, "total", self._numbers)

    def of(self, session: Any, numbers: Sequence[float]) -> List[float]:
        """The sums of as many numbers from each worker, the same for all of them."""
        session.run(self._give, {self._numbers: [self._job.rank, *numbers]})
        if self._job.rank == 0:
            by_rank = sorted((session.run(self._take) for _ in range(self._job.world_size)), key=lambda row: row[0])
            session.run(self._release, {self._numbers: np.sum(by_rank, axis=0)[1:]})
        sums: List[float] = session.run(self._released).tolist()
        return sums


def _to_all(job: Job, name: str, value: Any) -> Tuple[Any, Any]:
    """Through server 0: the operation with which worker 0 gives ``value`` to all, and that with which each takes it."""
    shape = () if value.shape.rank == 0 else None
    ranks = range(job.world_size) if job.rank == 0 else [job.rank]
    queues = [_queue(f"{name}_{rank}", 0, value.dtype, shape) for rank in ranks]
    give = tf.group(*[queue.enqueue(value) for queue in queues if job.rank == 0])
    return give, queues[0].dequeue()


def _say(session: Any, farewell: Any) -> None:
    with suppress(tf.errors.UnavailableError):
        session.run(farewell)


def on_server(ps: int) -> Any:
    return tf.device(f"/job:ps/task:{ps}/device:CPU:0")


def token_queues(name: str, ranks: List[int], ps: int = 0) -> List[Any]:
    """A queue on a parameter server for each worker in ``ranks``; the same names give the same queues in all workers."""
    return [_queue(f"{name}_{rank}", ps, tf.bool) for rank in ranks]


class Setter:
    """Gives a variable a NumPy value, which is fed rather than baked into the graph."""

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        with v1.colocate_with(variable.handle):
            self.placeholder = v1.placeholder(variable.dtype, variable.shape)
            self.op = variable.assign(self.placeholder, read_value=False)


FirstValue = Tuple[Setter, np.ndarray]  # what a variable starts with


def set_all(session: Any, values: Sequence[Tuple[Setter, np.ndarray]]) -> None:
    """Give variables values of as many elements."""
    feeds = {setter.placeholder: value.reshape(setter.variable.shape) for setter, value in values}
    session.run([setter.op for setter, _ in values], feeds)


def new_variable(name: str, shape: Any, dtype: tf.DType = tf.float32, initial: str = "zeros") -> Any:
    """A resource variable on the current device; the same name on a server is the same variable in every worker."""
    initializer = {"zeros": v1.zeros_initializer(), "ones": v1.ones_initializer()}[initial]
    return v1.get_variable(
        name.replace(".", "/"), shape, dtype, initializer=initializer, use_resource=True, trainable=False
    )


def _queue(name: str, ps: int, dtype: tf.DType, shape: Optional[Sequence[int]] = ()) -> Any:
    """A queue of values of one shape or, with None, of any shape."""
    with on_server(ps):
        shapes = None if shape is None else [shape]
        return v1.FIFOQueue(-1, [dtype], shapes=shapes, shared_name=name, name=name)


def _config(job: Job, device_filters: List[str]) -> Any:
    config = v1.ConfigProto(
        device_filters=device_filters, intra_op_parallelism_threads=job.spec["threads"] * job.devices
    )
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

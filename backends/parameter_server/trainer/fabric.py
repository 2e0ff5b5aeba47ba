"""The operations of TensorFlow's parameter servers without a training: variables and queues on servers, over gRPC."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any, Callable, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from harness import kernels
from harness.backends.parameter_server.trainer import cluster
from harness.backends.parameter_server.trainer.cluster import Gate, assign, host, new_variable, on_server, start_server
from harness.worker.fabric import Fabric, Transfer, of_tensorflow
from harness.worker.frameworks.tensorflow import prepare
from harness.worker.job import Job

v1 = tf.compat.v1
Parts = Sequence[np.ndarray]


class Programs(Fabric):
    """A worker, or the server of number ``rank``: runs programs in one session, with queues and arrays on servers."""

    arithmetic = of_tensorflow()

    def __init__(self, job: Job, server: Any) -> None:
        self._job, self.rank, self.size, self.servers = job, job.rank, job.world_size, len(job.processes("ps"))
        self._graph, self._arrays = tf.Graph(), 0
        self._session = cluster.open_session(job, server, self._graph)

    def array(self, values: np.ndarray) -> Any:
        self._arrays += 1
        with self._graph.as_default(), self._here():
            variable = new_variable(f"array_{self._arrays}", values.shape, values.dtype)
        assign(self._session, [(variable, values)])
        return variable

    def queue(self, name: str, shape: Sequence[int], dtype: Any = np.float64, server: int = 0) -> Queue:
        with self._graph.as_default():
            return Queue(name, shape, tf.as_dtype(dtype), server)

    def held(self, name: str, shape: Sequence[int], dtype: Any = np.float64, server: int = 0) -> Held:
        with self._graph.as_default():
            return Held(name, shape, tf.as_dtype(dtype), server)

    def program(self, build: Callable[..., Any], *like: Any) -> Callable[..., Any]:
        with self._graph.as_default(), self._here():
            arguments = [v1.placeholder(each.dtype, each.shape) for each in like]
            return self._session.make_callable(build(*arguments), arguments)

    def _here(self) -> Any:
        is_server = self._job.process["role"] == "ps"
        return on_server(self.rank) if is_server else tf.device(cluster.device(self._job, 0))


class Queue:
    """Arrays with an index, which come from all processes that have a queue of this name."""

    def __init__(self, name: str, shape: Sequence[int], dtype: Any, server: int) -> None:
        with on_server(server):
            self._queue = v1.FIFOQueue(-1, [tf.int64, dtype], [[], list(shape)], shared_name=name, name=name)

    def put(self, array: Any, index: Any = 0) -> Any:
        return self._queue.enqueue([tf.cast(index, tf.int64), array])

    def get(self, after: Sequence[Any] = ()) -> Tuple[Any, Any]:
        with tf.control_dependencies(after):
            index, array = self._queue.dequeue()
        return array, index

    def gather(self, count: int) -> Any:
        indexes, arrays = self._queue.dequeue_many(count)
        shape = [count * arrays.shape[1], *arrays.shape[2:]]
        return tf.reshape(tf.gather(arrays, tf.argsort(indexes)), shape)


class Held:
    """An array on a server, the same in all processes that hold one of this name."""

    def __init__(self, name: str, shape: Sequence[int], dtype: Any, server: int) -> None:
        self._server = server
        with on_server(server):
            self._variable = new_variable(name, list(shape), dtype)

    def set(self, array: Any) -> Any:
        return self._variable.assign(array, read_value=False)

    def add(self, array: Any, index: Any, to_zero: bool = False) -> Any:
        cleared = []
        if to_zero:
            with on_server(self._server), tf.control_dependencies([array]):
                cleared = [self.set(tf.zeros(self._variable.shape, self._variable.dtype))]
        with tf.control_dependencies(cleared):
            return self._variable.scatter_add(tf.IndexedSlices(array[None], index[None])).op

    def part(self, begin: int, end: int) -> Any:
        with on_server(self._server):
            return self._variable[begin:end]


class Servers(Programs):
    """One worker, which meets the others at the servers. Each kernel has a graph and a session of its own."""

    def __init__(self, job: Job) -> None:
        prepare(job)
        self._server = start_server(job)
        super().__init__(job, self._server)
        with self._graph.as_default():
            self._gate = Gate(job)

    def pushing(self, parts: Parts) -> Transfer:
        with tf.Graph().as_default() as graph:
            mine, held = self._variables(parts)
            added = []
            for ps, (here, there) in enumerate(zip(mine, held)):
                with on_server(ps):
                    added.append(there.assign_add(here.read_value(), read_value=False))
            sums = [there.read_value() for there in held]
        session = cluster.open_session(self._job, self._server, graph)
        assign(session, zip(mine, parts))
        self._hold(session, held, [np.zeros_like(part) for part in parts])
        return session.make_callable(added), lambda: np.concatenate(session.run(sums))

    def pulling(self, parts: Parts) -> Transfer:
        with tf.Graph().as_default() as graph:
            mine, held = self._variables(parts)
            with tf.device(host(self._job)):
                pulled = [here.assign(there.read_value(), read_value=False) for here, there in zip(mine, held)]
            arrived = [here.read_value() for here in mine]
        session = cluster.open_session(self._job, self._server, graph)
        assign(session, [(here, np.zeros_like(part)) for here, part in zip(mine, parts)])
        self._hold(session, held, parts)
        return session.make_callable(pulled), lambda: np.concatenate(session.run(arrived))

    def barrier(self) -> None:
        self._gate.total(self._session, [1])

    def transport(self) -> str:
        return cluster.carrier(self._job, self._session)

    def close(self) -> None:
        self._gate.leave(self._session)

    def _variables(self, parts: Parts) -> Tuple[List[Any], List[Any]]:
        """A variable here for each part, and one on its server."""
        count = sum(len(part) for part in parts)
        with tf.device(host(self._job)):
            mine = [new_variable(f"mine_{count}_{ps}", part.shape) for ps, part in enumerate(parts)]
        held = []
        for ps, part in enumerate(parts):
            with on_server(ps):
                held.append(new_variable(f"held_{count}_{ps}", part.shape))
        return mine, held

    def _hold(self, session: Any, held: List[Any], parts: Parts) -> None:
        """Have the servers hold these parts, for all workers."""
        if self.rank == 0:
            assign(session, zip(held, parts))
        self.barrier()


def serve(job: Job, ready: Callable[[], None]) -> None:
    """Be a parameter server, with the reducers of a kernel that has some. The reducers go on until the process ends."""
    server, name, loops = start_server(job), job.kernel["name"], []
    if reducer := kernels.reducer(name):
        programs = Programs(job, server)
        for size in kernels.specification(name).sizes(job.kernel["sizes"], job.world_size):
            loops += reducer(programs, size, job.spec["seed"])
    pool = ThreadPoolExecutor(1 + len(loops))
    serving = [pool.submit(cluster.serve, job, ready, server), *(pool.submit(_repeat, loop) for loop in loops)]
    for ended in wait(serving, return_when=FIRST_COMPLETED).done:
        ended.result()


def _repeat(loop: Callable[[], Any]) -> None:
    while True:
        loop()


create = Servers

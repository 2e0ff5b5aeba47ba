"""Programs of TensorFlow's operations, with queues and arrays on parameter servers, for kernels that compute."""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple

import numpy as np
import tensorflow as tf

from harness.backends.parameter_server.trainer.cluster import assign, device, new_variable, on_server, open_session
from harness.worker.arithmetic import of_tensorflow
from harness.worker.fabric import Fabric
from harness.worker.job import Job

v1 = tf.compat.v1


class Programs(Fabric):
    """A worker or a server, which runs programs of its own in one session. Of a server ``rank`` is its number."""

    arithmetic = of_tensorflow()

    def __init__(self, job: Job, server: Any) -> None:
        self._job, self.rank, self.size, self.servers = job, job.rank, job.world_size, len(job.processes("ps"))
        self._graph, self._arrays = tf.Graph(), 0
        self._session = open_session(job, server, self._graph)

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
        return on_server(self.rank) if is_server else tf.device(device(self._job, 0))


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

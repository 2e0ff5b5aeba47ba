"""TensorFlow's own parameter servers, beside the framework: ParameterServerStrategy around the model of all backends.

The strategy has one client, the coordinator, which lives in rank 0's process and uses no device. Every rank's process has
the server of its worker, which runs what the coordinator schedules. Inputs of a function from its worker (a batch, moving
averages) and its outputs there (the loss, its end) are Python functions (``harness.worker.calls``). So all ranks
make the same ones in the same order, and ``setup`` compares their numbers.
"""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from harness.backends.parameter_server.trainer import cluster
from harness.backends.parameter_server_strategy.trainer.coordinator import Coordinator
from harness.models.initial import initial_values
from harness.worker import calls
from harness.worker.frameworks import tensorflow as common
from harness.worker.frameworks.base import DeviceTrainer
from harness.worker.frameworks.tensorflow import Tensors, bad_images_named
from harness.worker.frameworks.tensorflow_stats import Profiler
from harness.worker.job import Job
from harness.worker.notes import APPLY, ASK, PULL, PUSH, Notes
from harness.worker.trainer import Evaluation, Marks, State, evaluation

v1 = tf.compat.v1
serve = cluster.serve
LAST_WORDS_S = 5.0  # in which a rank says what went wrong in its function, before rank 0 says that one has failed


class StrategyTrainer(DeviceTrainer):
    """One rank. Its steps are those that its worker has run: as many as all others with ``accumulate``."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        tf.config.threading.set_intra_op_parallelism_threads(job.spec["threads"])
        common.prepare(job)
        values = initial_values(self._specification, job.spec["seed"])
        self._moving = {tensor.name: values[tensor.name] for tensor in self._specification.statistics}
        self._seen: Dict[str, np.ndarray] = {}
        self._updates = 0
        self._problem: Optional[Exception] = None
        self._coordinator: Optional[Coordinator] = None
        self._ends: List[float] = []
        ends = self._ends

        class Ends(Marks):
            """Marks that functions leave as they end. Mark i of n: when i/n of those of the window had ended."""

            def __init__(self, count: int) -> None:
                super().__init__(count)
                self._before = len(ends)

            def seconds(self) -> List[float]:
                ended, steps = ends[self._before :], len(self._times) - 1
                if not ended:
                    raise RuntimeError("TensorFlow's coordinator has given this worker nothing to do")
                last = [-(-step * len(ended) // steps) - 1 for step in range(1, steps + 1)]
                self._times[1:] = [max(ended[number], self._times[0]) for number in last]
                return super().seconds()

        self.marks = Ends

    def setup(self) -> None:
        """Start the worker's server, meet the others, and let rank 0 connect to all; trace what the functions do here."""
        job = self._job
        server = cluster.start_server(job)
        with tf.Graph().as_default() as graph:
            self._gate = cluster.Gate(job)
        self._session = cluster.open_session(job, server, graph)
        self.barrier()  # all servers listen
        if job.rank == 0:
            self._coordinator = Coordinator(job, self._work, self._see)
        else:
            with tf.Graph().as_default():
                parameters = {t.name: v1.placeholder(tf.float32, t.shape) for t in self._specification.tensors}
                self._work(parameters, lambda gradients: tf.no_op())
                self._see(v1.placeholder(tf.int64, []), parameters)
        self.set_learning_rate(self._sgd.rate)
        if job.real_data:
            self._batches = self._timed(common.image_files(job, job.reading()))
        else:  # as TensorFlow aligns arrays, so that no step copies them
            self._batches = itertools.repeat(tuple(tf.constant(array) for array in common.synthetic(job)))
        self._infer = tf.function(self._logits, autograph=False)
        numbers = calls.numbers()
        if self.total(numbers) != [job.world_size * number for number in numbers]:
            raise RuntimeError("the ranks' Python functions have other numbers, so that workers would call wrong ones")

    def step(self) -> None:
        """Rank 0 has all workers take a step; the others have nothing to say."""
        with self._failures():
            if self._coordinator:
                self._coordinator.step(self._rate)

    def synchronize(self) -> None:
        """Wait until all that is scheduled has ended, on all workers."""
        with self._failures():
            if self._coordinator:
                self._coordinator.join()
        self.barrier()
        if self._problem:
            raise self._problem

    def losses(self, since: int) -> List[float]:
        self.synchronize()
        return super().losses(since)

    def total(self, numbers: Sequence[float]) -> List[float]:
        return self._gate.total(self._session, numbers)

    def server_bytes(self) -> List[Tuple[int, int]]:
        return self._gate.server_bytes(self._session)

    def set_learning_rate(self, rate: float) -> None:
        self._rate = tf.constant(rate, tf.float32)

    def evaluate(self) -> Evaluation:
        """This worker evaluates with the parameters of the servers."""
        self._look()
        held = {name: tf.constant(value) for name, value in {**self._seen, **self._moving}.items()}
        validation = common.image_files(self._job, self._job.evaluating())
        with bad_images_named(self._job, evaluating=True):
            return evaluation((self._infer(images, held).numpy(), labels.numpy()) for images, labels in validation)

    def statistics(self) -> Dict[str, np.ndarray]:
        return dict(self._moving)

    def values(self) -> Dict[str, np.ndarray]:
        """Rank 0 reads the servers' values; the others have those that their workers saw there last."""
        return {**(self._coordinator.values() if self._coordinator else self._seen), **self._moving}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        self._moving.update((name, values[name]) for name in self._moving if name in values)
        if self._coordinator:
            self._coordinator.assign(values)

    def state(self) -> State:
        self._look()
        state = self._state(
            self._world_size,
            cluster.carrier(self._job, self._session),
            device=cluster.device(self._job, 0),
            tensorflow=tf.__version__,
            functions=len(self._ends),
        )
        return replace(state, updates=self._updates)

    def trace(self, notes: Notes) -> None:
        """Have TensorFlow's profiler tell of the layers, which the functions carry out in this process."""
        notes.missing.update(
            dict.fromkeys((ASK, PUSH, PULL, APPLY), "TensorFlow's coordinator has no statistics of them")
        )
        profiler = Profiler(notes, [], with_layers=not self._job.emulation)
        self.step = profiler.around(self.step)  # type: ignore[method-assign]

    def close(self) -> None:
        self._gate.leave(self._session)

    def _look(self) -> None:
        with self._failures():
            if self._coordinator:
                self._coordinator.look()
        self.barrier()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Meet the others when a function has failed, so that the rank whose function it was says why."""
        try:
            yield
        except tf.errors.OpError:
            self.barrier()
            if self._problem:
                raise self._problem from None
            time.sleep(LAST_WORDS_S)
            raise

    # Traced functions, on all ranks.

    def _work(self, parameters: Tensors, push: Callable[[Tensors], Any]) -> None:
        """A worker's step: the loss of its next batch, and what ``push`` does with the gradients."""
        moving = list(self._moving)

        def begin() -> Tuple[np.ndarray, ...]:
            try:
                with bad_images_named(self._job):
                    images, labels = next(self._batches)
            except Exception as error:
                self._problem = error
                raise
            return (images.numpy(), labels.numpy(), *self._moving.values())

        images, labels, *held = calls.call(begin, [], [tf.float32, tf.int64, *[tf.float32] * len(moving)])
        images_each, size = self._job.batch_shape
        images.set_shape([images_each, size, size, 3])
        labels.set_shape([images_each])
        for value, tensor in zip(held, self._specification.statistics):
            value.set_shape(tensor.shape)
        loss, new = common.loss(self._job, images, labels, parameters, dict(zip(moving, held)).__getitem__)
        gradients = dict(zip(parameters, v1.gradients(loss, list(parameters.values()))))

        def end(loss: np.ndarray, *moved: np.ndarray) -> Sequence[np.ndarray]:
            self._ends.append(time.perf_counter())
            self._losses.append(float(loss))
            self._moving.update(zip(new, moved))
            return ()

        with tf.control_dependencies([push(gradients)]):
            calls.call(end, [loss, *new.values()], [])

    def _see(self, updates: Any, parameters: Tensors) -> None:
        def see(updates: np.ndarray, *values: np.ndarray) -> Sequence[np.ndarray]:
            self._updates, self._seen = int(updates), dict(zip(parameters, values))
            return ()

        calls.call(see, [updates, *parameters.values()], [])

    def _logits(self, images: Any, held: Tensors) -> Any:
        return common.logits(self._job, images, held, held.__getitem__, training=False)[0]


create = StrategyTrainer

"""One worker of a backend with parameter servers: a graph, a session with all servers, and the devices of its node.

Between-graph replication on TensorFlow's graph-mode runtime. A backend defines the parameters of the devices and the
exchange of the gradients.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
import tensorflow as tf

from harness.backends.parameter_server.trainer import cluster
from harness.backends.parameter_server.trainer.cluster import assign, device, host, new_variable
from harness.backends.parameter_server.trainer.exchanged import Exchanged
from harness.backends.parameter_server.trainer.pieces import Pieces
from harness.models.initial import initial_values
from harness.worker.frameworks import tensorflow as common
from harness.worker.frameworks.base import DeviceTrainer
from harness.worker.frameworks.tensorflow import Tensors, bad_images_named, reads
from harness.worker.notes import Notes
from harness.worker.trainer import Evaluation, State, evaluation

v1 = tf.compat.v1


class ServerTrainer(DeviceTrainer):
    """The base of trainers with parameter servers. A step has ended, on every device, when ``session.run`` returns.

    By device, ``_copies`` are variables of this worker that hold parameters, if it has any, and ``_statistics`` the moving
    averages of its batch norms.
    """

    # Adds to the graph the tensors that each device computes with, by name: whole ones, each read once per step.
    parameters: Callable[[], List[Tensors]]
    # From the sum of its devices' gradients, the operation that ends when this worker may start its next step.
    exchange: Callable[[Tensors], Any]

    def setup(self) -> None:
        """Start the server, build the graph, initialise (worker 0: the variables on the servers) and meet the others."""
        job = self._job
        common.prepare(job)
        server = cluster.start_server(job)
        with tf.Graph().as_default() as graph:
            v1.set_random_seed(job.spec["seed"])
            self._build()
        graph.finalize()
        self._session = cluster.open_session(job, server, graph)
        self._session.run(self._initialisers)
        assign(self._session, self._resident)
        self.restore(initial_values(self._specification, job.spec["seed"]))
        self.barrier()
        self._train = self._session.make_callable([self._loss, self._waits, self._step])

    def step(self) -> None:
        """Compute, exchange, and (synchronous modes) wait for the updated parameters."""
        with bad_images_named(self._job):
            loss, waited, _ = self._train()
        self._losses.append(float(loss))
        if waited:
            self._waited.append(float(max(waited)))

    def trace(self, notes: Notes) -> None:
        """Take TensorFlow's statistics of each step, of this worker's operations and of those that it has servers do."""
        run = self._session.make_callable([self._loss, self._waits, self._step], accept_options=True)
        full = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        exchanged = Exchanged(self._job, self._pieces, self._session.graph)

        def train() -> Any:
            metadata, step = v1.RunMetadata(), notes.step
            notes.later(lambda: exchanged.note(notes, metadata, step))
            return run(options=full, run_metadata=metadata)

        self._train = train

    def total(self, numbers: Sequence[float]) -> List[float]:
        return self._gate.total(self._session, numbers)

    def server_bytes(self) -> List[Tuple[int, int]]:
        return self._gate.server_bytes(self._session)

    def set_learning_rate(self, rate: float) -> None:
        """Worker 0's rate is that of the servers, where they sum up gradients."""
        assign(self._session, [(self._pieces.rate, np.array(rate, np.float32))])

    def evaluate(self) -> Evaluation:
        """This worker's first device evaluates, with the parameters of the servers."""
        run = self._session.make_callable([self._logits, self._labels])

        def classified() -> Iterator[Tuple[np.ndarray, np.ndarray]]:
            with suppress(tf.errors.OutOfRangeError):
                while True:
                    yield run()

        self._session.run(self._begin_evaluation)
        with bad_images_named(self._job, evaluating=True):
            return evaluation(classified())

    def statistics(self) -> Dict[str, np.ndarray]:
        of_devices = self._session.run(self._read_statistics)
        return {name: np.mean([of_device[name] for of_device in of_devices], axis=0) for name in of_devices[0]}

    def values(self) -> Dict[str, np.ndarray]:
        """Parameters and velocities come from the servers, statistics from this worker."""
        return {**self._session.run(self._saved), **self.statistics()}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """A worker writes its own variables, worker 0 also those on the servers."""
        local = [
            (variable, values[name])
            for of_device in (*self._statistics, *self._copies)
            for name, variable in of_device.items()
            if name in values
        ]
        assign(self._session, local + (self._pieces.shares(values) if self._job.rank == 0 else []))

    def state(self) -> State:
        held, copies, updates = self._session.run([self._saved, self._read_copies, self._updates])
        for number, copy in enumerate(copies):
            if differing := [name for name in copy if not np.array_equal(copy[name], held[name], equal_nan=True)]:
                raise RuntimeError(f"device {number} and the parameter servers differ in {', '.join(differing[:3])} …")
        devices = ", ".join(device(self._job, number) for number in range(self._job.devices))
        transport = cluster.carrier(self._job, self._session)
        state = self._state(self._world_size, transport, device=devices, tensorflow=tf.__version__)
        return replace(state, updates=int(updates))

    def close(self) -> None:
        self._gate.leave(self._session)

    def _build(self) -> None:
        """Build the graph. ``_initialisers`` are to be run, and ``_resident`` batches to be assigned, before a step."""
        job = self._job
        self._initialisers: List[Any] = []
        self._resident: List[Tuple[Any, np.ndarray]] = []
        self._waits: List[Any] = []
        self._copies: List[Dict[str, Any]] = []
        self._statistics: List[Dict[str, Any]] = []
        self._pieces = pieces = Pieces(job)
        if job.rank == 0:
            self._initialisers += [held.initializer for held in (pieces.updates, *pieces.velocities.values())]
        parameters = self.parameters()
        losses, gradients, moved = zip(*[self._tower(number, tensors) for number, tensors in enumerate(parameters)])
        with tf.device(host(job)):  # so that one sum leaves it, however many devices it has
            summed = {name: tf.add_n([of_device[name] for of_device in gradients]) for name in gradients[0]}
        self._step = tf.group(self.exchange(summed), *moved)
        self._loss = tf.add_n(losses) / len(losses)
        self._saved = pieces.whole(reads({**pieces.variables, **pieces.velocities}))
        self._updates = pieces.updates.read_value()
        self._read_copies = [reads(copy) for copy in self._copies]
        self._read_statistics = [reads(statistics) for statistics in self._statistics]
        self._gate = cluster.Gate(job)
        if job.training:
            self._build_inference(parameters[0])

    def _tower(self, number: int, tensors: Tensors) -> Tuple[Any, Tensors, Any]:
        """A device's loss with ``tensors``, their gradients, and what moves its statistics."""
        job = self._job
        with tf.device(device(job, number)):
            statistics = {
                tensor.name: new_variable(f"device{number}/{tensor.name}", tensor.shape)
                for tensor in self._specification.statistics
            }
            self._statistics.append(statistics)
            images, labels = self._batch(number)
            loss, new = common.loss(job, images, labels, tensors, lambda name: statistics[name].read_value())
            gradients = dict(zip(tensors, v1.gradients(loss, list(tensors.values()))))
            return loss, gradients, tf.group(*[statistics[name].assign(new[name], read_value=False) for name in new])

    def _batch(self, number: int) -> Sequence[Any]:
        """A device's images and labels. Of real ones ``_waits`` gets the seconds that they are waited for."""
        job = self._job
        if not job.real_data:  # resident variables, so that no step copies them and no graph pass folds them
            batch = [
                (new_variable(f"device{number}/synthetic/{name}", array.shape, array.dtype), array)
                for name, array in zip(("images", "labels"), common.synthetic(job, number))
            ]
            self._resident += batch
            return [variable.read_value() for variable, _ in batch]
        with tf.device(host(job)):
            iterator = v1.data.make_initializable_iterator(common.image_files(job, job.reading(number)))
            self._initialisers.append(iterator.initializer)
            began = tf.timestamp()
            with tf.control_dependencies([began]):
                images, labels = iterator.get_next()
            with tf.control_dependencies([images, labels]):
                self._waits.append(tf.timestamp() - began)
            return images, labels

    def _build_inference(self, parameters: Tensors) -> None:
        """Logits of validation images on device 0, with a copy of the parameters that every evaluation makes first."""
        job = self._job
        with tf.device(host(job)):
            batches = v1.data.make_initializable_iterator(common.image_files(job, job.evaluating()))
            images, self._labels = batches.get_next()
        with tf.device(device(job, 0)):
            held = {name: new_variable(f"evaluation/{name}", value.shape) for name, value in parameters.items()}
            copied = [held[name].assign(parameters[name], read_value=False) for name in held]
            statistics = reads(self._statistics[0])
            self._logits, _ = common.logits(job, images, reads(held), statistics.__getitem__, training=False)
        self._begin_evaluation = [batches.initializer, *copied]

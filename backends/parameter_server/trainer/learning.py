"""What a worker needs beside its step to train to an accuracy: a part of its graph that measurements do without."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
import tensorflow as tf

from harness.backends.parameter_server.trainer.cluster import Setter, WorkerSums, new_variable, set_all
from harness.backends.parameter_server.trainer.pieces import Pieces
from harness.backends.parameter_server.trainer.tower import Tower, device, host
from harness.worker.evaluation import Evaluation, evaluation
from harness.worker.frameworks.tensorflow import Tensors, bad_images_named, logits, reads, validation_files
from harness.worker.job import Job
from harness.worker.sgd import velocity
from harness.worker.trainer import Learner

v1 = tf.compat.v1


class ServerLearner(Learner):
    """Trains to an accuracy. The trainer sets ``_session`` once the graph is complete."""

    _session: Any

    def __init__(self, job: Job) -> None:
        self._job = job
        self._losses: List[float] = []  # of every step, means over this worker's devices

    def _build_learning(
        self, pieces: Pieces, towers: List[Tower], pulled: Tensors, copies: List[Dict[str, Any]]
    ) -> None:
        """Build this part of the graph, after the step.

        ``pulled`` are the parameters as device 0 computes with them; ``copies``, by device, those of this worker's
        variables that hold parameters, if it has any.
        """
        self._sums = WorkerSums(self._job)
        self._rate = Setter(pieces.rate)
        statistics = [tower.statistics for tower in towers]
        self._statistics = [reads(of_device) for of_device in statistics]
        self._on_devices = [
            {name: Setter(held) for name, held in of_device.items()} for of_device in (*statistics, *copies)
        ]
        # A worker writes what is its own, worker 0 also what is on the servers.
        self._on_servers: Dict[Tuple[str, int], Setter] = {}
        if self._job.rank == 0:
            speeds = {(velocity(name), begin): held for (name, begin), held in pieces.velocities.items()}
            self._on_servers = {key: Setter(held) for key, held in {**pieces.variables, **speeds}.items()}
        self._saved = pieces.whole(reads(pieces.variables))
        if pieces.velocities:
            speeds_whole = pieces.whole(reads(pieces.velocities))
            self._saved.update({velocity(name): value for name, value in speeds_whole.items()})
        self._build_inference(pulled, copies, statistics[0])

    def _build_inference(self, pulled: Tensors, copies: List[Dict[str, Any]], statistics: Dict[str, Any]) -> None:
        """Logits of validation images on device 0. A worker without copies pulls the parameters once per evaluation."""
        job = self._job
        with tf.device(host(job)):
            batches = v1.data.make_initializable_iterator(validation_files(job))
            images, self._labels = batches.get_next()
        with tf.device(device(job, 0)):
            if copies:
                held = copies[0]
                self._begin = [batches.initializer]
            else:
                held = {name: new_variable(f"evaluation/{name}", value.shape) for name, value in pulled.items()}
                refreshed = [held[name].assign(value, read_value=False) for name, value in pulled.items()]
                self._begin = [batches.initializer, *refreshed]
            averages = reads(statistics)
            self._logits, _ = logits(job, images, reads(held), averages.__getitem__, training=False)

    def set_learning_rate(self, rate: float) -> None:
        """Worker 0's rate is that of the servers, where they sum up gradients."""
        set_all(self._session, [(self._rate, np.array(rate, np.float32))])

    def losses(self, since: int) -> List[float]:
        return self._losses[since:]

    def total(self, numbers: Sequence[float]) -> List[float]:
        return self._sums.of(self._session, numbers)

    def evaluate(self) -> Evaluation:
        """This worker's first device evaluates, with the parameters of the servers."""
        self._session.run(self._begin)
        with bad_images_named(self._job, evaluating=True):
            return evaluation(self._classified())

    def statistics(self) -> Dict[str, np.ndarray]:
        of_devices = self._session.run(self._statistics)
        return {name: np.mean([of_device[name] for of_device in of_devices], axis=0) for name in of_devices[0]}

    def values(self) -> Dict[str, np.ndarray]:
        """Parameters and velocities come from the servers, statistics from this worker."""
        return {**self._session.run(self._saved), **self.statistics()}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        for setters in self._on_devices:
            set_all(self._session, [(setter, values[name]) for name, setter in setters.items() if name in values])
        for (name, begin), setter in self._on_servers.items():
            if name in values:
                end = begin + setter.variable.shape.num_elements()
                set_all(self._session, [(setter, values[name].reshape(-1)[begin:end])])

    def _classified(self) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        run = self._session.make_callable([self._logits, self._labels])
        while True:
            try:
                yield run()
            except tf.errors.OutOfRangeError:
                return

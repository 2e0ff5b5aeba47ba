"""What a worker needs beside its step to train to an accuracy: a part of its graph that measurements do without."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
import tensorflow as tf

from harness.backends.parameter_server.trainer.cluster import Setter, Total, new_variable, set_all
from harness.backends.parameter_server.trainer.pieces import Pieces
from harness.backends.parameter_server.trainer.tower import Tower, device, host
from harness.worker.evaluation import Evaluation, evaluation
from harness.worker.frameworks.tensorflow import Tensors, bad_images_named, logits, validation_files
from harness.worker.job import Job
from harness.worker.sgd import velocity

v1 = tf.compat.v1


class Learning:
    """Built inside a graph, after the step.

    ``pulled`` are the parameters as device 0 computes with them; ``copies``, by device, those of this worker's variables
    that hold parameters, if it has any.
    """

    def __init__(
        self, job: Job, pieces: Pieces, towers: List[Tower], pulled: Tensors, copies: List[Dict[str, Any]]
    ) -> None:
        self._job, self._pieces = job, pieces
        self._total = Total(job)
        self._rate = Setter(pieces.rate)
        statistics = [tower.statistics for tower in towers]
        self._statistics = [{name: held.read_value() for name, held in one.items()} for one in statistics]
        self._on_devices = [{name: Setter(held) for name, held in one.items()} for one in (*statistics, *copies)]
        # A worker writes what is its own, worker 0 also what is on the servers.
        self._on_servers: Dict[Tuple[str, int], Setter] = {}
        if job.rank == 0:
            speeds = {(velocity(name), begin): held for (name, begin), held in pieces.velocities.items()}
            self._on_servers = {key: Setter(held) for key, held in {**pieces.variables, **speeds}.items()}
        self._held = pieces.whole(pieces.reads())
        if pieces.velocities:
            speeds_whole = pieces.whole(pieces.reads_of_velocities())
            self._held.update({velocity(name): value for name, value in speeds_whole.items()})
        self._infer(pulled, copies, statistics[0])

    def _infer(self, pulled: Tensors, copies: List[Dict[str, Any]], statistics: Dict[str, Any]) -> None:
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
            tensors = {name: variable.read_value() for name, variable in held.items()}
            averages = {name: variable.read_value() for name, variable in statistics.items()}
            self._logits, _ = logits(job, images, tensors, averages.__getitem__, training=False)

    def set_learning_rate(self, session: Any, rate: float) -> None:
        """Of the steps that follow. Worker 0's is that of the servers, where they sum up gradients."""
        set_all(session, [(self._rate, np.array(rate, np.float32))])

    def total(self, session: Any, numbers: Sequence[float]) -> List[float]:
        """The sums over all workers."""
        return self._total.of(session, numbers)

    def evaluate(self, session: Any) -> Evaluation:
        """One pass over this worker's validation images, with the parameters of the servers."""
        session.run(self._begin)
        with bad_images_named(self._job, evaluating=True):
            return evaluation(self._classified(session))

    def statistics(self, session: Any) -> Dict[str, np.ndarray]:
        """The mean of the statistics of this worker's devices."""
        of_devices = session.run(self._statistics)
        return {name: np.mean([one[name] for one in of_devices], axis=0) for name in of_devices[0]}

    def values(self, session: Any) -> Dict[str, np.ndarray]:
        """Parameters and velocities from the servers, this worker's statistics."""
        return {**session.run(self._held), **self.statistics(session)}

    def restore(self, session: Any, values: Mapping[str, np.ndarray]) -> None:
        """Set what is in ``values`` on this worker's devices, and as worker 0 on the servers."""
        set_all(
            session,
            [(setter, values[name]) for one in self._on_devices for name, setter in one.items() if name in values],
        )
        for (name, begin), setter in self._on_servers.items():
            if name in values:
                end = begin + setter.elements
                set_all(session, [(setter, values[name].reshape(-1)[begin:end])])

    def _classified(self, session: Any) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        run = session.make_callable([self._logits, self._labels])
        while True:
            try:
                yield run()
            except tf.errors.OutOfRangeError:
                return

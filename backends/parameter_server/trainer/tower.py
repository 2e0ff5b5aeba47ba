"""One device's share of a worker's graph: its batch, its batch-norm statistics, its gradients."""

from __future__ import annotations

from typing import Any, List, Tuple

import tensorflow as tf

from harness import models
from harness.backends.parameter_server.trainer.cluster import FirstValue, Setter, new_variable
from harness.worker.frameworks.tensorflow import Tensors, image_files, loss, synthetic
from harness.worker.job import Job

v1 = tf.compat.v1


class Tower:
    """Device ``number`` of this worker computes with ``tensors`` (by name): ``loss``, ``gradients`` and ``after`` them.

    ``initialisers`` are run, and ``first_values`` set, before the first step. ``waited`` is how long the images were waited
    for, in seconds (float64 []), None where they are resident. ``statistics`` are the variables of its batch norms' moving
    averages, by name.
    """

    def __init__(self, job: Job, number: int, tensors: Tensors) -> None:
        self._job = job
        specification = models.specification(job.spec["model"])
        self.initialisers: List[Any] = []
        self.first_values: List[FirstValue] = []
        self.waited: Any = None
        with tf.device(device(job, number)):
            self.statistics = {
                tensor.name: new_variable(f"device{number}/{tensor.name}", tensor.shape, initial=tensor.initial)
                for tensor in specification.statistics
            }
            self.initialisers += [variable.initializer for variable in self.statistics.values()]
            images, labels = self._image_files(number) if job.real_data else self._synthetic(number)
            self.loss, new = loss(job, images, labels, tensors, lambda name: self.statistics[name].read_value())
            names = [tensor.name for tensor in specification.tensors]
            self.gradients = dict(zip(names, v1.gradients(self.loss, [tensors[name] for name in names])))
            self.after = [self.statistics[name].assign(value, read_value=False) for name, value in new.items()]

    def _synthetic(self, number: int) -> Tuple[Any, Any]:
        """One batch, resident on the device: variables, so that no step copies it and no graph pass folds it."""
        images, labels = synthetic(self._job, number)
        held = [
            new_variable(f"device{number}/synthetic/images", images.shape),
            new_variable(f"device{number}/synthetic/labels", labels.shape, tf.int64),
        ]
        self.first_values += [(Setter(variable), value) for variable, value in zip(held, (images, labels))]
        return held[0].read_value(), held[1].read_value()

    def _image_files(self, number: int) -> Tuple[Any, Any]:
        with tf.device(host(self._job)):
            iterator = v1.data.make_initializable_iterator(image_files(self._job, number))
            began = tf.timestamp()
            with tf.control_dependencies([began]):
                images, labels = iterator.get_next()
            with tf.control_dependencies([images, labels]):
                self.waited = tf.timestamp() - began
        self.initialisers.append(iterator.initializer)
        return images, labels


def sum_on_host(job: Job, towers: List[Tower]) -> Tensors:
    """The gradients of all towers added on this worker's host, so that one sum leaves it, however many devices it has."""
    if len(towers) == 1:
        return towers[0].gradients
    with tf.device(host(job)):
        return {name: tf.add_n([tower.gradients[name] for tower in towers]) for name in towers[0].gradients}


def device(job: Job, number: int) -> str:
    """TensorFlow's name of a device that this worker drives."""
    return f"/job:worker/task:{job.rank}/device:{'GPU' if job.spec['device'] == 'cuda' else 'CPU'}:{number}"


def host(job: Job) -> str:
    """TensorFlow's name of this worker's host."""
    return f"/job:worker/task:{job.rank}/device:CPU:0"

"""An emulated model in TensorFlow: operations that wait, in a graph or a traced function.

Only the process that runs it knows whose device it is: another one may have traced it.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Sequence, Tuple

import numpy as np
import tensorflow as tf

from harness.worker import calls
from harness.worker.emulation import Stream, TimedUnit, units
from harness.worker.job import Job


def build(job: Job, images: Any, tensor: Callable[[str], Any], *_: Any, **__: Any) -> Tuple[Any, Dict[str, Any]]:
    """Logits [N, classes] of zeros for N images, and no moving averages; see ``harness.models.tensorflow_layers.build``."""
    stream = Stream(job, time.time)  # the clock of tf.timestamp
    (factor,) = calls.call(lambda: np.float32(stream.gradient_factor), [], [tf.float32])
    factor.set_shape([])
    passed = tf.zeros([1, job.num_classes])
    for number, unit in enumerate(units(job)):
        first = [images] * (number == 0)  # a step begins when its batch is there
        passed = _layer(stream, unit, factor, first)(passed, *[tensor(name) for name in unit.tensors])
    return tf.broadcast_to(passed, [images.shape[0], job.num_classes]), {}


def _layer(stream: Stream, unit: TimedUnit, factor: Any, after: Sequence[Any]) -> Callable[..., Any]:
    """Waits for the tensors ``after``, its parameters, and its time. Gradients exist after its backward pass's time."""

    def wait(passed: Any, ready: Any, seconds: float) -> Any:
        def run(value: np.ndarray, since: np.ndarray) -> np.ndarray:
            stream.run(float(since), seconds)
            return value

        (waited,) = calls.call(run, [passed, ready], [tf.float32])
        waited.set_shape(passed.shape)
        return waited

    def layer(passed: Any, *weights: Any) -> Any:
        with tf.control_dependencies([*after, *weights]):
            ready = tf.timestamp()

        def gradient(upstream: Any) -> Any:
            waited = wait(upstream, tf.zeros([], tf.float64), unit.backward_s)
            with tf.control_dependencies([waited]):
                return (waited, *[weight * factor + factor for weight in weights])

        return wait(passed, ready, unit.forward_s), gradient

    return tf.custom_gradient(layer)

"""TensorFlow's share of every backend that trains with it: data, model, arithmetic. The exchange of gradients is theirs.

``loss`` and ``descend`` serve graphs and functions alike. ``Replica`` is one device's training as a tf.function needs it;
the parameter server backends build graphs of their own.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from harness import models
from harness.models.initial import initial_values
from harness.worker.clock import HostClock
from harness.worker.job import Job
from harness.worker.trainer import State

READ_AHEAD = 16  # batches that the input pipeline may be ahead of the training
Tensors = Dict[str, Any]
Lookup = Callable[[str], Any]


def prepare(job: Job) -> None:
    """Settings that must precede everything else. Raises RuntimeError without the GPU that was asked for."""
    if job.spec["device"] == "cuda" and not tf.config.list_physical_devices("GPU"):
        raise RuntimeError("--device cuda: this environment's TensorFlow sees no GPU")
    tf.config.experimental.enable_tensor_float_32_execution(job.spec["precision"] == "tf32")


def data_format(job: Job) -> str:
    """The layout of images that the device is fast with; weights and batches are canonical in either."""
    return "NCHW" if job.spec["device"] == "cuda" else "NHWC"


def loss(job: Job, images: Any, labels: Any, tensors: Tensors, statistics: Lookup) -> Tuple[Any, Tensors]:
    """The mean loss of a batch (float32, images in ``data_format``), and the moving averages to assign after the step.

    With mixed precision the network computes in bfloat16, as TensorFlow knows no autocast outside Keras.
    """
    if job.spec["precision"] == "amp":
        images = tf.cast(images, tf.bfloat16)
        tensors = {name: _computing(name, tensor) for name, tensor in tensors.items()}
    logits, new_statistics = models.definition(job.spec["model"], "tensorflow").logits(
        images, tensors.__getitem__, statistics, data_format=data_format(job)
    )
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)), new_statistics


def descend(variable: Any, gradient: Any, rate: float) -> Any:
    """One step of SGD, where the variable is."""
    return tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)


def synthetic(job: Job, device: int = 0) -> Tuple[np.ndarray, np.ndarray]:
    """A device's synthetic batch in ``data_format``."""
    images, labels = job.synthetic_batch(device)
    return (np.ascontiguousarray(images.transpose(0, 3, 1, 2)) if data_format(job) == "NCHW" else images), labels


def image_files(job: Job, device: int = 0) -> Any:
    """A device's batches of real images, as a tf.data.Dataset in ``data_format``."""
    from harness.inputs.tensorflow import dataset

    batches = dataset(**job.reading(device), threads=job.spec["data_threads"])
    if data_format(job) == "NHWC":
        return batches
    return batches.map(lambda images, labels: (tf.transpose(images, [0, 3, 1, 2]), labels))


def addresses_seen(job: Job, role: str, devices: Iterable[str]) -> List[str]:
    """Addresses of the processes of a role among TensorFlow's names of devices, by rank."""
    tasks = {int(name.split("/task:")[1].split("/")[0]) for name in devices if f"/job:{role}/" in name}
    processes = job.processes(role)
    return [f"{processes[task]['address']}:{processes[task]['port']}" for task in sorted(tasks)]


@contextmanager
def bad_images_named(job: Job) -> Iterator[None]:
    """TensorFlow's decoding errors do not say which file: find it, and raise BadImage instead."""
    try:
        yield
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.DataLossError):
        if job.real_data:
            from harness.inputs.tensorflow import find_bad_image

            spec = job.spec
            read_at_most = (spec["warmup_steps"] + spec["steps"] + READ_AHEAD) * spec["batch_size"]
            for device in range(job.devices):
                reading = job.reading(device)
                bad = find_bad_image(reading["index"], reading["rank"], reading["world"], spec["seed"], read_at_most)
                if bad is not None:
                    raise bad from None
        raise


def _computing(name: str, tensor: Any) -> Any:
    """A tensor as mixed precision computes with it: kernels in bfloat16, batch norm and biases in float32."""
    return tf.cast(tensor, tf.bfloat16) if name.endswith(".kernel") else tensor


class Replica:
    """One rank's model on one device, for training in a tf.function."""

    clock = HostClock()  # a step has ended, on every device, when its loss has been fetched

    def __init__(self, job: Job) -> None:
        spec = job.spec
        self._job = job
        self._specification = models.specification(spec["model"])
        self._losses: List[float] = []
        # The launcher makes only this rank's GPU visible, so its number is always 0.
        self.device = "GPU:0" if spec["device"] == "cuda" else "CPU:0"
        tf.random.set_seed(spec["seed"])
        values = initial_values(self._specification, spec["seed"])
        with tf.device(self.device):
            held = {name: tf.Variable(value, name=name.replace(".", "/")) for name, value in values.items()}
            if job.real_data:
                self._batches: Any = iter(image_files(job))
            else:
                # Variables, so that no step copies the batch and no pass over the graph folds it.
                self._resident = [tf.Variable(array, trainable=False) for array in synthetic(job)]
        self._tensors = {tensor.name: held[tensor.name] for tensor in self._specification.tensors}
        self._statistics = {tensor.name: held[tensor.name] for tensor in self._specification.statistics}

    @property
    def variables(self) -> List[Any]:
        """The trainable variables, in creation order."""
        return list(self._tensors.values())

    def loss(self) -> Any:
        """The loss of the next batch. To be called in a traced function, under a gradient tape."""
        images, labels = (
            self._batches.get_next() if self._job.real_data else (held.read_value() for held in self._resident)
        )
        tensors = {name: variable.read_value() for name, variable in self._tensors.items()}
        found, new_statistics = loss(self._job, images, labels, tensors, lambda n: self._statistics[n].read_value())
        for name, value in new_statistics.items():
            self._statistics[name].assign(value, read_value=False)
        return found

    def apply(self, gradients: Sequence[Any]) -> None:
        """One step of SGD with gradients in the order of ``variables``."""
        for variable, gradient in zip(self.variables, gradients):
            descend(variable, gradient, self._job.spec["learning_rate"])

    def run(self, step: Callable[[], Any]) -> None:
        """Run a traced step and wait for its loss, as a session of the graph-mode backends does."""
        with bad_images_named(self._job):
            self._losses.append(float(step()))

    def state(self, world_size: int, transport: str) -> State:
        """This rank's state, with what the backend knows of its world."""
        return State(
            parameters={name: variable.numpy() for name, variable in self._tensors.items()},
            losses=self._losses,
            updates=len(self._losses),
            world_size=world_size,
            transport=transport,
            device=self.device,
            details={"tensorflow": tf.__version__, "threads": self._job.spec["threads"]},
        )


def set_threads(job: Job) -> None:
    """Compute threads of a process that does not configure them by session. Before TensorFlow makes its first tensor."""
    tf.config.threading.set_intra_op_parallelism_threads(job.spec["threads"])
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)

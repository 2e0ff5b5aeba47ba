"""The common part of all trainers on TensorFlow: data, model, arithmetic. The exchange of gradients is the backends'.

``loss`` and ``descend`` serve graphs and functions alike. ``TensorFlowTrainer`` is the base of trainers whose step is a
tf.function on one device; the parameter server backends build graphs of their own.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple, TypeVar

import numpy as np
import tensorflow as tf

from harness.worker.checkpoint import velocity
from harness.worker.emulation import INTER_OP_THREADS, definition
from harness.worker.frameworks.base import DeviceTrainer, Sgd, require_tf32
from harness.worker.inputs.order import GROUP, ReadingOrder
from harness.worker.inputs.tensorflow import as_written, batches, find_bad_image
from harness.worker.job import Job
from harness.worker.notes import Notes
from harness.worker.trainer import Evaluation, State, evaluation

BATCHES_AHEAD, IMAGES_AHEAD = 16, 4 * GROUP  # that the input pipeline may be ahead of the training
Tensors = Dict[str, Any]
Lookup = Callable[[str], Any]
Key = TypeVar("Key")


def prepare(job: Job) -> None:
    """Settings that must precede everything else. Raises RuntimeError where the spec's GPU, or its TF32, is missing."""
    gpus = tf.config.list_physical_devices("GPU")
    if job.spec["device"] == "cuda" and not gpus:
        raise RuntimeError("--device cuda: this environment's TensorFlow sees no GPU: is there an NVIDIA driver?")
    if job.spec["device"] == "cuda" and len(gpus) < job.devices:
        raise RuntimeError(f"--device cuda: TensorFlow sees {len(gpus)} of its {job.devices} GPUs")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
        if job.spec["precision"] == "tf32":
            about = tf.config.experimental.get_device_details(gpu)
            require_tf32(about.get("device_name", gpu.name), about.get("compute_capability", (8, 0)))
    tf.config.experimental.enable_tensor_float_32_execution(job.spec["precision"] == "tf32")


def loss(job: Job, images: Any, labels: Any, tensors: Tensors, statistics: Lookup) -> Tuple[Any, Tensors]:
    """The mean loss of a batch (float32, images in ``job.data_format``), and the moving averages to assign after it."""
    outputs, new_statistics = logits(job, images, tensors, statistics)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)), new_statistics


def logits(
    job: Job, images: Any, tensors: Tensors, statistics: Lookup, *, training: bool = True
) -> Tuple[Any, Tensors]:
    """The float32 logits of a batch in ``job.data_format``, and the moving averages to assign (none when not training)."""
    if job.spec["precision"] == "amp":  # in bfloat16, without an autocast; batch norm and biases stay float32
        images = tf.cast(images, tf.bfloat16)
        tensors = {
            name: tf.cast(tensor, tf.bfloat16) if name.endswith(".kernel") else tensor
            for name, tensor in tensors.items()
        }
    build = definition(job, "tensorflow")
    return build(images, tensors.__getitem__, statistics, data_format=job.data_format, training=training)


def descend(sgd: Sgd, name: str, variable: Any, gradient: Any, rate: Any, speed: Any = None) -> Any:
    """One step of ``sgd`` with the tensor ``name``, where the variable is; with momentum ``speed`` holds its velocity."""
    if sgd.decay(name):
        gradient = gradient + sgd.decay(name) * variable.read_value()
    if speed is None:
        return tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
    return tf.raw_ops.ResourceApplyMomentum(
        var=variable.handle, accum=speed.handle, lr=rate, grad=gradient, momentum=sgd.momentum
    )


def synthetic(job: Job, device: int = 0) -> Tuple[np.ndarray, np.ndarray]:
    """A device's synthetic batch in ``job.data_format``."""
    images, labels = job.synthetic_batch(device)
    return (np.ascontiguousarray(images.transpose(0, 3, 1, 2)) if job.data_format == "NCHW" else images), labels


def image_files(job: Job, reading: ReadingOrder) -> Any:
    """Batches of real images, as a tf.data.Dataset in ``job.data_format``."""
    if job.data_format == "NHWC":
        return batches(reading)
    return batches(reading).map(as_written(lambda images, labels: (tf.transpose(images, [0, 3, 1, 2]), labels)))


def reads(variables: Mapping[Key, Any]) -> Dict[Key, Any]:
    return {name: variable.read_value() for name, variable in variables.items()}


def addresses_seen(job: Job, role: str, devices: Iterable[str]) -> List[str]:
    """Addresses of the processes of a role among TensorFlow's names of devices, by rank."""
    tasks = {int(name.split("/task:")[1].split("/")[0]) for name in devices if f"/job:{role}/" in name}
    addresses = job.addresses(role)
    return [addresses[task] for task in sorted(tasks)]


@contextmanager
def bad_images_named(job: Job, evaluating: bool = False) -> Iterator[None]:
    """TensorFlow's errors do not say which image: find it among those trained on or evaluated, and raise BadImage."""
    try:
        yield
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.DataLossError):
        for device in range(job.devices) if job.real_data else ():
            reading = job.evaluating() if evaluating else job.reading(device)
            # At most so many images may have been read; in a training to an accuracy, those of an epoch.
            steps = job.spec["warmup_steps"] + job.spec["steps"]
            trained = reading.longest_share if job.training else steps * reading.batch_size
            bad = find_bad_image(reading, trained + BATCHES_AHEAD * reading.batch_size + IMAGES_AHEAD)
            if bad is not None:
                raise bad from None
        raise


class TensorFlowTrainer(DeviceTrainer):
    """One rank on TensorFlow."""

    _step: Callable[..., Any]  # which ``setup`` traces

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # Compute threads, before TensorFlow makes its first tensor.
        tf.config.threading.set_intra_op_parallelism_threads(job.spec["threads"])
        if job.emulation:
            tf.config.threading.set_inter_op_parallelism_threads(INTER_OP_THREADS)
        prepare(job)

    def build(self) -> None:
        """Open the data, and make the model with its initial weights."""
        spec, job = self._job.spec, self._job
        # The launcher makes only this rank's GPU visible, so its number is always 0.
        self._device = "GPU:0" if spec["device"] == "cuda" else "CPU:0"
        tf.random.set_seed(spec["seed"])
        values = self._first_values()
        with tf.device(self._device):
            self._held = {name: tf.Variable(value, name=name.replace(".", "/")) for name, value in values.items()}
            # Taken outside the traced step, which then has nothing to wait for; what is resident comes from inside it.
            self._batches: Iterator[Any] = itertools.repeat(())
            if job.real_data:
                self._batches = self._timed(image_files(job, job.reading()))
            else:
                # Variables, so that no step copies the batch and no pass over the graph folds it.
                self._resident = [tf.Variable(array, trainable=False) for array in synthetic(job)]
            if job.training:  # a variable, as a traced step keeps the numbers that it saw
                self._rate = tf.Variable(self._sgd.rate, dtype=tf.float32, trainable=False)
        self._tensors = {tensor.name: self._held[tensor.name] for tensor in self._specification.tensors}
        self._statistics = {tensor.name: self._held[tensor.name] for tensor in self._specification.statistics}
        self._infer = tf.function(self._logits, autograph=False)

    def loss_on_tape(self, *batch: Any) -> Tuple[Any, Any, List[Any]]:
        """Traced: the loss of ``batch``, or of the resident one, its tape, and the trained variables in creation order."""
        variables, moving = list(self._tensors.values()), self._statistics
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            images, labels = batch or [held.read_value() for held in self._resident]
            mean, new = loss(self._job, images, labels, reads(self._tensors), lambda name: moving[name].read_value())
            for name, value in new.items():
                moving[name].assign(value, read_value=False)
        return mean, tape, variables

    def apply(self, gradients: Sequence[Any]) -> None:
        """One step of SGD with the gradients of all variables, in creation order."""
        rate = self._rate.read_value() if self._job.training else self._sgd.rate
        for (name, variable), gradient in zip(self._tensors.items(), gradients):
            descend(self._sgd, name, variable, gradient, rate, self._held.get(velocity(name)))

    def step(self) -> None:
        """Run the traced step on the next batch, or on nothing where the batch is resident, and wait for its loss."""
        with bad_images_named(self._job):
            self._losses.append(float(self._step(*next(self._batches))))

    def trace(self, notes: Notes) -> None:
        """Have TensorFlow's profiler tell of the layers, and of the gradients that are averaged."""
        from harness.worker.frameworks.tensorflow_stats import Profiler

        profiler = Profiler(notes, self.averaged(), with_layers=not self._job.emulation)
        self._step = profiler.around(self._step)

    def averaged(self) -> List[Tuple[str, int]]:
        """The names and the bytes of what is averaged, by the numbers of the operations that do so."""
        return [(tensor.name, tensor.bytes) for tensor in self._specification.tensors]

    def set_learning_rate(self, rate: float) -> None:
        self._rate.assign(rate)

    def evaluate(self) -> Evaluation:
        validation = image_files(self._job, self._job.evaluating())
        with bad_images_named(self._job, evaluating=True):
            return evaluation((self._infer(images).numpy(), labels.numpy()) for images, labels in validation)

    def values(self) -> Dict[str, np.ndarray]:
        return {name: variable.numpy() for name, variable in self._held.items()}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        for name, value in values.items():
            self._held[name].assign(value)

    def _logits(self, images: Any) -> Any:
        with tf.device(self._device):
            statistics = reads(self._statistics)
            return logits(self._job, images, reads(self._tensors), statistics.__getitem__, training=False)[0]

    def _state(self, world_size: int, transport: str, **details: Any) -> State:
        details.update(tensorflow=tf.__version__, threads=self._job.spec["threads"])
        return super()._state(world_size, transport, device=self._device, **details)

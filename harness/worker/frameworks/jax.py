"""The common part of all trainers on JAX: data, model, arithmetic, and the step as one compiled function.

It is what JAX's users write for data parallelism: ``jit`` of a ``shard_map`` over the devices of all processes. Each device
has its part of the batch and a copy of the parameters, and ``pmean`` averages the gradients. Batch-norm statistics are left
to each worker, as in every backend of the suite: without ``shard_map`` JAX would take those of the global batch.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tempfile
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from harness.worker.checkpoint import velocity
from harness.worker.emulation import INTER_OP_THREADS, definition
from harness.worker.frameworks.base import DeviceTrainer, require_tf32
from harness.worker.frameworks.profile import STEP, Operation, by_step, note_layers
from harness.worker.job import Job
from harness.worker.notes import REDUCE, Notes
from harness.worker.trainer import Evaluation, State, evaluation

PRECISIONS = {"fp32": "float32", "tf32": "tensorfloat32"}  # JAX's names, for products and convolutions on a GPU
# An instruction of a compiled program, and the operation of the model that it comes from.
NAMED = re.compile(r'%([\w.-]+) = .*metadata=\{op_name="([^"]+)"')
SUMS = "all-reduce"  # begins the names of instructions that add up gradients
WORKERS = "workers"  # the only axis of the mesh: one device of each process
Arrays = Dict[str, jax.Array]
Batch = Tuple[Any, Any]  # images float32 [N, H, W, 3] and labels int32 [N]


class JaxTrainer(DeviceTrainer):
    """One rank on JAX. ``_held`` has all arrays that training changes, by name."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # XLA reads them when it makes its threads. Layers of an emulated device hold one while they wait.
        threads = INTER_OP_THREADS if job.emulation else job.spec["threads"]
        os.environ["NPROC"] = os.environ["PJRT_NPROC"] = str(threads)
        jax.config.update("jax_platforms", "cuda" if self._cuda else "cpu")
        if self._cuda:  # by itself XLA takes TF32 for what is float32
            jax.config.update("jax_default_matmul_precision", PRECISIONS[job.spec["precision"]])
        else:
            jax.config.update("jax_num_cpu_devices", 1)
        self._read = self._inputs() if job.real_data else None

    def build(self) -> None:
        """Make the model with its first values, place what stays on the device, and compile the step.

        Raises RuntimeError where JAX has no GPU that it was told to take, or that has no TF32 where it is to compute in it.
        """
        try:
            devices = jax.devices()
        except (AssertionError, RuntimeError):  # what JAX raises, by what it lacks
            raise RuntimeError(
                "--device cuda: this environment's JAX sees no GPU: is there an NVIDIA driver?"
            ) from None
        if self._job.spec["precision"] == "tf32":
            major, minor = str(getattr(devices[0], "compute_capability", "8.0")).split(".")
            require_tf32(devices[0].device_kind, (int(major), int(minor)))
        self._model = definition(self._job, "jax")
        mesh = Mesh(np.array(devices), (WORKERS,))
        self._same, self._split = NamedSharding(mesh, P()), NamedSharding(mesh, P(WORKERS))
        values, statistics = self._first_values(), {tensor.name for tensor in self._specification.statistics}
        self._shardings = {name: self._split if name in statistics else self._same for name in values}
        self._held: Arrays = {}
        self.restore(values)
        self.set_learning_rate(self._sgd.rate)
        self._batches: Iterator[Batch] = map(self._placed, self._read) if self._read else self._resident()

        held = {name: sharding.spec for name, sharding in self._shardings.items()}
        shards = partial(jax.shard_map, mesh=mesh, check_vma=False)
        step = shards(self._train, in_specs=(held, P(WORKERS), P(WORKERS), P()), out_specs=(held, P(WORKERS)))
        # Compiled now, so that no step is longer because of it. A step's results take the place of what it was given.
        compiling = jax.jit(step, donate_argnums=0).lower(self._held, *self._shapes(), self._rate)
        self._step = compiling.compile()
        self._add = jax.jit(shards(partial(lax.psum, axis_name=WORKERS), in_specs=P(WORKERS), out_specs=P()))
        self._infer = jax.jit(
            lambda held, images: self._model(images, held.__getitem__, held.__getitem__, training=False)[0]
        )

    def step(self) -> None:
        """JAX's functions return before they have computed anything: a step has ended when its results are there."""
        self._held, loss = jax.block_until_ready(self._step(self._held, *next(self._batches), self._rate))
        self._losses.append(float(on_this(loss)[0]))

    def trace(self, notes: Notes) -> None:
        """Have JAX's profiler tell of the layers, and of the gradients, which XLA averages together."""
        folder, began, step = Path(tempfile.mkdtemp()), dict[int, float](), self._step
        jax.profiler.start_trace(str(folder))

        def marked(*arguments: Any) -> Any:
            with jax.profiler.TraceAnnotation(f"{STEP}{notes.step}"):
                began[notes.step] = notes.now()
                return jax.block_until_ready(step(*arguments))

        def end() -> None:
            jax.profiler.stop_trace()
            (file,) = folder.rglob("*.xplane.pb")
            planes = jax.profiler.ProfileData.from_file(str(file)).planes
            shutil.rmtree(folder)
            every = [event for plane in planes for line in plane.lines for event in line.events]
            names = {name: of for name, of in NAMED.findall(step.as_text()) if not name.startswith(SUMS)}
            operations = [
                Operation(
                    names.get(each.name, each.name), each.start_ns / 1e9, (each.start_ns + each.duration_ns) / 1e9
                )
                for each in every
                if not each.name.startswith("end: ")
            ]
            gradients = " ".join(tensor.name for tensor in self._specification.tensors)
            size = sum(tensor.bytes for tensor in self._specification.tensors)
            for number, of_step in groupby(by_step(operations, began), key=itemgetter(0)):
                done = [operation for _, operation in of_step]
                if not self._job.emulation:
                    note_layers(notes, done, number)
                for each in done:
                    if each.name.startswith(SUMS):
                        notes.note(REDUCE, gradients, each.begin, each.end, size=size, step=number)

        self._step = marked
        notes.later(end)

    def set_learning_rate(self, rate: float) -> None:
        self._rate = self._put(np.array(rate, np.float32), self._same)

    def total(self, numbers: Sequence[float]) -> List[float]:
        return on_this(self._add(self._put(np.array([numbers], np.float32), self._split)))[0].tolist()

    def evaluate(self) -> Evaluation:
        held = {name: array.addressable_data(0) for name, array in self._held.items()}
        validation = self._inputs(evaluating=True)
        return evaluation((np.asarray(self._infer(held, images)), labels) for images, labels in validation)

    def values(self) -> Dict[str, np.ndarray]:
        return {name: on_this(array) for name, array in self._held.items()}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        self._held.update({name: self._put(value, self._shardings[name]) for name, value in values.items()})

    def _train(self, held: Arrays, images: Any, labels: Any, rate: jax.Array) -> Tuple[Arrays, jax.Array]:
        """A step on one device's part of the batch: what is held after it, and the loss [1]."""

        def loss_of(tensors: Arrays) -> Tuple[jax.Array, Arrays]:
            logits, moved = self._model(images, tensors.__getitem__, held.__getitem__)
            return cross_entropy(logits, labels), moved

        tensors = {tensor.name: held[tensor.name] for tensor in self._specification.tensors}
        (loss, moved), gradients = jax.value_and_grad(loss_of, has_aux=True)(tensors)
        after = {**held, **moved}
        for name, change in lax.pmean(gradients, WORKERS).items():
            if decay := self._sgd.decay(name):
                change = change + decay * held[name]
            if self._sgd.momentum:
                change = after[velocity(name)] = self._sgd.momentum * held[velocity(name)] + change
            after[name] = held[name] - rate * change
        return after, loss[None]

    def _put(self, value: np.ndarray, sharding: NamedSharding) -> jax.Array:
        """A global array of which ``value`` is this process's part, or, if it is the same everywhere, all."""
        shape = value.shape
        if sharding is self._split:
            shape = (len(jax.devices()) * shape[0], *shape[1:])
        (device,) = jax.local_devices()
        return jax.make_array_from_single_device_arrays(shape, sharding, [jax.device_put(value, device)])

    def _placed(self, batch: Batch) -> Batch:
        images, labels = batch
        return self._put(images, self._split), self._put(labels, self._split)

    def _resident(self) -> Iterator[Batch]:
        images, labels = self._job.synthetic_batch()
        return itertools.repeat(self._placed((images, labels.astype(np.int32))))

    def _shapes(self) -> Batch:
        """The shapes of a batch of all workers."""
        count, size = self._job.batch_shape
        images = (count * len(jax.devices()), size, size, 3)
        return (
            jax.ShapeDtypeStruct(images, np.float32, sharding=self._split),
            jax.ShapeDtypeStruct(images[:1], np.int32, sharding=self._split),
        )

    def _inputs(self, evaluating: bool = False) -> Iterator[Batch]:
        """JAX reads no images: its users take PyTorch's DataLoader, and so does this environment."""
        from harness.worker.inputs.torch import batches

        stream = batches(self._job.evaluating()) if evaluating else self._timed(batches(self._job.reading()))
        return ((images.permute(0, 2, 3, 1).numpy(), labels.int().numpy()) for images, labels in stream)

    def _state(self, world_size: int, transport: str, **details: Any) -> State:
        details.update(jax=jax.__version__, threads=self._job.spec["threads"])
        (device,) = jax.local_devices()
        if self._cuda:
            # Some of XLA's allocators, which a variable chooses, count nothing.
            details["peak_memory_bytes"] = (device.memory_stats() or {}).get("peak_bytes_in_use")
        return super()._state(world_size, transport, device=device.device_kind, **details)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean over a batch: logits [N, classes], labels int [N]."""
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))


def on_this(array: jax.Array) -> np.ndarray:
    """The part of an array on the device of this process."""
    return np.array(array.addressable_data(0))  # a copy: the next step takes the memory of what is held

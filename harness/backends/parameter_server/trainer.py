"""TensorFlow parameter servers, beside the framework: between-graph replication on the graph-mode distributed runtime.

Each worker builds the whole graph: it pulls every variable from its server once per step, computes, and pushes gradients.
What happens with the gradients is the meaning of ``--sync``:

- ``accumulate``: each server sums the workers' gradients of a variable and applies their mean once all have arrived, while
  other gradients are still under way. A worker starts its next step when every variable is updated. No worker can see a
  variable of the wrong step: a gradient exists only after its worker has read all variables, so an update that waits for
  all workers' gradients comes after all their reads.
- ``barrier``: each worker applies its own gradient, scaled by 1/workers, then meets the others. A slow worker may read
  variables that fast ones have already updated. This is what tf_cnn_benchmarks did in 2017 (which did not scale).
- ``none``: as ``barrier``, without meeting.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from harness import models
from harness.backends.parameter_server.cluster import (
    Gate,
    on_server,
    serve_until_released,
    start_server,
    token_queues,
    worker_session,
)
from harness.models.initial import initial_values
from harness.worker.clock import HostClock
from harness.worker.job import Job
from harness.worker.trainer import State

v1 = tf.compat.v1
Piece = Tuple[str, int]  # a tensor's name and the first of its elements that the piece holds
READ_AHEAD = 16  # batches that the input pipeline may be ahead of the training
NEVER_STALE = np.iinfo(np.int64).max  # accumulators drop gradients older than this step count; ours never are


def create(job: Job) -> ParameterServerTrainer:
    """The trainer of one worker."""
    return ParameterServerTrainer(job)


def serve(job: Job, ready: Callable[[], None]) -> None:
    """Be a parameter server."""
    serve_until_released(job, ready)


class ParameterServerTrainer:
    """One worker: a graph, a session with all servers, one device."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._specification = models.specification(job.spec["model"])
        device = "GPU" if job.spec["device"] == "cuda" else "CPU"
        self._device = f"/job:worker/task:{job.rank}/device:{device}:0"
        self._data_format = "NCHW" if device == "GPU" else "NHWC"
        self._world_size = 0
        self.clock = HostClock()  # session.run returns when the step has ended, on every device

    def setup(self) -> None:
        """Start the server, build the graph, initialise (worker 0: the variables on the servers) and meet the others."""
        job = self._job
        if job.spec["device"] == "cuda" and not tf.config.list_physical_devices("GPU"):
            raise RuntimeError("--device cuda: this environment's TensorFlow sees no GPU")
        tf.config.experimental.enable_tensor_float_32_execution(job.spec["precision"] == "tf32")
        server = start_server(job)
        with tf.Graph().as_default() as graph:
            v1.set_random_seed(job.spec["seed"])
            self._build()
        graph.finalize()
        self._session = worker_session(job, server, graph)
        self._session.run(self._initialise_local)
        _assign_all(self._session, self._initial_inputs)
        if job.rank == 0:
            self._session.run(self._initialise_servers)
            _assign_all(self._session, self._initial_pieces)
        self.barrier()
        self._train = self._session.make_callable([self._loss_tensor, self._step_op])

    def step(self) -> None:
        """Pull, compute, push, and (synchronous modes) wait for the updated variables."""
        try:
            self._loss, _ = self._train()
        except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, tf.errors.DataLossError):
            self._name_bad_image()
            raise

    def synchronize(self) -> None:
        """Nothing to wait for: a step has ended when ``step`` returns."""

    def barrier(self) -> None:
        """Wait for all workers, through parameter server 0."""
        self._world_size = self._gate.wait(self._session)

    def state(self) -> State:
        """The parameters as they are on the servers, and the number of updates counted there."""
        pieces, updates = self._session.run([self._reads, self._updates])
        parameters = {
            tensor.name: np.concatenate(
                [p.reshape(-1) for (name, _), p in pieces.items() if name == tensor.name]
            ).reshape(tensor.shape)
            for tensor in self._specification.tensors
        }
        return State(
            parameters=parameters,
            loss=float(self._loss),
            updates=int(updates),
            world_size=self._world_size,
            transport="grpc to " + ", ".join(sorted(self._servers_seen())),
            device=self._device,
            details={"tensorflow": tf.__version__},
        )

    def close(self) -> None:
        """Release the parameter servers."""
        self._gate.leave(self._session)

    # --- the graph -----------------------------------------------------------------------------------------------

    def _build(self) -> None:
        spec = self._job.spec
        self._initialise_local: List[Any] = []
        self._pieces = self._server_variables()
        with on_server(0):
            updates = _variable("updates", (), tf.int64)
        with tf.device(self._device):
            # Read once: the runtime then moves each variable to this worker once per step.
            reads = {key: variable.read_value() for key, variable in self._pieces.items()}
            whole = {
                tensor.name: _join([read for (name, _), read in reads.items() if name == tensor.name], tensor.shape)
                for tensor in self._specification.tensors
            }
            statistics = {
                tensor.name: _variable(tensor.name, tensor.shape, initial=tensor.initial)
                for tensor in self._specification.statistics
            }
            images, labels = self._inputs()
            if spec["precision"] == "amp":
                images = tf.cast(images, tf.bfloat16)
                whole = {name: _computing(name, tensor) for name, tensor in whole.items()}
            logits, new_statistics = models.definition(spec["model"], "tensorflow").logits(
                images, whole.__getitem__, lambda name: statistics[name].read_value(), data_format=self._data_format
            )
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
            gradients = dict(zip(reads, v1.gradients(loss, list(reads.values()))))
            local = [statistics[name].assign(value, read_value=False) for name, value in new_statistics.items()]

        self._step_op = tf.group(self._update(gradients, updates), *local)
        self._loss_tensor = loss
        self._reads = {key: variable.read_value() for key, variable in self._pieces.items()}
        self._updates = updates.read_value()
        self._gate = Gate(self._job)
        self._initialise_local += [statistics[t.name].initializer for t in self._specification.statistics]
        self._initialise_servers = [updates.initializer]
        self._initial_pieces = self._prepare_initial_pieces() if self._job.rank == 0 else []

    def _server_variables(self) -> Dict[Piece, Any]:
        """A variable for each piece of the plan, on its server; whole tensors keep their shape, slices are flat."""
        tensors = {tensor.name: tensor for tensor in self._specification.tensors}
        variables = {}
        for name, ps, begin, end in self._job.plan["details"]["pieces"]:
            tensor = tensors[name]
            shape = tensor.shape if end - begin == tensor.elements else (end - begin,)
            with on_server(ps):
                variables[name, begin] = _variable(f"{name}/{begin}", shape)
        return variables

    def _update(self, gradients: Dict[Piece, Any], updates: Any) -> Any:
        """What one step does with the gradients, by ``--sync``."""
        rate = self._job.spec["learning_rate"] / self._job.world_size
        mode = self._job.spec["options"]["sync"]
        if mode == "accumulate" and self._job.world_size > 1:
            return self._accumulate(gradients, rate, updates)
        applied = self._apply_own(gradients, rate, updates)
        return self._meet(applied) if mode == "barrier" else applied

    def _accumulate(self, gradients: Dict[Piece, Any], rate: float, updates: Any) -> Any:
        """Sum on the servers; worker 0 lets them apply each sum once it is complete, and then lets everyone go on."""
        job = self._job
        pushes, applied = [], []
        for key, gradient in gradients.items():
            variable = self._pieces[key]
            with v1.colocate_with(variable.handle):
                accumulator = v1.ConditionalAccumulator(
                    tf.float32, shape=variable.shape, shared_name=variable.op.name + "/sum", reduction_type="SUM"
                )
                pushes.append(accumulator.apply_grad(gradient, local_step=NEVER_STALE))
                if job.rank == 0:
                    applied.append(_descend(variable, accumulator.take_grad(job.world_size), rate))
        # A queue of its own per worker: from a common one a fast worker could take a slow one's permission.
        go_on = token_queues(job, "go_on", list(range(job.world_size)) if job.rank == 0 else [job.rank])
        released = []
        if job.rank == 0:
            with tf.control_dependencies([tf.group(*applied)]), on_server(0):
                released.append(updates.assign_add(1, read_value=False))
                released.extend(queue.enqueue(True) for queue in go_on)
        with tf.control_dependencies(pushes):
            proceed = go_on[0].dequeue()
        return tf.group(proceed, *released)

    def _apply_own(self, gradients: Dict[Piece, Any], rate: float, updates: Any) -> Any:
        applied = []
        for key, gradient in gradients.items():
            with v1.colocate_with(self._pieces[key].handle):
                applied.append(_descend(self._pieces[key], gradient, rate))
        with tf.control_dependencies([tf.group(*applied)]), on_server(0):
            return updates.assign_add(1, read_value=False)

    def _meet(self, after: Any) -> Any:
        """The barrier of 2017: each worker gives every other one a token, then takes all of its own."""
        job = self._job
        if job.world_size == 1:
            return after
        queues = token_queues(job, "barrier", list(range(job.world_size)))
        with tf.control_dependencies([after]), on_server(0):
            given = [queue.enqueue(True) for rank, queue in enumerate(queues) if rank != job.rank]
        with tf.control_dependencies(given):
            return queues[job.rank].dequeue_many(job.world_size - 1)

    # --- inputs --------------------------------------------------------------------------------------------------

    def _inputs(self) -> Tuple[Any, Any]:
        """Images in the device's layout, and labels. Fills ``_initial_inputs``."""
        return self._image_files() if self._job.real_data else self._synthetic()

    def _synthetic(self) -> Tuple[Any, Any]:
        """One batch, resident on the device: variables, so that no step copies it and no graph pass folds it."""
        images, labels = self._job.synthetic_batch()
        if self._data_format == "NCHW":
            images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        self._initial_inputs = [
            _Assignment(_variable("synthetic/images", images.shape), images),
            _Assignment(_variable("synthetic/labels", labels.shape, tf.int64), labels),
        ]
        images_read, labels_read = (assignment.variable.read_value() for assignment in self._initial_inputs)
        return images_read, labels_read

    def _image_files(self) -> Tuple[Any, Any]:
        from harness.inputs.tensorflow import dataset

        with tf.device(f"/job:worker/task:{self._job.rank}/device:CPU:0"):
            batches = dataset(**self._job.reading(), threads=self._job.spec["data_threads"])
            iterator = v1.data.make_initializable_iterator(batches)
            images, labels = iterator.get_next()
        self._initial_inputs = []
        self._initialise_local.append(iterator.initializer)
        return (tf.transpose(images, [0, 3, 1, 2]) if self._data_format == "NCHW" else images), labels

    def _name_bad_image(self) -> None:
        """TensorFlow's decoding errors do not say which file; find it and say so."""
        if self._job.real_data:
            from harness.inputs import index
            from harness.inputs.tensorflow import find_bad_image

            images = index.read(self._job.image_index)
            spec = self._job.spec
            read_at_most = (spec["warmup_steps"] + spec["steps"] + READ_AHEAD) * spec["batch_size"]
            bad = find_bad_image(images, self._job.rank, self._job.world_size, spec["seed"], read_at_most)
            if bad is not None:
                raise bad from None

    # --- values --------------------------------------------------------------------------------------------------

    def _prepare_initial_pieces(self) -> List[_Assignment]:
        """The one initialisation of all frameworks, cut as the servers hold it."""
        values = initial_values(self._specification, self._job.spec["seed"])
        assignments = []
        for name, _, begin, end in self._job.plan["details"]["pieces"]:
            variable = self._pieces[name, begin]
            assignments.append(_Assignment(variable, values[name].reshape(-1)[begin:end].reshape(variable.shape)))
        return assignments

    def _servers_seen(self) -> List[str]:
        """Addresses of the parameter servers whose devices this session reaches, as the runtime lists them."""
        tasks = {
            int(device.name.split("/task:")[1].split("/")[0])
            for device in self._session.list_devices()
            if "/job:ps/" in device.name
        }
        servers = self._job.processes("ps")
        return [f"{servers[task]['address']}:{servers[task]['port']}" for task in sorted(tasks)]


class _Assignment:
    """A variable and the NumPy value it starts with, fed rather than baked into the graph."""

    def __init__(self, variable: Any, value: np.ndarray) -> None:
        self.variable, self.value = variable, value
        with v1.colocate_with(variable.handle):
            self.placeholder = v1.placeholder(variable.dtype, variable.shape)
            self.op = variable.assign(self.placeholder, read_value=False)


def _assign_all(session: Any, assignments: List[_Assignment]) -> None:
    session.run(
        [assignment.op for assignment in assignments],
        {assignment.placeholder: assignment.value for assignment in assignments},
    )


def _variable(name: str, shape: Any, dtype: tf.DType = tf.float32, initial: str = "zeros") -> Any:
    """A resource variable on the current device; the same name on a server is the same variable in every worker."""
    initializer = {"zeros": v1.zeros_initializer(), "ones": v1.ones_initializer()}[initial]
    return v1.get_variable(
        name.replace(".", "/"), shape, dtype, initializer=initializer, use_resource=True, trainable=False
    )


def _computing(name: str, tensor: Any) -> Any:
    """A tensor as mixed precision computes with it: kernels in bfloat16, batch norm and biases in float32."""
    return tf.cast(tensor, tf.bfloat16) if name.endswith(".kernel") else tensor


def _descend(variable: Any, gradient: Any, rate: float) -> Any:
    """One step of SGD, where the variable is."""
    return tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)


def _join(slices: List[Any], shape: Any) -> Any:
    """A tensor from the pieces its servers hold."""
    return slices[0] if len(slices) == 1 else tf.reshape(tf.concat([tf.reshape(s, [-1]) for s in slices], 0), shape)

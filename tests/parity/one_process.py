"""Run inside a framework's environment: one process that averages the gradients of N workers' batches, then applies them.

This is what synchronous data-parallel SGD means. ``one_process.py FRAMEWORK MODEL WORKERS BATCH IMAGE_SIZE STEPS RATE OUT``
writes the parameters after STEPS steps, in the canonical layout, to the file OUT, and the loss of every step and batch as
``losses``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from harness import models
from harness.models.initial import initial_values
from harness.worker.job import synthetic_batch

SEED = 1


def torch_gradients(model: str, batches: list[Any]) -> Any:
    """A function from parameters to each batch's loss and gradients; batch norm uses each batch's own statistics."""
    import torch
    from torch.nn.functional import cross_entropy

    from harness.models import torch_layers

    torch.set_num_threads(1)
    specification = models.specification(model)
    module = models.definition(model, "torch")().to(memory_format=torch.channels_last).train()

    def gradients(parameters: dict[str, np.ndarray]) -> Any:
        torch_layers.load(module, specification, parameters)
        for images, labels in batches:
            module.zero_grad()
            nchw = torch.from_numpy(images).permute(0, 3, 1, 2)
            loss = cross_entropy(module(nchw), torch.from_numpy(labels))
            loss.backward()
            trained = torch_layers.trained(module, specification).items()
            yield float(loss), {name: torch_layers.canonical_copy(held.grad) for name, held in trained}

    return gradients


def tensorflow_gradients(model: str, batches: list[Any]) -> Any:
    """The same in TensorFlow."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    specification = models.specification(model)

    @tf.function
    def one(values: dict[str, Any], images: Any, labels: Any) -> Any:
        logits, _ = models.definition(model, "tensorflow")(images, values.__getitem__, values.__getitem__)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        names = [tensor.name for tensor in specification.tensors]
        return loss, dict(zip(names, tf.gradients(loss, [values[name] for name in names]), strict=True))

    def gradients(parameters: dict[str, np.ndarray]) -> Any:
        tensors = {name: tf.constant(value) for name, value in parameters.items()}
        for images, labels in batches:
            loss, found = one(tensors, tf.constant(images), tf.constant(labels))
            yield float(loss), {name: gradient.numpy() for name, gradient in found.items()}

    return gradients


def caffe2_gradients(model: str, batches: list[Any]) -> Any:
    """The same in Caffe2, on IDEEP."""
    from caffe2.python import core, workspace

    from harness.models import caffe2_layers
    from harness.models.caffe2_layers import ImageBlob
    from harness.models.initial import canonical

    workspace.GlobalInit(["one_process", "--caffe2_log_level=3"])
    specification = models.specification(model)
    size = batches[0][0].shape[1]
    net = core.Net("training")
    with core.DeviceScope(caffe2_layers.IDEEP):
        logits = models.definition(model, "caffe2")(
            net,
            ImageBlob(core.BlobReference("images"), size, size),
            lambda name: caffe2_layers.on_ideep(net, name),
            core.BlobReference,
        )
        _, loss = net.SoftmaxWithLoss([logits, "labels"], ["softmax", "loss"])
        blobs = net.AddGradientOperators([loss])
    statistics = {tensor.name: np.zeros(tensor.shape, np.float32) for tensor in specification.statistics}  # not used

    def gradients(parameters: dict[str, np.ndarray]) -> Any:
        caffe2_layers.feed(specification, {**statistics, **parameters})
        for images, labels in batches:
            workspace.FeedBlob("images", np.ascontiguousarray(images.transpose(0, 3, 1, 2)), caffe2_layers.IDEEP)
            workspace.FeedBlob("labels", labels.astype(np.int32), caffe2_layers.HOST)
            workspace.RunNetOnce(net)
            found = {tensor.name: workspace.FetchBlob(blobs[tensor.name]) for tensor in specification.tensors}
            yield float(workspace.FetchBlob(loss)), {name: canonical(value) for name, value in found.items()}

    return gradients


def jax_gradients(model: str, batches: list[Any]) -> Any:
    """The same in JAX."""
    os.environ["NPROC"] = "1"
    import jax

    from harness.worker.frameworks.jax import cross_entropy

    jax.config.update("jax_platforms", "cpu")
    definition, names = models.definition(model, "jax"), [tensor.name for tensor in models.specification(model).tensors]

    @jax.jit
    def one(values: dict[str, Any], images: Any, labels: Any) -> Any:
        def loss(tensors: dict[str, Any]) -> Any:
            return cross_entropy(definition(images, tensors.__getitem__, values.__getitem__)[0], labels)

        return jax.value_and_grad(loss)({name: values[name] for name in names})

    def gradients(parameters: dict[str, np.ndarray]) -> Any:
        for images, labels in batches:
            loss, found = one(parameters, images, labels)
            yield float(loss), {name: np.asarray(gradient) for name, gradient in found.items()}

    return gradients


GRADIENTS = {
    "torch": torch_gradients,
    "tensorflow": tensorflow_gradients,
    "caffe2": caffe2_gradients,
    "jax": jax_gradients,
}


def main(framework: str, model: str, workers: int, batch: int, size: int, steps: int, rate: float, out: str) -> None:
    specification = models.specification(model)
    batches = [synthetic_batch(SEED, rank, batch, size, specification.num_classes) for rank in range(workers)]
    gradients = GRADIENTS[framework](model, batches)
    parameters = initial_values(specification, SEED)
    losses = []
    for _ in range(steps):
        of_batches, per_worker = zip(*gradients(parameters))  # noqa: B905 (Python 3.9)
        losses.append(of_batches)
        for name in per_worker[0]:
            mean = np.mean([worker[name] for worker in per_worker], axis=0, dtype=np.float64)
            parameters[name] = (parameters[name] - rate * mean).astype(np.float32)
    np.savez(out, losses=losses, **{tensor.name: parameters[tensor.name] for tensor in specification.tensors})


if __name__ == "__main__":
    framework, model, workers, batch, size, steps, rate, out = sys.argv[1:]
    main(framework, model, int(workers), int(batch), int(size), int(steps), float(rate), out)

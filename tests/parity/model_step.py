"""One training step of one model within one framework's environment; what came of it goes to an .npz file.

    python model_step.py torch|tensorflow|caffe2|jax MODEL INPUT.npz OUTPUT.npz

Input: `images` (float32 NHWC), `labels` (int64), and under `value/NAME` every tensor and statistic in canonical layout.
Output:
  logits, loss, moved/NAME   of the training step in float32; the loss is the mean cross entropy, `moved` are statistics
  gradient/NAME              of the same step in float64 (Caffe2: float32)
  evaluated, nchw            logits in float32, normalised by the statistics of the input; `nchw` if a framework has it
  order                      names of the trained tensors, in the order in which the definition makes them
  layer/NAME                 gradients of one layer, in float32

Why float64: a gradient jumps where an activation passes zero or two pixels of a maximum tie. The last digits of float32
move a few of millions across, and a single one changes gradients by percents: PyTorch in float32 differs from PyTorch in
float64 by 2–20 % of a tensor's largest gradient. TensorFlow's fused batch norm has no float64 and is spelled out for
that step, so its own gradient is compared on one layer without ReLU, in float32.
"""

from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from harness import models
from harness.models.initial import canonical, initial_values
from harness.models.layers import BatchNorm, Convolution, ModelSpecification

Arrays = dict[str, np.ndarray]
LAYER = Convolution("unit", 3, 16, (3, 3), stride=2, relu=False)


def torch_step(name: str, images: np.ndarray, labels: np.ndarray, values: Arrays) -> Arrays:
    """As the PyTorch backend runs it: channels last."""
    import torch

    from harness.models import torch_layers
    from harness.models.torch_layers import ConvolutionUnit

    specification = models.specification(name)
    module = models.definition(name, "torch")().to(memory_format=torch.channels_last)
    batch = torch.from_numpy(images).permute(0, 3, 1, 2)
    assert batch.is_contiguous(memory_format=torch.channels_last)

    def loss_of(logits: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels))

    torch_layers.load(module, specification, values)
    with torch.no_grad():
        evaluated = module.eval()(batch)
        nchw = module.to(memory_format=torch.contiguous_format)(batch.contiguous())
        logits = module.to(memory_format=torch.channels_last).train()(batch)
    held = torch_layers.held(module, specification)
    after = {name: torch_layers.canonical_copy(tensor) for name, tensor in held.items()}
    assert all(np.array_equal(after[tensor.name], values[tensor.name]) for tensor in specification.tensors)

    module.double()
    loss_of(module(batch.double())).backward()

    layer, norm = layer_specification(name)
    unit = torch.nn.ModuleDict({LAYER.name: ConvolutionUnit(LAYER, norm)}).to(memory_format=torch.channels_last)
    torch_layers.load(unit, layer, initial_values(layer, seed=2))
    output = unit[LAYER.name](batch).permute(0, 2, 3, 1)
    output.mul(torch.from_numpy(directions(output.shape))).sum().backward()

    def gradients(of: torch.nn.Module, by: ModelSpecification) -> Arrays:
        trained = torch_layers.trained(of, by).items()
        return {tensor: torch_layers.canonical_copy(held.grad) for tensor, held in trained}

    canonical = {torch_layers.torch_name(tensor.name): tensor.name for tensor in specification.tensors}
    return {
        "logits": logits.numpy(),
        "loss": loss_of(logits).numpy(),
        "evaluated": evaluated.numpy(),
        "nchw": nchw.numpy(),
        "order": np.array([canonical[key] for key, held in module.named_parameters() if held.requires_grad]),
        **prefixed("gradient", gradients(module, specification)),
        **prefixed("moved", {tensor.name: after[tensor.name] for tensor in specification.statistics}),
        **prefixed("layer", gradients(unit, layer)),
    }


def tensorflow_step(name: str, images: np.ndarray, labels: np.ndarray, values: Arrays) -> Arrays:
    """The training step in graph mode, evaluation and the layer eagerly."""
    import tensorflow as tf

    from harness.models.tensorflow_layers import TensorFlowLayers

    specification, definition = models.specification(name), models.definition(name, "tensorflow")
    trained = [tensor.name for tensor in specification.tensors]
    constants = {key: tf.constant(value) for key, value in values.items()}
    evaluated, unmoved = definition(tf.constant(images), constants.get, constants.get, training=False)
    assert not unmoved
    compiled = tf.function(partial(definition, data_format="NCHW", training=False))  # only graphs have it on CPUs
    nchw, _ = compiled(tf.constant(images.transpose(0, 3, 1, 2)), constants.get, constants.get)

    def loss_of(logits: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def float64_batch_norm(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, epsilon: float, **_: Any) -> tuple:
        mean, variance = tf.nn.moments(x, [0, 1, 2])
        scale, offset = tf.cast(scale, x.dtype), tf.cast(offset, x.dtype)
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, epsilon), mean, variance

    order = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        single = {key: tf.compat.v1.placeholder(tf.float32, value.shape) for key, value in values.items()}
        double = {key: tf.cast(value, tf.float64) for key, value in single.items()}
        tensor = lambda key: order.append(key) or single[key]  # noqa: E731
        logits, moved = definition(tf.constant(images), tensor, single.get)
        with mock.patch.object(tf.compat.v1.nn, "fused_batch_norm", float64_batch_norm):
            precise, _ = definition(tf.constant(images, tf.float64), double.get, double.get)
        gradients = tf.gradients(loss_of(precise), [double[key] for key in trained])
        wanted = {
            "logits": logits,
            "loss": loss_of(logits),
            **prefixed("gradient", dict(zip(trained, gradients))),  # noqa: B905 (Python 3.9)
            **prefixed("moved", moved),
        }
        found: Arrays = session.run(wanted, {single[key]: value for key, value in values.items()})

    layer, norm = layer_specification(name)
    held = {key: tf.constant(value) for key, value in initial_values(layer, seed=2).items()}
    with tf.GradientTape() as tape:
        tape.watch(held)
        output = TensorFlowLayers(held.get, held.get, norm, "NHWC", training=True).convolution(
            tf.constant(images), LAYER
        )
        loss = tf.reduce_sum(output * directions(output.shape))
    of_layer = tape.gradient(loss, {tensor.name: held[tensor.name] for tensor in layer.tensors})
    found |= {"evaluated": evaluated.numpy(), "nchw": nchw.numpy()}
    return {**found, "order": np.array(order), **prefixed("layer", of_layer)}


def caffe2_step(name: str, images: np.ndarray, labels: np.ndarray, values: Arrays) -> Arrays:
    """As the Caffe2 backend runs it: on IDEEP. Its kernels know float32 only, so the gradients are float32 as well."""
    from caffe2.python import core, workspace

    from harness.models import caffe2_layers
    from harness.models.caffe2_layers import Caffe2Layers, ImageBlob

    workspace.GlobalInit(["model_step", "--caffe2_log_level=3"])
    specification, definition = models.specification(name), models.definition(name, "caffe2")
    workspace.FeedBlob("images", np.ascontiguousarray(images.transpose(0, 3, 1, 2)), caffe2_layers.IDEEP)
    workspace.FeedBlob("labels", labels.astype(np.int32), caffe2_layers.HOST)
    batch = ImageBlob(core.BlobReference("images"), *images.shape[1:3])
    order: list[str] = []

    def built(net: Any, training: bool) -> Any:
        order.clear()
        tensor = lambda key: order.append(key) or caffe2_layers.on_ideep(net, key)  # noqa: E731
        return definition(net, batch, tensor, core.BlobReference, training=training)

    def gradients(of: ModelSpecification, blobs: Any) -> Arrays:
        return {tensor.name: canonical(workspace.FetchBlob(blobs[tensor.name])) for tensor in of.tensors}

    caffe2_layers.feed(specification, values)
    found: Arrays = {}
    evaluation, training = core.Net("evaluation"), core.Net("training")
    with core.DeviceScope(caffe2_layers.IDEEP):
        logits = built(evaluation, training=False)
        workspace.RunNetOnce(evaluation)
        found["evaluated"] = workspace.FetchBlob(logits)
        logits = built(training, training=True)
        _, loss = training.SoftmaxWithLoss([logits, "labels"], ["softmax", "loss"])
        blobs = training.AddGradientOperators([loss])
    workspace.RunNetOnce(training)
    after = caffe2_layers.fetch(specification)
    assert all(np.array_equal(after[tensor.name], values[tensor.name]) for tensor in specification.tensors)
    found.update(logits=workspace.FetchBlob(logits), loss=workspace.FetchBlob(loss), order=np.array(order))
    found.update(prefixed("gradient", gradients(specification, blobs)))

    layer, norm = layer_specification(name)
    caffe2_layers.feed(layer, initial_values(layer, seed=2))
    net = core.Net("layer")
    with core.DeviceScope(caffe2_layers.IDEEP):
        layers = Caffe2Layers(net, partial(caffe2_layers.on_ideep, net), core.BlobReference, norm, training=True)
        output = layers.convolution(batch, LAYER)
        towards = directions((len(images), output.height, output.width, LAYER.outputs)).transpose(0, 3, 1, 2)
        workspace.FeedBlob("directions", np.ascontiguousarray(towards), caffe2_layers.IDEEP)
        blobs = net.AddGradientOperators({output.blob: net.AddExternalInput("directions")})
    workspace.RunNetOnce(net)
    return {
        **found,
        **prefixed("moved", {tensor.name: after[tensor.name] for tensor in specification.statistics}),
        **prefixed("layer", gradients(layer, blobs)),
    }


def jax_step(name: str, images: np.ndarray, labels: np.ndarray, values: Arrays) -> Arrays:
    """Compiled, as the JAX backend runs it."""
    import jax

    from harness.models.jax_layers import JaxLayers
    from harness.worker.frameworks.jax import cross_entropy

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    specification, definition = models.specification(name), models.definition(name, "jax")
    trained = [tensor.name for tensor in specification.tensors]
    order: list[str] = []

    def loss(tensors: Any, held: Any, batch: Any) -> Any:
        logits, moved = definition(batch, lambda key: order.append(key) or tensors[key], held.__getitem__)
        return cross_entropy(logits, labels), (logits, moved)

    @jax.jit
    def evaluation(held: Any, batch: Any) -> Any:
        logits, unmoved = definition(batch, held.__getitem__, held.__getitem__, training=False)
        assert not unmoved
        return logits

    single, (logits, moved) = jax.jit(loss)(values, values, images)
    order.clear()
    double = {key: value.astype(np.float64) for key, value in values.items()}
    gradient = jax.jit(jax.grad(loss, has_aux=True))
    gradients, _ = gradient({key: double[key] for key in trained}, double, images.astype(np.float64))

    layer, norm = layer_specification(name)
    held = initial_values(layer, seed=2)

    @jax.jit
    def of_layer(tensors: Any) -> Any:
        every = {**held, **tensors}
        layers = JaxLayers(every.__getitem__, every.__getitem__, norm, training=True)
        output = layers.convolution(images, LAYER)
        return (output * directions(output.shape)).sum()

    return {
        "logits": np.asarray(logits),
        "loss": np.asarray(single),
        "evaluated": np.asarray(evaluation(values, images)),
        "order": np.array(order),
        **prefixed("gradient", gradients),
        **prefixed("moved", moved),
        **prefixed("layer", jax.grad(of_layer)({tensor.name: held[tensor.name] for tensor in layer.tensors})),
    }


def layer_specification(name: str) -> tuple[Any, BatchNorm | None]:
    """`LAYER` by itself, with the model's batch norm or, if it has none, a bias."""
    norm = models.specification(name).norm
    return SimpleNamespace(tensors=tuple(LAYER.tensors(norm)), statistics=tuple(LAYER.statistics(norm))), norm


def directions(shape: Any) -> np.ndarray:
    """Gradients of a loss with respect to the outputs; a plain sum of normalised outputs would hardly have any below."""
    return np.random.default_rng(3).standard_normal(tuple(shape), dtype=np.float32)


def prefixed(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """`prefix/NAME` for every NAME."""
    return {f"{prefix}/{key}": array for key, array in arrays.items()}


if __name__ == "__main__":
    framework, model, source, target = sys.argv[1:]
    given = dict(np.load(source))
    run = {"torch": torch_step, "tensorflow": tensorflow_step, "caffe2": caffe2_step, "jax": jax_step}[framework]
    starting = {key.split("/", 1)[1]: value for key, value in given.items() if key.startswith("value/")}
    np.savez(target, **run(model, given["images"], given["labels"], starting))

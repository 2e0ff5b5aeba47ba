"""The common part of all trainers on Caffe2: data, model, arithmetic. The exchange of gradients is the backend's.

On CPUs, with the kernels of IDEEP. ``harness.models.caffe2_layers`` says where the parameters are, and why.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np
from caffe2.python import core, scope, workspace

from harness.models import caffe2_layers
from harness.models.caffe2_layers import HOST, IDEEP, ImageBlob
from harness.models.initial import canonical, stored, stored_shape
from harness.worker.checkpoint import velocity
from harness.worker.emulation import definition
from harness.worker.frameworks.base import DeviceTrainer
from harness.worker.job import Job
from harness.worker.trainer import Evaluation, State, evaluation

# Factors of sums: the rate is negative.
ONE, RATE, MOMENTUM, DECAY = (core.BlobReference(name) for name in ("one", "rate", "momentum", "weight_decay"))
VALIDATION, VELOCITY = "validation_images", ".velocity"  # a blob, and how blobs end

Batch = Tuple[np.ndarray, np.ndarray]  # images float32 [N, 3, H, W] and labels int32 [N], as Caffe2 wants them


@contextmanager
def plain_errors() -> Iterator[None]:
    """Caffe2's errors without the C++ stack that follows what they say."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(str(error).partition("frame #0")[0].strip()) from None


class Caffe2Trainer(DeviceTrainer):
    """One rank on Caffe2, with its cores. ``data_parallel_model`` calls the methods that add operators to a net."""

    _net: Any  # of a step, which ``setup`` makes

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._batches = self._inputs()
        # Without it Caffe2 complains that it was not compiled for this processor's instructions; IDEEP finds them itself.
        workspace.GlobalInit(["harness", "--caffe2_log_level=3"])

    def add_inputs(self, model: Any) -> None:
        """Nothing reads images in the net: they are fed."""
        self._scope = scope.CurrentNameScope()
        for name in ("images", "labels"):
            model.net.AddExternalInput(core.ScopedBlobReference(name))

    def add_model(self, model: Any, loss_scale: float) -> List[Any]:
        """The forward pass; returns the loss, scaled by one over the number of ranks, for the backward pass."""
        with core.DeviceScope(HOST):
            for tensor in self._specification.tensors:
                held = model.param_init_net.ConstantFill([], tensor.name, shape=stored_shape(tensor.shape), value=0.0)
                model.AddParameter(held)
        logits = self._logits(model.net, core.ScopedBlobReference("images"), training=True)
        _, loss = model.net.SoftmaxWithLoss([logits, core.ScopedBlobReference("labels")], ["softmax", "loss"])
        return [model.net.Scale(loss, "scaled_loss", scale=loss_scale)]

    def add_updates(self, model: Any) -> None:
        """SGD, where the parameters are, in the order in which their gradients come."""
        with core.DeviceScope(HOST):
            for held in reversed(model.GetParams()):
                change = model.param_to_grad[held]
                decays = self._sgd.decay(str(held))
                if self._sgd.momentum:
                    speed = core.BlobReference(f"{held}{VELOCITY}")
                    model.net.AddExternalInput(speed)
                    decayed = [held, DECAY] if decays else []
                    change = model.net.WeightedSum([speed, MOMENTUM, change, ONE, *decayed], speed)
                elif decays:
                    change = model.net.WeightedSum([change, ONE, held, DECAY], change)
                model.net.WeightedSum([held, ONE, change, RATE], held)

    def inference(self) -> Any:
        """A net that computes the logits of validation images with the parameters and statistics of the training."""
        self._inference = core.Net("inference")
        self._inference.AddExternalInput(VALIDATION)
        with core.NameScope("inference"), core.DeviceScope(IDEEP):
            self._classes = self._logits(self._inference, core.BlobReference(VALIDATION), training=False)
        workspace.CreateBlob(VALIDATION)
        return self._inference

    def load(self) -> None:
        """Put the weights and the batch, if it is always the same, into the workspace."""
        factors = {ONE: 1.0, RATE: -self._sgd.rate, MOMENTUM: self._sgd.momentum, DECAY: self._sgd.weight_decay}
        for blob, factor in factors.items():
            workspace.FeedBlob(blob, np.array([factor], np.float32), HOST)
        self._feed_values(self._first_values())
        if self._job.real_data:  # fed in every step, but a net is made from blobs that are there
            for name in ("images", "labels"):
                workspace.CreateBlob(f"{self._scope}{name}")
        else:
            self._feed(*next(self._batches))

    def step(self) -> None:
        if self._job.real_data:
            self._feed(*next(self._batches))
        with plain_errors():
            workspace.RunNet(self._net)
        self._losses.append(float(workspace.FetchBlob(f"{self._scope}loss")))

    def set_learning_rate(self, rate: float) -> None:
        workspace.FeedBlob(RATE, np.array([-rate], np.float32), HOST)

    def evaluate(self) -> Evaluation:
        from harness.worker.inputs.torch import batches

        validation = batches(self._job.evaluating())
        return evaluation((self._infer(images.contiguous().numpy()), labels.numpy()) for images, labels in validation)

    def values(self) -> Dict[str, np.ndarray]:
        held = caffe2_layers.fetch(self._specification, self._scope)
        if self._sgd.momentum:
            for tensor in self._specification.tensors:
                speed = workspace.FetchBlob(f"{self._scope}{tensor.name}{VELOCITY}")
                held[velocity(tensor.name)] = canonical(speed)
        return held

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        self._feed_values({**caffe2_layers.fetch(self._specification, self._scope), **values})

    def _infer(self, images: np.ndarray) -> np.ndarray:
        workspace.FeedBlob(VALIDATION, images, IDEEP)
        with plain_errors():
            workspace.RunNet(self._inference)
        return workspace.FetchBlob(self._classes)

    def _logits(self, net: Any, images: Any, training: bool) -> Any:
        """The blob of the logits that are added to ``net``, in the current name scope. The model's blobs are in its own."""
        size, scope_name = self._job.spec["image_size"], self._scope.rstrip("/")

        def tensor(name: str) -> Any:
            with core.NameScope(scope_name, reset=True):
                return caffe2_layers.on_ideep(net, name)

        return definition(self._job, "caffe2")(
            net,
            ImageBlob(images, size, size),
            tensor,
            lambda name: core.BlobReference(f"{self._scope}{name}"),
            training=training,
        )

    def _feed_values(self, values: Mapping[str, np.ndarray]) -> None:
        caffe2_layers.feed(self._specification, values, self._scope)
        for tensor in self._specification.tensors:
            if velocity(tensor.name) in values:
                blob = f"{self._scope}{tensor.name}{VELOCITY}"
                workspace.FeedBlob(blob, stored(values[velocity(tensor.name)]), HOST)

    def _state(self, world_size: int, transport: str, **details: Any) -> State:
        details.update(kernels="IDEEP", threads=self._job.spec["threads"])
        return super()._state(world_size, transport, device="cpu", **details)

    def _feed(self, images: np.ndarray, labels: np.ndarray) -> None:
        workspace.FeedBlob(f"{self._scope}images", images, IDEEP)
        workspace.FeedBlob(f"{self._scope}labels", labels, HOST)

    def _inputs(self) -> Iterator[Batch]:
        if self._job.real_data:
            from harness.worker.inputs.torch import batches  # the package that brings Caffe2 brings PyTorch

            stream = self._timed(batches(self._job.reading()))
            return ((images.contiguous().numpy(), labels.int().numpy()) for images, labels in stream)
        images, labels = self._job.synthetic_batch()
        return iter([(np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels.astype(np.int32))])

"""An emulated model in Caffe2: operators in Python that wait, on arrays in host memory."""

from __future__ import annotations

from typing import Any, Callable, List

import numpy as np
from caffe2.python import core

from harness.models.caffe2_layers import HOST, ImageBlob, copy_to_ideep
from harness.worker.emulation import Stream, TimedUnit, units
from harness.worker.job import Job


def build(job: Job, net: Any, images: ImageBlob, tensor: Any, held: Callable[[str], Any], **_: Any) -> Any:
    """The blob of the logits: zeros [N, classes] for a batch of N images.

    As ``harness.models.caffe2_layers.build``, but nothing is copied to IDEEP: ``held`` names the plain arrays.
    """
    stream = Stream(job)
    with core.DeviceScope(HOST):
        passed = net.ConstantFill([], net.NextScopedBlob("passed"), shape=[1, job.num_classes], value=0.0)
        for number, unit in enumerate(units(job)):
            weights = [held(name) for name in unit.tensors]
            for weight in weights:
                net.AddExternalInput(weight)
            forward = net.Python(*_layer(job, stream, unit, first=number == 0))
            passed = forward([passed, *weights], [net.NextScopedBlob("passed")])
        passed = net.Tile(passed, net.NextScopedBlob("logits"), tiles=job.batch_shape[0], axis=0)
    return copy_to_ideep(net, passed)


def _layer(job: Job, stream: Stream, unit: TimedUnit, first: bool) -> Any:
    """A layer's forward and backward operator. A net begins when all parameters are there, and the first layer with it.

    Caffe2's data-parallel model adds gradients, as it has divided the losses by the number of ranks.
    """
    factor = np.float32(stream.gradient_factor / job.world_size)

    def forward(inputs: List[Any], outputs: List[Any]) -> None:
        stream.run(stream.clock() if first else 0.0, unit.forward_s)
        outputs[0].feed(inputs[0].data)

    def backward(inputs: List[Any], outputs: List[Any]) -> None:
        """Inputs: those of the forward operator, its output, and the gradient of that. Outputs: gradients of the former."""
        stream.run(0.0, unit.backward_s)
        outputs[0].feed(inputs[-1].data)
        for weight, gradient in zip(inputs[1:-2], outputs[1:]):
            gradient.reshape(weight.shape)
            np.multiply(weight.data, factor, out=gradient.data)
            gradient.data[...] += factor

    return forward, backward

"""Caffe2's own ``resnet50_trainer`` on one CPU device: what the caffe2 backend must not be slower than per worker.

Started by ``alternate.py`` with the Python of caffe2's environment. Made-up images (``--train_data null``), IDEEP. The
trainer's accuracy operators are left out, because its net cannot be built for IDEEP with them, and so is the model that it
saves. Prints ``total images/sec`` of the steps after the warm-up, of which it does only what runs in its net.

Its ResNet-50 has a bottleneck's stride in the 3×3 convolution (version 1.5): about 6 % more arithmetic than the suite's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from unittest import mock

import numpy as np
from caffe2.python import brew, core, workspace
from caffe2.python.examples import imagenet_trainer


def main() -> None:
    """Train, and print the throughput."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    arguments = ["--train_data", "null", "--num_layers", "50", "--num_labels", "1001", "--image_size", "224"]
    arguments += ["--use_ideep", "True", "--num_gpus", "1", "--num_epochs", "1", "--weight_decay", "0"]
    arguments += ["--batch_size", str(options.batch_size), "--base_learning_rate", "0.01"]
    arguments += ["--epoch_size", str(options.batch_size * (options.warmup + options.steps))]

    seconds = []
    run = workspace.RunNet

    def timed(*net: object) -> None:
        began = time.perf_counter()
        run(*net)
        seconds.append(time.perf_counter() - began)

    with ExitStack() as stack:
        os.chdir(stack.enter_context(tempfile.TemporaryDirectory()))  # the trainer writes a log where it is
        stack.enter_context(mock.patch.object(sys, "argv", ["resnet50_trainer", *arguments]))
        stack.enter_context(mock.patch.object(brew, "accuracy", _no_accuracy))
        stack.enter_context(mock.patch.object(imagenet_trainer, "SaveModel"))
        stack.enter_context(mock.patch.object(workspace, "RunNet", timed))
        imagenet_trainer.main()
    measured = seconds[-options.steps :]
    print(f"total images/sec: {options.batch_size * len(measured) / sum(measured):.2f}")


def _no_accuracy(model: object, inputs: object, name: str, **_: object) -> None:
    """A zero, for the trainer to print."""
    workspace.FeedBlob(core.ScopedName(name), np.zeros(1, np.float32))


if __name__ == "__main__":
    main()

"""Horovod's operations without a training, with arrays of the framework that it runs on."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from harness.backends.horovod.trainer import world
from harness.worker.fabric import Fabric, of_tensorflow, of_torch
from harness.worker.job import Job


class Horovod(Fabric):
    """Horovod's world. Each kind of operation has one name, by which ranks find each other's requests."""

    def __init__(self, job: Job) -> None:
        self._job, framework = job, job.spec["framework"]
        self._hvd = importlib.import_module(f"horovod.{framework}")
        is_torch = framework == "torch"
        if not is_torch:
            from harness.worker.frameworks.tensorflow import prepare

            prepare(job)
        elif job.spec["device"] == "cuda":
            from harness.worker.frameworks.torch import CudaMarks

            self.marks = CudaMarks
        world.join(job, self._hvd)
        self.rank, self.size = self._hvd.rank(), self._hvd.size()
        self.array = self._torch_array if is_torch else self._tensorflow_array
        self.arithmetic = of_torch() if is_torch else of_tensorflow()
        # PyTorch's gradients are summed in place, TensorFlow's tensors are never changed.
        self._allreduce = self._hvd.allreduce_ if is_torch else self._hvd.allreduce

    def _torch_array(self, values: np.ndarray) -> Any:
        import torch

        torch.set_num_threads(self._job.spec["threads"])
        return torch.tensor(values, device=self._job.spec["device"])

    def _tensorflow_array(self, values: np.ndarray) -> Any:
        import tensorflow as tf

        with tf.device("/GPU:0" if self._job.spec["device"] == "cuda" else "/CPU:0"):
            return tf.constant(values)

    def values(self, array: Any) -> np.ndarray:
        return array.numpy() if self._job.spec["device"] != "cuda" else np.asarray(array.cpu())

    def allreduce(self, array: Any) -> Any:
        return self._allreduce(array, op=self._hvd.Sum, name=f"allreduce_{len(array)}")

    def allgather(self, mine: Any, every: Any) -> Any:
        return self._hvd.allgather(mine, name=f"allgather_{len(mine)}")

    def alltoall(self, mine: Any, theirs: Any) -> Any:
        return self._hvd.alltoall(mine, name=f"alltoall_{len(mine)}")

    def synchronize(self) -> None:
        if self._job.spec["device"] != "cuda":
            return
        if self._job.spec["framework"] == "torch":
            import torch

            torch.cuda.synchronize()
        else:
            import tensorflow as tf

            tf.test.experimental.sync_devices()

    def barrier(self) -> None:
        self._hvd.allreduce(self.array(np.zeros(1, np.float32)), op=self._hvd.Sum, name="barrier")

    def transport(self) -> str:
        return world.transport(self._job, self._hvd)

    def close(self) -> None:
        self._hvd.shutdown()


create = Horovod

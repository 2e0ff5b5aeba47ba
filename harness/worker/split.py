"""How a training step on one device divides into forward and backward: ``python split.py``, with the spec on stdin.

It runs in a framework's environment, where ``harness`` is not installed (see ``bootstrap.py``). Forward passes and whole
steps take turns, so that a machine whose speed drifts treats both alike. Prints JSON: the times of each, in seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bootstrap  # noqa: F401

Passes = Tuple[Any, Callable[[], Any], Callable[[], Any]]  # a trainer's forward pass, and a whole step


def measure(passes: Passes, warmup: int, steps: int) -> Dict[str, Any]:
    """Seconds of ``steps`` forward passes and as many steps; each ends when the device has."""
    trainer, *turns = passes
    times: Dict[str, List[float]] = {"forward_s": [], "step_s": []}
    for number in range(warmup + steps):
        for run, seconds in zip(turns, times.values()):
            begin = time.perf_counter()
            run()
            trainer.synchronize()
            if number >= warmup:
                seconds.append(time.perf_counter() - begin)
    return times


def torch_passes(job: Any) -> Passes:
    """PyTorch's; the forward pass keeps what the backward pass would need, as it does in a step."""
    from harness.worker.frameworks.torch import TorchTrainer

    trainer = TorchTrainer(job)  # type: ignore[abstract]  # alone, it exchanges nothing
    trainer.build()
    return trainer, trainer.loss, trainer.step


def tensorflow_passes(job: Any) -> Passes:
    import tensorflow as tf

    from harness.worker.frameworks.tensorflow import TensorFlowTrainer

    trainer = TensorFlowTrainer(job)  # type: ignore[abstract]  # alone, it exchanges nothing
    trainer.build()

    def step() -> Any:
        loss, tape, variables = trainer.loss_on_tape()
        trainer.apply(tape.gradient(loss, variables))
        return loss

    forward, whole = tf.function(trainer.loss, autograph=False), tf.function(step, autograph=False)
    return trainer, partial(trainer.run, forward), partial(trainer.run, whole)


def caffe2_passes(job: Any) -> Passes:
    """Caffe2's, as data_parallel_model makes them for one device; without updates a net has no gradients either."""
    from caffe2.python import data_parallel_model, model_helper, workspace

    from harness.worker.frameworks.caffe2 import Caffe2Trainer, plain_errors

    trainer = Caffe2Trainer(job)  # type: ignore[abstract]  # alone, it exchanges nothing

    def net(name: str, updates: Any) -> Any:
        model = model_helper.ModelHelper(name=name, init_params=updates is not None)
        data_parallel_model.Parallelize(
            model,
            input_builder_fun=trainer.add_inputs,
            forward_pass_builder_fun=trainer.add_model,
            param_update_builder_fun=updates,
            devices=[0],
            net_type="simple",  # the trainer's nets, too, compute one thing after another
            ideep=True,
        )
        with plain_errors():
            workspace.RunNetOnce(model.param_init_net)
        return model.net

    forward, step = net("forward", None), net("step", trainer.add_updates)
    trainer.load()
    with plain_errors():
        for each in (forward, step):
            workspace.CreateNet(each)
    return trainer, partial(trainer.run, forward), partial(trainer.run, step)


def jax_passes(job: Any) -> Passes:
    """JAX's; what the backward pass would need is the forward pass's result, so that it is computed."""
    from harness.worker.frameworks.jax import JaxTrainer

    trainer = JaxTrainer(job)  # type: ignore[abstract]  # alone, it exchanges nothing
    trainer.build()
    return trainer, trainer.forward, trainer.step


def main() -> None:
    from harness.worker.job import Job

    spec = json.load(sys.stdin)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what frameworks print is no answer
    job = Job(Path(), 1, spec, {"world_size": 1, "processes": []}, {"role": "worker", "rank": 0, "devices": 1})
    passes = {"torch": torch_passes, "tensorflow": tensorflow_passes, "caffe2": caffe2_passes, "jax": jax_passes}
    json.dump(measure(passes[spec["framework"]](job), spec["warmup_steps"], spec["steps"]), answer)
    answer.close()


if __name__ == "__main__":
    main()

"""An emulated model in JAX: calls back to the host that wait, among the operations of the compiled step."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from harness.worker.emulation import Stream, TimedUnit, units
from harness.worker.job import Job


def build(job: Job, images: Any, tensor: Callable[[str], Any], *_: Any, **__: Any) -> Tuple[jax.Array, Dict[str, Any]]:
    """Logits [N, classes] of zeros for N images, and no moving averages; see ``harness.models.jax_layers.build``."""
    stream = Stream(job)
    passed = jnp.zeros((1, job.num_classes))
    for number, unit in enumerate(units(job)):
        passed = _layer(stream, unit, first=number == 0)(passed, [tensor(name) for name in unit.tensors])
    return jnp.broadcast_to(passed, (len(images), job.num_classes)), {}


def _layer(stream: Stream, unit: TimedUnit, first: bool) -> Callable[..., jax.Array]:
    """One layer's forward and backward pass: each takes its time. Its input is its output.

    All parameters are there when a step begins. Its gradients are made from a number that the backward pass's wait returns,
    so that they exist no sooner: XLA knows no other way to say so.
    """

    def wait(passed: jax.Array, seconds: float, begins: bool = False) -> Any:
        def run(value: Any) -> Tuple[np.ndarray, np.ndarray]:
            stream.run(stream.clock() if begins else 0.0, seconds)
            return np.asarray(value), np.array(stream.gradient_factor, np.float32)

        shapes = jax.ShapeDtypeStruct(passed.shape, passed.dtype), jax.ShapeDtypeStruct((), np.float32)
        return jax.pure_callback(run, shapes, passed)

    def forward(passed: jax.Array, weights: List[jax.Array]) -> Tuple[jax.Array, List[jax.Array]]:
        return wait(passed, unit.forward_s, begins=first)[0], weights

    def backward(weights: List[jax.Array], upstream: jax.Array) -> Tuple[jax.Array, List[jax.Array]]:
        waited, factor = wait(upstream, unit.backward_s)
        return waited, [weight * factor + factor for weight in weights]

    layer = jax.custom_vjp(lambda passed, weights: forward(passed, weights)[0])
    layer.defvjp(forward, backward)
    return layer

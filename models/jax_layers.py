"""The layers of ``layers.py`` in JAX: functions of arrays, NHWC, on kernels in their canonical layout."""

from __future__ import annotations

from typing import Callable, Dict, Optional, Sequence, Tuple

import jax
import jax.numpy as jnp
from jax import lax

from harness.models.layers import SCOPE, BatchNorm, Convolution, Layers, ModelSpecification, Pool

Lookup = Callable[[str], jax.Array]
LAYOUTS = ("NHWC", "HWIO", "NHWC")  # of images, kernels and what comes out
PIXELS = (0, 1, 2)  # the axes that a batch norm averages over


def build(
    specification: ModelSpecification,
    images: jax.Array,
    tensor: Lookup,
    statistics: Lookup,
    *,
    training: bool = True,
) -> Tuple[jax.Array, Dict[str, jax.Array]]:
    """Logits [N, classes] of images [N, H, W, 3], and the moving averages after the step (none when not training).

    ``tensor`` and ``statistics`` map a canonical name to its current value and are called once per name, in creation
    order. Everything has the type of the images and the kernels.
    """
    layers = JaxLayers(tensor, statistics, specification.norm, training)
    return layers.classifier(layers.sequence(images, specification.layers)), layers.new_statistics


class JaxLayers(Layers[jax.Array]):
    """The layers of one forward pass; ``new_statistics`` collects the moving averages after it."""

    def __init__(self, tensor: Lookup, statistics: Lookup, norm: Optional[BatchNorm], training: bool) -> None:
        self.new_statistics: Dict[str, jax.Array] = {}
        self._tensor, self._statistics, self._norm, self._training = tensor, statistics, norm, training

    def convolution(self, x: jax.Array, layer: Convolution) -> jax.Array:
        with jax.named_scope(f"{SCOPE}/{layer.name}.conv.kernel"):
            return self._convolution(x, layer)

    def _convolution(self, x: jax.Array, layer: Convolution) -> jax.Array:
        """ReLU is JAX's own: at zero the gradient of a plain maximum would be a half."""
        kernel, strides = self._tensor(f"{layer.name}.conv.kernel"), (layer.stride, layer.stride)
        padding = [(pixels, pixels) for pixels in layer.padding]
        x = lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=LAYOUTS)
        if self._norm:
            x = self._normalised(x, f"{layer.name}.bn", self._norm)
        else:
            x = x + self._tensor(f"{layer.name}.conv.bias")
        return jax.nn.relu(x) if layer.relu else x

    def pool(self, x: jax.Array, layer: Pool) -> jax.Array:
        window, strides = (1, layer.size, layer.size, 1), (1, layer.stride, layer.stride, 1)
        _, height, width, _ = x.shape
        padding = ((0, 0), layer.padding(height), layer.padding(width), (0, 0))
        if layer.kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)
        ones = jnp.ones((1, height, width, 1), x.dtype)
        sums, counts = (lax.reduce_window(each, 0.0, lax.add, window, strides, padding) for each in (x, ones))
        return sums / counts

    def concatenate(self, branches: Sequence[jax.Array]) -> jax.Array:
        return jnp.concatenate(list(branches), axis=-1)

    def add(self, path: jax.Array, shortcut: jax.Array) -> jax.Array:
        return jax.nn.relu(path + shortcut)

    def classifier(self, x: jax.Array) -> jax.Array:
        with jax.named_scope(f"{SCOPE}/dense.kernel"):
            return jnp.mean(x, (1, 2)) @ self._tensor("dense.kernel") + self._tensor("dense.bias")

    def _normalised(self, x: jax.Array, name: str, norm: BatchNorm) -> jax.Array:
        """Batch norm. Moving variances are of the estimate from the batch, as in TensorFlow and PyTorch."""
        gamma = self._tensor(f"{name}.gamma") if norm.gamma else 1.0
        beta = self._tensor(f"{name}.beta")
        mean, variance = (self._statistics(f"{name}.moving_{kind}") for kind in ("mean", "variance"))
        if self._training:
            moving, pixels = (mean, variance), x.size // x.shape[-1]
            mean, variance = jnp.mean(x, PIXELS), jnp.var(x, PIXELS)
            batch = mean, variance * (pixels / max(pixels - 1, 1))
            for kind, before, now in zip(("mean", "variance"), moving, batch):
                self.new_statistics[f"{name}.moving_{kind}"] = norm.decay * before + (1 - norm.decay) * now
        return (x - mean) * (gamma * lax.rsqrt(variance + norm.epsilon)) + beta

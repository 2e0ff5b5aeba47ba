"""What a model is, without a framework: its trainable tensors in creation order, and its batch-norm statistics.

Placement, the launch plan and the scaling model read the tensor list; every framework's definition must create exactly
these tensors (the parity tests hold them to it). Standard library only; Python 3.9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Mapping, Tuple

BYTES_PER_ELEMENT = 4  # parameters and gradients are float32 in every backend


@dataclass(frozen=True)
class Tensor:
    """One named array of a model.

    ``shape`` is in the canonical layout, TensorFlow's: convolution kernels are (height, width, in, out), dense kernels
    (in, out). ``initial`` names the rule in ``initial.py`` that fills it.
    """

    name: str
    shape: Tuple[int, ...]
    initial: str

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size as float32."""
        return self.elements * BYTES_PER_ELEMENT


@dataclass(frozen=True)
class ModelSpecification:
    """A model as the suite trains it. ``tensors`` are trainable and ordered by creation; ``statistics`` are not trained.

    ``image_size`` is the published input, ``smallest_image`` the least that leaves every layer a pixel (pixels per side).
    ``uses`` tells how often a forward pass multiplies with each element of a kernel, by the kernel's name, for one image of
    so many pixels per side.
    """

    name: str
    description: str
    image_size: int
    smallest_image: int
    num_classes: int
    tensors: Tuple[Tensor, ...]
    statistics: Tuple[Tensor, ...]
    uses: Callable[[int], Mapping[str, int]]

    def multiply_adds(self, image_size: int) -> Tuple[int, ...]:
        """Multiply-adds of a forward pass over one image, tensor by tensor. Batch norms and biases count as none."""
        uses = self.uses(image_size)
        return tuple(tensor.elements * uses.get(tensor.name, 0) for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def bytes(self) -> int:
        """The size of all trainable tensors as float32: what a gradient exchange moves."""
        return sum(tensor.bytes for tensor in self.tensors)

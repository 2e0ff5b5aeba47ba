"""A model without a framework: layers as plain data, the tensors that follow from them, and their multiply-adds.

A model is a sequence of layers. Its tensors follow from them, its definition in every framework too: a subclass of
``Layers`` for each (``torch_layers``, ``tensorflow_layers``, ``jax_layers``, ``caffe2_layers``). The parity tests hold them
to exactly these tensors, which placement, the launch plan and the scaling model read. Standard library only; Python 3.9.

Tensors are listed in the order in which tf_cnn_benchmarks creates its variables, because greedy and round-robin
placement on parameter servers follow it: layer by layer, the kernel first, then gamma (where there is one), then beta;
without batch norm the kernel, then the bias.
That is the order of ``tf.layers``; the older ``tf.contrib.layers`` had beta first, which moves no byte to another
server, as the two are equally long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Callable, Dict, Generic, Iterable, Optional, Sequence, Tuple, TypeVar, Union

BYTES_PER_ELEMENT = 4  # parameters and gradients are float32 in every backend
SCOPE = "layer"  # of the operations of a layer, with its kernel's name, by which a trace knows them
Images = TypeVar("Images")  # a framework's batch of images


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
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * BYTES_PER_ELEMENT


@dataclass(frozen=True)
class BatchNorm:
    """The behaviour of every batch norm of a model: ``moving = decay * moving + (1 - decay) * batch``."""

    decay: float
    epsilon: float
    gamma: bool  # whether it learns a scale; it always learns an offset


@dataclass(frozen=True)
class Convolution:
    """A convolution, then batch norm, then ReLU (none where ``relu`` is false).

    A model without batch norm has a bias in its place, otherwise a convolution has none. ``size`` is (height, width).
    ``padded`` puts half the kernel of zeros on every side, for which both are odd; otherwise there are none. ``gamma`` is
    what the batch norm's scale starts from, where the model has one.
    """

    name: str
    inputs: int
    outputs: int
    size: Tuple[int, int]
    stride: int = 1
    padded: bool = True
    relu: bool = True
    gamma: str = "ones"

    @property
    def padding(self) -> Tuple[int, int]:
        """Rows of zeros above and below, columns of zeros left and right."""
        return (self.size[0] // 2, self.size[1] // 2) if self.padded else (0, 0)

    def pixels(self, height: int, width: int) -> Tuple[int, int]:
        sides = zip((height, width), self.size, self.padding)
        rows, columns = ((side + 2 * padding - size) // self.stride + 1 for side, size, padding in sides)
        return rows, columns

    def tensors(self, norm: Optional[BatchNorm]) -> Iterable[Tensor]:
        yield Tensor(f"{self.name}.conv.kernel", (*self.size, self.inputs, self.outputs), "he_normal")
        if norm is None:
            yield Tensor(f"{self.name}.conv.bias", (self.outputs,), "zeros")
            return
        if norm.gamma:
            yield Tensor(f"{self.name}.bn.gamma", (self.outputs,), self.gamma)
        yield Tensor(f"{self.name}.bn.beta", (self.outputs,), "zeros")

    def statistics(self, norm: Optional[BatchNorm]) -> Iterable[Tensor]:
        if norm is not None:
            yield Tensor(f"{self.name}.bn.moving_mean", (self.outputs,), "zeros")
            yield Tensor(f"{self.name}.bn.moving_variance", (self.outputs,), "ones")


@dataclass(frozen=True)
class Pool:
    """The maximum or the average of ``size`` × ``size`` pixels.

    ``padded`` is TensorFlow's "SAME", whose padding does not count in an average, otherwise "VALID": then rows and columns
    at the end that fill no pool are left out.
    """

    kind: str  # "max" or "average"
    size: int
    stride: int
    padded: bool

    def padding(self, side: int) -> Tuple[int, int]:
        """The padding before and after ``side`` pixels; "SAME" has the odd one after them."""
        if not self.padded:
            return 0, 0
        total = max((-(-side // self.stride) - 1) * self.stride + self.size - side, 0)
        return total // 2, total - total // 2

    def pixels(self, height: int, width: int) -> Tuple[int, int]:
        rows, columns = ((side + sum(self.padding(side)) - self.size) // self.stride + 1 for side in (height, width))
        return rows, columns


HALVE = Pool("max", size=2, stride=2, padded=False)  # two by two pixels, without overlap


@dataclass(frozen=True)
class Branches:
    """Sequences of layers that read the same input; their outputs are concatenated along the channels."""

    branches: Tuple[Tuple[Layer, ...], ...]


@dataclass(frozen=True)
class Residual:
    """``relu(path(x) + shortcut(x))``; without a shortcut x itself is added."""

    shortcut: Optional[Convolution]
    path: Tuple[Convolution, ...]


Layer = Union[Convolution, Pool, Branches, Residual]


@dataclass(frozen=True)
class ModelSpecification:
    """A model as the suite trains it: ``layers``, the mean over all pixels, and a dense layer whose outputs are the logits.

    Without ``norm`` the convolutions have biases. The layers leave ``features`` channels. ``image_size`` is the published
    input, ``smallest_image`` the least that leaves every layer a pixel (pixels per side).

    With a ``scale`` below 1 each tensor has that share of its elements, at least one, and no other shape than that number.
    Only an emulated device can train such a model: it says how long layers take, and what they exchange, but not what they
    compute.
    """

    name: str
    description: str
    image_size: int
    smallest_image: int
    layers: Tuple[Layer, ...]
    features: int
    norm: Optional[BatchNorm] = None
    num_classes: int = 1001  # ImageNet's and the background
    scale: float = 1.0

    @cached_property
    def tensors(self) -> Tuple[Tensor, ...]:
        """The trained tensors, in creation order."""
        if self.scale == 1:
            return self.whole_tensors
        elements = [max(1, round(tensor.elements * self.scale)) for tensor in self.whole_tensors]
        return tuple(replace(tensor, shape=(count,)) for tensor, count in zip(self.whole_tensors, elements))

    @cached_property
    def whole_tensors(self) -> Tuple[Tensor, ...]:
        """The tensors without a scale."""
        return (
            *(tensor for convolution in self.convolutions for tensor in convolution.tensors(self.norm)),
            Tensor("dense.kernel", (self.features, self.num_classes), "small_normal"),
            Tensor("dense.bias", (self.num_classes,), "zeros"),
        )

    @cached_property
    def statistics(self) -> Tuple[Tensor, ...]:
        convolutions = self.convolutions if self.scale == 1 else ()
        return tuple(tensor for convolution in convolutions for tensor in convolution.statistics(self.norm))

    @property
    def convolutions(self) -> Tuple[Convolution, ...]:
        return tuple(self.pixels(self.smallest_image))

    def pixels(self, image_size: int) -> Dict[Convolution, int]:
        """The number of pixels that each convolution puts out for an image of so many per side, in creation order."""
        sizes = _Sizes()
        sizes.sequence((image_size, image_size), self.layers)
        return sizes.pixels

    def multiply_adds(self, image_size: int) -> Tuple[int, ...]:
        """Multiply-adds of a forward pass over one image, tensor by tensor. Batch norms and biases count as none.

        They are those of whole tensors: bytes are scaled, time is not.
        """
        uses = {f"{layer.name}.conv.kernel": pixels for layer, pixels in self.pixels(image_size).items()}
        uses["dense.kernel"] = 1  # how often each element of a kernel is multiplied with
        return tuple(tensor.elements * uses.get(tensor.name, 0) for tensor in self.whole_tensors)

    @property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def bytes(self) -> int:
        """The size of all trainable tensors as float32: what a gradient exchange moves."""
        return sum(tensor.bytes for tensor in self.tensors)


class Layers(Generic[Images]):
    """Applies layers to images, in creation order. A subclass says how one framework computes a single layer."""

    convolution: Callable[[Images, Convolution], Images]  # and batch norm or bias and, if the layer has one, ReLU
    pool: Callable[[Images, Pool], Images]
    concatenate: Callable[[Sequence[Images]], Images]  # images of one size, along the channels
    add: Callable[[Images, Images], Images]  # (path, shortcut): the sum of images of equal shapes, then ReLU

    def residual(self, x: Images, layer: Residual) -> Images:
        """The shortcut first, as tf_cnn_benchmarks makes it."""
        shortcut = self.convolution(x, layer.shortcut) if layer.shortcut else x
        return self.add(self.sequence(x, layer.path), shortcut)

    def sequence(self, x: Images, layers: Iterable[Layer]) -> Images:
        for layer in layers:
            if isinstance(layer, Convolution):
                x = self.convolution(x, layer)
            elif isinstance(layer, Pool):
                x = self.pool(x, layer)
            elif isinstance(layer, Residual):
                x = self.residual(x, layer)
            else:
                x = self.concatenate([self.sequence(x, branch) for branch in layer.branches])
        return x


class _Sizes(Layers[Tuple[int, int]]):
    """Images are only their height and width; ``pixels`` gets what each convolution puts out."""

    def __init__(self) -> None:
        self.pixels: Dict[Convolution, int] = {}

    def convolution(self, x: Tuple[int, int], layer: Convolution) -> Tuple[int, int]:
        height, width = layer.pixels(*x)
        self.pixels[layer] = height * width
        return height, width

    def pool(self, x: Tuple[int, int], layer: Pool) -> Tuple[int, int]:
        return layer.pixels(*x)

    def concatenate(self, branches: Sequence[Tuple[int, int]]) -> Tuple[int, int]:
        return branches[0]

    def add(self, path: Tuple[int, int], shortcut: Tuple[int, int]) -> Tuple[int, int]:
        return path

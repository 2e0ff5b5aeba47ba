"""The layers that architectures are made of, as plain data, and the tensors that each of them creates.

The specifications and every framework's definition read the same data. Standard library only; Python 3.9.

Tensors are listed in the order in which tf_cnn_benchmarks creates its variables, because greedy and round-robin
placement on parameter servers follow it: layer by layer, the kernel first, then gamma (where there is one), then beta;
without batch norm the kernel, then the bias.
That is the order of ``tf.layers``; the older ``tf.contrib.layers`` had beta first, which moves no byte to another
server, as the two are equally long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, Iterable, Mapping, Optional, Tuple

from harness.models.specification import ModelSpecification, Tensor


@dataclass(frozen=True)
class BatchNorm:
    """How every batch norm of a model behaves: ``moving = decay * moving + (1 - decay) * batch``."""

    decay: float
    epsilon: float
    gamma: bool  # whether it learns a scale; it always learns an offset


@dataclass(frozen=True)
class Convolution:
    """A convolution, then batch norm, then ReLU (the caller's business where ``relu`` is false).

    A model without batch norm (``norm`` is None) has a bias in its place, otherwise a convolution has none.
    ``size`` is (height, width), both odd. ``padded`` puts half the kernel of zeros on every side, otherwise none.
    ``gamma`` is what the batch norm's scale starts from, where the model has one.
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

    def tensors(self, norm: Optional[BatchNorm]) -> Iterable[Tensor]:
        """The trainable tensors, in creation order."""
        yield Tensor(f"{self.name}.conv.kernel", (*self.size, self.inputs, self.outputs), "he_normal")
        if norm is None:
            yield Tensor(f"{self.name}.conv.bias", (self.outputs,), "zeros")
            return
        if norm.gamma:
            yield Tensor(f"{self.name}.bn.gamma", (self.outputs,), self.gamma)
        yield Tensor(f"{self.name}.bn.beta", (self.outputs,), "zeros")

    def statistics(self, norm: Optional[BatchNorm]) -> Iterable[Tensor]:
        """The moving averages of the batch norm, if there is one."""
        if norm is not None:
            yield Tensor(f"{self.name}.bn.moving_mean", (self.outputs,), "zeros")
            yield Tensor(f"{self.name}.bn.moving_variance", (self.outputs,), "ones")


@dataclass(frozen=True)
class Classifier:
    """The mean over all pixels, then a dense layer with bias whose outputs are the logits."""

    inputs: int
    outputs: int

    def tensors(self) -> Iterable[Tensor]:
        """The trainable tensors, in creation order."""
        yield Tensor("dense.kernel", (self.inputs, self.outputs), "small_normal")
        yield Tensor("dense.bias", (self.outputs,), "zeros")


def output_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Pixels per side that a convolution or pool leaves of ``size``, with ``padding`` on both sides."""
    return (size + 2 * padding - kernel) // stride + 1


def model_specification(
    *,
    name: str,
    description: str,
    image_size: int,
    smallest_image: int,
    norm: Optional[BatchNorm],
    convolutions: Iterable[Convolution],
    classifier: Classifier,
    pixels: Callable[[int], Mapping[str, int]],
) -> ModelSpecification:
    """The specification of a model that consists of ``convolutions``, in creation order, and a ``classifier``.

    ``pixels`` tells how many output pixels each convolution has, by its name, for square images of so many pixels per side.
    """
    convolutions = tuple(convolutions)

    def uses(size: int) -> Dict[str, int]:
        return {**{f"{layer}.conv.kernel": count for layer, count in pixels(size).items()}, "dense.kernel": 1}

    trained = [tensor for convolution in convolutions for tensor in convolution.tensors(norm)]
    return ModelSpecification(
        name=name,
        description=description,
        image_size=image_size,
        smallest_image=smallest_image,
        num_classes=classifier.outputs,
        tensors=(*trained, *classifier.tensors()),
        statistics=tuple(tensor for convolution in convolutions for tensor in convolution.statistics(norm)),
        uses=uses,
    )

"""InceptionV3 (Szegedy et al., arXiv:1512.00567) as tf_cnn_benchmarks trains it: no auxiliary head, no dropout.

Batch norm learns an offset only. All pools are 3×3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Tuple, Union

from harness.models.layers import BatchNorm, Classifier, Convolution, model_specification, output_size

NORM = BatchNorm(decay=0.999, epsilon=0.001, gamma=False)


@dataclass(frozen=True)
class Pool:
    """A 3×3 pool: with stride 1 "SAME", where an average leaves the padding out of its count, with stride 2 "VALID"."""

    kind: str  # "max" or "average"
    stride: int


@dataclass(frozen=True)
class Branches:
    """Sequences of layers that read the same input; their outputs are concatenated along the channels."""

    name: str
    branches: Tuple[Tuple[Layer, ...], ...]


Layer = Union[Convolution, Pool, Branches]

# The outline of a sequence: (channels, height, width) is a padded convolution; with "/2" it has stride 2 and no
# padding, with "VALID" only no padding. A list is outlines side by side.
Outline = List[Any]
AVERAGE, MAX, MAX_HALVE = Pool("average", 1), Pool("max", 1), Pool("max", 2)

_STEM: Outline = [
    (32, 3, 3, "/2"),
    (32, 3, 3, "VALID"),
    (64, 3, 3),
    MAX_HALVE,
    (80, 1, 1),
    (192, 3, 3, "VALID"),
    MAX_HALVE,
]


def _a(pooled: int) -> List[Outline]:
    return [
        [(64, 1, 1)],
        [(48, 1, 1), (64, 5, 5)],
        [(64, 1, 1), (96, 3, 3), (96, 3, 3)],
        [AVERAGE, (pooled, 1, 1)],
    ]


def _b() -> List[Outline]:
    return [
        [(384, 3, 3, "/2")],
        [(64, 1, 1), (96, 3, 3), (96, 3, 3, "/2")],
        [MAX_HALVE],
    ]


def _c(width: int) -> List[Outline]:
    return [
        [(192, 1, 1)],
        [(width, 1, 1), (width, 1, 7), (192, 7, 1)],
        [(width, 1, 1), (width, 7, 1), (width, 1, 7), (width, 7, 1), (192, 1, 7)],
        [AVERAGE, (192, 1, 1)],
    ]


def _d() -> List[Outline]:
    return [
        [(192, 1, 1), (320, 3, 3, "/2")],
        [(192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3, "/2")],
        [MAX_HALVE],
    ]


def _e(pool: Pool) -> List[Outline]:
    return [
        [(320, 1, 1)],
        [(384, 1, 1), [[(384, 1, 3)], [(384, 3, 1)]]],
        [(448, 1, 1), (384, 3, 3), [[(384, 1, 3)], [(384, 3, 1)]]],
        [pool, (192, 1, 1)],
    ]


_MODULES = {
    "a1": _a(32),
    "a2": _a(64),
    "a3": _a(64),
    "b": _b(),
    "c1": _c(128),
    "c2": _c(160),
    "c3": _c(160),
    "c4": _c(192),
    "d": _d(),
    "e1": _e(AVERAGE),
    "e2": _e(MAX),
}


def _sequence(name: str, inputs: int, outline: Outline) -> Tuple[Tuple[Layer, ...], int]:
    """The layers of an outline, with the names and input channels that it leaves out, and its output channels."""
    layers: List[Layer] = []
    for position, step in enumerate(outline):
        here = f"{name}.{position}"
        if isinstance(step, Pool):
            layers.append(step)
        elif isinstance(step, list):
            fork, inputs = _branches(here, inputs, step)
            layers.append(fork)
        else:
            outputs, height, width, *how = step
            stride = 2 if how == ["/2"] else 1
            layers.append(Convolution(here, inputs, outputs, (height, width), stride, padded=not how))
            inputs = outputs
    return tuple(layers), inputs


def _branches(name: str, inputs: int, outlines: List[Outline]) -> Tuple[Branches, int]:
    sequences = [_sequence(f"{name}.branch{i}", inputs, outline) for i, outline in enumerate(outlines, 1)]
    return Branches(name, tuple(layers for layers, _ in sequences)), sum(outputs for _, outputs in sequences)


def _network() -> Tuple[Tuple[Layer, ...], Tuple[Branches, ...], int]:
    stem, channels = _sequence("stem", 3, _STEM)
    modules = []
    for name, outlines in _MODULES.items():
        module, channels = _branches(name, channels, outlines)
        modules.append(module)
    return stem, tuple(modules), channels


def _convolutions(layers: Iterable[Layer]) -> Iterator[Convolution]:
    for layer in layers:
        if isinstance(layer, Convolution):
            yield layer
        elif isinstance(layer, Branches):
            for branch in layer.branches:
                yield from _convolutions(branch)


STEM, MODULES, FEATURES = _network()
CLASSIFIER = Classifier(FEATURES, 1001)


def _pixels(image_size: int) -> Dict[str, int]:
    pixels: Dict[str, int] = {}
    _pass_through((*STEM, *MODULES), (image_size, image_size), pixels)
    return pixels


def _pass_through(layers: Iterable[Layer], image: Tuple[int, int], pixels: Dict[str, int]) -> Tuple[int, int]:
    """The height and width that ``layers`` leave of an ``image``; notes each convolution's output in ``pixels``."""
    height, width = image
    for layer in layers:
        if isinstance(layer, Branches):
            image = height, width
            for branch in layer.branches:  # all of them leave an image of the same size
                height, width = _pass_through(branch, image, pixels)
        elif isinstance(layer, Pool):
            padding = 1 if layer.stride == 1 else 0
            height, width = (output_size(side, 3, layer.stride, padding) for side in (height, width))
        else:
            height = output_size(height, layer.size[0], layer.stride, layer.padding[0])
            width = output_size(width, layer.size[1], layer.stride, layer.padding[1])
            pixels[layer.name] = height * width
    return height, width


SPECIFICATION = model_specification(
    name="inception3",
    description="InceptionV3 without auxiliary head and dropout, 1001 classes",
    image_size=299,
    smallest_image=75,
    norm=NORM,
    convolutions=_convolutions((*STEM, *MODULES)),
    classifier=CLASSIFIER,
    pixels=_pixels,
)

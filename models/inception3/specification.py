"""InceptionV3 (Szegedy et al., arXiv:1512.00567) as tf_cnn_benchmarks trains it: no auxiliary head, no dropout.

Batch norm learns an offset only. All pools are 3×3.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from harness.models.layers import BatchNorm, Branches, Convolution, Layer, ModelSpecification, Pool

# The outline of a sequence: (channels, height, width) is a padded convolution; with "/2" it has stride 2 and no
# padding, with "VALID" only no padding. A list is outlines side by side.
Outline = List[Any]
AVERAGE, MAX = (Pool(kind, size=3, stride=1, padded=True) for kind in ("average", "max"))
MAX_HALVE = Pool("max", size=3, stride=2, padded=False)

STEM: Outline = [
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


def _c(width: int) -> List[Outline]:
    return [
        [(192, 1, 1)],
        [(width, 1, 1), (width, 1, 7), (192, 7, 1)],
        [(width, 1, 1), (width, 7, 1), (width, 1, 7), (width, 7, 1), (192, 1, 7)],
        [AVERAGE, (192, 1, 1)],
    ]


def _e(pool: Pool) -> List[Outline]:
    return [
        [(320, 1, 1)],
        [(384, 1, 1), [[(384, 1, 3)], [(384, 3, 1)]]],
        [(448, 1, 1), (384, 3, 3), [[(384, 1, 3)], [(384, 3, 1)]]],
        [pool, (192, 1, 1)],
    ]


MODULES: Dict[str, List[Outline]] = {
    "a1": _a(32),
    "a2": _a(64),
    "a3": _a(64),
    "b": [[(384, 3, 3, "/2")], [(64, 1, 1), (96, 3, 3), (96, 3, 3, "/2")], [MAX_HALVE]],
    "c1": _c(128),
    "c2": _c(160),
    "c3": _c(160),
    "c4": _c(192),
    "d": [[(192, 1, 1), (320, 3, 3, "/2")], [(192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3, "/2")], [MAX_HALVE]],
    "e1": _e(AVERAGE),
    "e2": _e(MAX),
}


def _sequence(name: str, inputs: int, outline: Outline) -> Tuple[List[Layer], int]:
    """The layers of an outline, with the names and input channels that it leaves out, and its output channels."""
    layers: List[Layer] = []
    for position, step in enumerate(outline):
        here = f"{name}.{position}"
        if isinstance(step, Pool):
            layers.append(step)
        elif isinstance(step, list):
            branches, inputs = _branches(here, inputs, step)
            layers.append(branches)
        else:
            outputs, height, width, *how = step
            stride = 2 if how == ["/2"] else 1
            layers.append(Convolution(here, inputs, outputs, (height, width), stride, padded=not how))
            inputs = outputs
    return layers, inputs


def _branches(name: str, inputs: int, outlines: List[Outline]) -> Tuple[Branches, int]:
    sequences = [_sequence(f"{name}.branch{i}", inputs, outline) for i, outline in enumerate(outlines, 1)]
    return Branches(tuple(tuple(layers) for layers, _ in sequences)), sum(outputs for _, outputs in sequences)


def _layers() -> Tuple[List[Layer], int]:
    layers, channels = _sequence("stem", 3, STEM)
    for name, outlines in MODULES.items():
        module, channels = _branches(name, channels, outlines)
        layers.append(module)
    return layers, channels


LAYERS, CHANNELS = _layers()
SPECIFICATION = ModelSpecification(
    name="inception3",
    description="InceptionV3 without auxiliary head and dropout, 1001 classes",
    image_size=299,
    smallest_image=75,
    norm=BatchNorm(decay=0.999, epsilon=0.001, gamma=False),
    layers=tuple(LAYERS),
    features=CHANNELS,
    num_classes=1001,
)

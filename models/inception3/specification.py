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


def _named(name: str, outline: Outline) -> Dict[str, Any]:
    return {f"{name}.{position}": step for position, step in enumerate(outline)}


def _layers(steps: Dict[str, Any], inputs: int) -> Tuple[Tuple[Layer, ...], int]:
    """The layers of an outline whose steps have names, with the input channels that it leaves out; its output channels."""
    layers: List[Layer] = []
    for name, step in steps.items():
        if isinstance(step, Pool):
            layers.append(step)
        elif isinstance(step, list):
            branches = [_layers(_named(f"{name}.branch{i}", outline), inputs) for i, outline in enumerate(step, 1)]
            layers.append(Branches(tuple(branch for branch, _ in branches)))
            inputs = sum(outputs for _, outputs in branches)
        else:
            outputs, height, width, *how = step
            layers.append(
                Convolution(name, inputs, outputs, (height, width), 2 if how == ["/2"] else 1, padded=not how)
            )
            inputs = outputs
    return tuple(layers), inputs


LAYERS, CHANNELS = _layers({**_named("stem", STEM), **MODULES}, inputs=3)
SPECIFICATION = ModelSpecification(
    name="inception3",
    description="InceptionV3 without auxiliary head and dropout, 1001 classes",
    image_size=299,
    smallest_image=75,
    norm=BatchNorm(decay=0.999, epsilon=0.001, gamma=False),
    layers=LAYERS,
    features=CHANNELS,
)

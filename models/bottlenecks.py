"""ResNets of bottlenecks, version 1 (He et al., arXiv:1512.03385), as tf_cnn_benchmarks trains them.

Version 1 is what the published results used: the first 1×1 convolution of a bottleneck has the stride. Version 1.5,
which torchvision and most recent figures use, has it in the 3×3 convolution: equally many parameters, but about 6 %
more arithmetic, so the two have different img/s and must not be compared.
"""

from __future__ import annotations

from typing import Iterator, Tuple

from harness.models.layers import BatchNorm, Convolution, ModelSpecification, Pool, Residual

EXPANSION = 4  # a bottleneck puts out this many times its width
WIDTHS = (64, 128, 256, 512)


def resnet(depth: int, counts: Tuple[int, int, int, int]) -> ModelSpecification:
    """The network with so many bottlenecks in each of its four stages."""
    return ModelSpecification(
        name=f"resnet{depth}",
        description=f"ResNet-{depth} v1 (stride in the first 1×1 of a bottleneck), 1001 classes",
        image_size=224,
        smallest_image=32,
        norm=BatchNorm(decay=0.9, epsilon=1e-5, gamma=True),
        layers=(
            Convolution("stem", 3, 64, (7, 7), 2),
            Pool("max", size=3, stride=2, padded=True),
            *_bottlenecks(counts, 64),
        ),
        features=WIDTHS[-1] * EXPANSION,
    )


def _bottlenecks(counts: Tuple[int, ...], inputs: int) -> Iterator[Residual]:
    for stage, (count, width) in enumerate(zip(counts, WIDTHS), 1):
        outputs = width * EXPANSION
        for block in range(1, count + 1):
            name, stride = f"stage{stage}_block{block}", 2 if block == 1 and stage > 1 else 1
            project = Convolution(f"{name}.shortcut", inputs, outputs, (1, 1), stride, relu=False)
            path = (
                Convolution(f"{name}.reduce", inputs, width, (1, 1), stride),
                Convolution(f"{name}.spatial", width, width, (3, 3)),
                # A residual branch starts as nothing (Goyal et al., arXiv:1706.02677, section 5.1). It costs the same to
                # compute; starting at one, rounding in the first layer would grow a thousandfold per step, and no two runs
                # would agree.
                Convolution(f"{name}.expand", width, outputs, (1, 1), relu=False, gamma="zeros"),
            )
            yield Residual(project if block == 1 else None, path)
            inputs = outputs

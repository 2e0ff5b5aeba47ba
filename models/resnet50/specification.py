"""ResNet-50 v1 (He et al., arXiv:1512.03385) as tf_cnn_benchmarks trains it under the name `resnet50`.

Version 1 is what the published results used: the first 1×1 convolution of a bottleneck has the stride. Version 1.5,
which torchvision and most recent figures use, has it in the 3×3 convolution: equally many parameters, but about 6 %
more arithmetic, so the two have different img/s and must not be compared.
"""

from __future__ import annotations

from typing import Iterator

from harness.models.layers import BatchNorm, Convolution, ModelSpecification, Pool, Residual

EXPANSION = 4  # a bottleneck puts out this many times its width
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # bottlenecks, width, stride of the first


def _bottlenecks(inputs: int) -> Iterator[Residual]:
    for stage, (count, width, first_stride) in enumerate(STAGES, 1):
        outputs = width * EXPANSION
        for block in range(1, count + 1):
            name, stride = f"stage{stage}_block{block}", first_stride if block == 1 else 1
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


SPECIFICATION = ModelSpecification(
    name="resnet50",
    description="ResNet-50 v1 (stride in the first 1×1 of a bottleneck), 1001 classes",
    image_size=224,
    smallest_image=32,
    norm=BatchNorm(decay=0.9, epsilon=1e-5, gamma=True),
    layers=(Convolution("stem", 3, 64, (7, 7), 2), Pool("max", size=3, stride=2, padded=True), *_bottlenecks(64)),
    features=STAGES[-1][1] * EXPANSION,
    num_classes=1001,
)

"""A chain of 1×1 convolutions: hardly any arithmetic, but 12 MB to exchange, a third of it in one tensor.

Nobody trains this network for its own sake. It makes the exchange of gradients visible on machines that compute slowly
(see docs/experiments.md), and its tensors are chosen for that:

- On images of a few pixels a 1×1 convolution is nearly a dense layer: two operations per parameter and pixel.
- One kernel of 4 MiB cannot be halved by more parameter servers. From three servers on it is the fullest server's load.
- The others have 2 MiB at most, so that slices of 1 MiB and less spread well over eight servers.
- There is no gamma: large kernels and small betas take turns, as in InceptionV3, so that dealing whole tensors in turn to
  an even number of servers leaves every second server nearly empty.
"""

from harness.models.layers import BatchNorm, Convolution, ModelSpecification

WIDTHS = (1024, 1024, 512, 512, 512, 512, 512, 256)  # channels between the 1×1 convolutions

SPECIFICATION = ModelSpecification(
    name="pointwise",
    description="a chain of 1×1 convolutions, 12 MB of parameters in few and unequal tensors, 1001 classes",
    image_size=32,
    smallest_image=32,
    norm=BatchNorm(decay=0.9, epsilon=1e-3, gamma=False),
    layers=(
        Convolution("stem", 3, WIDTHS[0], (3, 3), stride=8),  # leaves 4×4 pixels of 32×32
        *(Convolution(f"chain{i}", WIDTHS[i - 1], WIDTHS[i], (1, 1)) for i in range(1, len(WIDTHS))),
    ),
    features=WIDTHS[-1],
)

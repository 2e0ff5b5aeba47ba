"""The models as data: how large they are, in which order their tensors are created, and what they start from."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from harness import models
from harness.models.initial import initial_values
from tests.wording import Wording

each_model = pytest.mark.parametrize("name", sorted({*models.names()} - {"pointwise"}))

# Counted independently of this project, with 1000 classes: torchvision's ResNets (v1 and v1.5 have the same tensors), its
# vgg16 and alexnet, and Keras' InceptionV3 without its moving averages. With 10: the MNIST tutorial's network, whose images
# have one channel.
# With 2: the layers of Kurth et al. by hand; they print 2.3 MiB.
PUBLISHED = {
    "alexnet": 61_100_840,
    "hep_cnn": 594_178,
    "inception3": 23_817_352,
    "mnist_cnn": 3_274_634,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
}
# A class more is a column of the dense kernel and a bias; MNIST's two channels more are planes of the first 5×5 kernels.
# The fourth convolution of tf_cnn_benchmarks' AlexNet has 384 outputs in place of 256, which the fifth reads.
ADDED = {
    "alexnet": 4096 + 1 + 128 * (9 * 384 + 1) + 9 * 128 * 256,
    "hep_cnn": 128 + 1,
    "inception3": 2048 + 1,
    "mnist_cnn": 1024 + 1 + 2 * 5 * 5 * 32,
    "resnet50": 2048 + 1,
    "resnet101": 2048 + 1,
    "resnet152": 2048 + 1,
    "vgg16": 4096 + 1,
}


@each_model
def test_the_parameters_are_the_published_ones_and_those_of_the_extra_class_and_channels_under_names_of_their_own(
    name: str,
) -> None:
    specification = models.specification(name)
    assert specification.parameters == PUBLISHED[name] + ADDED[name]
    assert specification.bytes == 4 * specification.parameters
    names = [tensor.name for tensor in (*specification.tensors, *specification.statistics)]
    assert len(names) == len(set(names))


def test_inception3_has_two_statistics_but_no_gamma_per_convolution() -> None:
    specification = models.specification("inception3")
    last = [tensor.name.rsplit(".", 1)[1] for tensor in specification.tensors]
    assert last == ["kernel", "beta"] * 94 + ["kernel", "bias"]
    assert sum(tensor.elements for tensor in specification.statistics) == 34_432  # Keras': 23 851 784 less 23 817 352


def test_resnet50_creates_kernel_gamma_beta_and_the_shortcut_first() -> None:
    names = [tensor.name for tensor in models.specification("resnet50").tensors]
    assert [name.rsplit(".", 1)[1] for name in names] == ["kernel", "gamma", "beta"] * 53 + ["kernel", "bias"]
    units = [name.removesuffix(".conv.kernel") for name in names if name.endswith(".conv.kernel")]
    block = [f"stage1_block1.{part}" for part in ("shortcut", "reduce", "spatial", "expand")]
    assert units[:6] == ["stem", *block, "stage1_block2.reduce"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alexnet", [((6, 6, 256, 4096), 150_994_944), ((1, 1, 4096, 4096), 67_108_864)]),
        ("inception3", [((2048, 1001), 8_200_192), *[((3, 3, 448, 384), 6_193_152)] * 2]),
        ("vgg16", [((7, 7, 512, 4096), 411_041_792), ((1, 1, 4096, 4096), 67_108_864)]),
        (
            "resnet50",
            [*[((3, 3, 512, 512), 9_437_184)] * 3, ((1, 1, 1024, 2048), 8_388_608), ((2048, 1001), 8_200_192)],
        ),
    ],
)
def test_the_largest_tensors(name: str, expected: list[tuple[tuple[int, ...], int]]) -> None:
    tensors = sorted(models.specification(name).tensors, key=lambda tensor: -tensor.bytes)
    assert [(tensor.shape, tensor.bytes) for tensor in tensors[: len(expected)]] == expected


def test_a_model_without_batch_norm_has_a_bias_after_each_kernel_and_no_statistics() -> None:
    specification = models.specification("hep_cnn")
    assert [tensor.name.rsplit(".", 1)[1] for tensor in specification.tensors] == ["kernel", "bias"] * 6
    assert specification.statistics == ()


def test_a_hyphen_may_stand_for_an_underscore_and_an_unknown_model_is_told_which_there_are(wording: Wording) -> None:
    assert models.specification("hep-cnn").name == "hep_cnn"
    with wording("vgg").raises(models.UnknownModel, NAMES=", ".join(models.names())):
        models.specification("vgg")


def test_specifications_load_without_numpy() -> None:
    code = "import sys; from harness import models; [models.specification(n) for n in models.names()]; "
    subprocess.run([sys.executable, "-c", code + "assert 'numpy' not in sys.modules"], check=True)


Values = Callable[[str], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def values() -> Values:
    """The initial values of a model, drawn once: there are millions."""
    return cache(lambda name: initial_values(models.specification(name), seed=3))


@each_model
def test_initial_values_have_the_shapes_of_the_tensors(values: Values, name: str) -> None:
    specification = models.specification(name)
    shapes = {tensor.name: tensor.shape for tensor in (*specification.tensors, *specification.statistics)}
    assert {name: value.shape for name, value in values(name).items()} == shapes
    assert {value.dtype for value in values(name).values()} == {np.dtype(np.float32)}


def test_initial_values_follow_from_the_seed() -> None:
    specification = models.specification("pointwise")
    first, again, other = (initial_values(specification, seed) for seed in (3, 3, 4))
    for tensor in (*specification.tensors, *specification.statistics):
        assert np.array_equal(first[tensor.name], again[tensor.name])
        drawn = tensor.initial in ("he_normal", "small_normal")
        assert drawn != np.array_equal(first[tensor.name], other[tensor.name])


def test_every_tensor_has_a_stream_of_its_own(values: Values) -> None:
    shape = (3, 3, 512, 512)
    alike = [name for name, value in values("resnet50").items() if value.shape == shape]
    drawn = [values("resnet50")[name].ravel() for name in alike]
    assert len(drawn) == 3
    assert np.abs(np.corrcoef(drawn) - np.eye(3)).max() < 0.01


def test_kernels_have_the_variance_that_keeps_a_relu_network_alive(values: Values) -> None:
    kernel = values("resnet50")["stage4_block2.spatial.conv.kernel"]
    assert kernel.mean() == pytest.approx(0, abs=1e-4)
    assert kernel.var() == pytest.approx(2 / (3 * 3 * 512), rel=0.01)


@pytest.mark.parametrize(
    ("name", "kernel", "pinned"),
    [
        ("inception3", "stem.0.conv.kernel", [0.2728540301322937, -0.23630498349666595, 0.06000293418765068]),
        ("resnet50", "stem.conv.kernel", [0.11693744361400604, -0.1012735664844513, 0.0257155429571867]),
    ],
)
def test_no_numpy_version_changes_the_initial_values(
    values: Values, name: str, kernel: str, pinned: list[float]
) -> None:
    """Bitwise: the same digits came from NumPy 1.23.5 and 2.4.6."""
    assert values(name)[kernel].ravel()[:3].tolist() == pinned

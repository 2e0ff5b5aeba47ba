"""Synchronous means synchronous: N workers end with the parameters of one process that averages their gradients.

``one_process.py`` is that process, one per framework. Parameters agree when, tensor by tensor, the largest difference is at
most 1e-5 of the largest value (of 1 for offsets and scales that start at zero: they act on activations of unit variance).
That alone could be met by standing still, so the way that training has gone is compared too: over all tensors it differs by
less than 0.1 %, in each tensor by less than 2 %. A gradient summed instead of averaged, dropped, stale, or applied to the
wrong slice would differ by 10 to 100 %.

Why not less: a network of ReLUs has gradients with jumps. Rounding a float32 sum in another order moves one activation in
millions across zero, and from then on single offsets differ in their third digit, whoever computes them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import models
from harness.models.initial import initial_values
from harness.records import measurement
from tests.conftest import Harness, once
from tests.parity.conftest import HOMES, inside

TOLERANCE = 1e-5
LOSS_TOLERANCE = 1e-4
# All ways train ResNet-50 in `test_losses.py`, some of them in `make test-all` alone. Here that is what the default tests
# train, and others have a model of few tensors: 2.4 MB, of which a bucket of 1 MB holds one or two layers.
MODEL, SMALL = "resnet50", "hep_cnn"
BATCH, SIZES, STEPS, RATE = 4, {MODEL: 48, SMALL: 32}, 3, 0.001
PROTOCOL = ["--batch-size", str(BATCH), "--threads", "1", "--repeats", "1", "--learning-rate", str(RATE)]
PROTOCOL += ["--warmup", "1", "--steps", str(STEPS - 1), "--save-parameters"]

Parameters = dict[str, np.ndarray]


@dataclass(frozen=True)
class Reached:
    """Where a training has come: its parameters, and the loss of every step on the way."""

    losses: np.ndarray
    parameters: Parameters


@dataclass(frozen=True)
class Way:
    """Nodes × devices that train in some way, and the framework that the one process uses."""

    framework: str
    nodes: int
    arguments: str
    devices_per_node: int = 1
    model: str = SMALL

    def __str__(self) -> str:
        return f"{self.nodes}x{self.devices_per_node} {self.arguments}"


def slow(way: Way) -> Any:
    return pytest.param(way, marks=pytest.mark.slow)


def exhaustive(way: Way) -> Any:
    return pytest.param(way, marks=[pytest.mark.slow, pytest.mark.exhaustive])


SEVERAL = "--ps 2 --ps-per-node 2 --workers-per-node 2"
SLICED = "--placement partitioned --ps 2 --slice-size 256KiB"
# Each backend, framework and transport, with each of its options that change who sums what. Where three or four workers do,
# fewer are left to `make test-all`, and so are two devices a node where no server is told of them, and an option that
# another backend of the framework has in the same way: `test_losses.py` has all ways with two.
SYNCHRONOUS = [
    Way("torch", 2, "pytorch", model=MODEL),
    exhaustive(Way("torch", 1, "pytorch", devices_per_node=2)),
    slow(Way("torch", 3, "pytorch --transport mpi --bucket-mb 1")),
    exhaustive(Way("torch", 2, "pytorch --transport mpi", devices_per_node=2)),
    slow(Way("torch", 2, "torch_parameter_server --ps 2 --placement partitioned", model=MODEL)),
    exhaustive(Way("torch", 2, "torch_parameter_server --transport mpi --order none")),
    slow(Way("torch", 3, f"torch_parameter_server --transport mpi {SLICED}")),
    exhaustive(Way("torch", 3, "torch_parameter_server --placement round_robin --ps 3 --order none")),
    exhaustive(Way("torch", 2, "torch_parameter_server --ps 3 --ps-nodes dedicated")),
    exhaustive(Way("torch", 2, f"torch_parameter_server --transport mpi {SEVERAL}", devices_per_node=2)),
    slow(Way("tensorflow", 2, "parameter_server --placement greedy", model=MODEL)),
    exhaustive(Way("tensorflow", 2, "parameter_server --placement round_robin --ps 2")),
    slow(Way("tensorflow", 3, f"parameter_server {SLICED}")),
    exhaustive(Way("tensorflow", 2, "parameter_server --ps 3 --ps-nodes dedicated")),
    exhaustive(Way("tensorflow", 2, "parameter_server", devices_per_node=2)),
    slow(Way("tensorflow", 2, f"parameter_server {SEVERAL}", devices_per_node=2)),
    exhaustive(Way("tensorflow", 2, "distributed_replicated --placement round_robin")),
    slow(Way("tensorflow", 3, f"distributed_replicated {SLICED}")),
    exhaustive(Way("tensorflow", 2, "distributed_replicated", devices_per_node=2)),
    exhaustive(Way("tensorflow", 1, f"distributed_replicated {SEVERAL}", devices_per_node=2)),
    slow(Way("tensorflow", 3, f"parameter_server_strategy {SLICED}")),
    slow(Way("tensorflow", 3, "multi_worker_mirrored --pack-mb 1")),
    exhaustive(Way("tensorflow", 1, "multi_worker_mirrored", devices_per_node=2)),
    slow(Way("tensorflow", 3, "horovod --framework tensorflow --transport mpi --fusion-threshold-mb 1")),
    exhaustive(Way("tensorflow", 2, "horovod --framework tensorflow --transport gloo", devices_per_node=2)),
    exhaustive(Way("torch", 2, "horovod --framework torch --transport mpi")),
    slow(Way("torch", 3, "horovod --framework torch --transport gloo --fusion-threshold-mb 1")),
    exhaustive(Way("torch", 2, "horovod --framework torch --transport mpi", devices_per_node=2)),
    slow(Way("jax", 2, "jax")),
    exhaustive(Way("jax", 3, "jax")),
    exhaustive(Way("jax", 1, "jax", devices_per_node=2)),
    exhaustive(Way("caffe2", 2, "caffe2 --transport mpi")),
    slow(Way("caffe2", 3, "caffe2 --transport gloo")),
    slow(Way("caffe2", 2, "caffe2 --transport mpi --mpi-operators mpi4py")),
    exhaustive(Way("caffe2", 2, "caffe2 --transport mpi", devices_per_node=2)),
]


@pytest.fixture
def expected(environment: Callable[[str], Path]) -> Callable[..., Reached]:
    """What one process reaches with the batches of N devices."""

    def one_process(framework: str, model: str, workers: int) -> Reached:
        def run(folder: Path) -> None:
            arguments = (framework, model, workers, BATCH, SIZES[model], STEPS, RATE, folder / "reached.npz")
            inside(environment(HOMES[framework]), "one_process.py", *arguments)

        folder = once(("one process", framework, model, workers), run)
        parameters = dict(np.load(folder / "reached.npz"))
        return Reached(losses=parameters.pop("losses"), parameters=parameters)

    return one_process


def trained(harness: Harness, folder: Path, nodes: int, model: str, *arguments: str) -> list[Reached]:
    """What every rank has reached after a run."""
    which = ["--model", model, "--image-size", str(SIZES[model]), "--nodes", str(nodes)]
    harness("run", *which, *PROTOCOL, "--backend", *arguments).succeeded()
    (run,) = folder.glob("runs/*")
    (repeat,) = measurement.Record.read(run).repeats
    assert all(check.passed for check in repeat.checks)
    return [
        Reached(
            losses=np.array(rank.evidence["losses"]),
            parameters=dict(np.load(run / "repeat-1" / f"parameters-{rank.rank}.npz")),
        )
        for rank in repeat.ranks
    ]


def difference(ours: np.ndarray, theirs: np.ndarray, start: np.ndarray) -> float:
    """The largest difference, in units of the tensor's largest value (of 1 where it starts at zero)."""
    scale = np.abs(theirs).max() if start.any() else 1.0
    return float(np.abs(ours - theirs).max() / scale)


def distance(ours: Parameters, theirs: Parameters, names: Iterable[str]) -> float:
    return float(np.sqrt(sum(np.sum((ours[name] - theirs[name]) ** 2, dtype=np.float64) for name in names)))


def rounding(values: np.ndarray) -> float:
    """How far a tensor moves when every value is off by one unit in the last place of float32."""
    return float(np.finfo(np.float32).eps * np.linalg.norm(values))


@pytest.mark.parametrize("way", SYNCHRONOUS, ids=str)
def test_n_workers_equal_one_process_that_averages_their_gradients(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path, expected: Callable[..., Reached], way: Way
) -> None:
    environment(way.arguments.split()[0], way.framework)
    arguments = [*way.arguments.split(), "--devices-per-node", str(way.devices_per_node)]
    ranks = trained(harness, tmp_path, way.nodes, way.model, *arguments)
    one = expected(way.framework, way.model, way.nodes * way.devices_per_node)
    every_device_trained_on_its_own_batch(ranks, one)
    reference = one.parameters
    start = initial_values(models.specification(way.model), seed=1)
    for other in ranks[1:]:
        assert all(np.array_equal(other.parameters[name], ranks[0].parameters[name]) for name in reference)
    ours = ranks[0].parameters
    too_far = {
        name: by for name in reference if (by := difference(ours[name], reference[name], start[name])) > TOLERANCE
    }
    assert not too_far
    # XLA compiles another program for several processes, whose rounding turns a few activations on or off: 3 % of a tensor.
    rounded_apart = 0.05 if way.framework == "jax" else 0.02
    astray = {
        name: by
        for name in reference
        if (by := distance(ours, reference, [name]))
        > rounded_apart * distance(reference, start, [name]) + rounding(reference[name])
    }
    assert not astray
    moved = [name for name in reference if distance(reference, start, [name]) > 50 * rounding(reference[name])]
    assert len(moved) > len(reference) / 3  # in the others the change is lost in rounding, and so says nothing
    assert distance(ours, reference, reference) < 1e-3 * distance(reference, start, reference)


def every_device_trained_on_its_own_batch(ranks: list[Reached], one: Reached) -> None:
    """Device d of node n trains on batch n·K + d, where nodes have K devices; a rank reports the mean over its devices.

    A mean of gradients would not tell who had which batch. The losses do: no two batches' are that close.
    """
    of_ranks = one.losses.reshape(STEPS, len(ranks), -1).mean(axis=2)
    assert all(
        abs(first - second) > 10 * LOSS_TOLERANCE * first for first, second in combinations(one.losses[0].tolist(), 2)
    )
    for number, rank in enumerate(ranks):
        assert rank.losses == pytest.approx(of_ranks[:, number], rel=LOSS_TOLERANCE)

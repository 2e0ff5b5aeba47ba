"""The worker's side of a training: the learning rate of every step, what counts as right, and where a rank goes on."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.core.backend import backend
from harness.core.plan import with_options
from harness.core.spec import RunSpec, Training
from harness.errors import InvalidInput
from harness.worker import checkpoint
from harness.worker.inputs.index import ImageIndex
from harness.worker.inputs.order import ReadingOrder
from harness.worker.trainer import PADDING, evaluation
from harness.worker.training import learning_rate
from tests.wording import Wording

STEPS = 10  # of an epoch


def rates(global_batch: int, warmup_epochs: float = 5) -> list[float]:
    """The rate of every step in 90 epochs."""
    training = {"reference_batch": 256, "warmup_epochs": warmup_epochs, "decay_epochs": [30, 60, 80], "decay": 0.1}
    spec = {"learning_rate": 0.1, "training": training}
    return [learning_rate(spec, global_batch, STEPS, step) for step in range(90 * STEPS)]


def test_the_rate_grows_with_the_global_batch_and_is_reached_by_a_gradual_warmup() -> None:
    large = rates(8192)  # Goyal et al., section 5.1: from 0.1 to 3.2 within five epochs
    assert large[0] == pytest.approx(0.1)
    assert np.diff(large[: 5 * STEPS + 1]) == pytest.approx(np.full(5 * STEPS, (3.2 - 0.1) / (5 * STEPS)))
    assert large[5 * STEPS : 30 * STEPS] == pytest.approx([3.2] * 25 * STEPS)


def test_the_rate_falls_after_each_of_the_decay_epochs() -> None:
    large = rates(8192)
    for epochs, decayed in ((30, 3.2), (60, 0.32), (80, 0.032), (90, 0.0032)):
        assert large[epochs * STEPS - 1] == pytest.approx(decayed)
    assert len({round(rate, 9) for rate in large[5 * STEPS :]}) == 4


def test_a_small_global_batch_and_a_training_without_warmup_have_their_rate_from_the_first_step() -> None:
    assert rates(64)[0] == rates(64)[5 * STEPS] == pytest.approx(0.025)
    assert rates(512, warmup_epochs=0)[0] == pytest.approx(0.2)


def test_an_image_is_right_when_its_class_is_first_or_among_the_first_five_and_padding_does_not_count() -> None:
    logits = np.array([[9, 1, 2, 3, 4, 5, 6]] * 4, np.float32)
    found = evaluation([(logits[:2], np.array([0, 3])), (logits[2:], np.array([1, PADDING]))])
    assert (found.images, found.top1, found.top5) == (3, 1, 2)  # classes 0, 3 and 1 are first, fifth and last
    exact = [np.log(np.exp(logits[0].astype(float)).sum()) - logits[0, label] for label in (0, 3, 1)]
    assert found.loss == pytest.approx(sum(exact))


def test_a_model_that_tells_no_classes_apart_is_never_right() -> None:
    labels = np.zeros(4, np.int64)
    for logit in (0.0, np.nan):
        found = evaluation([(np.full((4, 1001), logit, np.float32), labels)])
        assert (found.images, found.top1, found.top5) == (4, 0, 0)


def test_a_rank_goes_on_with_the_image_after_those_that_it_has_read() -> None:
    images = ImageIndex("/data", [str(number) for number in range(23)], [1] * 23)
    for rank in range(3):
        first = ReadingOrder(images, rank, 3, batch_size=4, image_size=8, decoders=0, seed=1)
        all_of_them = list(itertools.islice(first.positions(), 40))
        for done in (0, 5, 8, 21):
            rest = replace(first, done=done).positions()
            assert list(itertools.islice(rest, 40 - done)) == all_of_them[done:]


def test_the_last_two_checkpoints_are_kept_and_nothing_half_written(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for last in (9_998, 9_999, 10_000):
        checkpoint.write(folder, {"weights": np.full(3, last)}, [{"epoch": last}])
    assert sorted(file.name for file in folder.iterdir()) == ["epoch-10000.npz", "epoch-9999.npz"]
    with np.load(folder / "epoch-10000.npz", allow_pickle=False) as file:
        assert json.loads(str(file["history"])) == [{"epoch": 10_000}]
        assert file["weights"].tolist() == [10_000] * 3


@pytest.mark.parametrize("sync", ["barrier", "none"])
def test_servers_that_never_see_the_mean_gradient_train_without_momentum_and_weight_decay(
    sync: str, wording: Wording
) -> None:
    servers = backend("parameter_server")
    for momentum, decay, refused in ((0.9, 0, True), (0, 1e-4, True), (0, 0, False)):
        training = Training(validation="/data", momentum=momentum, weight_decay=decay)
        fields = {"data": "/data", "repeats": 1, "nodes": 2, "training": training, "options": {"sync": sync}}
        spec = RunSpec(backend="parameter_server", **fields)
        if refused:
            with wording(sync).raises(InvalidInput):
                servers.validate(with_options(spec, servers))
        else:
            servers.validate(with_options(spec, servers))


def test_workers_that_take_steps_as_they_are_free_have_no_epochs(wording: Wording) -> None:
    servers, training = backend("parameter_server_strategy"), Training(validation="/data", momentum=0, weight_decay=0)
    spec = RunSpec(backend=servers.name, data="/data", nodes=2, training=training, options={"sync": "none"})
    with wording("none").raises(InvalidInput):
        servers.validate(with_options(spec, servers))

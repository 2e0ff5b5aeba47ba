"""Who is fastest and who scales best: known answers, how often a winner is named where there is none, and the words."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from harness.analysis.fastest import Race, races
from harness.report.text import fastest as words
from tests.unit.made_rows import HOROVOD, SERVERS, frame, run
from tests.unit.simulated import draws, most

TORCH = {
    "backend": "pytorch",
    "family": "toolkit",
    "software": "PyTorch 2.13.0",
    "framework": "torch",
    "transport": "gloo",
}


def around(mean: float, noise: float = 0.01, count: int = 5, seed: int = 1) -> list[float]:
    """Values whose mean and relative standard deviation are as given."""
    chance = random.Random(seed)
    values = [chance.gauss(0, 1) for _ in range(count)]
    middle = sum(values) / count
    scale = (sum((value - middle) ** 2 for value in values) / (count - 1)) ** 0.5
    return [mean * (1 + noise * (value - middle) / scale) for value in values]


def race(rows: Sequence[dict[str, Any]], **how: Any) -> Race:
    (only,) = races(frame(rows), **how)
    return only


def said(rows: Sequence[dict[str, Any]]) -> str:
    return words.text(races(frame(rows)))


TWO = [
    *(run(1, around(100), **SERVERS), run(2, around(150, seed=2), **SERVERS)),
    *(run(1, around(110, seed=3), **HOROVOD), run(2, around(210, seed=4), **HOROVOD)),
]


def test_the_fastest_at_each_size_is_named_with_its_lead_its_cost_and_who_scales_best() -> None:
    both = race(TWO)
    assert [(one.workers, one.best.facets["backend"], one.decided) for one in both.sizes] == [
        (1, "horovod", True),
        (2, "horovod", True),
    ]
    second = both.sizes[1].standings[1]
    assert second.ratio.value == pytest.approx(1.4) and second.ratio.interval and second.ratio.interval[0] > 1.35
    assert second.node_hours == pytest.approx(2 * 1e6 / 150 / 3600)
    assert both.scales and both.scales.decided and both.scales.base == 1
    assert both.scales.best.point.efficiency == pytest.approx(210 / 220)
    text = said(TWO)
    assert text.startswith(
        "On daint:gpu (inception3, synthetic, batch 64 per device) Horovod 0.28.1 on TensorFlow 2.16.1 over MPI is fastest "
        "on 2 nodes: 1.40 × [1.3"
    )
    assert "(210 against 150 img/s; 2.65 against 3.7 node-hours per million images)" in text
    assert "is best to scale from 1 to 2 nodes: it keeps 1.27 × [1.2" in text
    assert "What would tell" not in text


def test_with_nodes_only_that_size_is_ranked() -> None:
    (only,) = race(TWO, nodes=1).sizes
    assert only.workers == 1 and only.best.facets["backend"] == "horovod"
    assert races(frame(TWO), nodes=3) == []
    assert words.headline([]) == ["No run among these results has a number to compare."]


def test_what_noise_hides_is_undecided_with_one_number_of_repeats() -> None:
    rows = [run(2, around(100, 0.2), **SERVERS), run(2, around(120, 0.2, seed=2), **TORCH)]
    (only,) = race(rows).sizes
    assert not only.decided and [one.facets["backend"] for one in only.rivals] == ["parameter_server"]
    assert only.repeats and 5 < only.repeats < 60
    text = said(rows)
    assert (
        "PyTorch 2.13.0 over Gloo or parameter_server on TensorFlow 2.16.1 over gRPC is fastest on 2 nodes, which is"
        in text
    )
    assert text.count(f"about {only.repeats} repeats") == 1


def test_contenders_within_five_percent_are_equal_and_need_no_more_repeats() -> None:
    rows = [run(2, around(100), **SERVERS), run(2, around(101, seed=2), **TORCH)]
    assert race(rows).sizes[0].equal
    assert "equal to within 5 %" in said(rows) and "What would tell" not in said(rows)


def test_without_repeats_nobody_wins() -> None:
    rows = [run(2, 100.0, **SERVERS), run(2, 200.0, **TORCH)]
    assert race(rows).sizes[0].p is None and not race(rows).sizes[0].decided
    assert "by chance or not (there are no repeats): 2.00 × the img/s" in said(rows)
    assert "What would tell: 5 repeats of each on 2 workers" in said(rows)


def test_what_is_alone_is_said_to_be_alone() -> None:
    assert said([run(4, around(100), **TORCH)]).startswith("Nothing to compare: ")


def test_unlike_runs_never_race() -> None:
    rows = [run(2, around(100), **SERVERS), run(2, around(200), **TORCH, batch_size=32)]
    assert [len(one.sizes[0].standings) for one in races(frame(rows))] == [1, 1]
    asynchronous = [run(2, around(100), **SERVERS), run(2, around(200), **TORCH, training="sync=none")]
    assert [one.best.facets["backend"] for one in race(asynchronous).sizes] == ["parameter_server"]


@draws(2000)
@pytest.mark.parametrize("contenders", [2, 4])
def test_where_all_are_alike_a_winner_is_named_in_at_most_one_of_twenty_cases(contenders: int, count: int) -> None:
    """The claim is about whoever came out best, at any of the sizes."""
    chance = random.Random(contenders)
    wrong = 0
    for _ in range(count):
        rows = [
            run(size, [chance.gauss(100, 3) for _ in range(4)], **TORCH | {"software": f"PyTorch {number}"})
            for number in range(contenders)
            for size in (1, 2)
        ]
        wrong += any(one.decided for one in race(rows).sizes)
    assert wrong <= most(0.05, count)


def test_every_figure_is_there_for_scripts() -> None:
    printed = words.as_json(races(frame(TWO)))
    assert printed["headline"] == words.headline(races(frame(TWO)))
    last = printed["races"][0]["sizes"][-1]
    assert [one["backend"] for one in last["standings"]] == ["horovod", "parameter_server"]
    assert last["decided"] and last["standings"][1]["best_over_this"] == pytest.approx(1.4)
    assert printed["races"][0]["scaling"]["base_workers"] == 1

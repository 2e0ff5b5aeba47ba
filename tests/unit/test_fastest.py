"""Who is fastest and who scales best: known answers, how often a winner is named where there is none, and the words."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.fastest import Race, races
from harness.analysis.ratios import Ratio
from harness.analysis.verdict import verdict
from harness.report.text import fastest as words
from harness.report.text import verdict as verdict_words
from harness.results import load
from tests.conftest import Harness
from tests.unit.made_rows import HOROVOD, SERVERS, listed, run
from tests.unit.simulated import most

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


def race(rows: Sequence[dict[str, Any]]) -> Race:
    (only,) = races(listed(rows))
    return only


def said(rows: Sequence[dict[str, Any]]) -> str:
    return words.text(races(listed(rows)), verdict(listed(rows)), in_detail=True)


TWO = [
    *(run(1, around(100), **SERVERS), run(2, around(150, seed=2), **SERVERS)),
    *(run(1, around(110, seed=3), **HOROVOD), run(2, around(210, seed=4), **HOROVOD)),
]


def test_the_fastest_at_each_size_is_named_with_its_lead_and_who_scales_best() -> None:
    both = race(TWO)
    assert [one.workers for one in both.sizes] == [1, 2]
    assert all(one.best.facets["backend"] == "horovod" and one.decided for one in both.sizes)
    ratio = both.sizes[1].standings[1].ratio
    assert ratio.value == pytest.approx(1.4, rel=1e-3) and ratio.interval and ratio.interval[0] > 1.35
    assert both.scales and both.scales.decided and both.scales.base == 1
    assert both.scales.best.point.efficiency == pytest.approx(210 / 220, rel=1e-3)
    text = said(TWO)
    assert text.startswith(
        "On daint:gpu (inception3, synthetic, batch 64 per device) Horovod on TensorFlow over MPI is fastest on 2 nodes: "
        "it has 1.40 × [1.3"
    )
    assert "(210 against 150 img/s)" in text
    assert "From 1 to 2 nodes Horovod on TensorFlow over MPI scales best: it keeps 1.27 × [1.2" in text
    assert "with the lead over the next: 1 node, Horovod on TensorFlow over MPI, 1.10 × [1.0" in text
    assert "Do MPI-based toolkits scale better than parameter servers? Yes. " in text
    assert "What would decide it" not in text


def test_what_noise_hides_is_undecided_with_one_number_of_repeats() -> None:
    rows = [run(2, around(100, 0.2), **SERVERS), run(2, around(120, 0.2, seed=2), **TORCH)]
    (only,) = race(rows).sizes
    assert not only.decided and [one.facets["backend"] for one in only.rivals] == ["parameter_server"]
    assert only.units and 5 < only.units < 60
    text, servers = said(rows), "parameter_server on TensorFlow over gRPC"
    assert f"it is undecided whether PyTorch over Gloo or {servers} is fastest on 2 n" in text
    assert text.count(f"about {only.units} jobs") == 1


def test_an_interval_that_leaves_out_one_but_decides_nothing_is_explained() -> None:
    rows = [
        *(run(1, around(100, 0.1), **SERVERS), run(2, around(150, 0.1, seed=2), **SERVERS)),
        *(run(1, around(100, 0.1, seed=3), **TORCH), run(2, around(174.6, 0.1, seed=4), **TORCH)),
    ]
    largest = race(rows).sizes[-1]
    interval = largest.standings[1].ratio.interval
    assert interval and interval[0] > 1 and not largest.decided
    assert "that interval would do for one size, but not where several are looked at" in said(rows)


@pytest.mark.parametrize(("noise", "ratio"), [(0.03, 1.06), (0.05, 1.1), (0.02, 1.07)])
def test_the_repeats_that_would_decide_decide_and_no_fewer_would(noise: float, ratio: float) -> None:
    """At the same noise and with the same ratio, though the smaller size stays undecided."""

    def measured(count: int) -> Race:
        pairs = [(1, 100, SERVERS), (1, 100.2, TORCH), (8, 800, SERVERS), (8, 800 * ratio, TORCH)]
        return race(
            [run(size, around(mean, noise, count, seed), **who) for seed, (size, mean, who) in enumerate(pairs)]
        )

    needed = measured(4).sizes[-1].units
    assert needed and measured(needed).sizes[-1].decided and not measured(needed - 1).sizes[-1].decided
    assert not measured(needed).sizes[0].decided


def test_all_that_is_undecided_takes_one_number_of_repeats() -> None:
    noisy = [
        run(size, around(mean * size, 0.1, seed=size * mean), **contender)
        for size in (1, 2, 4)
        for mean, contender in ((100, SERVERS), (103, HOROVOD))
    ]
    text = said(noisy)
    assert text.count("What would decide it") == 1 and text.count(" jobs of each contender on ") == 1
    assert "What would decide it" in text.split("\n\n")[0]


def test_contenders_within_five_percent_are_equal_and_need_no_more_repeats() -> None:
    rows = [run(2, around(100), **SERVERS), run(2, around(101, seed=2), **TORCH)]
    assert race(rows).sizes[0].equal
    text, servers = said(rows), "parameter_server on TensorFlow over gRPC"
    assert f"PyTorch over Gloo and {servers} are equally fast on 2 nodes, to within 5 %: " in text
    assert "What would decide it" not in text
    strict, loose = (races(listed(rows), margin=margin) for margin in (0.01, 0.1))
    assert not strict[0].sizes[0].equal and loose[0].sizes[0].equal
    assert "are equally fast on 2 nodes, to within 10 %: " in words.text(loose, verdict(listed(rows)), in_detail=True)


@pytest.mark.parametrize(("noise", "equal"), [(0.0325, True), (0.033, False)])
def test_an_interval_that_ends_beyond_five_percent_is_not_equal(noise: float, equal: bool) -> None:
    (only,) = race([run(2, around(100, noise), **SERVERS), run(2, around(100, noise, seed=2), **TORCH)]).sizes
    interval = only.rivals[0].ratio.interval
    assert interval and interval[1] == pytest.approx(1.05, abs=0.002)
    assert only.equal == equal == (interval[1] <= 1.05)


def test_without_repeats_nobody_wins() -> None:
    rows = [run(2, 100.0, **SERVERS), run(2, 200.0, **TORCH)]
    assert race(rows).sizes[0].p is None and not race(rows).sizes[0].decided
    text = said(rows)
    assert "PyTorch over Gloo was fastest on 2 nodes when it was measured: it has 2.00 × the img/s of " in text
    assert "but no repeats are known, so that may be chance" in text
    how = "3 jobs of each contender on 2 nodes (`--jobs 3` on a cluster, else as many runs)"
    assert f"What would decide it: {how}" in text


def test_an_efficiency_that_cannot_be_is_doubted() -> None:
    slowed = [run(1, around(10, seed=5), **TORCH), run(2, around(210, seed=6), **TORCH)]
    doubt = "More than 110 % says that something slowed down the smaller size: measure it again."
    assert doubt in said(TWO[:2] + slowed)
    assert "slowed" not in said(TWO)


def test_what_is_alone_is_said_to_be_alone() -> None:
    assert "there is nothing to compare PyTorch 2.13.0 over Gloo with: 100 img/s" in said(
        [run(4, around(100), **TORCH)]
    )


def test_only_what_is_known_is_said(harness: Harness, tmp_path: Path) -> None:
    rates = {"horovod": (100, 180), "parameter_server": (95, 110)}
    rows = [f"mine,{name},{2**n},{rate}" for name, both in rates.items() for n, rate in enumerate(both)]
    (tmp_path / "four.csv").write_text("\n".join(["system,backend,nodes,img_per_s", *rows]))
    text = harness("best", "four.csv", "--details").succeeded().stdout
    assert text.startswith("On mine horovod was fastest on 2 nodes when it was measured: it has 1.64 × ")
    assert "(, " not in text and ", ," not in text and "batch" not in text.partition("Not equal")[0], text


@pytest.mark.parametrize(
    ("limits", "text"),
    [(None, "1.20 ×"), ((0.714, 1.5), "1.20 × [0.71, 1.50]"), ((0.00321, 1144.26), "1.20 × [0.0032, 1144]")],
)
def test_bounds_have_the_digits_that_say_something(limits: tuple[float, float] | None, text: str) -> None:
    assert verdict_words.ratio(Ratio(1.2, limits)) == text


def test_what_else_was_compared_is_counted() -> None:
    rows = [run(2, around(100), **one, system=system) for one in (SERVERS, TORCH) for system in ("here", "there")]
    found = races(listed(rows)), verdict(listed(rows))
    assert words.headline(*found).endswith(
        "`harness best` has 1 more comparison, of other systems, models, data or batches."
    )
    assert words.answer(*found) == words.headline(*found).splitlines()[:-1]


def test_unlike_runs_never_race() -> None:
    rows = [run(2, around(100), **SERVERS), run(2, around(200), **TORCH, batch_size=32)]
    assert [len(one.sizes[0].standings) for one in races(listed(rows))] == [1, 1]
    asynchronous = [run(2, around(100), **SERVERS), run(2, around(200), **TORCH, training="sync=none")]
    assert [one.best.facets["backend"] for one in race(asynchronous).sizes] == ["parameter_server"]


def test_runs_of_more_steps_join_their_race_and_that_is_said() -> None:
    rows = [run(2, around(100), **SERVERS), run(2, around(200), **TORCH, steps=10)]
    assert race(rows).sizes[0].decided
    assert "runs differ in measured steps 10, 100" in said(rows)


@pytest.mark.slow
@pytest.mark.parametrize("contenders", [2, 4])
def test_where_all_are_alike_a_winner_is_named_in_at_most_one_of_twenty_cases(contenders: int) -> None:
    """The claim is about whoever came out best, at any of the sizes."""
    chance, count = random.Random(contenders), 2000
    rows = [
        run(size, [chance.gauss(100, 3) for _ in range(4)], **TORCH | {"software": f"{number}"}, system=f"{case}")
        for case in range(count)
        for number in range(contenders)
        for size in (1, 2)
    ]
    found = races(listed(rows))
    assert [[len(one.standings) for one in each.sizes] for each in found] == [[contenders] * 2] * count
    assert sum(any(one.decided for one in each.sizes) for each in found) <= most(0.05, count)


def test_every_figure_is_there_for_scripts(harness: Harness) -> None:
    printed = harness("best", "reference:daint", "--json").succeeded().json
    loaded = load(["reference:daint"])
    assert printed["answer"] == words.answer(races(loaded), verdict(loaded))
    assert printed["verdict"]["answer"] == "cannot say" and printed["headline"] in printed["answer"][-2]
    first = printed["races"][0]
    last = [ranking for ranking in first["sizes"] if len(ranking["standings"]) > 1][-1]
    assert [(one["facets"]["backend"], one["point"]["best"]["ps"]) for one in last["standings"]] == [
        ("horovod", 0),
        ("parameter_server", 12),
    ]
    assert last["standings"][1]["ratio"]["value"] == pytest.approx(1.147, abs=1e-3)
    assert (last["workers"], last["decided"], last["units"], first["scales"]["base"]) == (32, False, None, 8)

"""`harness compare`: which results form pairs, when a pair is slower, what may explain it, and what CI systems read."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from harness.analysis import differences, ratios
from harness.analysis import regression as regressions
from harness.analysis.ratios import Sample
from harness.analysis.regression import ALPHA, ComparedResults, Judgement, Rule, compare
from harness.errors import InvalidInput
from harness.records.measurement import Record
from harness.report.text import regression as report
from harness.results.result import Result, of_training
from tests import made
from tests.conftest import Harness
from tests.unit.simulated import draws, least, most
from tests.wording import Case, Wording, cases

pytestmark = pytest.mark.usefixtures("shelf")
FIVE = np.array([0.99, 0.995, 1.0, 1.005, 1.01])  # the spread of five repeats


def each_a_job(values: Sequence[float] | np.ndarray) -> Sample:
    return Sample.of(values, [str(number) for number in range(len(values))])  # type: ignore[arg-type]


def judge(
    old: Sequence[Sequence[float] | np.ndarray], new: Sequence[Sequence[float] | np.ndarray], rule: Rule | None = None
) -> list[Judgement]:
    """Each value has a job of its own."""
    pairs = [(each_a_job(before), each_a_job(after)) for before, after in zip(old, new, strict=True)]
    return regressions.judge(pairs, rule or Rule())


apart = partial(made.record, apart=True)


def of(*records: Record) -> list[Result]:
    return [of_training(one, Path(one.id) / Record.file_name) for one in records]


def compared(old: Sequence[Record], new: Sequence[Record], rule: Rule | None = None) -> ComparedResults:
    return compare(of(*old), of(*new), rule or Rule())  # type: ignore[arg-type]


# --- the rule -------------------------------------------------------------------------------------


def normal(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.standard_normal(shape)


def heavy_tailed(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.standard_t(3, shape) / 3**0.5


def slower(count: int, change: float, noise: float, kind: Callable[..., np.ndarray] = normal, pairs: int = 1) -> int:
    """In how many of ``count`` comparisons of ``pairs`` pairs, 5 repeats a side, something is called slower."""
    generator = np.random.default_rng(20260101)
    shape = (count, pairs, 5)
    old = 100 * np.exp(noise * kind(generator, shape))
    new = 100 * (1 + change) * np.exp(noise * kind(generator, shape))
    found = [
        any(one.verdict == "slower" for one in judge(before, after)) for before, after in zip(old, new, strict=True)
    ]
    return sum(found)


@draws(4000)
@pytest.mark.parametrize("kind", [normal, heavy_tailed])
@pytest.mark.parametrize("noise", [0.01, 0.02, 0.05])
def test_no_more_unchanged_pairs_are_called_slower_than_alpha(
    noise: float, kind: Callable[..., np.ndarray], count: int
) -> None:
    assert slower(count, 0.0, noise, kind) <= most(ALPHA, count)


@draws(4000)
def test_a_slowdown_of_5_percent_in_2_percent_of_noise_is_found_in_95_of_100_cases(count: int) -> None:
    assert slower(count, -0.05, 0.02) >= least(0.95, count)


@draws(1000)
@pytest.mark.parametrize("noise", [0.01, 0.02, 0.05])
def test_no_more_comparisons_of_50_unchanged_pairs_fail_than_alpha(noise: float, count: int) -> None:
    assert slower(count, 0.0, noise, pairs=50) <= most(ALPHA, count)


def test_the_threshold_excuses_a_slowdown_only_where_the_data_show_that_it_is_smaller() -> None:
    precise, vague = 100 * FIVE**0.2, 100 * FIVE**2
    assert judge([precise], [0.98 * precise])[0].verdict == "significant, below the threshold"
    found = judge([vague], [0.968 * vague])[0]
    assert found.verdict == "slower"
    assert found.change is not None and found.change > -0.05  # the estimate is below the threshold, the evidence is not
    assert found.ci99 is not None and found.ci99[0] < -0.05


def test_with_a_threshold_of_zero_every_significant_slowdown_counts() -> None:
    precise = 100 * FIVE**0.2
    assert judge([precise], [0.98 * precise], Rule(threshold=0.0))[0].verdict == "slower"


def test_faster_mirrors_slower() -> None:
    found = judge([100 * FIVE, 100 * FIVE], [110 * FIVE, 100.01 * FIVE])
    assert [one.verdict for one in found] == ["faster", "no significant change"]


def test_one_repeat_on_a_side_is_not_guessed_about() -> None:
    found = judge([[100.0], 100 * FIVE], [[50.0], 100 * FIVE])
    assert [one.verdict for one in found] == ["cannot say", "no significant change"]
    assert "2 or more" in found[0].reason


def test_more_pairs_need_more_evidence() -> None:
    alone = judge([100 * FIVE], [98.4 * FIVE])[0]
    among = judge([100 * FIVE] * 50, [98.4 * FIVE, *[100 * FIVE] * 49])[0]
    assert alone.p is not None and alone.p < 0.04
    assert among.verdict == "no significant change"


def test_noise_that_hides_a_slowdown_as_large_as_the_threshold_is_no_all_clear() -> None:
    unlike = np.array([70.0, 90.0, 100.0, 110.0, 130.0])
    noisy, precise = judge([unlike, 100 * FIVE], [unlike[::-1], 100 * FIVE])
    assert (noisy.verdict, precise.verdict) == ("too noisy", "no significant change")
    assert noisy.ci95 is not None and noisy.ci95[0] < -0.05
    assert precise.ci95 is not None and precise.ci95[0] > -0.05
    assert judge([100 * FIVE], [100 * FIVE], Rule(threshold=0.0))[0].verdict == "too noisy"


@pytest.mark.parametrize(("noise", "verdict"), [(4.3, "no significant change"), (4.35, "too noisy")])
def test_an_interval_that_reaches_5_percent_is_too_noisy(noise: float, verdict: str) -> None:
    (found,) = judge([100 * FIVE**noise], [100 * FIVE**noise])
    assert found.ci95 is not None and found.ci95[0] == pytest.approx(-0.05, abs=0.001)
    assert found.verdict == verdict == ("too noisy" if found.ci95[0] <= -0.05 else "no significant change")


@pytest.mark.parametrize(("rate", "significant"), [(98.985, False), (98.975, True)])
def test_a_change_is_significant_below_a_p_of_4_percent(rate: float, significant: bool) -> None:
    (down,), (up,) = judge([100 * FIVE], [rate * FIVE]), judge([rate * FIVE], [100 * FIVE])
    assert down.p == pytest.approx(up.p) == pytest.approx(0.04, abs=0.002)
    assert down.p is not None and (down.p < 0.04) == significant
    verdict = "significant, below the threshold" if significant else "no significant change"
    assert (down.verdict, up.verdict) == (verdict, verdict)


def test_values_without_any_spread_decide_nothing() -> None:
    found = judge([[100.0, 100.0], [100.0, 100.0]], [[90.0, 90.0], [100.0, 100.0]])
    assert [one.verdict for one in found] == ["cannot say", "cannot say"]


def test_welch_is_scipys() -> None:
    generator = np.random.default_rng(3)
    for old, new in zip(generator.normal(size=(4, 5)), generator.normal(size=(4, 7)), strict=True):
        found = ratios.welch(old.tolist(), new.tolist())
        expected = stats.ttest_ind(new, old, equal_var=False, alternative="less")
        assert found.p(ratios.LESS) == pytest.approx(expected.pvalue)
        interval = stats.ttest_ind(new, old, equal_var=False).confidence_interval(0.99)
        assert found.interval(0.99) == pytest.approx((interval.low, interval.high))


def test_benjamini_and_hochberg_is_scipys() -> None:
    p = np.random.default_rng(1).uniform(size=40) ** 3
    assert ratios.benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p))


# --- what is compared with what -------------------------------------------------------------------


def test_repeats_of_several_records_of_one_spec_are_pooled() -> None:
    found = compared([made.record(day=day) for day in (0, 1)], [made.record(day=2)])
    (pair,) = found.pairs
    assert (pair.old.records, pair.old.repeats, pair.new.repeats) == (2, 6, 3)


def test_more_repeats_are_the_same_measurement() -> None:
    found = compared([made.record(img_per_s=[100, 101])], [made.record(img_per_s=[100, 101, 99, 100])])
    assert len(found.pairs) == 1


def test_other_numbers_of_steps_are_the_same_measurement_and_are_named() -> None:
    def several(steps: int, warmup: int, day: int, rate: float = 100) -> list[Record]:
        changed = apart(img_per_s=rate * FIVE, steps=steps, warmup_steps=warmup, day=day)
        return [apart(nodes=2, img_per_s=100 * FIVE, steps=steps, day=day), changed]

    shorter = compared(several(100, 10, day=0), several(10, 5, day=1))
    assert [pair.verdict for pair in shorter.pairs] == ["no significant change"] * 2 and not shorter.unpaired
    assert list(map(str, shorter.differences)) == ["measured steps 100 → 10"]  # of all, so it is said once
    assert shorter.notes == ("warm-up steps 10 → 5 in 1 measurement",)
    slower = compared(several(100, 10, day=0), several(10, 5, day=1, rate=50))
    assert "warm-up steps 10 → 5" in map(str, slower.pairs[0].differences) and not slower.notes


def test_what_has_no_partner_is_listed_with_how_the_closest_differs() -> None:
    old = [made.record(nodes=1), made.record(nodes=4, threads=12)]
    new = [made.record(nodes=1, day=1), made.record(nodes=4, threads=16, day=1), made.record("horovod", 4, day=1)]
    found = compared(old, new)
    first = found.unpaired[0]
    assert (first.side, first.why) == ("OLD", "not in NEW; the closest differs in threads 12 → 16")
    assert len(found.unpaired) == 3


def test_nothing_in_common_says_what_stands_between_them(wording: Wording) -> None:
    with wording("threads").raises(InvalidInput):
        compared(
            [made.record(nodes=nodes, threads=12) for nodes in (1, 2)],
            [made.record(nodes=nodes, threads=16) for nodes in (1, 2)],
        )


def test_another_backend_is_close_to_nothing(wording: Wording) -> None:
    found = compared([made.record(), made.record(nodes=2)], [made.record(nodes=2, day=1), made.record("horovod")])
    assert sorted(one.why for one in found.unpaired) == ["not in NEW", "not in OLD"]
    with wording("horovod").raises(InvalidInput):
        compared([made.record()], [made.record("horovod")])


def test_a_run_that_fails_where_there_was_a_number_is_a_regression() -> None:
    found = compared([made.record()], [made.record(status="failed", reason="rank 0 was killed by signal 9", day=1)])
    assert [pair.verdict for pair in found.regressions] == ["no number"]
    assert report.failure(found).endswith("had 100.00 img/s, now has no number: rank 0 was killed by signal 9")


def test_a_failed_run_beside_one_with_a_number_is_told_and_no_regression() -> None:
    found = compared([made.record()], [made.record(status="failed", day=1), made.record(day=2)])
    assert not found.regressions
    assert "1 run of NEW failed while others of the same spec have a number" in found.notes[0]


def test_an_interrupted_run_is_listed_as_not_measured() -> None:
    old = [made.record(nodes=1), made.record(nodes=2)]
    new = [made.record(nodes=1, day=1), made.record(nodes=2, status="interrupted", reason="SIGTERM", day=1)]
    found = compared(old, new)
    assert not found.regressions
    assert [one.why for one in found.unpaired] == ["interrupted in NEW: SIGTERM"]


def test_what_failed_on_both_sides_is_listed() -> None:
    old = [made.record(nodes=1), made.record(nodes=2, status="failed")]
    new = [made.record(nodes=1, day=1), made.record(nodes=2, status="failed", reason="again", day=1)]
    assert [one.why for one in compared(old, new).unpaired] == ["failed in NEW: again; OLD has no number either"]


def test_systems_that_both_sides_have_are_compared_separately() -> None:
    def on(*sites: str, day: float) -> list[Record]:
        return [made.record(site=site, day=day) for site in sites]

    found = compared(on("daint:gpu", "alps:gh", day=0), on("daint:gpu", "alps:gh", "ec2:p4", day=1))
    assert sorted(pair.label.split(" on ")[1] for pair in found.pairs) == ["alps:gh", "daint:gpu"]
    assert [one.why for one in found.unpaired] == ["not in OLD on ec2:p4, but on daint:gpu, alps:gh"]


def test_different_systems_are_compared_and_said_first() -> None:
    found = compared([made.record(site="daint:gpu")], [made.record(site="alps:gh", day=1)])
    text = report.terminal(found, "old", "new")
    assert text.index("different systems: daint:gpu → alps:gh") < text.index("differences between OLD and NEW")


def test_two_systems_are_matched_on_all_but_what_their_machines_decide(wording: Wording) -> None:
    """Other numbers of cores make other specs of the same training. They are said, and so are numbers of steps."""
    old = [made.record(img_per_s=100 * FIVE, threads=12), made.record(nodes=2, img_per_s=200 * FIVE, threads=12)]
    new = [made.record(img_per_s=150 * FIVE, threads=64, steps=9, site="alps:gh", day=1)]
    new += [made.record(nodes=2, img_per_s=160 * FIVE, threads=64, steps=9, batch_size=32, site="alps:gh", day=1)]
    found = compared(old, new)
    (pair,) = found.pairs
    assert (pair.verdict, pair.label) == ("faster", "pytorch torch gloo inception3 1 node")
    assert {"threads 12 → 64", "measured steps 4 → 9"} <= set(map(str, found.differences))
    assert len(found.unpaired) == 2 and "batch_size 64 → 32" in found.unpaired[0].why
    # On one system another number of cores still is another measurement.
    with wording("threads").raises(InvalidInput):
        compared(old[:1], [made.record(threads=64, day=1)])


def test_published_numbers_are_compared_with_measured_ones(harness: Harness, tmp_path: Path) -> None:
    rows = ["pytorch,2,100", "pytorch,2,101", "pytorch,2,99", "pytorch,4,180", "parameter_server,2,90"]
    head = "system,backend,nodes,img_per_s\n"
    (tmp_path / "theirs.csv").write_text(head + "".join(f"Elsewhere,{row}\n" for row in rows))
    ours = [made.record(nodes=2, img_per_s=80 * FIVE), made.record(nodes=4, img_per_s=190 * FIVE)]
    ours += [made.record("parameter_server", 2, rate * FIVE, ps=ps) for ps, rate in ((1, 60), (2, 99))]
    made.save(tmp_path / "ours", ours)
    done = harness("compare", "theirs.csv", "ours", "--json")
    verdicts = {pair["label"]: (pair["verdict"], pair["judgement"]["change"]) for pair in done.json["pairs"]}
    assert verdicts["pytorch 2 nodes"] == ("slower", pytest.approx(-0.2, abs=0.001)) and done.code == 1
    # A mean without repeats is compared, and not judged. Of servers whose number is not known the best counts.
    assert verdicts["pytorch 4 nodes"] == ("cannot say", pytest.approx(190 / 180 - 1, abs=0.001))
    assert verdicts["parameter_server 2 nodes"] == ("cannot say", pytest.approx(0.1, abs=0.001))
    assert not [each for each in done.json["differences"] if "nan" in str(each)]
    assert any("NEW has 1 more configuration" in note for note in done.json["notes"])
    assert any("so not matched: framework, transport, model, ps, batch size" in note for note in done.json["notes"])
    assert "Elsewhere → daint:gpu" in harness("compare", "theirs.csv", "ours").stdout


def test_runs_of_new_that_are_in_old_count_in_old_only() -> None:
    before = [made.record()]
    found = compared(before, [*before, made.record(day=1)])
    assert (found.pairs[0].old.records, found.pairs[0].new.records) == (1, 1)
    assert found.notes == ("1 run of NEW is also in OLD, and counts there only",)


# --- what may explain it --------------------------------------------------------------------------


def environment(**values: str) -> list[dict[str, str]]:
    return [{name.replace("__", " "): value for name, value in values.items()}]


def test_differences_are_told_most_relevant_first() -> None:
    old = environment(
        nodes="a, b", variable__X="1", package__zlib="1", package__torch="2.12", machine__kernel="5", machine__cpu="A"
    )
    new = environment(
        nodes="b, c", variable__X="2", package__zlib="2", package__torch="2.13", machine__kernel="6", machine__cpu="B"
    )
    assert [str(one) for one in differences.environments(old, new)] == [
        "machine cpu A → B",
        "package torch 2.12 → 2.13",
        "machine kernel 5 → 6",
        "package zlib 1 → 2",
        "variable X 1 → 2",
        "nodes: new c; no longer a",
    ]


def test_ports_that_every_run_finds_anew_are_no_difference() -> None:
    old, new = environment(gradients="grpc to 10.0.0.1:2000"), environment(gradients="grpc to 10.0.0.1:3000")
    assert differences.environments(old, new) == ()


def test_what_a_failed_run_could_not_tell_is_not_called_different() -> None:
    assert differences.environments(environment(package__torch="2.12", site="x"), environment(site="x")) == ()


def test_a_package_that_only_one_side_has_is_a_difference() -> None:
    old, new = environment(package__a="1"), environment(package__a="1", package__b="2")
    assert [str(one) for one in differences.environments(old, new)] == ["package b none → 2"]


def test_what_differs_everywhere_is_told_once_and_the_rest_beside_its_pair() -> None:
    newer = made.PACKAGES | {"torch": "2.14.0"}
    old = [made.record(nodes=nodes, img_per_s=100 * FIVE) for nodes in (1, 2)]
    new = [
        made.record(img_per_s=80 * FIVE, packages=newer, hosts=["nid00042"], day=1),
        made.record(nodes=2, img_per_s=100 * FIVE, packages=newer, day=1),
    ]
    text = report.terminal(compared(old, new), "old", "new")
    assert text.count("package torch 2.13.0 → 2.14.0") == 1
    assert "nodes: new nid00042; no longer nid00000" in text


def test_when_nothing_differs_it_says_so() -> None:
    found = compared([made.record(img_per_s=100 * FIVE)], [made.record(img_per_s=80 * FIVE, day=1)])
    assert differences.NOTHING in report.terminal(found, "old", "new")


# --- what people and CI systems read --------------------------------------------------------------


def one_of_each() -> ComparedResults:
    wild = 'rank 0: <&"> 100 % | a,b:c\x1b[31m\x00\nand \ufffe more'
    old = [apart(nodes=nodes, img_per_s=100 * FIVE) for nodes in (1, 2, 3, 4)]
    old += [apart(nodes=5, img_per_s=[500.0]), apart(nodes=6, img_per_s=600 * FIVE)]
    new = [
        apart(nodes=1, img_per_s=80 * FIVE, day=1),
        apart(nodes=2, img_per_s=100.1 * FIVE, day=1),
        apart(nodes=3, img_per_s=120 * FIVE, day=1),
        apart(nodes=4, status="failed", reason=wild, img_per_s=100 * FIVE, day=1),
        apart(nodes=5, img_per_s=[400.0], day=1),
    ]
    return compared(old, new)


def test_the_table_has_the_worst_first_and_the_verdict_before_any_percentage() -> None:
    lines = report.terminal(one_of_each(), "old", "new").splitlines()
    rows = [line for line in lines if line.startswith("pytorch torch gloo inception3") and not line.endswith(":")]
    order = ["no number", "slower", "cannot say", "faster", "no significant change"]
    assert [next(verdict for verdict in order if verdict in row) for row in rows] == order
    assert rows[-1].index("no significant change") < rows[-1].index("%")
    assert lines[0].startswith("SLOWER: 5 measurements compared: 1 no number, 1 slower, 1 cannot say")


def test_a_terminal_gets_no_control_characters() -> None:
    text = report.terminal(one_of_each(), "old", "new")
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_a_long_table_shows_what_changed_and_counts_the_rest() -> None:
    old = [apart(nodes=nodes, img_per_s=100 * FIVE) for nodes in range(1, 60)]
    new = [apart(nodes=nodes, img_per_s=100 * FIVE * (0.5 if nodes == 7 else 1)) for nodes in range(1, 60)]
    found = compared(old, new)
    assert "and 58 measurements without a significant change (--markdown and --json have them)" in report.terminal(
        found, "o", "n"
    )
    assert report.markdown(found, "o", "n").count("| no significant change |") == 58


def test_junit_is_valid_xml_whatever_the_reasons_hold() -> None:
    suite = ElementTree.fromstring(report.junit(one_of_each(), "old", "new\x07"))[0]
    cases = {case.get("name"): [element.tag for element in case] for case in suite}
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("6", "2", "2")
    assert cases["pytorch torch gloo inception3 1 node"] == ["failure"]
    assert cases["pytorch torch gloo inception3 4 nodes"] == ["failure"]
    assert cases["pytorch torch gloo inception3 5 nodes"] == ["skipped"]
    assert cases["pytorch torch gloo inception3 6 nodes"] == ["skipped"]
    assert cases["pytorch torch gloo inception3 2 nodes"] == ["system-out"]


def test_a_pipe_does_not_break_a_markdown_table() -> None:
    text = report.markdown(one_of_each(), "runs|old", "new")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {8}
    assert "runs\\|old" in text


# --- the command ----------------------------------------------------------------------------------


def test_compare_prints_and_writes_everything_that_ci_reads(harness: Harness, tmp_path: Path, wording: Wording) -> None:
    made.save(tmp_path / "old", [apart(img_per_s=100 * FIVE)])
    made.save(tmp_path / "new", [apart(img_per_s=90 * FIVE, day=1)])
    done = harness("compare", "old", "new", "--junit", "out.xml", "--markdown", "out.md")
    assert done.stdout.startswith("SLOWER: 1 measurement compared: 1 slower\n")
    wording("slower").ended(done, 1)
    assert ElementTree.parse(tmp_path / "out.xml").getroot()[0].get("failures") == "1"
    assert (tmp_path / "out.md").read_text().startswith("**SLOWER")
    back = harness("compare", "new", "old", "--json")
    assert (back.code, back.json["schema"], back.json["slower"]) == (0, "harness.comparison/1", False)
    (pair,) = back.json["pairs"]
    assert (pair["verdict"], pair["old"]["repeats"]) == ("faster", 5)
    change, (low95, high95), (low99, high99) = (pair["judgement"][name] for name in ("change", "ci95", "ci99"))
    assert change == pytest.approx(1 / 0.9 - 1)
    assert low99 < low95 < change < high95 < high99


def test_compare_with_nothing_that_can_be_judged_is_no_all_clear(
    harness: Harness, tmp_path: Path, wording: Wording
) -> None:
    made.save(tmp_path / "old", [apart(img_per_s=[100.0])])
    made.save(tmp_path / "new", [apart(img_per_s=[10.0], day=1)])
    done = harness("compare", "old", "new")
    assert "cannot say" in done.stdout
    wording("one repeat").ended(done, 2)


def test_noisy_data_say_what_they_do_not_exclude_and_fail_only_if_asked_to(harness: Harness, tmp_path: Path) -> None:
    unlike = [70.0, 90.0, 100.0, 110.0, 130.0]
    made.save(tmp_path / "old", [apart(img_per_s=unlike), apart(nodes=2, img_per_s=100 * FIVE)])
    made.save(tmp_path / "new", [apart(img_per_s=unlike, day=1), apart(nodes=2, img_per_s=100 * FIVE, day=1)])
    done = harness("compare", "old", "new")
    first = done.stdout.splitlines()[0]
    assert done.code == 0 and "not slower" not in done.stdout
    low = harness("compare", "old", "new", "--json").json["pairs"][0]["judgement"]["ci95"][0]
    assert first.startswith("no significant slowdown; a slowdown of up to ")
    assert first.endswith(
        "is not excluded in 1 measurement: 2 measurements compared: 1 too noisy, 1 no significant change"
    )
    assert float(first.split(" up to ")[1].split(" %")[0]) == pytest.approx(-100 * low, abs=0.1)
    assert harness("compare", "old", "new", "--inconclusive-exit-code", "3").code == 3
    # Without that size nothing is left in doubt.
    made.save(tmp_path / "sure", [apart(nodes=2, img_per_s=100 * FIVE, day=2)])
    sure = harness("compare", "new", "sure", "--inconclusive-exit-code", "3")
    assert (sure.code, sure.stdout.split(":")[0]) == (0, "no slowdown of 5 % or more")
    # What is slower fails as slower, whatever else is in doubt.
    made.save(tmp_path / "slow", [apart(img_per_s=unlike, day=3), apart(nodes=2, img_per_s=80 * FIVE, day=3)])
    assert harness("compare", "old", "slow", "--inconclusive-exit-code", "3").code == 1
    assert harness("compare", "old", "new", "--inconclusive-exit-code", "1").code == 2


@cases
def test_bad_requests_are_one_line_and_exit_code_2(harness: Harness, tmp_path: Path, case: Case) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello")
    made.save(tmp_path / "old", [made.record()])
    made.save(tmp_path / "failed", [made.record(status="failed")])
    made.save(tmp_path / "tampered", [made.record(day=1)])
    (file,) = (tmp_path / "tampered").glob("*/record.json")
    made.tampered(file)
    case.refused(harness("compare", *case.words()))


@pytest.mark.parametrize("text", ["10%", "10 %", "0.1"])
def test_a_threshold_may_be_written_in_several_ways(harness: Harness, tmp_path: Path, text: str) -> None:
    made.save(tmp_path / "old", [apart(img_per_s=100 * FIVE**0.2)])
    made.save(tmp_path / "new", [apart(img_per_s=94 * FIVE**0.2, day=1)])
    found = harness("compare", "old", "new", "--threshold", text, "--json").succeeded().json
    assert found["rule"]["threshold"] == pytest.approx(0.1)
    assert found["pairs"][0]["verdict"] == "significant, below the threshold"

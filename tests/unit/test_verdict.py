"""The verdict: known answers, how often it errs, what it compares with what, and what it says."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import results
from harness.analysis.fastest import races
from harness.analysis.verdict import ComparedContender, Verdict, verdict
from harness.report.text import fastest
from harness.report.text import verdict as words
from tests import made
from tests.conftest import Harness
from tests.unit.made_rows import CONTROL, HOROVOD, SERVERS, SIZES, listed, run
from tests.unit.simulated import draws, most
from tests.wording import Case, cases

Efficiency = Callable[[int], float]
Rows = list[dict[str, Any]]


def flat(workers: int) -> float:
    return 1.0


def falling(workers: int) -> float:
    """As the servers of 2017: four fifths on 64 nodes, half on 128."""
    return {32: 0.87, 64: 0.8, 128: 0.52}.get(workers, 1.0)


def series(
    efficiency: Efficiency,
    noise: float = 0.005,
    sizes: Sequence[int] = SIZES,
    count: int = 5,
    seed: int = 1,
    **fields: Any,
) -> Rows:
    """One run at each size whose repeats scatter by ``noise`` around ``100 × workers × efficiency`` img/s."""
    told = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in fields.items()}
    chance = random.Random(f"{seed} {told}")
    means = [(size, 100.0 * size * efficiency(size)) for size in sizes]
    return [run(size, [chance.gauss(mean, noise * mean) for _ in range(count)], **fields) for size, mean in means]


def only(rows: Rows, **how: Any) -> ComparedContender:
    (found,) = verdict(listed(rows), **how).comparisons
    return found


def said(rows: Rows) -> str:
    return fastest.text(races(listed(rows)), verdict(listed(rows)), in_detail=True)


# --- known answers --------------------------------------------------------------------------------


def test_a_toolkit_that_keeps_its_efficiency_where_servers_lose_it_is_better_from_there_on() -> None:
    rows = series(falling, **SERVERS) + series(flat, **HOROVOD)
    found = only(rows)
    assert (found.answer, found.sizes[0].workers, found.parts) == ("better", 1, (16, 32))
    ratio = found.sizes[-1].efficiency_ratio
    assert ratio.value == pytest.approx(1 / 0.52, rel=0.02)
    assert ratio.interval and ratio.interval[0] < 1 / 0.52 < ratio.interval[1]
    assert verdict(listed(rows)).answer == "yes"
    headline = words.headline(verdict(listed(rows)))
    assert headline.startswith(
        "Yes. On daint:gpu (inception3, synthetic) Horovod 0.28.1 on TensorFlow 2.16.1 over MPI keeps 1.9"
    )
    assert "the scaling efficiency of the best parameter-server configuration (best of 1) on 128 nodes" in headline
    assert headline.endswith("relative to 1 node (5 jobs each); they part between 16 and 32 nodes.")


def test_a_toolkit_that_loses_efficiency_is_worse() -> None:
    rows = series(flat, **SERVERS) + series(falling, **HOROVOD)
    assert only(rows).answer == "worse"
    assert words.headline(verdict(listed(rows))).startswith("No. On daint:gpu")


def test_equal_scaling_is_no_difference_whatever_the_speed_of_the_frameworks() -> None:
    rows = series(lambda workers: 3 * falling(workers), **SERVERS) + series(falling, **HOROVOD)
    found = only(rows)
    assert found.answer == "no difference"
    assert found.sizes[-1].throughput_ratio.value == pytest.approx(1 / 3, rel=0.02)
    assert all(one.efficiency_ratio.interval and one.efficiency_ratio.interval[0] >= 0.95 for one in found.judged)
    assert words.headline(verdict(listed(rows))).startswith("No difference. ")


def test_the_margin_decides_what_is_no_difference() -> None:
    rows = series(flat, **SERVERS) + series(lambda workers: 1.03 if workers > 1 else 1.0, noise=0.002, **HOROVOD)
    assert only(rows).answer == "no difference"
    assert only(rows, margin=0.02).answer == "better"


def test_noise_that_hides_the_answer_is_said_with_what_it_takes_to_see_it() -> None:
    rows = series(flat, noise=0.1, **SERVERS) + series(flat, noise=0.1, **HOROVOD)
    found = only(rows)
    assert (found.answer, found.reason) == ("cannot say", "too wide")
    assert found.units and 20 < found.units < 200
    text = said(rows)
    headline = "Undecided on daint:gpu (inception3, synthetic): Horovod 0.28.1 on TensorFlow 2.16.1 over MPI keeps "
    assert f"{words.QUESTION} {headline}" in text
    assert "undecided on daint:gpu (inception3, synthetic, batch 64 per device): " in text and "cannot say" not in text
    *_, advice = fastest.answer(races(listed(rows)), verdict(listed(rows)))
    assert f"about {found.units} jobs of each contender on " in advice


def test_a_toolkit_that_is_worse_on_few_nodes_and_better_on_many_gets_both_said() -> None:
    crossing = {1: 1.0, 2: 0.9, 4: 0.9, 8: 0.9, 16: 0.9, 32: 0.87, 64: 0.95, 128: 0.95}
    rows = series(falling, **SERVERS) + series(lambda workers: crossing[workers], **HOROVOD)
    found = only(rows)
    assert (found.answer, found.parts) == ("changes", (32, 64))
    headline = words.headline(verdict(listed(rows)))
    assert headline.startswith("It depends on the size. ")
    assert "scales worse up to 16 nodes, then better from 64 nodes on" in headline


def test_a_toolkit_that_loses_its_lead_is_better_up_to_there() -> None:
    lead = {1: 1.0, 2: 1.2, 4: 1.2, 8: 1.2, 16: 1.2, 32: 1.2, 64: 1.2, 128: 1.0}
    rows = series(flat, **SERVERS) + series(lambda workers: lead[workers], **HOROVOD)
    found = only(rows)
    assert (found.answer, found.parts) == ("changes", None)
    assert "scales better up to 64 nodes, then no difference can be told" in said(rows)


@pytest.mark.parametrize("count", [0, 1])
def test_without_repeats_nothing_can_be_said(count: int) -> None:
    values: Any = 100.0 if count == 0 else [100.0]
    rows = [run(size, values, **fields) for size in (1, 2) for fields in (SERVERS, HOROVOD)]
    found = only(rows)
    assert (found.answer, found.reason, found.units) == ("cannot say", "no spread", None)
    why = "they ran in one job each" if count else "no repeats are known"
    assert f"but {why}, so its significance is unknown" in said(rows)


def test_one_common_size_says_nothing_about_scaling() -> None:
    rows = series(flat, sizes=(1, 2), **SERVERS) + series(flat, sizes=(2, 4), **HOROVOD)
    assert only(rows).reason == "one size"
    assert "have only 2 nodes in common" in said(rows)
    apart = series(flat, sizes=(1, 2), **SERVERS) + series(flat, sizes=(4, 8), **HOROVOD)
    assert "were not measured at a common size" in said(apart)


def test_servers_alone_are_no_comparison() -> None:
    found = verdict(listed(series(flat, **SERVERS)))
    assert (found.answer, found.comparisons) == ("cannot say", ())
    assert words.headline(found).startswith("Nothing to compare: no toolkit")
    assert [(one.runs, one.why) for one in found.left_out] == [(8, "no toolkit was measured like that")]


def test_a_toolkit_alone_is_no_comparison() -> None:
    found = only(series(flat, **HOROVOD))
    assert (found.answer, found.reason, found.indication) == ("cannot say", "no counterpart", None)
    assert "there are none among these results" in words.headline(verdict(listed(series(flat, **HOROVOD))))
    assert words.QUESTION not in said(series(flat, **HOROVOD))


# --- how often it errs ----------------------------------------------------------------------------


def many(pairs: int, effect: float, noise: float, configurations: int) -> Verdict:
    """Pairs of families, each on its own system; on 128 nodes the toolkit's efficiency is ``effect`` × the servers'."""
    rows: Rows = []
    chance = random.Random(f"{effect} {noise} {configurations}")
    for pair in range(pairs):
        for step, size in enumerate(SIZES):
            mean = 100.0 * size * 0.97**step
            wanted = [(mean, {**SERVERS, "ps": count + 1}) for count in range(min(size, configurations))]
            wanted.append((1.4 * mean * (effect if size == 128 else 1.0), HOROVOD))
            for true, fields in wanted:
                values = [chance.gauss(true, noise * true) for _ in range(5)]
                rows.append(run(size, values, system=f"system {pair}", **fields))
    return verdict(listed(rows))


def answers(found: Verdict) -> Counter[str]:
    return Counter(one.answer for one in found.comparisons)


@draws(500, few=50)
@pytest.mark.parametrize("configurations", [1, 6])
def test_equal_scaling_is_called_different_in_at_most_5_percent(configurations: int, count: int) -> None:
    found = many(count, effect=1.0, noise=0.02, configurations=configurations)
    told = answers(found)
    assert told.total() == count
    assert told["better"] + told["worse"] <= (0.05 * count if count >= 500 else most(0.05, count))
    # The promise is about all sizes together.
    different = sum(any(size.significant for size in one.sizes) for one in found.comparisons)
    assert different <= most(0.05, count)


@draws(300, few=50)
@pytest.mark.parametrize("configurations", [1, 6])
def test_a_tenth_more_efficiency_is_found_at_2_percent_noise(configurations: int, count: int) -> None:
    found = many(count, effect=1.1, noise=0.02, configurations=configurations)
    better = [one.sizes[-1].direction == "better" for one in found.comparisons]
    assert sum(better) >= 0.95 * count
    if configurations == 1:
        assert answers(found)["better"] >= 0.95 * count


@draws(200, few=50)
def test_equal_scaling_is_called_so_at_1_percent_noise(count: int) -> None:
    assert answers(many(count, effect=1.0, noise=0.01, configurations=6))["no difference"] >= 0.95 * count


# --- what is compared with what -------------------------------------------------------------------


def test_servers_count_with_the_best_of_both_strategies_and_all_counts() -> None:
    rows = series(falling, **SERVERS) + series(flat, **HOROVOD)
    rows += series(lambda workers: 0.9 * falling(workers), **{**SERVERS, "ps": 2})
    rows += series(lambda workers: 0.85, sizes=(64, 128), **SERVERS, backend="distributed_replicated")
    last = only(rows).sizes[-1]
    assert (last.servers.best.backend, len(last.servers.tried)) == ("distributed_replicated", 3)
    assert last.efficiency_ratio.value == pytest.approx(1 / 0.85, rel=0.03)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("system", "cori"), ("model", "resnet50"), ("data", "real"), ("device", "cpu"), ("precision", "amp")),
        *(("image_size", 64), ("batch_size", 32), ("origin", "published")),
        ("training", "sync=none"),
    ],
)
def test_runs_that_differ_in_what_is_measured_are_never_compared(name: str, value: Any) -> None:
    rows = series(falling, **SERVERS, **{name: value}) + series(flat, **HOROVOD)
    found = only(rows)
    assert (found.answer, found.reason, found.sizes) == ("cannot say", "no counterpart", ())
    assert found.indication and list(found.indication.differs) == [name]


def test_runs_with_other_devices_per_node_are_never_compared() -> None:
    rows = series(flat, sizes=(4, 8, 16), devices_per_node=4, **SERVERS) + series(flat, sizes=(4, 8, 16), **HOROVOD)
    assert only(rows).reason == "no counterpart"


def test_each_system_gets_its_own_comparison() -> None:
    rows = [row for system in ("daint", "cori") for row in series(flat, system=system, **HOROVOD)]
    rows += series(falling, system="daint", **SERVERS) + series(flat, system="cori", **SERVERS)
    found = verdict(listed(rows))
    by_system = {one.facets["system"]: one.answer for one in found.comparisons}
    assert by_system == {"daint": "better", "cori": "no difference"}
    assert found.answer == "some"
    assert words.headline(found).endswith("Of 2 contenders: 1 better, 1 no different.")


def test_servers_on_another_system_are_not_even_an_indication() -> None:
    rows = series(flat, **HOROVOD) + series(falling, system="cori", **SERVERS)
    assert "there are none on daint:gpu" in said(rows)
    assert words.lists(verdict(listed(rows)))[words.INDICATIONS] == []


def test_other_training_is_left_out_and_named() -> None:
    fp16 = {**HOROVOD, "training": "fp16_allreduce=True"}
    rows = series(falling, **SERVERS) + series(flat, **HOROVOD) + series(flat, **fp16)
    rows += series(flat, training="sync=none", **SERVERS)
    found = verdict(listed(rows))
    assert [one.answer for one in found.comparisons] == ["better"]
    told = words.lists(found)["Left out"]
    assert "8 runs of horovod with fp16_allreduce=True: another training" in told
    assert "8 runs of parameter_server with sync=none: another training" in told


def test_asynchronous_servers_alone_do_not_count() -> None:
    rows = series(flat, **HOROVOD) + series(falling, training="sync=none", **SERVERS)
    assert "they were only measured with sync=none, which is another training" in said(rows)


def test_a_contender_with_another_training_only_is_named() -> None:
    rows = series(falling, **SERVERS) + series(flat, **HOROVOD, training="fp16_allreduce=True")
    assert only(rows).reason == "other training"
    assert "was only measured with fp16_allreduce=True, which is another training" in said(rows)


def test_failed_runs_are_left_out_and_counted() -> None:
    rows = series(falling, **SERVERS) + series(flat, **HOROVOD)
    rows += [run(256, 0.0, **HOROVOD) | {"status": "failed", "rate": math.nan}]
    told = words.lists(verdict(listed(rows)))["Left out"]
    assert told == ["1 run of horovod on daint:gpu: failed, so it has no number"]


def test_strong_scaling_is_left_out_and_named() -> None:
    rows = series(falling, **SERVERS) + series(flat, **HOROVOD)
    rows += [run(size, [90.0 * size, 91.0 * size], **{**HOROVOD, "batch_size": 512 // size}) for size in (1, 2, 4)]
    found = verdict(listed(rows))
    assert len(found.comparisons) == 1
    told = words.lists(found)["Left out"]
    assert "3 runs of toolkits with a constant global batch: strong scaling is not judged" in told


def test_servers_at_one_global_batch_are_no_counterpart() -> None:
    toolkit = series(flat, **HOROVOD)
    weak = series(falling, **SERVERS)
    strong = [run(size, [90.0 * size, 91.0 * size], **SERVERS | {"batch_size": 512 // size}) for size in (1, 2, 4)]
    with_strong, without = (
        [(size.workers, size.throughput_ratio, size.efficiency_ratio) for size in only(rows).sizes]
        for rows in (toolkit + weak + strong, toolkit + weak)
    )
    assert with_strong == without
    assert only(toolkit + strong).reason == "no counterpart"


def test_the_control_is_reported_and_does_not_decide() -> None:
    rows = series(falling, **SERVERS) + series(flat, **HOROVOD) + series(falling, **CONTROL)
    found = verdict(listed(rows))
    assert found.answer == "yes" and [one.answer for one in found.controls] == ["no difference"]
    (control,) = [text for text in words.lists(found)["Each toolkit"] if text.startswith("Control: ")]
    assert "multi_worker_mirrored on TensorFlow 2.16.1 over gRPC scales like parameter servers" in control


def test_what_is_not_equal_is_named_and_what_is_equal_too() -> None:
    newer = HOROVOD | {"software": "TensorFlow 2.17.0, Horovod 0.28.1", "threads": 6}
    newer["started"] = "2026-05-01T00:00:00+00:00"
    rows = series(falling, **SERVERS) + series(flat, **newer)
    terms = only(rows).terms
    assert terms and terms.unequal["software"] == ("TensorFlow 2.17.0", "TensorFlow 2.16.1")
    assert terms.unequal["threads"] == ("6", "12")
    assert terms.unequal["dates"] == ("2026-05-01 to 2026-05-01", "2026-01-01 to 2026-01-01")
    assert {"system", "model", "framework", "processor", "batch_size"} <= set(terms.equal)
    text = said(rows)
    assert "software: TensorFlow 2.17.0 against TensorFlow 2.16.1" in text
    pytorch = {**HOROVOD, "backend": "pytorch", "framework": "torch", "software": "PyTorch 2.13.0", "transport": "gloo"}
    text = said(series(falling, **SERVERS) + series(flat, **pytorch))
    assert "software: PyTorch 2.13.0 against TensorFlow 2.16.1;" in text
    assert "PyTorch 2.13.0 over Gloo keeps" in text


def test_several_devices_per_node_are_counted_as_workers() -> None:
    sizes = (4, 8, 16, 32)
    rows = series(lambda workers: 0.7 if workers > 8 else 1.0, sizes=sizes, devices_per_node=4, **SERVERS)
    rows += series(flat, sizes=sizes, devices_per_node=4, **HOROVOD)
    relative = "on 32 workers (8 nodes), relative to 4 workers (1 node) (5 jobs each)"
    assert f"{relative}; they part between 8 workers " in said(rows)


# --- published data -------------------------------------------------------------------------------


def test_horovod_beside_the_faster_servers_of_the_same_machine_is_compared_but_decides_nothing() -> None:
    """Digits of Horovod's README: the better of servers with variables on the CPU and on the GPU, and one single GPU."""
    found = verdict(results.load(["reference:Horovod README"]))
    assert found.answer == "cannot say" and {one.reason for one in found.comparisons} == {"no spread"}
    ratios = {
        (one.sizes[-1].workers, one.facets["model"], one.facets["transport"]): one.sizes[-1].throughput_ratio.value
        for one in found.comparisons
    }
    assert len(ratios) == 12
    assert ratios[64, "inception3", "nccl"] == pytest.approx(7932.1 / 5297.4)
    assert ratios[64, "resnet101", "mpi"] == pytest.approx(3761.6 / 4269.2)
    assert ratios[16, "vgg16", "mpi"] == pytest.approx(618.0 / 79.5)


def test_what_is_published_of_piz_daint_cannot_say() -> None:
    """One common model, without repeats, and ten framework versions apart; the rest are other models."""
    found = verdict(results.load(["reference:Daint"]))
    assert found.answer == "cannot say"
    compared = {one.facets["software"]: one for one in found.comparisons if one.sizes[1:]}
    assert {one.facets["model"] for one in compared.values()} == {"inception3"}
    older, nccl = compared["TensorFlow 1.11, Horovod 0.15.0"], compared["TensorFlow 1.12, Horovod 0.16.0"]
    assert [[one.workers for one in each.sizes] for each in (older, nccl)] == [[8, 32], [1, 2, 4, 8]]
    assert older.reason == nccl.reason == "no spread"
    # Digits of the publications: Horovod with NCCL 148.2 and 1160.9 img/s, parameter servers 138.23 and 1018.18.
    assert nccl.sizes[3].toolkit.efficiency == pytest.approx(1160.9 / 148.2 / 8)
    assert nccl.sizes[3].servers.efficiency == pytest.approx(1018.18 / 138.23 / 8)
    assert nccl.sizes[3].efficiency_ratio.value == pytest.approx(1.063, abs=5e-4)
    assert nccl.sizes[3].efficiency_ratio.interval is None and nccl.sizes[3].efficiency_ratio.p is None
    assert older.sizes[1].efficiency_ratio.value == pytest.approx(1.029, abs=5e-4)
    assert nccl.terms and nccl.terms.unequal["software"] == ("TensorFlow 1.12", "TensorFlow 1.1.0")
    (mpi,) = (one for one in found.comparisons if one.facets["transport"] == "mpi")
    assert (mpi.reason, mpi.sizes) == ("no counterpart", ())
    assert mpi.indication and mpi.indication.largest
    toolkit, servers = mpi.indication.largest
    assert (toolkit.base_workers, toolkit.workers) == (2, 128)
    assert toolkit.efficiency == pytest.approx(0.545, abs=5e-4)
    assert servers.efficiency == pytest.approx(0.544, abs=6e-4)
    headline, lists = words.headline(found), words.lists(found)
    assert "1.063 × the scaling efficiency of the best parameter servers on 8 nodes (97.9 % against 92.1 %" in headline
    assert (
        "but no repeats are known, so its significance is unknown: chance takes runs that scatter by 1.6 %" in headline
    )
    assert headline.endswith(
        "the most that is known here is 11.6 % (eth-cscs/sarus cookbook, Horovod figure (digitised))."
    )
    firsts = [finding.split(" on ")[0] for finding in lists["Each toolkit"]]
    assert sorted(firsts) == ["nothing to compare"] * 8 + ["undecided"] * 2
    (text,) = (one for one in lists[words.INDICATIONS] if "over MPI" in one)
    assert "keeps 54.5 % at 128 workers relative to 2" in text
    assert "parameter servers of TensorFlow 1.1.0 54.4 %" in text
    assert "Not like for like: model (resnet50 against inception3)" in text
    assert any("software: TensorFlow 1.11 against TensorFlow 1.1.0" in one for one in lists["Not equal"])


# --- the command ----------------------------------------------------------------------------------


def test_the_command_answers_from_records(harness: Harness, tmp_path: Path) -> None:
    servers = {1: 100.0, 2: 199.0, 4: 260.0}
    records = []
    for size, value in servers.items():
        records += [made.record("parameter_server", size, [value, 1.01 * value, 0.99 * value], apart=True)]
        toolkit = [90.0 * size, 90.5 * size, 89.5 * size]
        records += [made.record("horovod", size, toolkit, transport="mpi", apart=True)]
    runs = made.save(tmp_path / "runs", records)
    done = harness("best", str(runs), "--details").succeeded()
    fast, _, scales, toolkits = done.stdout.splitlines()[:4]
    assert "Horovod on TensorFlow over MPI is fastest on 4 nodes" in fast
    assert scales.startswith("From 1 to 4 nodes Horovod on TensorFlow over MPI scales best: ")
    assert toolkits.startswith(
        f"{words.QUESTION} Yes. On daint:gpu (inception3, synthetic) Horovod 0.28.1 on TensorFlow 2.16.1 over MPI keeps 1.5"
    )
    (details,) = (part for part in done.stdout.split("\n\n") if "against the best" in part.splitlines()[0])
    title, headings, _, *rows = details.splitlines()
    against = "against the best parameter servers on daint:gpu ("
    assert title.startswith(f"Horovod 0.28.1 on TensorFlow 2.16.1 over MPI {against}")
    assert headings.split("  ")[0] == "workers" and [row.split()[0] for row in rows] == ["1", "2", "4"]
    told = harness("best", str(runs), "--json").succeeded().json["verdict"]
    assert told["answer"] == "yes" and told["comparisons"][0]["parts"] == [2, 4]
    assert told["comparisons"][0]["sizes"][-1]["significant"] is True


def test_the_question_is_answered_where_servers_are_not_like_the_toolkit(harness: Harness, tmp_path: Path) -> None:
    records = [made.record("pytorch", 2), made.record("parameter_server", 2, batch_size=32)]
    runs = made.save(tmp_path / "runs", records)
    answer = (
        f"\n{words.QUESTION} Nothing to compare on daint:gpu (inception3, synthetic): no parameter servers were measured "
        "like PyTorch 2.13.0 over Gloo: the nearest ones differ in per-device batch (64 against 32)."
    )
    assert answer in harness("best", str(runs), "--details").succeeded().stdout


@cases
def test_a_wrong_request_is_refused(refused: Harness, tmp_path: Path, case: Case) -> None:
    (tmp_path / "empty").mkdir()
    case.refused(refused(*case.words()))


def test_a_folder_says_what_its_records_do_not_say_of_the_system(tmp_path: Path) -> None:
    """Runs on links of another rate are not comparable, whatever else is equal."""
    for rate in ("slow", "fast"):
        made.save(tmp_path / rate, [made.record("pytorch", 1), made.record("horovod", 1)])
        (tmp_path / rate / "system.txt").write_text(f"{rate} links\n")
    loaded = results.load([tmp_path])
    assert {run.system for run in loaded} == {"daint:gpu, slow links", "daint:gpu, fast links"}
    assert [len(race.sizes[0].standings) for race in races(loaded)] == [2, 2]

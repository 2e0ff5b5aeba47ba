"""What others use of a run's cores, and steps that take much longer than others: counted, derived, and said."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.records.disturbance import CoreUse, derive
from harness.records.measurement import Record, Repeat
from harness.records.measurement import derive as derive_figures
from harness.report.text.outcomes import summary
from harness.worker import cores
from harness.worker.proc import TICKS_PER_S
from tests import made
from tests.conftest import Harness
from tests.wording import Wording

# A process that has a child burn 0.4 s, which ends, and burns 0.2 s itself before each line that it reads.
BURNING = """
import subprocess, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
for line in sys.stdin:
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.4: pass"])
    burn(0.2)
    print(flush=True)
"""


def test_the_time_of_a_runs_processes_is_its_own_with_that_of_their_children(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", BURNING, "--run", str(tmp_path), "--repeat", "1"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout

        def burn() -> None:
            assert process.stdin and process.stdout
            print(file=process.stdin, flush=True)
            process.stdout.readline()

        burn()
        before = cores.read(tmp_path)
        burn()
        use = cores.between(before, cores.read(tmp_path))
        assert cores.read(tmp_path / "other") is None  # a run without processes here
        process.stdin.close()
    assert use
    assert 0.55 <= use["own_core_s"] <= 1.5  # a Python takes a while to start
    assert use["own_core_s"] <= use["interval_s"] * use["cores"] + 0.1
    assert use["others_core_s"] >= -0.1


def test_busy_is_what_is_neither_idle_nor_waits_for_a_disk_and_steal_counts() -> None:
    stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 20 30 5000 700 4 6 40 99 0\ncpu12 1 0 0 9 9 0 0 0 0 0\nintr 1 2\n"
    assert cores.busy(stat) == {0: pytest.approx(200 / TICKS_PER_S), 12: pytest.approx(1 / TICKS_PER_S)}


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/job/step\n", {"job/cpu.max": "300000 100000", "job/step/cpu.max": "max 100000"}, 3.0),
        ("0::/job/step\n", {"job/cpu.max": "300000 100000", "job/step/cpu.max": "150000 100000"}, 1.5),
        ("0::/job\n", {"job/cpu.max": "max 100000"}, None),
        ("4:memory:/a\n1:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "50000", "cpu/a/cpu.cfs_period_us": "100000"}, 0.5),
        ("1:cpu:/a\n0::/\n", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, None),
        ("4:memory:/a\n", {"cpu/a/cpu.cfs_quota_us": "5", "cpu/a/cpu.cfs_period_us": "10"}, None),
    ],
)  # fmt: skip
def test_the_smallest_limit_of_a_group_and_those_above_it_holds(
    tmp_path: Path, groups: str, files: dict[str, str], limit: float | None
) -> None:
    own = {f"sys/fs/cgroup/{name}": text + "\n" for name, text in files.items()}
    for name, text in (own | {"proc/self/cgroup": groups}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores.quota(tmp_path) == limit


def use(others: float, own: float = 10.0, **fields: object) -> CoreUse:
    usual = {"machine": "a", "namespace": "pid:[1]", "cores": 4, "quota": None, "interval_s": 10.0}
    return CoreUse.model_validate(usual | {"own_core_s": own, "others_core_s": others} | fields)


def ran(number: int, *uses: CoreUse | None, marks_s: Sequence[Sequence[float]] = ((0.0, 1.0),)) -> Repeat:
    """A repeat whose ranks have read these, and have these marks: the last ones if there are fewer."""
    (repeat,) = made.record(nodes=len(uses), img_per_s=[100.0]).repeats
    own = [
        rank.model_copy(update={"cores": use, "marks_s": list(marks_s[min(rank.rank, len(marks_s) - 1)])})
        for rank, use in zip(repeat.ranks, uses, strict=True)
    ]
    return repeat.model_copy(update={"number": number, "ranks": own})


@pytest.mark.parametrize(("core_s", "noted"), [(2.0, 0), (2.1, 1)])  # of 4 cores × 10 s
def test_others_are_noted_above_a_twentieth_of_the_cores(core_s: float, noted: int) -> None:
    found = derive([ran(1, use(0.1)), ran(2, use(core_s))])
    assert found.others
    assert (found.others.repeat, found.others.share) == (2, pytest.approx(core_s / 40))
    assert len(found.notes) == noted


def test_the_figure_and_the_place_are_in_the_note() -> None:
    (note,) = derive([ran(1, use(19.0, cores=4))]).notes
    assert all(part in note for part in ("48%", "4 cores", "nid00000", "19.0 core-seconds", "repeat 1"))


def test_nodes_of_one_machine_share_a_reading_and_containers_of_one_add_theirs_up() -> None:
    beside = derive([ran(1, use(1.0, 10.0), use(1.0, 10.0))]).others
    apart = derive([ran(1, use(11.0, 10.0), use(11.5, 10.0, namespace="pid:[2]"))]).others
    machines = derive([ran(1, use(1.0), use(8.0, machine="b", namespace="pid:[2]"))]).others
    assert beside and apart and machines
    assert (beside.core_s, apart.core_s) == (pytest.approx(1.0), pytest.approx(1.5))
    assert (machines.host, machines.share) == ("nid00001", pytest.approx(0.2))


def test_with_a_quota_others_count_only_where_they_leave_less_than_it() -> None:
    idle = derive([ran(1, use(20.0, quota=2.0))]).others  # 2 of 4 cores busy, 2 left
    tight = derive([ran(1, use(30.0, quota=2.0))]).others  # 1 left
    assert idle and tight
    assert (idle.share, tight.share, tight.cores) == (0.0, pytest.approx(0.5), 2.0)


def test_a_window_of_less_than_a_second_says_nothing_of_others() -> None:
    assert derive([ran(1, use(3.0, interval_s=0.9))]).others is None
    assert derive([ran(1, None)]).others is None


@pytest.mark.parametrize(("long_s", "named"), [(2.99, False), (3.0, True)])
def test_a_step_of_three_medians_is_named(long_s: float, named: bool) -> None:
    usual, disturbed = [0.0, 1, 2, 3, 4, 5], [0.0, 1, 2, 2 + long_s, 3 + long_s, 4 + long_s]
    ranks = (None, None, None)
    found = derive([ran(1, *ranks, marks_s=[usual]), ran(2, *ranks, marks_s=[usual, usual, disturbed])])
    assert (found.long_step is not None) == named
    if found.long_step:
        step = found.long_step
        assert (step.repeat, step.rank, step.host, step.step, step.more) == (2, 2, "nid00002", 3, 0)
        assert (step.medians, step.ranks) == (pytest.approx(3.0), 1)
        (note,) = found.notes
        assert all(part in note for part in ("step 3 of repeat 2", "rank 2 on nid00002", "3 s", "3.0 × the median"))


def test_of_several_long_steps_the_longest_is_named_and_the_others_are_counted_once_for_all_ranks() -> None:
    marks_s = (0.0, 4.0, 5.0, 6.0, 7.0, 8.0, 13.0, 14.0)
    step = derive([ran(1, None, None, marks_s=[marks_s])]).long_step
    assert step
    assert (step.step, step.step_s, step.ranks, step.more) == (6, 5.0, 2, 1)


def test_four_steps_have_no_usual_one() -> None:
    assert derive([ran(1, None, marks_s=[(0.0, 1.0, 2.0, 3.0, 13.0)])]).long_step is None


def disturbed() -> Record:
    """A run of 8 steps, with others on its cores, and a step of 5 medians on all ranks."""
    record = made.record(nodes=2, img_per_s=[100.0], steps=8)
    (repeat,) = record.repeats
    window_s = repeat.ranks[0].window_s
    marks_s = [window_s / 12 * after for after in (0, 1, 2, 3, 8, 9, 10, 11, 12)]
    read = use(12.0, interval_s=window_s + 0.01)
    ranks = [rank.model_copy(update={"marks_s": marks_s, "cores": read}) for rank in repeat.ranks]
    repeats = [repeat.model_copy(update={"ranks": ranks})]
    return record.model_copy(update={"repeats": repeats, "derived": derive_figures(record.spec, repeats)})


def test_what_disturbed_a_run_stands_beside_its_number(tmp_path: Path, harness: Harness) -> None:
    record = disturbed()
    record.write(tmp_path)  # which verifies it
    assert record.derived and record.derived.disturbance
    notes = record.derived.disturbance.notes
    assert len(notes) == 2
    shown = summary(record, "record.json")
    assert all(f"  NOTE       {note}\n" in shown for note in notes)
    assert "; ".join(notes) in harness("best", str(tmp_path)).stdout
    assert harness("best", str(tmp_path), "--json").json["notes"]
    assert "; ".join(notes) in harness("table", str(tmp_path), "--format", "csv").stdout


def test_a_record_that_hides_a_disturbance_is_refused(wording: Wording) -> None:
    record = disturbed()
    assert record.derived and record.derived.disturbance
    quiet = record.derived.disturbance.model_copy(update={"long_step": None})
    with wording("long_step").raises(ValueError):
        record.model_copy(update={"derived": record.derived.model_copy(update={"disturbance": quiet})}).verify()

"""`harness history`: change points are found where they are, and nowhere else."""

from pathlib import Path

import numpy as np
import pytest

from harness import results
from harness.analysis.history import FEWEST, LEVEL, change_points, find
from harness.errors import InvalidInput
from tests import made
from tests.conftest import Harness
from tests.unit.simulated import draws, least, most
from tests.wording import Wording


def series(generator: np.random.Generator, runs: int, *changes: tuple[int, float], noise: float = 0.02) -> np.ndarray:
    """img/s of ``runs`` runs around 100; from each (run, change) on the level is another."""
    levels = np.full(runs, 100.0)
    for at, change in changes:
        levels[at:] *= 1 + change
    return levels * np.exp(noise * generator.standard_normal(runs))


pytestmark = pytest.mark.usefixtures("cache")
FOUND = 0.98  # of changes that are large enough, wherever they are


@draws(1000)
@pytest.mark.parametrize("runs", [6, 30, 100])
def test_at_most_3_percent_of_series_without_a_change_are_said_to_have_one(runs: int, count: int) -> None:
    generator = np.random.default_rng(1)
    found = [bool(change_points(series(generator, runs))) for _ in range(count)]
    assert sum(found) <= most(LEVEL, count)


@draws(1000)
def test_noise_with_heavy_tails_raises_no_more_alarms(count: int) -> None:
    generator = np.random.default_rng(2)
    found = [bool(change_points(100 * np.exp(0.02 * generator.standard_t(3, 40)))) for _ in range(count)]
    assert sum(found) <= most(LEVEL, count)


@draws(1000)
def test_a_drop_of_5_percent_in_2_percent_of_noise_is_found_within_two_runs(count: int) -> None:
    generator = np.random.default_rng(3)
    found = [change_points(series(generator, 30, (15, -0.05))) for _ in range(count)]
    assert sum(any(abs(at - 15) <= 2 for at in one) for one in found) >= least(FOUND, count)


@draws(300, few=100)
def test_a_drop_and_the_recovery_from_it_are_two_changes(count: int) -> None:
    generator = np.random.default_rng(4)
    found = [change_points(series(generator, 30, (10, -0.1), (20, 1 / 0.9 - 1))) for _ in range(count)]
    placed = [len(one) == 2 and abs(one[0] - 10) <= 2 and abs(one[1] - 20) <= 2 for one in found]
    assert sum(placed) >= least(FOUND, count)


def test_a_clear_drop_is_seen_three_runs_after_it_happened() -> None:
    generator = np.random.default_rng(5)
    found = [change_points(series(generator, 40, (37, -0.15))) for _ in range(200)]
    assert np.mean([any(abs(at - 37) <= 1 for at in one) for one in found]) >= 0.95


@draws(1500)
def test_one_bad_run_is_no_change_wherever_it_is(count: int) -> None:
    generator = np.random.default_rng(6)
    found = []
    for number in range(count):
        values = series(generator, 30)
        values[number % 30] *= 0.5
        found.append(bool(change_points(values)))
    assert sum(found) <= most(LEVEL, count)


def test_the_same_values_give_the_same_answer() -> None:
    values = series(np.random.default_rng(7), 50, (20, -0.03), (35, -0.02))
    assert change_points(values) == change_points(values.copy()) != []


@pytest.mark.parametrize("values", [[100.0] * 20, [100.0] * (FEWEST - 1), []])
def test_nothing_changes_where_nothing_can(values: list[float]) -> None:
    assert change_points(values) == []


def test_a_step_without_any_noise_is_placed_exactly() -> None:
    assert change_points([100.0] * 10 + [90.0] * 10) == [10]


def wavering(*parts: tuple[int, float]) -> list[float]:
    """img/s of as many runs around each level, 1 % below and above it in turn."""
    return [level * (1 - 0.01 * (-1) ** run) for runs, level in parts for run in range(runs)]


@pytest.mark.parametrize("bad_run", [3, 12])
def test_one_bad_run_hides_no_change(bad_run: int) -> None:
    values = wavering((8, 100), (8, 95))
    values[bad_run] *= 0.5 if bad_run > 8 else 2
    assert change_points(values) == [8]


def test_a_change_is_placed_anew_once_the_one_before_it_is_known() -> None:
    assert change_points(wavering((4, 92), (4, 96), (8, 100))) == [4, 8]  # the second was found first, and at 7


def test_beside_a_change_another_one_takes_twice_the_evidence() -> None:
    """Of the orders of eight such runs 1 in 42 has as good a split: fewer than 3 %, and more than 1.5 %."""
    assert change_points(wavering((4, 92), (4, 95))) == [4]
    assert change_points(wavering((8, 100), (4, 92), (4, 95))) == [8]
    assert change_points(wavering((4, 92), (4, 95), (8, 110))) == [8]


def test_history_tells_when_by_how_much_and_what_differs(harness: Harness, tmp_path: Path) -> None:
    newer = made.PACKAGES | {"torch": "2.14.0"}
    dropping = [(100 if day < 12 else 90) + day * 7 % 5 / 5 for day in range(20)]
    records = []
    for day, level in enumerate(dropping):
        packages = newer if day >= 12 else None
        records += [made.record(nodes=2, img_per_s=level * np.array([0.999, 1, 1.001]), day=day, packages=packages)]
    records += [made.record(nodes=1, img_per_s=[100 + day % 2, 101 - day % 2], day=day) for day in range(8)]
    records += [made.record(nodes=4, day=day) for day in range(3)] + [made.record(nodes=4, status="failed", day=5)]
    made.save(tmp_path / "runs", reversed(records))
    done = harness("history", "runs").succeeded()
    assert done.stdout.startswith("1 change point in 1 of 2 measurements\n")
    assert "between 2026-01-12 00:00 and 2026-01-13 00:00: " in done.stdout
    assert "package torch 2.13.0 → 2.14.0" in done.stdout
    assert "1 measurement with fewer than 6 runs, too few for a history" in done.stdout
    assert "1 run without a number, left out" in done.stdout
    found = harness("history", "runs", "--json").succeeded().json
    assert found["schema"] == "harness.history/1"
    (change,) = found["series"][0]["changes"]
    assert change["ci95"][0] < -0.1 < change["ci95"][1]
    assert found["series"][1]["changes"] == []


def test_a_history_needs_runs(harness: Harness, tmp_path: Path, wording: Wording) -> None:
    made.save(tmp_path / "runs", [made.record(day=day) for day in range(2)])
    for source in ("runs", "reference"):
        wording(source).refused(harness("history", source))


def test_runs_of_one_job_are_one_run_of_a_history(tmp_path: Path, wording: Wording) -> None:
    """A user's allocation in which six runs were made shares its nodes and its hour: there is one run to look at."""
    own = [made.record(day=day, variables={"SLURM_JOB_ID": f"{100 + day}"}) for day in range(FEWEST)]
    (of_runs,) = find(results.load([made.save(tmp_path / "apart", own)])).series
    assert len(of_runs.runs) == FEWEST
    shared = [made.record(day=day / 24, variables={"SLURM_JOB_ID": "7"}) for day in range(FEWEST)]
    with wording("shared").raises(InvalidInput):
        find(results.load([made.save(tmp_path / "shared", shared)]))

"""Energy, from made counters: trees as sysfs has them, a stand-in for NVML, and the real loop with a counter that moves."""

import itertools
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from harness import results
from harness.errors import InvalidInput
from harness.records import measurement
from harness.records.energy import EMULATED, Energy, RankEnergy, Read, derive
from harness.report.page import assemble
from harness.worker.energy import Meter, meter, nvml, pm_counters, powercap
from harness.worker.energy.counter import Counter
from harness.worker.loop import Window, measure
from harness.worker.trainer import Marks, Trainer
from tests import made
from tests.conftest import ROOT, Harness
from tests.wording import Case, Wording, cases

RANGE_UJ = 262_143_328_850  # of a package, as machines have it
WINDOW_S = 10.0
IMAGES = 100


def zone(root: Path, name: str, called: str, microjoules: int) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{called}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    (folder / "constraint_0_power_limit_uw").write_text(f"{250 * 10**6}\n")
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two sockets with memory, what is within them, what is around them, and one of them again."""
    root = tmp_path / "powercap"
    zone(root, "intel-rapl:0", "package-0", 10**12 // 8)
    zone(root, "intel-rapl:0:0", "core", 10**9)
    zone(root, "intel-rapl:0:1", "dram", 3 * 10**10)
    zone(root, "intel-rapl:1", "package-1", 5 * 10**10)
    zone(root, "intel-rapl:1:0", "dram", 2 * 10**10)
    zone(root, "intel-rapl:2", "psys", 10**10)
    zone(root, "intel-rapl-mmio:0", "package-0", 10**12 // 8)
    (root / "intel-rapl").mkdir()  # the control type, which is in the same folder
    return root


def add(zone: Path, joules: float) -> None:
    file = zone / "energy_uj"
    file.write_text(str(int(int(file.read_text()) + joules * 1e6) % RANGE_UJ))


def read_between(of: Meter, happens: Callable[[], Any], interval_s: float = WINDOW_S) -> RankEnergy:
    """What is reported of two readings with what ``happens`` in between, said to be ``interval_s`` apart."""
    before = of.read()
    happens()
    return RankEnergy(**{**of.between(before, of.read()), "interval_s": interval_s})


def used(tree: Path, joules: float, machine: str = "one", interval_s: float = WINDOW_S) -> RankEnergy:
    """Both packages use ``joules`` together, and each memory a tenth of that."""

    def happens() -> None:
        for name, share in (("0", 0.75), ("0:1", 0.1), ("1", 0.25), ("1:0", 0.1)):
            add(tree / f"intel-rapl:{name}", share * joules)

    return read_between(Meter(machine, [partial(powercap.find, tree)]), happens, interval_s)


def energy(*readers: RankEnergy, window_s: float = WINDOW_S) -> Energy:
    found = derive([Read(window_s, [(f"nid{number}", each) for number, each in enumerate(readers)])], IMAGES)
    assert found
    return found


def per_image(found: Energy) -> float:
    assert found.joules_per_image
    return found.joules_per_image.mean


# --- sensors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sensor", [nvml, pm_counters, powercap])
def test_a_sensor_is_a_file_of_sixty_lines_at_most(sensor: ModuleType) -> None:
    assert len(Path(str(sensor.__file__)).read_text().splitlines()) <= 60


def test_powercap_has_packages_and_memory_and_each_once(tree: Path) -> None:
    found = {counter.name: counter.covers for counter in powercap.find(tree)}
    assert found == {
        "package-0": "package",
        "package-0/dram": "memory",
        "package-1": "package",
        "package-1/dram": "memory",
    }


def test_joules_are_those_of_packages_and_memory(tree: Path) -> None:
    found = energy(used(tree, 500))
    assert per_image(found) == pytest.approx((500 + 100) / IMAGES)
    assert found.covers == "package (powercap) + memory (powercap)"
    assert [(part.covers, part.joules_per_image.mean) for part in found.parts] == [
        ("memory", pytest.approx(1.0)),
        ("package", pytest.approx(5.0)),
    ]
    assert not found.notes


@pytest.mark.parametrize("limit_w", [0, 4095])  # as memory that cannot be limited has it, and more than any part takes
def test_a_limit_that_is_none_is_not_believed(tree: Path, limit_w: int) -> None:
    (tree / "intel-rapl:0:1/constraint_0_power_limit_uw").write_text(f"{limit_w * 10**6}\n")
    assert {counter.name: counter.most_w for counter in powercap.find(tree)}["package-0/dram"] == powercap.MOST_W
    assert per_image(energy(used(tree, 500))) == pytest.approx(6.0)


def test_a_counter_that_wraps_around_counts_on(tree: Path) -> None:
    (tree / "intel-rapl:1/energy_uj").write_text(str(RANGE_UJ - 10**6))
    assert per_image(energy(used(tree, 500))) == pytest.approx(6.0)
    assert int((tree / "intel-rapl:1/energy_uj").read_text()) < 10**9


def test_a_counter_that_may_have_wrapped_twice_has_no_number(tree: Path) -> None:
    long_s = RANGE_UJ / 1e6 / 250 + 1
    assert energy(used(tree, 500, interval_s=long_s - 2), window_s=long_s - 2).joules_per_image
    found = energy(used(tree, 500, interval_s=long_s), window_s=long_s)
    assert found.joules_per_image is None and "more than once: 262143 J are 250 W in 1049 s" in found.notes[0]


def test_without_rights_there_is_no_number_but_a_reason_said_once(tree: Path) -> None:
    def unreadable(file: Path) -> str:
        raise PermissionError(13, "Permission denied", str(file))

    with pytest.MonkeyPatch.context() as patch:  # root may read everything, and tests run as root in containers
        real = Path.read_text
        patch.setattr(Path, "read_text", lambda self: unreadable(self) if self.name == "energy_uj" else real(self))
        found = energy(*(read_between(Meter(name, [partial(powercap.find, tree)]), int) for name in "ab"))
    assert found.joules_per_image is None and not found.parts
    counters = "package-0, package-0/dram, package-1, package-1/dram"
    assert found.notes == (f"powercap {counters}: Permission denied (on nid0 and 1 more)",)


def test_a_part_without_a_number_does_not_spoil_the_others(tree: Path) -> None:
    (tree / "intel-rapl:1:0/energy_uj").write_text("none")
    before = Meter("one", [partial(powercap.find, tree)])
    found = energy(read_between(before, lambda: [add(tree / f"intel-rapl:{number}", 100) for number in "01"]))
    assert found.covers == "package (powercap)" and per_image(found) == pytest.approx(2.0)
    assert any("package-1/dram: invalid literal" in note for note in found.notes)


def test_a_counter_that_does_not_move_has_no_number(tree: Path) -> None:
    before = Meter("one", [partial(powercap.find, tree)])
    found = energy(read_between(before, lambda: add(tree / "intel-rapl:0", 100)))
    assert found.joules_per_image is None
    assert found.notes == ("powercap package-0/dram, package-1, package-1/dram: does not move (on nid0)",)


def test_a_mirrored_counter_is_counted_once(tmp_path: Path) -> None:
    zones = [zone(tmp_path, f"intel-rapl:{number}", f"package-{number}", 7 * 10**10) for number in (0, 1)]
    of = Meter("one", [partial(powercap.find, tmp_path)])
    found = energy(read_between(of, lambda: [add(each, 300) for each in zones]))
    assert per_image(found) == pytest.approx(3.0)
    assert found.notes == (
        "powercap package-1: shows the numbers of package-0, so it is that counter once more and is left out (on nid0)",
    )


def test_a_window_of_few_updates_has_no_number(tree: Path) -> None:
    found = energy(used(tree, 1, interval_s=0.019), window_s=0.019)
    assert found.joules_per_image is None and "the window is shorter than 0.02 s" in found.notes[0]
    assert energy(used(tree, 1, interval_s=0.021), window_s=0.021).joules_per_image


def test_readings_far_from_the_window_give_no_number(tree: Path) -> None:
    assert energy(used(tree, 500, interval_s=10.4)).joules_per_image
    found = energy(used(tree, 500, interval_s=10.6))
    assert found.joules_per_image is None and "was read 10.6 s apart, for a window of 10 s" in found.notes[0]


def test_two_readers_on_one_machine_count_once(tree: Path) -> None:
    found = energy(*[used(tree, 500)] * 2)
    assert per_image(found) == pytest.approx(6.0)
    assert found.notes == ("2 nodes of the run are one machine, whose counters are counted once (on nid0)",)


def test_machines_add_up_and_each_needs_a_counter(tree: Path) -> None:
    two = used(tree, 500), used(tree, 700, "two")
    assert per_image(energy(*two)) == pytest.approx(14.4)
    bare = read_between(Meter("three", []), int)
    found = energy(*two, bare)
    assert found.joules_per_image is None
    assert "powercap: there is no counter of package, which other nodes have (on nid2)" in found.notes


def test_nothing_to_read_is_said_once() -> None:
    found = energy(*(read_between(Meter(name, []), int) for name in "ab"))
    assert found.joules_per_image is None
    assert found.notes == ("no counter of energy: no powercap, no pm_counters, and no GPU in use (on nid0 and 1 more)",)


def test_servers_on_nodes_of_their_own_leave_the_run_without_a_figure(tree: Path) -> None:
    found = energy(used(tree, 500).model_copy(update={"unread": ["nid7"]}))
    assert found.joules_per_image is None and not found.parts
    assert "no worker is there" in found.notes[0] and "(on nid7)" in found.notes[0]


def test_without_a_reader_there_is_no_energy() -> None:
    assert derive([Read(WINDOW_S, [])], IMAGES) == Energy()


@pytest.mark.parametrize("processors", [("cpu_energy",), ("cpu_energy", "cpu0_energy", "cpu1_energy")])
def test_pm_counters_give_the_node_and_its_parts(tmp_path: Path, processors: Sequence[str]) -> None:
    updates = itertools.count(7, 100)

    def say(joules: int) -> None:
        for name in ("energy", *processors, "memory_energy", "accel0_energy"):
            share = 1 if name == "energy" else 2 if name == "cpu_energy" else 4
            since = 5000 * (name == "cpu1_energy")  # or it would be taken for the other one's mirror
            (tmp_path / name).write_text(f"{joules // share + since} J 1700000000000000 us\n")
        (tmp_path / "freshness").write_text(f"{next(updates)}\n")

    say(1_000_000)
    of = Meter("one", [partial(pm_counters.find, tmp_path)])
    found = energy(read_between(of, lambda: say(1_004_000)))
    assert found.covers == "node (pm_counters)" and per_image(found) == pytest.approx(40.0)
    parts = {part.covers: part.joules_per_image.mean for part in found.parts}
    assert parts == {"node": 40.0, "package": 20.0, "memory": 10.0, "module": 10.0}
    assert energy(read_between(of, lambda: say(0))).notes == (
        f"pm_counters {', '.join(counter.name for counter in of.counters)}: went back within the window: it was reset "
        "(on nid0)",
    )


def test_the_one_gpu_of_an_xc_has_a_counter_without_a_number(tmp_path: Path) -> None:
    for name in ("energy", "cpu_energy", "memory_energy", "accel_energy"):
        (tmp_path / name).write_text("1 J 1700000000000000 us\n")
    assert [counter.covers for counter in pm_counters.find(tmp_path)] == ["node", "package", "memory", "module"]
    (tmp_path / "accel0_energy").write_text("1 J 1700000000000000 us\n")
    assert [counter.name for counter in pm_counters.find(tmp_path)][-1] == "accel0_energy"


class Board:
    """A tree of pm_counters, as a Cray EX has it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.says(1_000_000, freshness=500)

    def says(self, joules: int, freshness: int, generation: int = 3) -> None:
        for name in ("energy", "cpu_energy"):
            (self._root / name).write_text(f"{joules} J 1700000000000000 us\n")
        (self._root / "freshness").write_text(f"{freshness} 1700000000000000 us\n")
        (self._root / "generation").write_text(f"{generation} 1700000000000000 us\n")

    def window(self, *, updates: int, generations: tuple[int, int] = (3, 3)) -> RankEnergy:
        self.says(1_000_000, 500, generations[0])
        of = Meter("one", [partial(pm_counters.find, self._root)])
        return read_between(of, lambda: self.says(1_004_000, 500 + updates, generations[1]))


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def test_pm_counters_that_are_updated_while_they_are_read_are_read_again(board: Board, tmp_path: Path) -> None:
    updates = [lambda: board.says(2_000_000, freshness=501)]

    def updating() -> float:
        if updates:
            updates.pop()()
        return 0.0

    other = Counter("nvml", "gpu", "0", 0.1, updating)
    _, values, _ = Meter("one", [partial(pm_counters.find, tmp_path), lambda: [other]]).read()
    assert values == [2_000_000, 2_000_000, 0]


@pytest.mark.parametrize("updates", [0, 19, -500])
def test_pm_counters_that_were_not_updated_often_enough_have_no_number(board: Board, updates: int) -> None:
    found = energy(board.window(updates=updates))
    assert found.joules_per_image is None
    assert found.notes == (
        f"pm_counters energy, cpu_energy: was updated {updates} times within the window, less than 20 times (on nid0)",
    )
    assert per_image(energy(board.window(updates=20))) == 40


def test_a_power_cap_that_was_changed_is_noted_beside_the_number(board: Board) -> None:
    noted = ("pm_counters: the power cap was changed meanwhile (on nid0)",)
    assert energy(board.window(updates=100)).notes == ()
    within = energy(board.window(updates=100, generations=(3, 4)))
    assert within.notes == noted and per_image(within) == 40
    repeats = [board.window(updates=100, generations=(cap, cap)) for cap in (3, 4)]
    between = derive([Read(WINDOW_S, [("nid0", repeat)]) for repeat in repeats], IMAGES)
    assert between and between.notes == noted and per_image(between) == 40


def test_boards_that_do_not_count_updates_are_believed(board: Board, tmp_path: Path) -> None:
    (tmp_path / "generation").unlink()
    (tmp_path / "freshness").write_text("\n")
    of = Meter("one", [partial(pm_counters.find, tmp_path)])
    read = read_between(of, lambda: [(tmp_path / name).write_text("1004000 J\n") for name in ("energy", "cpu_energy")])
    assert per_image(energy(read)) == 40 and read.counters[0].freshness is None


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for libnvidia-ml.so.1 with three GPUs; the second counts twice what is in the file ``millijoules``.

    The third is divided.
    """
    folder = tmp_path_factory.mktemp("nvml")
    made = folder / "libnvidia-ml.so.1"
    name = f'-DFILE_NAME="{folder}/millijoules"'
    subprocess.run(["gcc", "-shared", "-fPIC", name, "-o", made, ROOT / "tests/programs/nvml.c"], check=True)
    return made


def test_nvml_counts_the_gpus_that_the_run_uses(library: Path) -> None:
    (library.parent / "millijoules").write_text("5000000000")
    of = Meter("one", [lambda: nvml.find(["0", "GPU-second"], str(library))])
    found = energy(read_between(of, lambda: (library.parent / "millijoules").write_text("5003000000")))
    assert found.covers == "gpu (nvml)" and per_image(found) == pytest.approx((3000 + 6000) / IMAGES)
    refused = read_between(of, (library.parent / "millijoules").unlink)
    assert energy(refused).notes == (
        "nvml 0, GPU-second: nvmlDeviceGetTotalEnergyConsumption fails with code 3 (on nid0)",
    )


@cases
def test_nvml_says_which_gpu_has_no_counter(library: Path, case: Case) -> None:
    gpus = ["0", case.request]
    found = energy(read_between(Meter("one", [lambda: nvml.find(gpus, str(library))]), int))
    assert found.joules_per_image is None and len(found.notes) == 1
    case.answered(found.notes[0])


def test_nvml_that_is_missing_matters_to_gpus_alone(tmp_path: Path, wording: Wording) -> None:
    assert nvml.find([], str(tmp_path / "none.so")) == []
    with wording("none.so").raises(OSError, HERE=tmp_path):
        nvml.find(["0"], str(tmp_path / "none.so"))


# --- readers and the window ------------------------------------------------------------------------


def process(rank: int, node: int, role: str = "worker", gpus: str = "") -> dict[str, Any]:
    where = {"node": node, "host": f"nid{node}", "address": f"10.0.0.{node}"}
    return {"role": role, "rank": rank, **where, "env": {"CUDA_VISIBLE_DEVICES": gpus}}


def test_the_first_worker_of_each_node_reads() -> None:
    processes = [process(rank, rank // 2) for rank in range(4)] + [process(0, 2, "ps"), process(1, 0, "ps")]
    meters = [meter({"processes": processes}, each) for each in processes[:4]]
    first, _, third, _ = meters
    assert [each is not None for each in meters] == [True, False, True, False]
    assert first and third and first.machine == third.machine and first.unread == ["nid2"]


@pytest.mark.parametrize(
    ("handed_out", "read"),
    [
        ("", ["0", "1"]),
        ("2,3", ["2", "3"]),
        ("GPU-b,GPU-c", ["GPU-b", "GPU-c"]),
        ("0", "hands GPUs to tasks, not to nodes"),
    ],
)
def test_the_gpus_that_a_batch_system_has_handed_out_are_read(
    monkeypatch: pytest.MonkeyPatch, handed_out: str, read: list[str] | str
) -> None:
    found: list[str] = []
    monkeypatch.setattr(nvml, "find", lambda gpus: found.extend(gpus) or [])
    monkeypatch.setenv("HARNESS_GPUS", handed_out)
    processes = [process(rank, 0, gpus=str(rank)) for rank in range(2)]
    reader = meter({"processes": processes}, processes[0])
    assert reader and (found == read if isinstance(read, list) else read in reader.missing[-1])


class Together:
    """Ranks that are threads: what the loop calls of a trainer. A step takes a while."""

    def __init__(self, everybody: threading.Barrier, step: Callable[[], None]) -> None:
        self.marks, self.step = Marks, step
        self._everybody = everybody

    def barrier(self) -> None:
        self._everybody.wait(10)

    def synchronize(self) -> None:
        return

    def server_bytes(self) -> list[tuple[int, int]]:
        return []


def test_two_ranks_measure_what_is_used_within_their_window_alone(tree: Path) -> None:
    """The real loop, with a counter that each step moves: what the warm-up used is not in the figure."""
    lock, windows = threading.Lock(), dict[int, Window]()
    everybody = threading.Barrier(2)

    def step() -> None:
        time.sleep(0.01)
        with lock:
            for name in ("0", "0:1", "1", "1:0"):
                add(tree / f"intel-rapl:{name}", 5)

    def be(rank: int) -> None:
        of = Meter("one", [partial(powercap.find, tree)]) if rank == 0 else None
        windows[rank] = measure(cast(Trainer, Together(everybody, step)), 3, 20, lambda phase, step_s: None, of)

    threads = [threading.Thread(target=be, args=(rank,)) for rank in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert windows[1].energy is None
    read = RankEnergy(**(windows[0].energy or {}))
    assert windows[0].window_s <= read.interval_s
    found = derive([Read(read.interval_s, [("here", read)])], images=2 * 20)
    assert found and found.joules_per_image
    assert found.joules_per_image.mean == pytest.approx(4 * 5)  # each step of each rank is one image


# --- what is made of it -----------------------------------------------------------------------------

COVERED = "package (powercap)"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Two ways of distributing on two nodes; the faster one takes twice the energy."""
    return made.save(
        tmp_path / "runs",
        [
            made.record("pytorch", 2, [100.0, 101.0, 99.0], joules=[1.0, 1.01, 0.99], apart=True),
            made.record("horovod", 2, [120.0, 121.0, 119.0], joules=[2.0, 2.02, 1.98], apart=True),
        ],
    )


def test_a_record_with_other_joules_than_its_counters_say_is_refused(tmp_path: Path, wording: Wording) -> None:
    record = made.record(joules=[2.0, 2.0, 2.0])
    assert record.derived and record.derived.energy and record.derived.energy.joules_per_image
    assert record.derived.energy.joules_per_image.mean == pytest.approx(2.0)
    file = record.write(tmp_path)
    text, figure = file.read_text(), '"joules_per_image": {\n    "mean": 2.0'
    assert figure in text
    file.write_text(text.replace(figure, figure.replace("2.0", "1.0")))
    with wording("joules_per_image").raises(InvalidInput, FILE=file):
        measurement.Record.read(file)


def test_an_emulated_run_has_no_joules_and_says_so() -> None:
    record = made.record(joules=[2.0] * 3)
    emulated = record.spec.model_copy(update={"device": "emulated:p100"})
    assert measurement.energy_of(emulated, record.repeats) == Energy(notes=(EMULATED,))


def test_the_table_has_joules_and_what_they_cover_where_they_were_measured(saved: Path, harness: Harness) -> None:
    shown = harness("table", str(saved)).succeeded().stdout
    assert "J/img" in shown and COVERED in shown and " 2  " in shown
    for record in saved.glob("*/record.json"):
        record.unlink()
    made.save(saved, [made.record("pytorch", 2)])
    assert "J/img" not in harness("table", str(saved)).succeeded().stdout


def test_the_report_has_a_table_of_runs_with_what_their_counters_cover(saved: Path) -> None:
    runs = results.load([saved])
    (section,) = (each for each in assemble.sections(runs) if each.name == "energy")
    (table,) = section.tables
    shown = [dict(zip(table.columns, cells, strict=True)) for _, cells in table.rows]
    assert {row["energy of"] for row in shown} == {COVERED}
    assert {row["backend"]: row["J/img"] for row in shown} == pytest.approx({"horovod": 2.0, "pytorch": 1.0})
    without = [replace(run, energy="") for run in runs]
    assert not [each for each in assemble.sections(without) if each.name == "energy"]

"""Kernels: what their figures mean, what a wrong result leads to, and what is refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Barrier, Lock, Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from harness import kernels
from harness.core import backend as backends
from harness.core.spec import RunSpec
from harness.core.text import size, sizes
from harness.errors import InvalidInput
from harness.kernels.values import message
from harness.records.kernel import KernelRank, KernelRecord, KernelRepeat, derive, judge
from harness.records.record import seen_by
from harness.report.text import kernels as texts
from harness.worker.fabric import Arithmetic, Fabric
from harness.worker.kernel import run
from tests.conftest import PATIENCE_S, Harness
from tests.made import content, edited, read, store
from tests.wording import Case, Wording, cases

STEPS = 4
MESSAGES = [name for name in kernels.names() if kernels.specification(name).in_bytes]
# Kernels among ranks alone, and among ranks and two servers.
BODIES = [
    (name, servers)
    for name in kernels.names()
    for servers, body in ((0, "Body"), (2, "WorkerBody"))
    if hasattr(import_module(f"harness.kernels.{name}"), body)
]
COMPUTATIONS = [name for name in kernels.names() if name not in MESSAGES]


def spec(kernel: str = "allreduce", *wanted: int, **fields: Any) -> RunSpec:
    named = {"name": kernel, "sizes": wanted or (1024, 4096)}
    return RunSpec.validated(backend="pytorch", nodes=4, steps=STEPS, kernel=named, **fields)


@cases
def test_sizes_are_ranges_that_double_and_lists(case: Case) -> None:
    case.answered(sizes(case.request))


@cases
def test_what_is_no_size_is_refused(case: Case) -> None:
    with case.raises(ValueError):
        sizes(eval(case.request))


def test_sizes_are_written_with_the_unit_in_which_they_are_whole() -> None:
    assert [size(each) for each in (4, 1000, 1024, 3 << 20, 1 << 30)] == ["4 B", "1,000 B", "1 KiB", "3 MiB", "1 GiB"]


def test_bus_bandwidths_are_those_of_nccl_tests() -> None:
    """The factors of its doc/PERFORMANCE.md; a ping-pong has none, and two servers have to take two workers' each.

    In pairs each of four ranks sends three whole messages.
    """
    factors = {name: kernels.specification(name).bus(4, 2) for name in MESSAGES}
    assert factors == {
        "allgather": 0.75,
        "allreduce": 1.5,
        "alltoall": 0.75,
        "pairs": 3,
        "pingpong": 1,
        "stream": 1,
        "incast": 2,
        "outcast": 2,
    }


class Alone:
    """The operations of a world of one rank, with as many servers, of which each may be wrong."""

    rank, size, arithmetic = 0, 1, Arithmetic()

    def __init__(self, servers: int = 0, wrong: float = 0.0) -> None:
        self.servers, self._wrong = servers, np.float32(wrong)

    def array(self, values: np.ndarray) -> np.ndarray:
        return values.copy()

    def values(self, array: np.ndarray) -> np.ndarray:
        return array

    def allreduce(self, array: np.ndarray) -> np.ndarray:
        array[-1] += self._wrong
        return array

    def allgather(self, mine: np.ndarray, every: np.ndarray) -> np.ndarray:
        every[:] = self.allreduce(mine.copy())
        return every

    alltoall = allgather

    def pushing(self, parts: list[np.ndarray]) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
        mine = np.concatenate(parts)
        sums = np.zeros_like(mine)
        return lambda: sums.__iadd__(mine), lambda: self.allreduce(sums)

    def pulling(self, parts: list[np.ndarray]) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
        held = np.concatenate(parts)
        arrived = np.zeros_like(held)
        return lambda: self.allgather(held, arrived), lambda: arrived

    def send(self, array: np.ndarray, rank: int) -> None:
        self._sent = self.allreduce(array.copy())

    def recv(self, array: np.ndarray, rank: int) -> np.ndarray:
        array[:] = self._sent
        return array


@pytest.mark.parametrize(
    ("name", "servers"),
    [each for each in BODIES if each[0] in MESSAGES and each[0] != "pairs"],  # which one rank cannot be
)
def test_one_wrong_number_is_noticed(name: str, servers: int) -> None:
    for wrong, problem in ((0.0, ""), (1.0, "1 of 64 numbers are wrong"), (np.nan, "1 of 64 numbers are wrong")):
        body = kernels.body(name, servers)(Alone(servers, wrong), 256, seed=1)
        for _ in range(3):
            body.step()
        assert body.problem() == problem


@pytest.mark.parametrize(("name", "servers"), [("allgather", 0), ("alltoall", 0), ("pingpong", 0), ("outcast", 2)])
def test_what_has_never_arrived_is_noticed(name: str, servers: int) -> None:
    assert "numbers are wrong" in kernels.body(name, servers)(Alone(servers), 256, seed=1).problem()


@pytest.mark.parametrize(("name", "servers"), [("incast", 2), ("stream", 2), ("stream", 0)])
def test_a_message_that_was_not_added_is_noticed(name: str, servers: int) -> None:
    body = kernels.body(name, servers)(Alone(servers), 256, seed=1)
    body.step()
    assert body.problem() == ""
    body._steps += 1
    assert "numbers are wrong" in body.problem()


@pytest.mark.parametrize(("name", "wanted"), [("matmul", 64), ("cg", 64), ("fft", 64), ("fft", 1 << 17)])
def test_a_wrong_number_in_what_was_computed_is_noticed(name: str, wanted: int) -> None:
    """A whole one too much of what another rank has sent; a transform of many numbers is not compared number by number."""
    for wrong in (0.0, 1.0, np.nan):
        body = kernels.body(name, 0)(Alone(wrong=wrong), wanted, seed=1)
        for _ in range(2):
            body.step()
        assert bool(body.problem()) == bool(wrong)


class Member:
    """A rank or a server of a world of threads, whose arrays are NumPy's."""

    arithmetic = Arithmetic()

    def __init__(self, world: World, rank: int) -> None:
        self._world, self.rank, self.size, self.servers = world, rank, world.ranks, world.servers

    def array(self, values: np.ndarray) -> np.ndarray:
        return values.copy()

    def barrier(self) -> None:
        self._world.met.wait(PATIENCE_S)

    def queue(self, name: str, shape: Sequence[int], dtype: Any = np.float64, server: int = 0) -> Line:
        with self._world.lock:
            return Line(self._world.lines[name, server], shape, self._world.wrong)

    def held(self, name: str, shape: Sequence[int], dtype: Any = np.float64, server: int = 0) -> Shelf:
        with self._world.lock:
            return self._world.shelves.setdefault((name, server), Shelf(np.zeros(shape, dtype)))

    def program(self, build: Callable[..., Any], *like: Any) -> Callable[..., Any]:
        return build


class Line:
    """A queue of a world of threads."""

    def __init__(self, waiting: SimpleQueue[tuple[np.ndarray, int]], shape: Sequence[int], wrong: float) -> None:
        self._waiting, self._shape, self._wrong = waiting, tuple(shape), wrong

    def put(self, array: np.ndarray, index: int = 0) -> None:
        sent = np.array(array)
        assert sent.shape == self._shape
        sent.flat[-1:] += self._wrong
        self._waiting.put((sent, index))

    def get(self, after: Sequence[None] = ()) -> tuple[np.ndarray, int]:
        return self._waiting.get(timeout=PATIENCE_S)

    def gather(self, count: int) -> np.ndarray:
        return np.concatenate(
            [array for array, _ in sorted((self.get() for _ in range(count)), key=lambda one: one[1])]
        )


@dataclass
class Shelf:
    """What a server holds in a world of threads."""

    held: np.ndarray

    def set(self, array: np.ndarray) -> None:
        self.held[:] = array

    def add(self, array: np.ndarray, index: int, to_zero: bool = False) -> None:
        self.held *= not to_zero
        self.held[index] += array

    def part(self, begin: int, end: int) -> np.ndarray:
        return self.held[begin:end]


@dataclass
class World:
    """Ranks and servers that are threads of this process. ``wrong`` is added to one number of each array in a queue."""

    ranks: int
    servers: int
    wrong: float = 0.0
    lock: Any = field(default_factory=Lock)
    lines: Any = field(default_factory=lambda: defaultdict(SimpleQueue))
    shelves: dict[tuple[str, int], Shelf] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.met = Barrier(self.ranks)

    def bodies(self, name: str, size: int, steps: int) -> tuple[list[Any], list[str]]:
        """Every rank's body after so many steps, and its problem."""
        for server in range(self.servers):
            for loop in kernels.reducer(name)(Member(self, server), size, seed=1):
                Thread(target=self._served, args=(loop,), daemon=True).start()
        with ThreadPoolExecutor(self.ranks) as pool:
            bodies = list(pool.map(lambda rank: self._stepped(name, size, steps, rank), range(self.ranks)))
            return bodies, list(pool.map(lambda body: str(body.problem()), bodies))

    def _served(self, loop: Callable[[], object]) -> None:
        """Until nothing has come for long: the test is over."""
        with suppress(Empty):
            while True:
                loop()

    def _stepped(self, name: str, size: int, steps: int, rank: int) -> Any:
        body = kernels.body(name, self.servers)(Member(self, rank), size, seed=1)
        for _ in range(steps):
            body.step()
        return body


@pytest.mark.parametrize(("ranks", "servers"), [(1, 1), (1, 2), (2, 1), (3, 2), (2, 4)])
@pytest.mark.parametrize("name", [name for name, servers in BODIES if servers and name in COMPUTATIONS])
def test_what_servers_reduce_is_right_and_a_wrong_number_is_noticed(name: str, ranks: int, servers: int) -> None:
    size = kernels.specification(name).size(72, ranks)
    bodies, problems = World(ranks, servers).bodies(name, size, steps=3)
    assert set(problems) == {""}
    if name == "fft":  # and what it takes back
        assert all(len(body.collected_s) == 4 and min(body.collected_s) > 0 for body in bodies)
    assert any(World(ranks, servers, wrong=1.0).bodies(name, size, steps=1)[1])


def test_conjugate_gradients_beside_servers_go_the_way_of_those_among_ranks() -> None:
    alone = kernels.body("cg", 0)(Alone(), 96, seed=1)
    alone.step()
    for body in World(ranks=3, servers=2).bodies("cg", 96, steps=2)[0]:
        assert body.history() == pytest.approx(alone.history(), rel=0, abs=1e-10)


def test_a_permuted_result_is_noticed() -> None:
    """What transposes wrongly gives all numbers of the transform, at other places."""
    body = kernels.body("fft", 0)(Alone(), 1 << 17, seed=1)
    body.step()
    body._transformed = np.roll(body._transformed, 1)
    assert "numbers are wrong" in body.problem()


def test_conjugate_gradients_converge_and_a_restart_that_goes_elsewhere_is_noticed() -> None:
    body = kernels.body("cg", 0)(Alone(), 96, seed=1)
    body.step()
    residuals = body.history()
    assert len(residuals) == 50 and residuals[0] < 1 and residuals[-1] < 1e-13 and body.problem() == ""
    iterated = body._iterated
    body._iterated = lambda state, count: iterated({**state, "r": state["r"] + 1}, count)
    assert body.problem().startswith("after a restart from a checkpoint")


def test_a_rank_with_a_wrong_residual_does_not_leave_the_others_waiting() -> None:
    """Every rank takes part in the restart, of which only some may find that they need not have tried."""
    body = kernels.body("cg", 0)(Alone(), 96, seed=1)
    body.step()
    body._solved["x"] = body._solved["x"] + 1
    iterated: list[int] = []
    going = body._iterated
    body._iterated = lambda state, count: iterated.append(count) or going(state, count)
    assert body.problem() == "96 of 96 numbers are wrong" and iterated == [25, 25]


@pytest.mark.parametrize(
    ("name", "asked", "ranks", "size"),
    [
        *(("matmul", 100, 3, 99), ("cg", 100, 3, 99), ("fft", 100, 3, 72), ("fft", 100, 4, 64)),
        *(("allreduce", 1000, 3, 1000), ("alltoall", 1000, 3, 996), ("allgather", 1000, 3, 996)),
        *(("allreduce", 1, 3, 4), ("alltoall", 1, 3, 12), ("allgather", 1, 3, 12)),
    ],
)
def test_each_rank_gets_a_whole_number_of_elements_of_a_size(name: str, asked: int, ranks: int, size: int) -> None:
    assert kernels.specification(name).size(asked, ranks) == size


@pytest.mark.parametrize(
    ("name", "ranks", "size"), [("matmul", 3, 3), ("cg", 1, 50), ("cg", 3, 51), ("fft", 1, 2), ("fft", 3, 9)]
)
def test_the_smallest_size_is_solved_and_has_a_rate(name: str, ranks: int, size: int) -> None:
    assert kernels.specification(name).size(1, ranks) == size and kernels.specification(name).work(size) > 0
    body = kernels.body(name, 0)(Alone(), kernels.specification(name).size(1, 1), seed=1)
    body.step()
    assert body.problem() == "" and np.isfinite(getattr(body, "history", list)()).all()


def test_a_residual_that_is_no_number_is_a_wrong_result_and_not_in_the_history() -> None:
    class WithoutNumbers(Alone, Fabric):  # type: ignore[misc]
        def allgather(self, mine: np.ndarray, every: np.ndarray) -> np.ndarray:
            return every * np.nan

        def barrier(self) -> None:
            return

        def transport(self) -> str:
            return "none"

    job: Any = SimpleNamespace(kernel={"name": "cg", "sizes": [64]}, spec={"warmup_steps": 0, "steps": 1, "seed": 1})
    run(job, events := Mock(), WithoutNumbers())
    (of_size,) = [call.kwargs for call in events.emit.call_args_list if call.args == ("size",)]
    assert (of_size["problem"], of_size["history"]) == ("64 of 64 numbers are wrong", [])


def test_operations_are_counted_as_others_count_them() -> None:
    counted = {name: kernels.specification(name).work(1024) for name in COMPUTATIONS}
    assert counted == {"cg": 50 * 2 * 1024**2, "fft": 5 * 1024 * 10, "matmul": 2 * 1024**3 - 1024**2}


def test_what_is_computed_has_a_rate_and_no_bus() -> None:
    (figures,) = record(spec("cg", 1024, repeats=2), ranks({1024: 1e-3})).derived or []
    assert figures.rate.mean == pytest.approx(100 * 1024**2 / 1.1e-3) and figures.bus_bytes_per_s is None


def test_ranks_that_went_on_with_other_numbers_are_no_result() -> None:
    of = ranks({1024: 1e-3})
    other = of[1].sizes[0].model_copy(update={"history": [0.5]})
    failed = [check.name for check in judge(spec("cg", 1024), [of[0], of[1].model_copy(update={"sizes": [other]})], 4)]
    assert "alike" in failed


def test_every_rank_has_another_message() -> None:
    assert len({message(rank, 64, 1).tobytes() for rank in range(16)}) == 16


def ranks(times_s: dict[int, float], problem: str = "", count: int = 4) -> list[KernelRank]:
    """Ranks whose steps of a size took so long, except that the last rank's window is a tenth longer."""
    return [
        KernelRank(
            rank=rank,
            host=f"nid{rank}",
            evidence={"world_size": count, "transport": "gloo on lo"},
            sizes=[
                {
                    "size": bytes_,
                    "marks_s": [step * time_s for step in range(STEPS + 1)],
                    "finished_s": STEPS * time_s,
                    "window_s": STEPS * time_s * (1.1 if rank == count - 1 else 1),
                    "network": {"sent": STEPS * 2 * bytes_, "received": 0, "interfaces": ["lo"]},
                    "problem": problem if rank == 2 else "",
                }
                for bytes_, time_s in times_s.items()
            ],
        )
        for rank in range(count)
    ]


def record(of: RunSpec, of_ranks: list[KernelRank], **fields: Any) -> KernelRecord:
    """A record of two repeats in which ranks took the same time."""
    return recorded(of, [of_ranks] * 2, **fields)


def recorded(of: RunSpec, ranks_of: Sequence[list[KernelRank]], day: int = 1, **fields: Any) -> KernelRecord:
    """A record of repeats with these ranks."""
    times = {"started": f"2026-01-{day:02}T00:00:00+00:00", "ended": f"2026-01-{day:02}T00:01:00+00:00"}
    repeats = [
        KernelRepeat(number=number, ranks=those, checks=judge(of, those, len(those)), **times)
        for number, those in enumerate(ranks_of, start=1)
    ]
    return KernelRecord(
        **{
            **{"schema": "harness.kernel/1", "id": "one", "status": "completed", "reason": None, "spec": of},
            **{"plan": {"world_size": of.nodes, "processes": [{"role": "worker", "devices": 1}] * of.nodes}},
            **{"machine": {}, "software": {}, "variables": {}, "harness": {}, "expected_updates": 0, **times},
            **{"repeats": repeats, "seen": seen_by([rank for repeat in repeats for rank in repeat.ranks])},
            **{"derived": derive(of, repeats, 0) if repeats else None, **fields},
        }
    )


def test_bandwidth_is_what_the_slowest_rank_allows_and_latency_that_of_a_message() -> None:
    of = spec(repeats=2)
    small, large = record(of, ranks({1024: 1e-3, 4096: 2e-3})).derived or []
    assert (small.size, large.size) == (1024, 4096)
    assert large.p50_s == pytest.approx(2e-3)
    assert large.time_s.mean == pytest.approx(2.2e-3)
    assert large.rate.mean == pytest.approx(4096 / 2.2e-3)
    assert large.bus_bytes_per_s and large.bus_bytes_per_s.mean == pytest.approx(1.5 * 4096 / 2.2e-3)
    assert large.sent_bytes == 2 * 4096
    (there,) = record(spec("pingpong", 1024, repeats=2), ranks({1024: 1e-3})).derived or []
    assert there.p50_s == pytest.approx(0.5e-3), "a message goes there and back in a step"


def test_data_are_collected_when_the_rank_that_waits_longest_says_so() -> None:
    of, those = spec("fft", 1024, repeats=2), ranks({1024: 2e-3})
    (figures,) = record(of, those).derived or []
    assert figures.collected_s is None
    told = [
        rank.model_copy(
            update={"sizes": [rank.sizes[0].model_copy(update={"collected_s": [1e-4 * (rank.rank + 1)] * 2})]}
        )
        for rank in those
    ]
    (figures,) = record(of, told).derived or []
    assert figures.collected_s == pytest.approx(4e-4)


def reading(of_ranks: list[KernelRank], *joules: float) -> list[KernelRank]:
    """The same ranks, the first of which read that a package used so much in the window of each size."""
    first, *others = of_ranks
    sizes = [
        times.model_copy(update={"energy": read(used, times.window_s * 1.1)})
        for times, used in zip(first.sizes, joules, strict=True)
    ]
    return [first.model_copy(update={"sizes": sizes}), *others]


def test_energy_is_that_of_the_window_and_of_all_the_work_within() -> None:
    of = spec("pingpong", 1024, 4096, repeats=2)
    those = record(of, reading(ranks({1024: 1e-3, 4096: 1.0}), 5.0, 40.0))
    short, long = those.derived or []
    assert long.energy and long.energy.joules and long.energy.joules.values == (40.0, 40.0)
    assert long.work_per_joule == pytest.approx(2 * STEPS * 4096 / 40), "a message goes there and back in a step"
    assert short.energy and short.energy.joules is None and short.work_per_joule is None
    shown = texts.kernel(those, Path("kernel.json"))
    assert "GB/J" in shown and "J are of package (powercap)\nno J of 1 KiB: powercap package-0: the window is" in shown
    (computed,) = record(spec("cg", 1024, repeats=2), reading(ranks({1024: 1.0}), 40.0)).derived or []
    assert computed.work_per_joule == pytest.approx(STEPS * 100 * 1024**2 / 40)


def test_without_counters_a_kernel_says_so_once_for_all_sizes() -> None:
    of_ranks = reading(ranks({1024: 1e-3, 4096: 1e-3}), 1.0, 1.0)
    for times in of_ranks[0].sizes:
        assert times.energy
        times.energy.counters.clear()
    shown = texts.kernel(record(spec(repeats=2), of_ranks), Path("kernel.json"))
    assert "GB/J" not in shown and "no J of 1 KiB and 1 more size: no counter of energy" in shown
    assert "no J" not in texts.kernel(record(spec(repeats=2), ranks({1024: 1e-3, 4096: 1e-3})), Path("kernel.json"))


def test_a_stream_is_timed_where_it_is_sent() -> None:
    *others, last = ranks({1024: 1e-3})
    (times,) = last.sizes
    slow = times.model_copy(update={"marks_s": [2 * mark for mark in times.marks_s]})
    timed = [*others, last.model_copy(update={"sizes": [slow]})]
    (of_stream,), (of_allreduce,) = (
        record(spec(name, 1024, repeats=2), timed).derived or [] for name in ("stream", "allreduce")
    )
    assert (of_stream.p50_s, of_allreduce.p50_s) == (pytest.approx(2e-3), pytest.approx(1e-3))


def test_a_wrong_result_has_no_number_and_says_where(wording: Wording) -> None:
    of, wrong = spec(repeats=2), ranks({1024: 1e-3, 4096: 2e-3}, problem="3 of 256 numbers are wrong")
    (failed,) = [check for check in judge(of, wrong, 4) if not check.passed]
    assert failed.name == "right" and failed.detail == "rank 2, 1 KiB: 3 of 256 numbers are wrong"
    with wording("wrong").raises(ValueError):
        record(of, wrong)


@cases
def test_an_edited_record_is_refused(tmp_path: Path, case: Case) -> None:
    whole = record(spec(repeats=2), ranks({1024: 1e-3, 4096: 2e-3}))
    whole.write(tmp_path)
    assert KernelRecord.read(tmp_path) == whole
    file = tmp_path / "kernel.json"
    store(file, edited(content(file), case.request))
    with case.raises(InvalidInput, FILE=file):
        KernelRecord.read(tmp_path)


def test_the_spec_of_a_kernel_says_nothing_of_training_and_that_of_a_training_nothing_of_kernels() -> None:
    dumped = spec().model_dump()
    assert not {"model", "batch_size", "image_size", "data", "learning_rate"} & dumped.keys()
    assert RunSpec.model_validate(dumped) == spec()
    assert "kernel" not in RunSpec(backend="pytorch").model_dump()


def test_every_backend_with_kernels_has_a_fabric_for_kernels_that_exist() -> None:
    for backend in backends.working():
        assert set(backend.kernels) <= set(kernels.names())
        assert backend.fabric.is_file() == bool(backend.kernels)


@cases
def test_a_kernel_that_cannot_be_measured_is_refused(refused: Harness, case: Case) -> None:
    case.refused(refused(*case.words()))


def test_a_transport_without_kernels_is_left_out_unless_it_is_named(refused: Harness) -> None:
    shown = refused("kernel", "network", "--dry-run").succeeded()
    heads = [line.split(" · ") for line in shown.stdout.splitlines() if " · " in line]
    assert {head[0].split(" of ")[0] for head in heads} == {"pairs", "pingpong", "allreduce", "incast", "outcast"}
    assert {head[2] for head in heads} == {"gloo", "mpi", "grpc"}


@pytest.mark.parametrize(
    ("arguments", "names", "has"),
    [
        (["--backend", "pytorch"], {"pairs", "pingpong", "allreduce"}, "bucket_mb"),
        (["--backend", "parameter_server", "--ps", "2"], {"incast", "outcast"}, "ps=2"),
        (["--ps-nodes", "dedicated"], {"pairs", "pingpong", "allreduce", "incast", "outcast"}, "ps_nodes=dedicated"),
        (["--pack-mb", "3"], {"pairs", "pingpong", "allreduce", "incast", "outcast"}, "pack_mb=3.0"),
    ],
)
def test_an_option_is_for_the_kernels_of_those_that_have_it(
    refused: Harness, arguments: list[str], names: set[str], has: str
) -> None:
    shown = refused("kernel", "network", *arguments, "--dry-run", "--json").succeeded().json
    assert {run["spec"]["kernel"]["name"] for run in shown["runs"]} == names and shown["scripts"] == []
    heads = [
        line for line in refused("kernel", "network", *arguments, "--dry-run").stdout.splitlines() if " · " in line
    ]
    assert any(has in head for head in heads)


def test_one_rank_by_itself_has_no_bandwidth_of_the_bus(tmp_path: Path) -> None:
    of = RunSpec.validated(backend="pytorch", steps=STEPS, repeats=2, kernel={"name": "allreduce", "sizes": (1024,)})
    alone = record(of, ranks({1024: 1e-3}, count=1))
    assert texts.kernel(alone, tmp_path).splitlines()[-2].split()[5:] == ["0", "±", "0.0%", "2.00"]


def test_transports_are_ranked_by_what_they_carry() -> None:
    slow, fast = (record(spec(repeats=2), ranks({1024: 1e-3, 4096: time_s})) for time_s in (4e-3, 2e-3))
    other = fast.model_copy(update={"spec": fast.spec.model_copy(update={"backend": "horovod"})})
    lines = texts.network([slow, other]).splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["horovod", "pytorch"]

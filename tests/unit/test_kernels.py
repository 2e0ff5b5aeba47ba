"""Kernels: what their figures mean, what a wrong result leads to, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import kernels
from harness.core import backend as backends
from harness.core.spec import RunSpec
from harness.core.text import size, sizes
from harness.errors import InvalidInput
from harness.kernels.values import message
from harness.records.kernel import KernelRank, KernelRecord, KernelRepeat, derive, judge
from harness.report.text import kernels as texts
from tests.conftest import Harness

STEPS = 4


def spec(kernel: str = "allreduce", *wanted: int, **fields: Any) -> RunSpec:
    named = {"name": kernel, "bytes": wanted or (1024, 4096)}
    return RunSpec.validated(backend="pytorch", nodes=4, steps=STEPS, kernel=named, **fields)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4KiB", (4096,)),
        ("1KiB..8KiB", (1024, 2048, 4096, 8192)),
        ("1KiB..3KiB", (1024, 2048)),
        ("1MB, 4 , 1KiB", (4, 1024, 1_000_000)),
        ("1KiB..2KiB,2KiB", (1024, 2048)),
    ],
)
def test_sizes_are_ranges_that_double_and_lists(text: str, expected: tuple[int, ...]) -> None:
    assert sizes(text) == expected


@pytest.mark.parametrize("text", ["", "x", "0", "2KiB..1KiB", "1KiB..", "..4", "1..2..3"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        sizes(text)


def test_sizes_are_written_with_the_unit_in_which_they_are_whole() -> None:
    assert [size(each) for each in (4, 1000, 1024, 3 << 20, 1 << 30)] == ["4 B", "1,000 B", "1 KiB", "3 MiB", "1 GiB"]


def test_bus_bandwidths_are_those_of_nccl_tests() -> None:
    """The factors of its doc/PERFORMANCE.md; a ping-pong has none, and two servers have to take two workers' each."""
    factors = {name: kernels.specification(name).bus(4, 2) for name in kernels.names()}
    assert factors == {"allgather": 0.75, "allreduce": 1.5, "alltoall": 0.75, "pingpong": 1, "push": 2}


@pytest.mark.parametrize(("name", "of_1000"), [("allreduce", 1000), ("alltoall", 996), ("allgather", 996)])
def test_a_message_has_a_whole_number_of_elements_for_each_rank_that_gets_a_part(name: str, of_1000: int) -> None:
    kernel = kernels.specification(name)
    assert kernel.size(1000, 3) == of_1000
    assert 4 <= kernel.size(1, 3) <= 12


class Alone:
    """The operations of a world of one rank, of which each may be wrong."""

    rank, size = 0, 1

    def __init__(self, wrong: float = 0.0) -> None:
        self._wrong = np.float32(wrong)

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

    def pushing(self, values: np.ndarray) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
        sums = np.zeros_like(values)
        return lambda: sums.__iadd__(values), lambda: self.allreduce(sums)

    def send(self, array: np.ndarray, rank: int) -> None:
        self._sent = self.allreduce(array.copy())

    def recv(self, array: np.ndarray, rank: int) -> np.ndarray:
        array[:] = self._sent
        return array


@pytest.mark.parametrize("name", kernels.names())
def test_one_wrong_number_is_noticed(name: str) -> None:
    for wrong, problem in ((0.0, ""), (1.0, "1 of 64 numbers are wrong"), (np.nan, "1 of 64 numbers are wrong")):
        body = kernels.body(name)(Alone(wrong), 256, seed=1)
        for _ in range(3):
            body.step()
        assert body.problem() == problem


@pytest.mark.parametrize("name", ["allgather", "alltoall", "pingpong"])
def test_what_has_never_arrived_is_noticed(name: str) -> None:
    assert "numbers are wrong" in kernels.body(name)(Alone(), 256, seed=1).problem()


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
                    "bytes": bytes_,
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
    checks = judge(of, of_ranks, len(of_ranks))
    times = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:01:00+00:00"}
    repeats = [KernelRepeat(number=number, ranks=of_ranks, checks=checks, **times) for number in (1, 2)]
    return KernelRecord(
        **{
            **{"schema": "harness.kernel/1", "id": "one", "status": "completed", "reason": None, "spec": of},
            **{"plan": {"world_size": 4, "processes": [{"role": "worker", "devices": 1}] * 4}, "expected_updates": 0},
            **{"machine": {}, "software": {}, "variables": {}, "harness": {}, **times},
            **{"repeats": repeats, "derived": derive(of, repeats, 0), **fields},
        }
    )


def test_bandwidth_is_what_the_slowest_rank_allows_and_latency_that_of_a_message() -> None:
    of = spec(repeats=2)
    small, large = record(of, ranks({1024: 1e-3, 4096: 2e-3})).derived or []
    assert (small.bytes, large.bytes) == (1024, 4096)
    assert large.p50_s == pytest.approx(2e-3)
    assert large.time_s.mean == pytest.approx(2.2e-3)
    assert large.algorithm_bytes_per_s.mean == pytest.approx(4096 / 2.2e-3)
    assert large.bus_bytes_per_s.mean == pytest.approx(1.5 * 4096 / 2.2e-3)
    assert large.sent_bytes == 2 * 4096
    (there,) = record(spec("pingpong", 1024, repeats=2), ranks({1024: 1e-3})).derived or []
    assert there.p50_s == pytest.approx(0.5e-3), "a message goes there and back in a step"


def test_a_wrong_result_has_no_number_and_says_where() -> None:
    of, wrong = spec(repeats=2), ranks({1024: 1e-3, 4096: 2e-3}, problem="3 of 256 numbers are wrong")
    (failed,) = [check for check in judge(of, wrong, 4) if not check.passed]
    assert failed.name == "right" and failed.detail == "rank 2, 1 KiB: 3 of 256 numbers are wrong"
    with pytest.raises(ValueError, match="does not pass right"):
        record(of, wrong)


@pytest.mark.parametrize(
    "edit",
    [
        lambda r: r["derived"][0]["bus_bytes_per_s"].update(mean=1e12),
        lambda r: r["derived"].pop(),
        lambda r: r["repeats"].pop(),
        lambda r: r["repeats"][0]["ranks"][1]["sizes"].pop(),
        lambda r: r["repeats"][0]["ranks"].pop(),
        lambda r: r["repeats"][1]["ranks"][0]["sizes"][0]["marks_s"].pop(),
        lambda r: r.update(status="failed", reason="it failed"),
    ],
)
def test_an_edited_record_is_refused(tmp_path: Path, edit: Callable[[Any], object]) -> None:
    whole = record(spec(repeats=2), ranks({1024: 1e-3, 4096: 2e-3}))
    whole.write(tmp_path)
    assert KernelRecord.read(tmp_path) == whole
    edited = json.loads((tmp_path / "kernel.json").read_text())
    del edited["seal"]
    edit(edited)
    (tmp_path / "kernel.json").write_text(json.dumps(edited))
    with pytest.raises(InvalidInput, match="not a valid record"):
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pingpon", "--backend", "pytorch"], "kernel 'pingpon' is not known: must be one of allgather, allreduce"),
        (["pingpong", "--backend", "horovod"], "--backend horovod: pingpong is measured with pytorch"),
        (["allreduce", "--backend", "caffe2"], "--backend caffe2: allreduce is measured with"),
        (["allreduce"], "--backend is required"),
        (["allreduce", "--backend", "pytorch", "--bytes", "8..1"], "--bytes '8..1': must be sizes such as"),
        (["allreduce", "--backend", "pytorch", "--device", "emulated:p100"], "kernels are measured on real devices"),
        (["allreduce", "--backend", "pytorch", "--nodes", "2", "--bytes", "32GiB"], "smaller --bytes may fit"),
        (["pingpong", "--backend", "pytorch"], "pingpong needs 2 workers or more"),
    ],
)
def test_a_kernel_that_cannot_be_measured_is_refused(refused: Harness, arguments: list[str], said: str) -> None:
    done = refused("kernel", *arguments)
    assert done.code == 2 and said in done.stderr, done.stderr


def test_a_transport_without_kernels_is_refused_by_name_and_left_out_otherwise(refused: Harness) -> None:
    assert "--backends caffe2: it has no pingpong" in refused("network", "--backends", "pytorch,caffe2").stderr
    shown = refused("network", "--dry-run")
    assert shown.code == 0
    heads = [line.split(" · ") for line in shown.stdout.splitlines() if " · " in line]
    assert {head[0].split(" of ")[0] for head in heads} == {"pingpong", "allreduce"}
    assert {head[2] for head in heads} == {"gloo", "mpi", "grpc"}


def test_a_dry_run_shows_the_processes_of_a_kernel(harness: Harness) -> None:
    shown = harness("kernel", "allreduce", "--backend", "horovod", "--nodes", "2", "--dry-run", "--json").json
    assert shown["plan"]["trainer"].endswith("horovod/trainer/fabric.py")
    assert shown["spec"]["kernel"]["name"] == "allreduce"


def test_one_rank_by_itself_has_no_bandwidth_of_the_bus(tmp_path: Path) -> None:
    of = RunSpec.validated(backend="pytorch", steps=STEPS, repeats=2, kernel={"name": "allreduce", "bytes": (1024,)})
    alone = record(
        of, ranks({1024: 1e-3}, count=1), plan={"world_size": 1, "processes": [{"role": "worker", "devices": 1}]}
    )
    assert texts.kernel(alone, tmp_path).splitlines()[-2].split()[5:] == ["0", "±", "0.0%", "2.00"]


def test_transports_are_ranked_by_what_they_carry() -> None:
    slow, fast = (record(spec(repeats=2), ranks({1024: 1e-3, 4096: time_s})) for time_s in (4e-3, 2e-3))
    other = fast.model_copy(update={"spec": fast.spec.model_copy(update={"backend": "horovod"})})
    lines = texts.network([slow, other]).splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["horovod", "pytorch"]

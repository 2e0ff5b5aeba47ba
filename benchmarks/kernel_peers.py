"""Our kernels over NumPy and MPI against others' programs, in turn: A B A B …, so that what drifts treats both alike.

    python benchmarks/kernel_peers.py [--rounds 5] [--only matmul]

    apt-get install hpcc libopenblas0-pthread iperf3 python3-petsc4py python3-mpi4py-fft        # the peers, of Debian 12

Messages go through TCP on both sides, between two processes of one thread each; ``matmul`` is on one process alone.
mpi4py.bench and NumPy run in our environment, on the same MPICH and the same OpenBLAS. Debian's peers run on its Open MPI
and its OpenBLAS, iperf3 without MPI. A ratio is our rate over theirs, or their latency over ours: above 1 ours is faster.

It is not always the same work:

- HPCC chooses its sizes by that of its linear system. Its ping-pong has messages of 8 and 2,000,000 bytes; its transform
  is as large as ours, and in order before and after, too.
- mpi4py-fft transforms matrices, not vectors: a square one of as many numbers, for which as many operations count. It moves
  them once, where a vector in order has to be moved three times.
- PETSc solves the same system (a dense matrix, of which each process has half of the rows) in as many iterations.
- iperf3 streams for seconds, a ping-pong waits for each message.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

SMALL, LARGE = 8, 2 << 20  # bytes of a ping-pong's messages
ROWS, EQUATIONS, NUMBERS = 2048, 4096, 1 << 20
STEPS = {SMALL: 20_000, LARGE: 400}
PETSC = next(Path("/usr/lib/petscdir").glob("petsc*/*-real"), Path("/usr/lib/petsc"))
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
OPEN_MPI = ["mpiexec.openmpi", "--allow-run-as-root", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "-n", "2"]
DEBIAN = "/usr/bin/python3"  # the Python that Debian's packages are for


class Comparison(NamedTuple):
    """A rate in ``unit``, or a latency if that is µs; each function takes the number of the round."""

    what: str
    unit: str
    ours: Callable[[int], float]
    peers: dict[str, Callable[[int], float]]


def main() -> None:
    """Alternate, and print each comparison's medians and the median ratio."""
    options = _options()
    for each in COMPARISONS:
        if options.only not in each.what:
            continue
        figures = [
            [each.ours(number), *(peer(number) for peer in each.peers.values())] for number in range(options.rounds)
        ]
        mine, *others = zip(*figures, strict=True)
        print(f"{each.what}: harness {statistics.median(mine):.4g} {each.unit}")
        for name, theirs in zip(each.peers, others, strict=True):
            ratios = [b / a if each.unit == "µs" else a / b for a, b in zip(mine, theirs, strict=True)]
            print(
                f"    {name:32} {statistics.median(theirs):8.4g}   ratio {statistics.median(ratios):.3f} "
                f"(min {min(ratios):.3f}, max {max(ratios):.3f}, {options.rounds} rounds)",
                flush=True,
            )


# --- ours ---


def ours(name: str, size: int, nodes: int = 2) -> dict[str, Any]:
    """The figures of a repeat."""
    command = [sys.executable, "-m", "harness", "kernel", name, "--backend", "mpi4py", "--nodes", str(nodes), "--json"]
    command += ["--bytes" if name == "pingpong" else "--size", str(size), "--warmup", "3"]
    command += ["--steps", str(STEPS.get(size, 10)), "--repeats", "1", "--threads", "1", "--quiet"]
    with tempfile.TemporaryDirectory() as output:
        figures: dict[str, Any] = json.loads(_done([*command, "--output", output]))["derived"][0]
    return figures


def gflops(name: str, size: int, nodes: int = 2) -> float:
    return float(ours(name, size, nodes)["rate"]["mean"]) / 1e9


# --- peers ---


def mpi4py_bench(size: int) -> float:
    """Seconds one way, the mean of as many messages as ours."""
    python = _environment() / "bin" / "python"
    command = [str(python.parent / "mpiexec"), "-n", "2", str(python), "-m", "mpi4py.bench", "pingpong"]
    command += ["-m", str(size), "-n", str(size), "--skip", "3", "--loop", str(STEPS[size])]
    return float(
        _found(r"\| ([\d.e+-]+)", _done([*command, "--large-size", str(1 << 30), "--huge-size", str(1 << 30)]))
    )


@cache
def hpcc(number: int) -> dict[str, float]:
    """The summary of a round's run, which measures everything."""
    with tempfile.TemporaryDirectory() as folder:
        example = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text()
        wanted = re.sub(r"(?m)^\d+( +Ns)$", r"3000\1", re.sub(r"(?m)^2( +Ps)$", r"1\1", example))
        (Path(folder) / "hpccinf.txt").write_text(wanted)
        _done([*OPEN_MPI, "hpcc"], folder)
        text = (Path(folder) / "hpccoutf.txt").read_text()
    return {name: float(value) for name, value in re.findall(r"(?m)^(\w+)=([\d.e+-]+)$", text)}


def iperf3(number: int) -> float:
    """GB/s of one stream of TCP in two seconds."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    server = subprocess.Popen(["iperf3", "-s", "-1", "--forceflush", "-p", port], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        while "listening" not in server.stdout.readline():
            pass
        text = _done(["iperf3", "-c", "127.0.0.1", "-p", port, "-t", "2", "-J"])
    finally:
        server.kill()
        server.wait()
    return float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 8e9


def numpy_alone(number: int) -> float:
    """Gflop/s of NumPy in our environment, with nothing around it."""
    return float(_done([str(_environment() / "bin" / "python"), __file__, "--peer", "numpy"]))


def of_debian(name: str) -> Callable[[int], float]:
    """Gflop/s of what is done below, on Debian's Python and Open MPI."""
    return lambda number: float(_done([*OPEN_MPI, DEBIAN, __file__, "--peer", name]))


def peer_numpy() -> float:
    import numpy as np

    a, b = np.random.default_rng(1).integers(0, 16, (2, ROWS, ROWS)).astype(np.float64)
    return (2.0 * ROWS**3 - ROWS**2) / _seconds(lambda: a @ b)


def peer_petsc() -> float:
    import numpy as np
    from petsc4py import PETSc

    a = PETSc.Mat().createDense([EQUATIONS, EQUATIONS])
    a.setUp()
    own, every = np.arange(*a.getOwnershipRange(), dtype=np.int32), np.arange(EQUATIONS, dtype=np.int32)
    a.setValues(own, every, 0.5 ** np.abs(own[:, None] - every))
    a.assemble()
    exact, b = a.createVecs()
    exact.setValues(own, own % 16 + 1.0)
    exact.assemble()
    a.mult(exact, b)
    x, solver = exact.duplicate(), PETSc.KSP().create()
    solver.setOperators(a)
    solver.setType("cg")
    solver.getPC().setType("none")
    solver.setTolerances(rtol=1e-300, atol=1e-300, max_it=50)  # which no residual is below
    seconds = _seconds(lambda: solver.solve(b, x), PETSc.COMM_WORLD.tompi4py().Barrier)
    assert solver.getIterationNumber() == 50 and (x - exact).norm() < 1e-8 * exact.norm()
    return 50 * 2.0 * EQUATIONS**2 / seconds


def peer_mpi4py_fft() -> float:
    import numpy as np
    from mpi4py import MPI
    from mpi4py_fft import PFFT, newDistArray

    side = math.isqrt(NUMBERS)
    plan = PFFT(MPI.COMM_WORLD, [side, side], dtype=np.complex128)
    given = newDistArray(plan, False)
    given[:] = np.random.default_rng(1).random(given.shape)
    seconds = _seconds(lambda: plan.forward(given, normalize=False), MPI.COMM_WORLD.Barrier)
    return 5.0 * NUMBERS * math.log2(NUMBERS) / seconds


PEERS = {"numpy": peer_numpy, "petsc": peer_petsc, "mpi4py_fft": peer_mpi4py_fft}

COMPARISONS = [
    Comparison(
        f"pingpong of {SMALL} bytes",
        "µs",
        lambda number: float(ours("pingpong", SMALL)["time_s"]["mean"]) * 1e6,
        {
            "mpi4py.bench": lambda number: mpi4py_bench(SMALL) * 1e6,
            "HPCC": lambda number: hpcc(number)["AvgPingPongLatency_usec"],
        },
    ),
    Comparison(
        f"pingpong of {LARGE:,} bytes",
        "GB/s",
        lambda number: float(ours("pingpong", LARGE)["rate"]["mean"]) / 1e9,
        {
            "mpi4py.bench": lambda number: LARGE / mpi4py_bench(LARGE) / 1e9,
            "HPCC": lambda number: hpcc(number)["AvgPingPongBandwidth_GBytes"],
            "iperf3": iperf3,
        },
    ),
    Comparison(
        f"matmul of {ROWS} rows",
        "Gflop/s",
        lambda number: gflops("matmul", ROWS, nodes=1),
        {"NumPy alone": numpy_alone, "HPCC's DGEMM": lambda number: hpcc(number)["SingleDGEMM_Gflops"]},
    ),
    Comparison(
        f"fft of {NUMBERS:,} numbers",
        "Gflop/s",
        lambda number: gflops("fft", NUMBERS),
        {"HPCC's MPI FFT": lambda number: hpcc(number)["MPIFFT_Gflops"], "mpi4py-fft": of_debian("mpi4py_fft")},
    ),
    Comparison(
        f"cg of {EQUATIONS} equations",
        "Gflop/s",
        lambda number: gflops("cg", EQUATIONS),
        {"petsc4py": of_debian("petsc")},
    ),
]


def _seconds(step: Callable[[], object], barrier: Callable[[], object] = lambda: None) -> float:
    """The time of a step: of ten between two barriers, after three."""
    for _ in range(3):
        step()
    barrier()
    began = time.perf_counter()
    for _ in range(10):
        step()
    barrier()
    return (time.perf_counter() - began) / 10


def _done(command: list[str], folder: str | None = None) -> str:
    """The output of a command that succeeds. Ranks on one machine talk TCP on MPICH, as if they were on different nodes."""
    from harness.launch.local import MPI_ENV  # which the peers' Pythons have not

    env = os.environ | ONE_THREAD | MPI_ENV | {"MPIR_CVAR_NOLOCAL": "1", "PETSC_DIR": str(PETSC)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=300)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, text
    return found[1]


@cache
def _environment() -> Path:
    return Path(_done([sys.executable, "-m", "harness", "env", "path", "mpi4py"]).strip())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="TEXT", help="comparisons whose name has this")
    parser.add_argument("--peer", choices=PEERS, help="be this peer: its Gflop/s are printed by the first rank")
    options = parser.parse_args()
    if options.peer:
        gflops = PEERS[options.peer]() / 1e9
        if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
            print(gflops)
        sys.exit()
    return options


if __name__ == "__main__":
    main()

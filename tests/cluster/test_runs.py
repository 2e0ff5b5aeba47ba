"""Every backend on the real Slurm: its ranks sit on different nodes, and the bytes on the links prove it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FEW_STEPS, SMALLEST
from tests.parity.conftest import WAYS, Way, with_one_transport

from .submitted import User, nothing_is_left
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster
OTHER_TRAFFIC = 3e6  # bytes on the link of a node that has no part in a run: Slurm's own


SLOW = pytest.mark.slow
# Ranks over MPI have to be started in a way of their own. TensorFlow's other ways with servers start as the first does.
FOR_CI = [
    way
    for way in with_one_transport("mpi")
    if way.backend not in ("distributed_replicated", "parameter_server_strategy")
]


@pytest.fixture
def user(cluster: VirtualCluster, tmp_path: Path) -> User:
    return User(cluster, tmp_path)


@pytest.mark.parametrize(
    ("way", "nodes"),
    [
        pytest.param(WAYS[-1], 3, id=f"{WAYS[-1]}-3"),
        *(pytest.param(way, 2, id=f"{way}-2", marks=SLOW) for way in WAYS[:-1] if way in FOR_CI),
        *(pytest.param(way, 3, id=f"{way}-3", marks=[SLOW, pytest.mark.exhaustive]) for way in WAYS[:-1]),
    ],
)
def test_ranks_sit_on_different_nodes_and_the_links_carry_their_gradients(
    user: User, environment: Callable[..., Path], way: Way, nodes: int
) -> None:
    environment(way.backend, way.framework)
    cluster = user.cluster
    cluster.settle()
    before = cluster.bytes()
    servers = ["--ps", "1"] if way.has_servers else []
    user.harness(
        *["run", *way.arguments, "--nodes", str(nodes), *SMALLEST],
        *["--threads", "1", "--timeout", "200", *FEW_STEPS, "--repeats", "1", *servers],
    ).succeeded()
    record = user.record()
    hosts = [rank["host"] for rank in record["repeats"][0]["ranks"]]
    assert len(set(hosts)) == len(hosts) == nodes
    assert record["repeats"][0]["nodes"] == hosts

    moved = {node: (now[0] - before[node][0], now[1] - before[node][1]) for node, now in cluster.bytes().items()}
    steps = record["spec"]["warmup_steps"] + record["spec"]["steps"]
    for rank in record["repeats"][0]["ranks"]:
        if way.has_servers and rank["rank"] == 0:
            continue  # shares its node with the server, so what it exchanges with it does not leave the node
        per_step = rank["network"]["sent"] / record["spec"]["steps"]
        sent, received = moved[rank["host"]]
        # The window's bytes were counted in sockets by the rank itself; the link has those of the warm-up too.
        assert sent > 0.95 * per_step * steps and received > 0.95 * per_step * steps, (rank["host"], moved)
    for node in set(moved) - set(hosts):
        assert max(moved[node]) < OTHER_TRAFFIC
    # The interface's own counters, less the headers, are what the sockets carried, and Slurm's few messages.
    for rank in record["repeats"][0]["ranks"]:
        if not way.has_servers:
            sent, received = rank["network"]["cards"]["net/eth0"]
            assert sent == pytest.approx(rank["network"]["sent"], rel=1e-3, abs=20_000)
            assert received == pytest.approx(rank["network"]["received"], rel=1e-3, abs=20_000)
    nothing_is_left(cluster)


@pytest.mark.slow
def test_a_kernel_carries_as_much_as_its_links_let_through(user: User, environment: Callable[..., Path]) -> None:
    environment("pytorch")
    # Much more than what a link lets through at once after a rest, as when another process has the core meanwhile.
    few = ["--nodes", "2", "--bytes", "4MiB", "--warmup", "1", "--steps", "5", "--repeats", "1", "--json"]
    user.cluster.rate("100mbit")
    done = user.harness("kernel", "allreduce", "--backend", "pytorch", "--transport", "mpi", *few).succeeded()
    (figures,) = done.json["derived"]
    # 100 Mbit/s are 12.5 MB/s, less the headers of Ethernet, IP and TCP.
    assert 0.9 < figures["bus_bytes_per_s"]["mean"] / 12.5e6 < 1
    assert len(set(done.json["repeats"][0]["nodes"])) == 2
    nothing_is_left(user.cluster)


@pytest.mark.slow
def test_servers_on_nodes_of_their_own(user: User, environment: Callable[..., Path]) -> None:
    environment("parameter_server")
    user.run("parameter_server", "--nodes", "2", "--ps", "2", "--ps-nodes", "dedicated").succeeded()
    record = user.record()
    assert record["repeats"][0]["nodes"] == ["node1", "node2", "node3", "node4"]
    assert [rank["host"] for rank in record["repeats"][0]["ranks"]] == ["node1", "node2"]
    assert sorted(len(rank["servers"]) for rank in record["repeats"][0]["ranks"]) == [0, 2]


@pytest.mark.slow
def test_backends_are_compared_on_the_same_nodes_with_their_repeats_interleaved(
    user: User, environment: Callable[..., Path]
) -> None:
    environment("pytorch")
    done = user.harness(
        *["run", "--backend", "pytorch:gloo,pytorch:mpi", "--nodes", "2", "--json"],
        *[*SMALLEST, "--threads", "1", *FEW_STEPS, "--repeats", "2"],
    ).succeeded()
    repeats = [repeat for record in done.json for repeat in record["repeats"]]
    assert len({(repeat["job"], *repeat["nodes"]) for repeat in repeats}) == 1
    gloo, mpi = [[repeat["started"] for repeat in record["repeats"]] for record in done.json]
    assert gloo[0] < mpi[0] < mpi[1] < gloo[1]


@pytest.mark.slow
def test_a_script_submitted_by_hand_is_collected_like_any_other(user: User, environment: Callable[..., Path]) -> None:
    environment("pytorch")
    written = user.run("pytorch", "--nodes", "2", "--no-submit")
    assert written.code == 0 and written.stdout.startswith("sbatch /"), written.stderr
    script = written.stdout.split()[1]
    before = user.harness("jobs", "status", str(user.output))
    assert "not submitted" in before.stdout
    both = list(user.cluster.run("sbatch", "--parsable", script).succeeded().stdout.strip() for _ in range(2))
    user.cluster.settle()
    collected = user.harness("jobs", "collect", str(user.output))
    assert collected.code == 0 and "completed" in collected.stdout, collected.stderr
    assert user.record()["status"] == "completed"
    (repeat,) = user.record()["repeats"]  # whoever submits twice measures once
    assert repeat["job"] in both
    (folder,) = user.output.iterdir()
    assert not (folder / "set-aside").exists()


def test_a_wrong_way_to_start_mpi_is_found_by_the_size_of_the_world(
    user: User, environment: Callable[..., Path]
) -> None:
    environment("pytorch")
    user.site.write_text(user.site.read_text() + '[systems.partitions.extras]\nmpi = "none"\n')
    done = user.run("pytorch --transport mpi", "--nodes", "2")
    assert done.code == 1 and "sees rank 0 of 1" in done.stderr, done.stderr
    assert user.record()["derived"] is None
    nothing_is_left(user.cluster)

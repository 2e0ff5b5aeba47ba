"""The PMI server as MPI libraries see it: the protocol line by line, and the real MPICH that finds its world through it."""

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.backend import backend
from harness.core.plan import Allocation, LaunchPlan, Node, complete, launch_plan, with_options
from harness.core.spec import RunSpec
from harness.launch.local import MPI_ENV
from harness.launch.pmi import MpiWorld, process_mapping, world
from tests.wording import Case, cases

ANSWERS_WITHIN_S = 10.0
SILENCE_S = 0.3  # long enough for an answer that must not come


class Talker:
    """A rank's side of the conversation, as an MPI library holds it: over the file descriptor that it was given."""

    def __init__(self, joined: MpiWorld, rank: int) -> None:
        self.variables, self.socket = joined.member(rank)
        self.socket.settimeout(ANSWERS_WITHIN_S)
        self._lines = self.socket.makefile("r")

    def say(self, line: str) -> None:
        self.socket.sendall(f"{line}\n".encode())

    def hear(self) -> str:
        return self._lines.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        self.say(line)
        return self.hear()

    def hears_nothing(self) -> bool:
        self.socket.settimeout(SILENCE_S)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(ANSWERS_WITHIN_S)

    def leave(self) -> None:
        self._lines.close()
        self.socket.close()


@pytest.fixture
def joined() -> Iterator[Callable[..., tuple[MpiWorld, list[Talker]]]]:
    """A world and the conversations of its ranks."""
    worlds: list[MpiWorld] = []
    talkers: list[Talker] = []

    def join(size: int, mapping: str | None = None) -> tuple[MpiWorld, list[Talker]]:
        worlds.append(MpiWorld(size, mapping))
        talkers.extend(Talker(worlds[-1], rank) for rank in range(size))
        return worlds[-1], talkers[-size:]

    yield join
    for talker in talkers:
        talker.leave()
    for one in worlds:
        one.close()


def test_a_rank_is_told_its_place_and_the_descriptor_that_it_inherits(joined: Any) -> None:
    _, ranks = joined(3)
    assert [rank.variables["PMI_RANK"] for rank in ranks] == ["0", "1", "2"]
    assert {rank.variables["PMI_SIZE"] for rank in ranks} == {"3"}
    assert [rank.variables["PMI_FD"] for rank in ranks] == [str(rank.socket.fileno()) for rank in ranks]


@cases
def test_every_question_has_its_answer(joined: Any, case: Case) -> None:
    _, ranks = joined(2)
    case.answered(ranks[0].ask(case.request))


def test_all_ranks_of_a_world_share_one_name_that_no_other_world_has(joined: Any) -> None:
    """MPICH names its shared memory after it: two runs on one machine would find each other's."""
    names = [[rank.ask("cmd=get_my_kvsname") for rank in joined(2)[1]] for _ in range(2)]
    assert all(one == other for one, other in names)
    assert names[0] != names[1]
    assert all(name.startswith("cmd=my_kvsname kvsname=harness-") and len(name) < 256 for name, _ in names)


def test_what_one_rank_puts_every_rank_gets(joined: Any) -> None:
    _, (first, second) = joined(2)
    assert first.ask("cmd=put kvsname=harness key=card-0 value=addr#port$x=y") == "cmd=put_result rc=0 msg=success"
    answer = "cmd=get_result rc=0 msg=success value=addr#port$x=y"
    assert second.ask("cmd=get kvsname=harness key=card-0") == first.ask("cmd=get kvsname=harness key=card-0") == answer


def test_a_key_that_nobody_put_is_an_error_of_that_question_alone(joined: Any) -> None:
    _, (first, _) = joined(2)
    assert first.ask("cmd=get kvsname=harness key=card-7").startswith("cmd=get_result rc=-1 msg=key_not_found")
    assert first.ask("cmd=get_appnum") == "cmd=appnum appnum=0"


def test_the_mapping_of_ranks_to_nodes_is_there_from_the_start_or_not_at_all(joined: Any) -> None:
    _, (rank,) = joined(1, "(vector,(0,1,1))")
    question = "cmd=get kvsname=harness key=PMI_process_mapping"
    assert rank.ask(question) == "cmd=get_result rc=0 msg=success value=(vector,(0,1,1))"
    _, (other,) = joined(1, None)
    assert "rc=-1" in other.ask(question)


def test_a_barrier_lets_nobody_go_before_the_last_one_has_come_and_then_everybody(joined: Any) -> None:
    _, ranks = joined(3)
    for _ in range(2):  # a barrier can be used again
        ranks[2].say("cmd=barrier_in")
        ranks[0].say("cmd=barrier_in")
        assert ranks[0].hears_nothing() and ranks[2].hears_nothing()
        ranks[1].say("cmd=barrier_in")
        assert [rank.hear() for rank in ranks] == ["cmd=barrier_out rc=0"] * 3


def test_ranks_at_a_barrier_do_not_keep_others_from_being_answered(joined: Any) -> None:
    _, (first, second) = joined(2)
    first.say("cmd=barrier_in")
    assert second.ask("cmd=get_universe_size") == "cmd=universe_size size=2"


def test_lines_may_come_in_pieces_or_several_at_once(joined: Any) -> None:
    _, (rank,) = joined(1)
    rank.socket.sendall(b"cmd=get_un")
    assert rank.hears_nothing()
    rank.socket.sendall(b"iverse_size\ncmd=get_appnum\ncmd=get_max")
    assert rank.hear() == "cmd=universe_size size=1"
    assert rank.hear() == "cmd=appnum appnum=0"
    rank.socket.sendall(b"es\n")
    assert rank.hear().startswith("cmd=maxes ")


def test_bytes_that_are_no_text_and_lines_that_are_no_question_do_no_harm(joined: Any) -> None:
    _, (rank,) = joined(1)
    rank.socket.sendall(b"\xff\xfe\n\ncmd=get_appnum\n")
    heard = [rank.hear() for _ in range(3)]
    assert [("rc=-1" in line) for line in heard] == [True, True, False]
    assert heard[-1] == "cmd=appnum appnum=0"


def test_a_rank_that_vanishes_leaves_the_others_answered_and_their_barrier_closed(joined: Any) -> None:
    _, (first, second) = joined(2)
    second.say("cmd=get_app")
    second.leave()
    assert first.ask("cmd=get_appnum") == "cmd=appnum appnum=0"
    first.say("cmd=barrier_in")
    assert first.hears_nothing()


def test_a_rank_that_vanishes_at_a_barrier_does_not_stop_the_server(joined: Any) -> None:
    _, (first, second) = joined(2)
    second.say("cmd=barrier_in")
    second.leave()
    assert first.ask("cmd=barrier_in") == "cmd=barrier_out rc=0"  # its turn had come; the launcher sees that it is gone
    assert first.ask("cmd=get_appnum") == "cmd=appnum appnum=0"


def test_closing_ends_the_thread_and_the_conversations() -> None:
    before = threading.active_count()
    opened = MpiWorld(2, None)
    rank = Talker(opened, 0)
    rank.say("cmd=barrier_in")
    opened.close()
    assert rank.hear() == ""  # the end of the file
    assert threading.active_count() == before
    rank.leave()


# --- the plan's share --------------------------------------------------------------------------------------------------


def planned(nodes: int, per_node: int, transport: str = "mpi", name: str = "pytorch") -> LaunchPlan:
    chosen = backend(name)
    spec = RunSpec(backend=name, nodes=nodes, devices_per_node=per_node, transport=transport)
    hosts = tuple(Node(f"node{i}", "127.0.0.1") for i in range(nodes))
    allocation = Allocation(hosts, cores_per_node=per_node, base_port=20000)
    full = complete(with_options(spec, chosen), chosen, allocation)
    return launch_plan(full, chosen, chosen.seats(full), allocation, "/env/bin/python", "/run")


@pytest.mark.parametrize(
    ("nodes", "per_node", "mapping"),
    [(1, 1, "(vector,(0,1,1))"), (4, 1, "(vector,(0,4,1))"), (1, 4, "(vector,(0,1,4))"), (3, 2, "(vector,(0,3,2))")],
)
def test_the_mapping_says_how_many_ranks_fill_each_node(nodes: int, per_node: int, mapping: str) -> None:
    assert process_mapping(planned(nodes, per_node)) == mapping


@pytest.mark.parametrize("nodes", [[0, 0, 1], [0, 1, 1], [1, 0], [0, 1, 0, 1], [0, 2]])
def test_ranks_that_do_not_fill_the_nodes_evenly_and_in_order_get_no_mapping(nodes: list[int]) -> None:
    plan = planned(len(nodes), 1)
    seated = tuple(replace(process, node=node) for process, node in zip(plan.processes, nodes, strict=True))
    assert process_mapping(replace(plan, processes=seated)) is None


def test_parameter_servers_are_ranks_after_the_workers_and_get_no_mapping_as_they_share_nodes() -> None:
    plan = planned(3, 1, name="torch_parameter_server")
    opened = world(plan)
    assert opened and opened.size == 4 == len(plan.processes) and plan.world_size == 3
    assert process_mapping(plan) is None


def test_a_plan_without_mpi_has_no_world() -> None:
    assert world(planned(2, 1, transport="gloo")) is None


# --- a real MPI library ------------------------------------------------------------------------------------------------

ALLREDUCE = """
from mpi4py import MPI
import numpy as np
world = MPI.COMM_WORLD
mine = np.full(100_000, world.Get_rank() + 1.0)
total = np.empty_like(mine)
world.Allreduce(mine, total)
print(world.Get_rank(), world.Get_size(), set(total.tolist()), flush=True)
"""


def started(opened: MpiWorld, python: Path) -> list[subprocess.Popen[str]]:
    """The ranks of a world, as the launcher starts them."""
    ranks = []
    for rank in range(opened.size):
        variables, end = opened.member(rank)
        with end:
            ranks.append(
                subprocess.Popen(
                    [python, "-c", ALLREDUCE],
                    env={**os.environ, **MPI_ENV, **variables, "PYTHONPATH": ""},
                    pass_fds=[end.fileno()],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
    return ranks


@pytest.mark.parametrize(("nodes", "per_node"), [(2, 1), (1, 2), (2, 2)])
def test_the_real_mpich_finds_its_world_and_sums_over_it(
    environment: Callable[..., Path], nodes: int, per_node: int
) -> None:
    """Two worlds at a time: they must not meet, neither on the network nor in shared memory."""
    python, size = environment("pytorch"), nodes * per_node
    worlds = [MpiWorld(size, process_mapping(planned(nodes, per_node))) for _ in range(2)]
    ranks = [started(opened, python) for opened in worlds]
    try:
        said = [[rank.communicate(timeout=120)[0].strip() for rank in of_world] for of_world in ranks]
    finally:
        for of_world in ranks:
            for process in of_world:
                process.kill()
        for opened in worlds:
            opened.close()
    total = float(sum(range(1, size + 1)))
    assert said == [[f"{rank} {size} {{{total}}}" for rank in range(size)]] * 2
    assert {process.returncode for of_world in ranks for process in of_world} == {0}

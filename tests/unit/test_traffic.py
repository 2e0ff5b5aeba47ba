"""Bytes as the kernel counts them: real sockets, known amounts."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from harness.worker import traffic

MEGABYTE = 10**6


@contextmanager
def connection(family: socket.AddressFamily = socket.AF_INET, to: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """Both ends of a TCP connection over the loopback interface. A server of IPv6 takes IPv4's clients too."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket(family))
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::" if family == socket.AF_INET6 else to, 0))
        server.listen(1)
        client = stack.enter_context(socket.create_connection((to, server.getsockname()[1]), timeout=10))
        accepted = stack.enter_context(server.accept()[0])
        yield [client, accepted]


def move(sender: socket.socket, receiver: socket.socket, amount: int) -> None:
    """Send ``amount`` bytes in small pieces, and take each before the next goes, so that all are acknowledged."""
    while amount:
        piece = min(amount, 16_384)
        sender.sendall(bytes(piece))
        left = piece
        while left:
            left -= len(receiver.recv(left))
        amount -= piece


def moved(before: traffic.Sockets | None) -> traffic.Traffic:
    found = traffic.between(traffic.Look(before, {}), traffic.Look(traffic.sockets(), {}))
    assert found
    return found


def settled(before: traffic.Sockets | None, sent: int) -> traffic.Traffic:
    """What was moved, once the kernel has taken the last acknowledgement."""
    for _ in range(10_000):
        if (found := moved(before)).sent >= sent:
            break
    return found


def inode(end: socket.socket) -> int:
    return os.stat(end.fileno()).st_ino  # noqa: PTH116 - a descriptor has no path


def test_each_end_counts_what_it_sent_and_received() -> None:
    with connection() as (client, server):
        before = traffic.sockets()
        assert before and {inode(client), inode(server)} <= before.keys()
        move(client, server, 3 * MEGABYTE)
        move(server, client, 1 * MEGABYTE)
        settled(before, 4 * MEGABYTE)
        after = traffic.sockets()
        assert after
        ends = [
            traffic.between(
                traffic.Look({inode(end): before[inode(end)]}, {}), traffic.Look({inode(end): after[inode(end)]}, {})
            )
            for end in (client, server)
        ]
    assert ends == [
        traffic.Traffic(3 * MEGABYTE, 1 * MEGABYTE, ["lo"], {}),
        traffic.Traffic(1 * MEGABYTE, 3 * MEGABYTE, ["lo"], {}),
    ]


def test_bytes_before_the_first_look_do_not_count() -> None:
    with connection() as (client, server):
        opened = traffic.sockets()
        move(client, server, MEGABYTE)
        settled(opened, MEGABYTE)
        before = traffic.sockets()
        move(client, server, 1000)
        found = settled(before, 1000)
    assert (found.sent, found.received) == (1000, 1000)  # both ends are this process's


def test_a_connection_that_was_opened_in_between_counts_from_its_first_byte() -> None:
    before = traffic.sockets()
    with connection() as (client, server):
        move(client, server, MEGABYTE)
        found = settled(before, MEGABYTE)
    assert MEGABYTE <= found.sent <= MEGABYTE + 1  # the kernel acknowledges the handshake's SYN as a byte
    assert found.received == MEGABYTE


def test_a_connection_that_was_closed_in_between_is_lost_and_harms_nothing() -> None:
    with connection() as (kept, kept_peer):
        with connection() as (closed, closed_peer):
            before = traffic.sockets()
            move(closed, closed_peer, MEGABYTE)
        move(kept, kept_peer, 2000)
        found = settled(before, 2000)
    assert (found.sent, found.received, found.interfaces) == (2000, 2000, ["lo"])


def test_an_ipv4_connection_to_an_ipv6_socket_has_its_interface() -> None:
    """gRPC listens like this: the kernel then calls the address ::ffff:127.0.0.1."""
    with connection(socket.AF_INET6) as (client, server):
        assert server.getsockname()[0] == "::ffff:127.0.0.1"
        before = traffic.sockets()
        assert before and before[inode(server)][0] == "127.0.0.1"
        move(client, server, MEGABYTE)
        found = settled(before, MEGABYTE)
    assert (found.sent, found.received, found.interfaces) == (MEGABYTE, MEGABYTE, ["lo"])


def test_sockets_of_ipv6_count_too() -> None:
    with connection(socket.AF_INET6, "::1") as (client, server):
        before = traffic.sockets()
        move(client, server, MEGABYTE)
        found = settled(before, MEGABYTE)
    assert (found.sent, found.received) == (MEGABYTE, MEGABYTE)


def test_silent_sockets_name_no_interface() -> None:
    with connection():
        before = traffic.sockets()
        assert moved(before) == traffic.Traffic(0, 0, [], {})


def test_sockets_of_other_processes_and_of_other_kinds_are_not_ours() -> None:
    child = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
    child += "c = s.accept()[0]; n = 0\nwhile n < 5000: n += len(c.recv(5000))\nprint('got', flush=True); input()"
    with (
        subprocess.Popen(
            [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        assert other.stdin and other.stdout
        with socket.create_connection(("127.0.0.1", int(other.stdout.readline())), timeout=10) as client:
            before = traffic.sockets()
            assert before and inode(client) in before and inode(datagrams) not in before
            client.sendall(bytes(5000))
            assert other.stdout.readline() == "got\n"
            found = settled(before, 5000)
        other.communicate("\n", timeout=10)
    assert (found.sent, found.received) == (5000, 0)


def test_the_total_is_the_sum_over_all_open_sockets() -> None:
    with connection() as (client, server):
        before = traffic.total()
        look = traffic.sockets()
        move(client, server, MEGABYTE)
        settled(look, MEGABYTE)
        after = traffic.total()
    assert before and after
    assert (after[0] - before[0], after[1] - before[1]) == (MEGABYTE, MEGABYTE)


def test_nothing_is_claimed_where_the_kernel_does_not_tell() -> None:
    some = traffic.look()
    assert some.sockets is not None
    assert traffic.between(traffic.Look(None, {}), some) is None
    assert traffic.between(some, traffic.Look(None, {})) is None
    assert traffic.between(traffic.Look(None, {}), traffic.Look(None, {})) is None

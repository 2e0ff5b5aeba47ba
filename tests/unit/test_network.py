"""Addresses of this host: which interface owns one, also where it has several."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.worker import network
from tests.conftest import ROOT
from tests.wording import Wording

SEVERAL = """
set -e
ip link add d0 type veth peer name d0p
ip link set d0 up
for address in "10.1.0.5/24" "10.1.0.6/24" "10.2.0.7/16 label d0:1"; do ip addr add $address dev d0; done
"$@"
"""
ASK = "import sys; from harness.worker import network; print(*map(network.interface_of, sys.argv[1:]))"


def test_each_address_of_an_interface_is_its_own_the_second_and_those_with_labels_too() -> None:
    addresses = ("10.1.0.5", "10.1.0.6", "10.2.0.7", "127.0.1.1")
    inside = ["unshare", "--net", "bash", "-c", SEVERAL, "bash", sys.executable, "-c", ASK, *addresses]
    done = subprocess.run(inside, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["d0", "d0", "d0", "lo"], done.stderr


def test_an_address_of_nobody_here_is_named(wording: Wording) -> None:
    with wording("nobody's").raises(RuntimeError):
        network.interface_of("192.0.2.1")


@pytest.mark.parametrize(
    ("lines", "carrier"),
    [
        (
            ["NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.1<0>", "NCCL INFO Using network IB"],
            "over IB",
        ),
        (["NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>", "NCCL INFO Using network Socket"], "over Socket"),
        (
            [
                "NCCL INFO NET/OFI Selected Provider is cxi (found 4 nics)",
                "NCCL INFO Using network AWS Libfabric",
                "NCCL INFO Using network AWS Libfabric",
            ],
            "over AWS Libfabric, cxi",
        ),
        (["NCCL INFO Bootstrap : Using hsn0:10.0.0.1<0>"], ""),
    ],
)
def test_nccl_says_over_what_it_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], carrier: str
) -> None:
    monkeypatch.setattr(
        "os.environ", {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    )
    network.nccl_meets_on("127.0.0.1", tmp_path)
    assert os.environ["NCCL_SOCKET_IFNAME"] == "=lo"
    Path(os.environ["NCCL_DEBUG_FILE"]).write_text("".join(f"nid001:12:34 [0] {line}\n" for line in lines))
    assert network.nccl("2.21.5") == f"nccl 2.21.5 {carrier}".strip()
    monkeypatch.setattr("os.environ", {"NCCL_DEBUG": "WARN"})  # the user's own
    network.nccl_meets_on("127.0.0.1", tmp_path)
    assert "NCCL_DEBUG_FILE" not in os.environ and network.nccl("2.21.5") == "nccl 2.21.5"

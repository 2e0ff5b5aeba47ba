"""Addresses of this host: which interface owns one, also where it has several."""

import subprocess
import sys

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

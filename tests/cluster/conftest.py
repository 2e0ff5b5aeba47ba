"""The virtual clusters that tests share: started once, when the first test asks."""

from collections.abc import Iterator

import pytest

from .virtual import VirtualCluster

RATE = "1gbit"


def started(*options: str) -> Iterator[VirtualCluster]:
    virtual = VirtualCluster(*options)
    try:
        virtual.up()
        yield virtual
    finally:
        virtual.down()


@pytest.fixture(scope="session")
def four_nodes() -> Iterator[VirtualCluster]:
    yield from started("--nodes", "4", "--sshd", "--rate", RATE)


@pytest.fixture
def cluster(four_nodes: VirtualCluster) -> Iterator[VirtualCluster]:
    """Four nodes without a database, as small sites have it; with an sshd in each. Links have ``RATE`` at first."""
    yield four_nodes
    if four_nodes.rated:
        four_nodes.rate(RATE)
        four_nodes.rated = False


@pytest.fixture(scope="session")
def accounting_cluster() -> Iterator[VirtualCluster]:
    """Two nodes with slurmdbd: ``sacct`` works, and only the account ``project`` may be used."""
    yield from started("--nodes", "2", "--accounting", "--rate", RATE)

"""The virtual clusters that tests share: started once, when the first test asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .virtual import VirtualCluster


def started(*options: str) -> Iterator[VirtualCluster]:
    virtual = VirtualCluster(*options)
    try:
        virtual.up()
        yield virtual
    finally:
        virtual.down()


@pytest.fixture(scope="session")
def cluster() -> Iterator[VirtualCluster]:
    """Four nodes without a database, as small sites have it; with an sshd in each."""
    yield from started("--nodes", "4", "--sshd", "--rate", "1gbit")


@pytest.fixture(scope="session")
def accounting_cluster() -> Iterator[VirtualCluster]:
    """Two nodes with slurmdbd: ``sacct`` works, and only the account ``project`` may be used."""
    yield from started("--nodes", "2", "--accounting", "--rate", "1gbit")

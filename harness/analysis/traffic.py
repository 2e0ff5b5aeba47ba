"""Bytes per step, measured and planned, from the counters in a record."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.records.measurement import Record


@dataclass(frozen=True)
class ServerTraffic:
    """Bytes that a parameter server sent and received per step (means over repeats), and those planned each way."""

    ps: int
    sent: float
    received: float
    planned: int


def of_servers(record: Record) -> list[ServerTraffic]:
    """What each parameter server moved, by rank. Planned is what every worker pulls and pushes: workers × bytes held.

    Empty without servers, or where a server's kernel did not tell.
    """
    counted = [repeat.ranks[0].servers for repeat in record.repeats if repeat.ranks[0].servers]
    if not counted:
        return []
    steps, workers = record.spec.steps, record.plan["world_size"]
    return [
        ServerTraffic(
            ps=server["ps"],
            sent=fmean(servers[server["ps"]][0] for servers in counted) / steps,
            received=fmean(servers[server["ps"]][1] for servers in counted) / steps,
            planned=server["bytes"] * workers,
        )
        for server in record.plan["details"]["servers"]
    ]

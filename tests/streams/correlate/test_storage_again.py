"""A storage that is lost, comes back and is lost again: one incident that is counted, as a dirty connector would have it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streams.model.signal import Signal
from tests.streams.correlate.world import FOUR, World, at, cluster, sign

CLIENTS = [f"n{i}" for i in range(1, 6)]
SERVER = "filer-7"


def lost(seconds: float, lasts: float = 300, nodes: Sequence[str] = CLIENTS) -> list[Signal]:
    gone = [sign("node.storage", n, seconds + i, "nfs", server=SERVER) for i, n in enumerate(nodes)]
    back = [
        sign("node.storage", n, seconds + lasts + i, "nfs", server=SERVER, cleared=True)
        for i, n in enumerate(nodes)
    ]
    return gone + back


def told(signals: Sequence[Signal], until: float = 5000, seed: int | None = None) -> World:
    world = World(cluster({"llama": FOUR}, spare=[*CLIENTS, *(f"n{i}" for i in range(20, 30))]))
    world.play(signals, until, seed)
    return world


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_storage_that_is_lost_again_within_half_an_hour_is_one_incident(seed: int | None) -> None:
    incident = told([*lost(0), *lost(900), *lost(2200)], seed=seed).only()
    assert (incident.family, incident.fault_at) == ("storage_fault", at(0))
    assert "It was lost 3 times" in incident.reason
    assert incident.closed_at is not None


def test_it_is_open_again_while_it_is_lost() -> None:
    assert told(lost(0), until=700).only().closed_at is not None
    world = told([*lost(0), *lost(900, 600)], until=1300)
    assert world.only().closed_at is None


def test_one_that_is_lost_hours_later_is_another_incident() -> None:
    assert len(told([*lost(0), *lost(4000)], until=9000).incidents()) == 2


def test_one_that_was_lost_once_counts_nothing() -> None:
    assert "times" not in told(lost(0)).only().reason

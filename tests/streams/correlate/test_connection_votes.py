"""Failing connections as votes: for one NIC, one node, one leaf, the process that died first, or nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from streams.correlate.job_rules.connection_votes import Addresses, Vote, vote
from streams.model.facts import NodeFact
from streams.model.incident import Certainty
from streams.model.signal import Attribute
from tests.streams.correlate.grid import PER_NODE, Grid
from tests.streams.correlate.world import FOUR, World, cluster, nccl_error

LEAFS = {f"n{i}": f"leaf-{i // 4}" for i in range(16)}
ADDRESSES = Addresses(
    {f"10.0.0.{i}": f"n{i}" for i in range(16)} | {f"llama-{i}": f"n{i}" for i in range(16)}, LEAFS
)

Failure = tuple[float, int, int | None, dict[str, Attribute]]
"""When, on which node, towards which, and what else the line says."""


def broken(at: float, one: int, other: int | None, status: int = 12, **more: Attribute) -> Failure:
    return (at, one, other, {"subtype": "ib_completion", "status": status, "vendor_err": 129, **more})


def closed(at: float, one: int, other: int) -> Failure:
    return (at, one, other, {"subtype": "remote_closed"})


def unanswered(at: float, one: int, other: int, reason: str) -> Failure:
    return (at, one, other, {"subtype": "ofi", "status": 4124, "reason": reason})


def told(failures: Sequence[Failure]) -> Grid:
    grid = Grid(8, 1, 16)
    for at, node, peer, attributes in failures:
        where = {"peer": f"10.0.0.{peer}"} if peer is not None else {}
        grid.say(node * PER_NODE, "nccl.error", at, where | attributes)
    return grid


def counted(failures: Sequence[Failure]) -> Vote:
    return vote(told(failures).episode(), ADDRESSES)


CASES: dict[str, tuple[list[Failure], tuple[str, str | None, str | None, str | None]]] = {
    "two neighbours fail towards one node": (
        [broken(0, 1, 2, device="mlx5_3"), broken(1, 3, 2, device="mlx5_5")],
        ("node", "n2", None, None),
    ),
    "its own lines name the device, theirs name others": (
        [broken(0, 1, 2, device="mlx5_1"), broken(0.5, 2, 1, device="mlx5_3"), broken(1, 2, 3, device="mlx5_3:1")],
        ("nic", "n2", "mlx5_3", None),
    ),
    "the peers' like devices stand for the rail": (
        [broken(0, 1, 2, device="mlx5_3"), broken(1, 3, 2, device="mlx5_3")],
        ("nic", "n2", "mlx5_3", None),
    ),
    "EFA says which peer does not answer": (
        [unanswered(0, 1, 2, "Unresponsive receiver"), unanswered(1, 3, 2, "Unreachable remote")],
        ("node", "n2", None, None),
    ),
    "and which peer's process is gone": (
        [unanswered(0, 1, 2, "Bad queue pair"), unanswered(1, 3, 2, "Connection was reset by remote peer")],
        ("process", "n2", None, None),
    ),
    "one pair names neither end": ([broken(0, 1, 2), broken(0, 2, 1)], ("none", None, None, None)),
    "a device that reports itself needs no votes": (
        [(0, 4, None, {"subtype": "async_event", "reason": "port error", "device": "mlx5_2"})],
        ("nic", "n4", "mlx5_2", None),
    ),
    "two nodes with failed devices of their own": (
        [(0, n, None, {"subtype": "async_event", "reason": "port error", "device": "mlx5_2"}) for n in (4, 5)],
        ("none", None, None, None),
    ),
    "what a torn down queue pair flushes is no vote": (
        [broken(0, 1, 2), broken(0, 3, 2), broken(1, 5, 6, 5), broken(1, 7, 8, 5)],
        ("node", "n2", None, None),
    ),
    "what fails later fails of that": (
        [broken(0, 1, 2), broken(0.5, 3, 2), broken(12, 4, 1), broken(13, 5, 3), broken(13, 6, 5)],
        ("node", "n2", None, None),
    ),
    "many pairs under one leaf": (
        [broken(0, a, b) for a, b in ((0, 5), (1, 9), (2, 13), (3, 6))],
        ("leaf", None, None, "leaf-0"),
    ),
    "pairs between two leafs accuse neither": (
        [broken(0, a, b) for a, b in ((0, 4), (1, 5), (2, 6))],
        ("none", None, None, None),
    ),
    "pairs everywhere": ([broken(0, a, b) for a, b in ((0, 5), (6, 9), (10, 13))], ("none", None, None, None)),
    "who is named and names nobody died first": (
        [closed(0, 1, 2), closed(0.4, 3, 2), closed(1, 0, 1), closed(1.2, 4, 3)],
        ("process", "n2", None, None),
    ),
    "what is sent to a process that has ended is never answered": (
        [closed(0, 1, 2), closed(0.4, 3, 2), broken(7, 1, 2, device="mlx5_3"), broken(8, 3, 2, device="mlx5_3")],
        ("process", "n2", None, None),
    ),
    "a process that ends of its own failing sends did not end before them": (
        [broken(0, 1, 2), broken(0.5, 2, 3), closed(-1, 1, 2), closed(2, 3, 2), broken(3, 3, 2)],
        ("node", "n2", None, None),
    ),
    "a connection that closes after the first sends failed closed of that": (
        [broken(0, 1, 2), broken(1, 3, 2), closed(1.5, 1, 2), closed(2, 3, 2)],
        ("node", "n2", None, None),
    ),
    "everybody closed on somebody": ([closed(0, 1, 2), closed(0, 2, 3), closed(0, 3, 1)], ("none", None, None, None)),
    "an address nobody knows": (
        [(0, 1, None, {"subtype": "ib_completion", "status": 12, "peer": "172.16.9.9"})],
        ("none", None, None, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_connections_that_fail_meet_where_they_should(name: str) -> None:
    failures, expected = CASES[name]
    for order in (failures, failures[::-1], failures * 2):
        found = counted(order)
        assert (found.level, found.node, found.nic, found.leaf) == expected


def test_any_two_nodes_that_meet_in_a_third_accuse_just_that() -> None:
    for one, other in combinations([i for i in range(16) if i != 7], 2):
        assert counted([broken(0, one, 7), broken(0, 7, other)]).node == "n7"


def test_votes_alone_close_no_node() -> None:
    grid = told([broken(600, n, 2, device=f"mlx5_{n % 8}") for n in (0, 1, 3, 4, 5, 9)])
    finding = grid.finding(ADDRESSES)
    assert (finding.node, finding.certainty, finding.rule) == ("n2", Certainty.LIKELY, "failing connections")


def test_votes_for_a_node_that_is_silent_while_all_others_wait_are_certain() -> None:
    grid = told([broken(600, n, 2) for n in (1, 3)])
    for rank in range(grid.world):
        if rank // PER_NODE != 2:
            grid.waits(rank, grid.data(rank), 12)
    finding = grid.finding(ADDRESSES)
    assert (finding.node, finding.certainty, finding.silent) == ("n2", Certainty.DECISIVE, True)


def test_the_node_of_a_process_that_ended_first_is_only_suspected() -> None:
    grid = told([closed(600, 1, 2), closed(600, 3, 2)])
    finding = grid.finding(ADDRESSES)
    assert (finding.node, finding.suspects, finding.certainty) == (None, ("n2",), Certainty.WEAK)


def test_a_voted_node_is_not_called_silent_when_its_pod_prints_errors() -> None:
    grid = told([broken(600, 1, 2), broken(600, 3, 2), broken(600.2, 2, 1)])
    for rank in range(grid.world):
        if rank // PER_NODE != 2:
            grid.waits(rank, grid.data(rank), 12)
    finding = grid.finding(ADDRESSES)
    assert (finding.node, finding.certainty) == ("n2", Certainty.LIKELY)


def test_a_peer_that_is_named_by_its_clouds_instance_id_is_that_node() -> None:
    facts = [
        replace(fact, aliases=(f"i-0aa00000000000b{fact.name[1:]}",)) if isinstance(fact, NodeFact) else fact
        for fact in cluster({"llama": FOUR})
    ]
    world = World(facts)
    for rank in (0, 8, 24):
        line = nccl_error("llama", rank, 10 + rank / 10)
        attributes: dict[str, Attribute] = {
            "rank": rank,
            "subtype": "ofi",
            "status": 4124,
            "reason": "Unresponsive receiver",
            "peer": f"i-0aa00000000000b{FOUR[2][1:]}",
        }
        world.see(replace(line, attributes=attributes))
    world.pass_to(400)
    assert (world.only().family, world.only().root.node) == ("silent_node", FOUR[2])

"""A cable between switches flaps, and nobody knows which host hangs on which switch: jobs lose the connections that cross it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

import pytest

from streams.model.signal import Attribute, Signal
from tests.streams.correlate.world import (
    GPUS,
    World,
    at,
    cluster,
    cut_off,
    link,
    not_ready,
    port,
)

NODES: dict[str, Sequence[str]] = {"llama": ["a1", "b1", "a2", "b2"], "whisper": ["a3", "b3", "a4", "b4"]}
CABLES = [link("leaf-a", str(30 + i), peer=f"spine-{i}", peer_port="7") for i in range(4)]
BAD = "port/leaf-a/31"
CROSSING = [(0, 1), (3, 2), (2, 1)]
"""Processes that lose a connection, and those at its other end."""


def falls(times: Iterable[float], *, cable: int = 1) -> list[Signal]:
    """What the far end of a cable says: it goes down and comes back."""
    return [
        port(f"spine-{cable}", "7", seconds + 20 * back, cleared=back)
        for seconds in times
        for back in (False, True)
    ]


def lose(job: str, pairs: Sequence[tuple[int, int]], seconds: float) -> list[Signal]:
    """Connections that nobody answers any more, over whatever NIC of the host."""
    nics = count()
    return [
        one
        for process, peer in pairs
        for one in cut_off(job, [process * GPUS], seconds, NODES[job][peer], f"mlx5_{next(nics)}")
    ]


def told(signals: Iterable[Signal]) -> World:
    world = World([*cluster(NODES), *CABLES])
    for one in sorted(signals, key=lambda s: s.occurred_at):
        world.pass_to((one.occurred_at - at(0)).total_seconds(), step=5)
        world.see(one)
    world.pass_to(900, step=5)
    return world


FLAPS = falls([0, 90, 180])
ERRS = [port("leaf-a", "31", 0, subtype="errors")]


@pytest.mark.parametrize("bad", [FLAPS, [*ERRS, *falls([180])]], ids=["it flaps", "it errs, and falls"])
def test_a_bad_cable_explains_what_all_jobs_lose_as_it_goes_down(bad: list[Signal]) -> None:
    world = told([*bad, *lose("llama", CROSSING, 200), *lose("whisper", CROSSING, 212)])
    incident = world.only()
    assert (incident.family, incident.root.key, incident.root.node) == ("fabric_fault", BAD, None)
    assert sorted(job.name for job in incident.jobs) == ["llama", "whisper"]
    assert "leaf-a/31 and spine-1/7" in incident.reason


def test_two_pairs_are_enough_for_a_cable_that_makes_errors_as_well() -> None:
    world = told([*ERRS, *FLAPS, *lose("llama", CROSSING[:2], 200)])
    assert [job.name for job in world.only().jobs] == ["llama"]


def test_a_job_whose_peers_no_address_names_is_explained_as_well() -> None:
    strangers = [
        one
        for i, process in enumerate((0, 2, 3))
        for one in cut_off("llama", [process * GPUS], 200, f"192.0.2.{i}", f"mlx5_{i}")
    ]
    incident = told([*FLAPS, *strangers]).only()
    assert (incident.root.key, [job.name for job in incident.jobs]) == (BAD, ["llama"])


@pytest.mark.parametrize(
    ("signals", "pairs"),
    [
        (falls([180]), CROSSING),
        ([*FLAPS, *falls([185], cable=2)], CROSSING),
        (falls([-300, -200, -100]), CROSSING),
        (FLAPS, [(0, 1), (1, 2), (2, 0)]),
        (ERRS + falls([180]), [(0, 1)]),
        (FLAPS, CROSSING[:2]),
        (FLAPS, [(0, 1), (2, 1), (1, 3)]),
    ],
    ids=[
        "one fall, for work",
        "two cables at once",
        "long before",
        "no cut parts them",
        "one pair",
        "two pairs, and it only flaps",
        "a node",
    ],
)
def test_the_cable_does_not_explain(signals: list[Signal], pairs: Sequence[tuple[int, int]]) -> None:
    world = told([*signals, *lose("llama", pairs, 200)])
    assert all(not i.jobs for i in world.incidents() if i.family == "fabric_fault")
    assert {job.name for i in world.incidents() for job in i.jobs} == {"llama"}


def test_a_dead_node_that_all_lost_connections_share_is_the_root_beside_a_bad_cable() -> None:
    world = told([*FLAPS, *lose("llama", [(0, 1), (2, 1), (3, 1)], 200), not_ready("b1", 230)])
    mine = {(i.family, i.root.node) for i in world.incidents() if i.jobs}
    assert mine == {("node_down", "b1")}


def test_processes_that_find_their_peers_gone_are_no_victims_of_a_bad_cable() -> None:
    gone: dict[str, Attribute] = {"subtype": "remote_closed"}
    closed = [
        replace(one, attributes=gone | {"peer": one.attributes["peer"]})
        for one in lose("llama", CROSSING, 200)
    ]
    world = told([*FLAPS, *closed])
    assert all(not i.jobs for i in world.incidents() if i.family == "fabric_fault")

"""Errors in words that no rule knows are shown beside an incident of their place, and decide nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from streams.correlate.publish.unknown_errors import MOST, carried
from streams.correlate.state import ingest
from streams.correlate.state.place import Place, PlaceKind, of_whole
from streams.correlate.state.store import MAX_GROUPS
from streams.model.entity import Entity, PodRef
from streams.model.incident import Incident
from streams.model.signal import BY_SUBJECT, Attribute, Severity, Signal
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    _signal,
    at,
    cluster,
    link,
    nic,
    node_fact,
    not_ready,
    run,
    sign,
    timeouts,
    xid,
)

LEAF = [link("leaf-1", f"Ethernet{number}", node, "mlx5_0") for number, node in enumerate(FOUR)]


def unknown(
    place: Entity | str, seconds: float, text: str, *, author: str = "nvme", **more: Attribute
) -> Signal:
    """An error of a driver or daemon in words that no row knows."""
    entity = Entity(CLUSTER, node=place) if isinstance(place, str) else place
    attributes: dict[str, Attribute] = {"author": author, **more}
    return _signal("unknown", entity, seconds, attributes, severity=Severity.INFO, text=text)


def about(
    place: str, seconds: float, text: str, *, found_by: str = "error", kind: str = "node.power"
) -> Signal:
    """The same where the nouns of the line tell what it speaks of."""
    attributes: dict[str, Attribute] = {"author": "kubelet", BY_SUBJECT: found_by, "subtype": "psu"}
    entity = Entity(CLUSTER, node=place)
    return _signal(kind, entity, seconds, attributes, severity=Severity.INFO, text=text)


def storm(node: str, seconds: float, count: int, words: int) -> list[Signal]:
    """So many errors of a node within seconds, in so many different wordings."""
    return [
        unknown(node, seconds + i * 0.001, f"nvme nvme{i}: {chr(97 + i % words)} is odd", device=f"nvme{i}")
        for i in range(count)
    ]


def texts(incident: Incident) -> list[str]:
    return [proof.evidence[0].text for proof in incident.unknown_errors or ()]


def switch_lost(world: World, seconds: float) -> Incident:
    """The incident of a leaf whose hosts lose their links."""
    world.see(*(nic(node, "mlx5_0", seconds + i) for i, node in enumerate(FOUR)))
    world.pass_to(seconds + 400, step=5)
    (found,) = [i for i in world.incidents() if i.root.switch == "leaf-1"]
    return found


def test_an_error_of_the_node_shortly_before_its_fault_is_shown_with_its_line() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(unknown("n2", -30, "nvme nvme0: the queue is in a mood"), about("n2", -20, "supply is sulking"))
    world.see(xid("n2", 79, 0))
    shown = world.only().unknown_errors or ()
    assert [(one.kind, one.role, one.count, one.occurred_at) for one in shown] == [
        ("unknown", "context", 1, at(-30)),
        ("unknown", "context", 1, at(-20)),
    ]
    assert texts(world.only()) == ["nvme nvme0: the queue is in a mood", "supply is sulking"]
    assert [one.summary for one in shown] == [
        "an error of nvme in unknown words at node n2",
        "an error of kubelet in unknown words, about node.power psu at node n2",
    ]


def test_what_was_seen_elsewhere_or_at_another_time_is_not_shown() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(unknown("n2", -400, "long before"), unknown("n3", -10, "on another node"))
    world.see(xid("n2", 79, 0))
    assert world.only().unknown_errors is None


def test_what_becomes_of_pods_and_programs_is_not_shown_unless_a_daemon_calls_it_an_error() -> None:
    in_pod = Entity(CLUSTER, node="n2", pod=PodRef("train", "llama-worker-1"))
    world = World(cluster({"llama": FOUR}))
    world.see(
        unknown(in_pod, -9, "printed", author="frameworks", subtype="error_line"),
        unknown(in_pod, -8, "a daemon's"),
        unknown("n2", -7, "a tool's", author="tools", subtype="exit"),
        about("n2", -6, "Probe failed", found_by="sign", kind="job.failed"),
        about("n2", -5, "Cannot start sandbox", kind="job.failed"),
    )
    world.see(xid("n2", 79, 0))
    assert texts(world.only()) == ["a daemon's", "a tool's", "Cannot start sandbox"]


def test_an_error_of_the_switch_itself_is_shown_with_the_incident_of_the_switch() -> None:
    world = World([*cluster({"llama": FOUR}), *LEAF])
    world.see(
        unknown(Entity(CLUSTER, switch="leaf-1"), -20, "orchagent: meta says no"),
        unknown(Entity(CLUSTER, switch="leaf-1", port="Ethernet9"), -19, "xcvrd: lane is shy"),
        unknown(Entity(CLUSTER, switch="leaf-2"), -18, "another switch"),
    )
    assert texts(switch_lost(world, 0)) == ["orchagent: meta says no", "xcvrd: lane is shy"]


def test_an_error_of_a_switch_is_found_under_its_configured_name() -> None:
    world = World([*cluster({"llama": FOUR})])
    world.see(unknown(Entity(CLUSTER, switch="leaf-1.fabric.example"), -20, "orchagent: meta says no"))
    for cable in LEAF:
        world.tell(cable)
    assert texts(switch_lost(world, 0)) == ["orchagent: meta says no"]


def test_the_same_words_at_several_nodes_of_an_incident_are_one_entry() -> None:
    nodes = [f"m{number}" for number in range(8)]
    world = World([*cluster({"llama": FOUR}), *(node_fact(node, rack="r1") for node in nodes)])
    world.see(*(unknown(n, -5 + i * 0.1, f"{n} kubelet: error 0x{i}f7") for i, n in enumerate(nodes)))
    world.see(*(sign("node.power", node, i, "psu") for i, node in enumerate(nodes)))
    world.pass_to(400, step=5)
    incident = world.only()
    assert incident.root.rack == "r1"
    (only,) = incident.unknown_errors or ()
    assert (only.count, only.entity.node, only.summary) == (
        8,
        "m0",
        "an error of nvme in unknown words at node m0, and at 7 other places",
    )


def test_a_few_are_shown_the_nearest_in_place_then_in_time() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*storm("n2", -100, 60, 20))
    own = xid("n2", 79, 0, index=3).entity
    world.see(unknown(own, -200, "of the very GPU", author="nvidia"), unknown("n2", -1, "just before"))
    world.see(about("n2", 0, "only a sign of it", found_by="sign"))
    world.see(xid("n2", 79, 0, index=3))
    shown = texts(world.only())
    assert len(shown) == MOST
    assert {"of the very GPU", "just before"} <= set(shown)
    assert "only a sign of it" not in shown


@pytest.mark.parametrize("words", [1, 20])
def test_a_storm_of_them_makes_no_revision(words: int) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    for second in range(1, 200, 5):
        world.see(*storm("n2", second, 50, words))
    world.pass_to(900, step=5)
    assert len(world.revisions) == 1
    assert world.only().unknown_errors is None


def test_they_are_shown_by_the_next_revision_that_there_is_anyway() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    world.see(*storm("n2", 10, 2_000, 20), *storm("n2", 12, 3, 3))
    world.see(run("started", world.only().id, 20))
    assert len(world.revisions) == 2
    assert len(world.only().unknown_errors or ()) == MOST


def test_what_repeats_is_no_reason_to_edit_what_is_shown() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(unknown("n2", -5, "nvme nvme0: the queue is in a mood"), xid("n2", 79, 0))
    shown = world.only().unknown_errors
    world.see(*(unknown("n2", i, "nvme nvme0: the queue is in a mood") for i in range(1, 9)))
    world.see(run("started", world.only().id, 20))
    assert (len(world.revisions), world.only().unknown_errors) == (2, shown)
    world.see(unknown("n2", 21, "nvme nvme0: and now it hums"))
    world.see(run("finished", world.only().id, 30, "succeeded"))
    assert [one.count for one in world.only().unknown_errors or ()] == [9, 1]


def test_what_was_shown_stays_when_its_lines_are_forgotten() -> None:
    nodes = [f"m{number}" for number in range(8)]
    world = World([*cluster({"llama": FOUR}), *(node_fact(node, rack="r1") for node in nodes)])
    world.see(unknown("m7", -5, "kubelet: early"))
    world.see(*(sign("node.power", node, i, "psu") for i, node in enumerate(nodes)))
    world.pass_to(400, step=5)
    first = world.only()
    found = (replace((first.unknown_errors or ())[0], signal_id="later", evidence=()),)
    more = replace(first, proofs=first.proofs[1:])
    assert carried(first, more, ()) == first.unknown_errors
    assert carried(first, more, found) == (*(first.unknown_errors or ()), *found)
    assert carried(first, more, found * MOST) == found * MOST


def test_decisions_are_the_same_with_and_without_them_in_any_order() -> None:
    story = [
        xid("n2", 74, 0),
        xid("n2", 154, 7, action="reset_gpu"),
        not_ready("n2", 9),
        xid("n4", 79, 300, index=5),
        *timeouts("llama", [r for r in range(32) if r // 8 != 1], 600),
        *(nic(node, "mlx5_0", 1_300 + i) for i, node in enumerate(FOUR)),
    ]
    noise = [
        *storm("n2", -20, 300, 30),
        *storm("n4", 290, 300, 30),
        *(about(node, second, "supply is sulking") for node in FOUR for second in (1, 301, 1_299)),
        *(unknown(Entity(CLUSTER, switch="leaf-1"), 1_290 + i, f"orchagent: no {i}") for i in range(30)),
    ]

    def told(signals: list[Signal]) -> list[Incident]:
        world = World([*cluster({"llama": FOUR}), *LEAF])
        for start in range(0, len(signals), 100):
            world.see(*signals[start : start + 100])
        world.pass_to(3_000, step=30)
        return [
            replace(i, unknown_errors=None, opened_at=at(0), updated_at=at(0), revision=0)
            for i in world.incidents()
        ]

    plain = told(list(story))
    assert len(plain) > 1
    for seed in range(3):
        mixed = sorted([*story, *noise], key=lambda s: s.observed_at)
        if seed:
            # The story keeps its order: what is tried is where the others come among it.
            spots = sorted(random.Random(seed).sample(range(len(mixed)), len(story)))
            others = random.Random(seed).sample(noise, len(noise))
            mixed = list(others)
            for spot, one in zip(spots, story, strict=True):
                mixed.insert(spot, one)
        assert told(mixed) == plain


def test_a_storm_of_them_alone_opens_nothing() -> None:
    world = World([*cluster({"llama": FOUR}), *LEAF])
    for node in FOUR:
        world.see(*storm(node, 0, 500, 20))
    switch = Entity(CLUSTER, switch="leaf-1")
    world.see(*(unknown(switch, i * 0.001, f"orchagent: {i}", subtype=f"row{i % 50}") for i in range(500)))
    world.pass_to(1_200, step=20)
    assert not world.published


def test_they_make_room_for_all_else_and_hold_no_incident_open() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(sign("node.condition", "n1", 5, "slurm_drain", severity=Severity.INFO))
    world.see(*storm("n1", 0, 2 * MAX_GROUPS, 20))
    state = world.engine._state
    for number in range(2 * MAX_GROUPS):
        world.see(unknown("n1", 1, "odd", author=f"daemon{number}"))
    row = state.nodes["n1"]
    assert len(row.seen) == MAX_GROUPS
    assert [s.text("subtype") for s in state.seen_at("node", "n1") if s.kind == "node.condition"] == [
        "slurm_drain"
    ]
    assert not state.is_crowded(Place(PlaceKind.NODE, "n1"))


def test_hosts_on_the_topic_of_the_fabric_leave_room_for_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "MAX_UNLISTED", 40)
    world = World([*cluster({"llama": FOUR}), *LEAF])
    world.see(*(unknown(Entity(CLUSTER, switch=f"host-{i}"), i, "odd") for i in range(100)))
    kept = [name for name in world.engine._state.ports if name.startswith("host-")]
    assert len(kept) == 20
    assert of_whole("host-0") in kept

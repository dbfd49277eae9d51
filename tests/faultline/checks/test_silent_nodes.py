"""Which shippers went silent: measured by the node's own pace, its neighbours', and what is known of the node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from faultline.checks.silent_nodes import MAX_NODES, ExpectedNode, NodePaces, Silence, Standing

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
BEGAN = NOW - timedelta(minutes=30)
TOPIC = "raw.node-logs"
NODES = [f"gpu-{n:02}" for n in range(20)]


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def talking(*, until: dict[str, float] | None = None, every_s: dict[str, float] | None = None) -> NodePaces:
    """Twenty nodes that say something every ten seconds, up to so many minutes ago."""
    paces = NodePaces(BEGAN)
    for node in NODES:
        step = timedelta(seconds=(every_s or {}).get(node, 10))
        end = NOW - minutes((until or {}).get(node, 0))
        at = BEGAN
        while at <= end:
            paces.heard(TOPIC, node, at)
            at += step
    return paces


def expected(**changes: ExpectedNode) -> dict[str, ExpectedNode]:
    return {node: ExpectedNode(node) for node in NODES} | {one.name: one for one in changes.values()}


def names(silence: Silence) -> list[str]:
    return [one.node for one in silence.nodes]


def test_a_node_that_stopped_while_the_others_go_on_is_named_with_its_last_record() -> None:
    silence = talking(until={"gpu-07": 12}).silent(TOPIC, NOW)
    (found,) = silence.nodes
    assert (found.node, found.last) == ("gpu-07", NOW - minutes(12))
    assert (silence.heard, silence.talking) == (20, 19)


def test_a_pause_of_a_restart_is_no_silence() -> None:
    assert not talking(until={"gpu-07": 4}).silent(TOPIC, NOW).nodes


def test_a_node_that_says_little_is_measured_by_its_own_pace() -> None:
    idle = {"gpu-07": 240.0}
    assert not talking(every_s=idle, until={"gpu-07": 14}).silent(TOPIC, NOW).nodes
    busy = talking(every_s={"gpu-07": 60.0}, until={"gpu-07": 14})
    assert names(busy.silent(TOPIC, NOW)) == ["gpu-07"]


def test_when_most_are_silent_it_is_the_topic_and_no_node() -> None:
    silence = talking(until=dict.fromkeys(NODES[:12], 15)).silent(TOPIC, NOW)
    assert silence.whole
    assert not silence.nodes


def test_a_rack_of_silent_nodes_is_named_the_longest_silence_first() -> None:
    silence = talking(until={"gpu-01": 10, "gpu-02": 20, "gpu-03": 15}).silent(TOPIC, NOW)
    assert names(silence) == ["gpu-02", "gpu-03", "gpu-01"]


@pytest.mark.parametrize(
    "node",
    [
        ExpectedNode("gpu-07", Standing.DOWN),
        ExpectedNode("gpu-07", Standing.READY, NOW - minutes(2)),
    ],
    ids=["down", "just back from maintenance"],
)
def test_a_node_that_is_down_or_has_just_come_back_owes_nothing(node: ExpectedNode) -> None:
    assert not talking(until={"gpu-07": 20}).silent(TOPIC, NOW, expected(a=node)).nodes


def test_after_maintenance_it_owes_records_again() -> None:
    back = ExpectedNode("gpu-07", Standing.READY, NOW - minutes(10))
    assert names(talking(until={"gpu-07": 20}).silent(TOPIC, NOW, expected(a=back))) == ["gpu-07"]


def test_a_node_that_no_longer_exists_is_not_missed() -> None:
    there = expected()
    del there["gpu-07"]
    assert not talking(until={"gpu-07": 20}).silent(TOPIC, NOW, there).nodes


def test_a_node_of_which_nothing_ever_came_is_missed_once_it_has_been_there() -> None:
    there = expected(a=ExpectedNode("gpu-99", since=BEGAN), b=ExpectedNode("gpu-98", since=NOW - minutes(1)))
    (found,) = talking().silent(TOPIC, NOW, there).nodes
    assert (found.node, found.last) == ("gpu-99", None)


def test_a_node_that_speaks_by_another_name_is_not_missed() -> None:
    there = expected(a=ExpectedNode("node-b", names=("gpu-07.ib.example",)))
    del there["gpu-07"]
    assert not talking().silent(TOPIC, NOW, there).nodes
    assert not talking(until={"gpu-07": 2}).silent(TOPIC, NOW, there).nodes
    assert names(talking(until={"gpu-07": 20}).silent(TOPIC, NOW, there)) == ["gpu-07"]


def test_two_nodes_are_no_neighbourhood() -> None:
    paces = NodePaces(BEGAN)
    paces.heard(TOPIC, "gpu-01", NOW)
    paces.heard(TOPIC, "gpu-02", BEGAN)
    assert not paces.silent(TOPIC, NOW).nodes


def test_records_may_come_in_any_order() -> None:
    forwards, backwards = NodePaces(BEGAN), NodePaces(BEGAN)
    marks = [(node, BEGAN + minutes(n)) for node in NODES for n in range(31) if node != "gpu-07" or n < 15]
    for node, at in marks:
        forwards.heard(TOPIC, node, at)
    for node, at in reversed(marks):
        backwards.heard(TOPIC, node, at)
    assert names(forwards.silent(TOPIC, NOW)) == names(backwards.silent(TOPIC, NOW)) == ["gpu-07"]


def test_memory_is_bounded_and_what_is_left_out_is_told() -> None:
    paces = NodePaces(BEGAN, max_nodes=10)
    for node in NODES:
        paces.heard(TOPIC, node, NOW)
    silence = paces.silent(TOPIC, NOW, expected())
    assert (silence.heard, silence.beyond) == (10, 10)
    assert not silence.nodes


def test_topics_are_measured_apart() -> None:
    paces = talking()
    for node in NODES:
        paces.heard("raw.metrics", node, NOW - minutes(20 if node == "gpu-07" else 0))
    assert not paces.silent(TOPIC, NOW).nodes
    assert names(paces.silent("raw.metrics", NOW)) == ["gpu-07"]


def test_ten_thousand_nodes_are_kept() -> None:
    paces = NodePaces(BEGAN)
    for n in range(10_000):
        paces.heard(TOPIC, f"gpu-{n}", NOW - minutes(12 if n == 4711 else 0))
    assert MAX_NODES >= 10_000
    assert names(paces.silent(TOPIC, NOW)) == ["gpu-4711"]

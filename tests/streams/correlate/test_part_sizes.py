"""How many nodes share a part at a time: those that came later, or had left before, are not counted."""

from __future__ import annotations

from dataclasses import replace

from streams.correlate.state.parts import PartIndex
from streams.correlate.state.rows import NodeRow
from streams.model.entity import Part
from tests.streams.correlate.world import at, node_fact

RACK = Part("rack", "r1")


def row(name: str, *, came: float | None = None, went: float | None = None) -> NodeRow:
    fact = node_fact(name, since=came or -3600, rack="r1", created_at=at(came) if came is not None else None)
    return NodeRow(fact, at(went) if went is not None else None)


def sizes(parts: PartIndex) -> list[int]:
    return [parts.size(RACK, at(when)) for when in (0, 100, 200)]


def test_a_part_has_the_nodes_that_are_there_at_the_time() -> None:
    parts = PartIndex()
    for name, node in (("old", row("old")), ("left", row("left", went=50)), ("new", row("new", came=150))):
        parts.put(name, node)
    assert sizes(parts) == [2, 1, 2]
    assert (parts.size(RACK), parts.known(), parts.known(at(100))) == (2, 2, 1)


def test_a_node_that_was_deleted_and_is_there_again_was_there_before() -> None:
    parts = PartIndex()
    again = replace(row("n1", came=150), gone_at=at(100))
    parts.put("n1", again)
    assert sizes(parts) == [1, 1, 1]


def test_a_part_without_nodes_is_forgotten_with_its_name() -> None:
    parts = PartIndex()
    parts.put("n1", row("n1"))
    version = parts.version
    parts.put("n1", row("n1"))
    assert (parts.version, parts.named("r1")) == (version, RACK)
    parts.put("n1", None)
    assert (parts.named("r1"), parts.size(RACK), sizes(parts)) == (None, 0, [0, 0, 0])
    assert parts.version > version

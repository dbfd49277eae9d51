"""Which node a host name means: by its own name, another of its names, or its short one; and when nobody can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.correlate.state.host_names import HostNames
from streams.correlate.state.rows import NodeRow, with_names
from tests.streams.correlate.world import at, node_fact


def hosts(*nodes: tuple[str, Sequence[str]]) -> HostNames:
    known = HostNames()
    for name, names in nodes:
        known.put(name, row(name, names))
    return known


def row(name: str, names: Sequence[str], since: float = -3600, before: NodeRow | None = None) -> NodeRow:
    fact = node_fact(name, since=since, aliases=tuple(names))
    return with_names(replace(before or NodeRow(), fact=fact), fact)


SHORT = [("misc-14", ["10.0.1.7", "i-0abc12345", "4c4c4544-0042"]), ("misc-15", ["10.0.1.8"])]
LONG = [("a.east.example", []), ("a.west.example", []), ("b.east.example", ["10.0.0.1"])]
CLOUD = [("ip-10-0-1-7.ec2.internal", ["10.0.1.7"]), ("ip-10-0-1-8.ec2.internal", ["10.0.1.8"])]
DOMAIN_KNOWN = [("n1", ["n1.east.example", "10.0.0.1"])]
TWINS = [("x1", ["serial-7", "10.0.0.1"]), ("x2", ["serial-7", "10.0.0.2"])]
NESTED: list[tuple[str, Sequence[str]]] = [("a", []), ("a.east.example", [])]


@pytest.mark.parametrize(
    ("nodes", "said", "node", "candidates"),
    [
        (SHORT, "misc-14", "misc-14", ()),
        (SHORT, "misc-14.example.internal", "misc-14", ()),
        (SHORT, "misc-14.example.internal.", "misc-14", ()),
        (SHORT, "MISC-15", "misc-15", ()),
        (SHORT, "Misc-15.Example.Internal", "misc-15", ()),
        (SHORT, "10.0.1.7", "misc-14", ()),
        (SHORT, "10.0.1.7:9400", "misc-14", ()),
        (SHORT, "misc-14.example.internal:9400", "misc-14", ()),
        (SHORT, "ip-10-0-1-7", "misc-14", ()),
        (SHORT, "ip-10-0-1-7.ec2.internal", "misc-14", ()),
        (SHORT, "i-0abc12345", "misc-14", ()),
        (SHORT, "4C4C4544-0042", "misc-14", ()),
        (SHORT, "misc-14-bmc", "misc-14", ()),
        (SHORT, "misc-14-bmc.mgmt.example", "misc-14", ()),
        (SHORT, "misc-14.ipmi", "misc-14", ()),
        (SHORT, "IDRAC-MISC-14", "misc-14", ()),
        (SHORT, "ilo-misc-15.oob.example", "misc-15", ()),
        (SHORT, "misc-16-bmc", None, ()),
        (SHORT, "misc-bmc", None, ()),
        (SHORT, "bmc", None, ()),
        (LONG, "b-bmc.mgmt.example", "b.east.example", ()),
        (LONG, "a-bmc", None, ("a.east.example", "a.west.example")),
        ([("gpu-07-mgmt", []), ("gpu-07", [])], "gpu-07-mgmt.example", "gpu-07-mgmt", ()),
        (SHORT, "misc-1", None, ()),
        (SHORT, "misc-144.example.internal", None, ()),
        (SHORT, "10.0.1", None, ()),
        (SHORT, "10.0.1.70", None, ()),
        (SHORT, "localhost", None, ()),
        (SHORT, "", None, ()),
        (LONG, "a", None, ("a.east.example", "a.west.example")),
        (LONG, "a.east", "a.east.example", ()),
        (LONG, "a.east.example", "a.east.example", ()),
        (LONG, "a.north.example", None, ()),
        (LONG, "b", "b.east.example", ()),
        (LONG, "b.other.example", None, ()),
        (CLOUD, "ip-10-0-1-7", "ip-10-0-1-7.ec2.internal", ()),
        (CLOUD, "ip-10-0-1-7.us-west-2.compute.internal", "ip-10-0-1-7.ec2.internal", ()),
        (DOMAIN_KNOWN, "n1.east.example", "n1", ()),
        (DOMAIN_KNOWN, "n1.east", "n1", ()),
        (DOMAIN_KNOWN, "n1.west.example", None, ()),
        (TWINS, "serial-7", None, ("x1", "x2")),
        (NESTED, "a", "a", ()),
        (NESTED, "a.east.example", "a.east.example", ()),
        (NESTED, "a.east", None, ("a", "a.east.example")),
    ],
)
def test_a_name_means(
    nodes: list[tuple[str, Sequence[str]]], said: str, node: str | None, candidates: tuple[str, ...]
) -> None:
    for known in (hosts(*nodes), hosts(*reversed(nodes))):
        found = known.find(said, at(0))
        assert (found.node, found.candidates) == (node, candidates)


def test_two_nodes_that_exchange_an_address_are_told_apart_by_the_lines_time() -> None:
    known = HostNames()
    one, two = row("n1", ["10.0.0.1"], 0), row("n2", ["10.0.0.2"], 0)
    known.put("n1", row("n1", ["10.0.0.2"], 100, one))
    known.put("n2", row("n2", ["10.0.0.1"], 110, two))
    assert [known.find("10.0.0.1", at(t)).node for t in (-50, 50, 120)] == ["n1", "n1", "n2"]
    assert known.find("10.0.0.1", at(105)).node is None
    assert [known.find("10.0.0.2", at(t)).node for t in (50, 120)] == ["n2", "n1"]
    assert known.find("10.0.0.2", at(105)).candidates == ("n1", "n2")


def test_the_address_of_a_deleted_node_goes_to_the_one_that_was_made_after_it() -> None:
    known = HostNames()
    gone = replace(row("old", ["10.0.0.1"], 0), gone_at=at(100))
    known.put("old", gone)
    assert known.find("10.0.0.1", at(150)).node == "old"
    known.put("new", row("new", ["10.0.0.1"], 200))
    assert [known.find("10.0.0.1", at(t)).node for t in (50, 150, 250)] == ["old", None, "new"]
    known.put("old", None)
    assert known.find("10.0.0.1", at(150)).node == "new"


def test_names_are_struck_out_with_their_node() -> None:
    known = hosts(*LONG)
    for name, _ in LONG:
        assert name in known.put(name, None)
    assert known.find("b", at(0)).node is None
    assert not known._exact
    assert not known._other
    assert not known._longer


def test_facts_in_any_order_leave_the_same_names() -> None:
    told = [(0.0, ["10.0.0.1"]), (50.0, ["10.0.0.1"]), (100.0, ["10.0.0.2"]), (150.0, ["10.0.0.1"])]
    rows = []
    for turn in (told, told[::-1], [told[2], told[0], told[3], told[1]]):
        made = NodeRow()
        for since, names in turn:
            made = with_names(made, node_fact("n1", since=since, aliases=tuple(names)))
        rows.append(made.names)
    assert rows[0] == rows[1] == rows[2]


def test_a_name_that_was_asked_for_is_asked_anew_when_names_change() -> None:
    known = hosts(("n1", ["10.0.0.1"]))
    assert [known.find(said, at(0)).node for said in ("n1.example", "10.0.0.1", "n2.example")] == [
        "n1",
        "n1",
        None,
    ]
    known.put("n2", row("n2", ["10.0.0.1"]))
    assert [known.find(said, at(0)).node for said in ("n1.example", "10.0.0.1", "n2.example")] == [
        "n1",
        None,
        "n2",
    ]


def test_a_beginning_that_thousands_of_nodes_share_is_nobodys_and_names_a_few() -> None:
    known = hosts(*((f"gpu.rack-{i}.row-1", []) for i in range(3000)))
    assert known.find("gpu", at(0)).node is None
    assert len(known.find("gpu", at(0)).candidates) == 64
    assert known.find("gpu.rack-7", at(0)).node == "gpu.rack-7.row-1"


def test_a_controller_is_found_by_the_number_of_its_machine_where_only_one_node_ends_with_it() -> None:
    names = HostNames()
    for node in ("bm-9359fcab5f65", "bm-47c8ac93fe06", "gpu-07", "x-77aa11bb22", "y-77aa11bb22"):
        names.put(node, NodeRow(fact=node_fact(node)))
    assert names.find("bmc-9359fcab5f65", at(0)).node == "bm-9359fcab5f65"
    assert names.find("9359fcab5f65", at(0)).node is None, "no controller"
    assert names.find("bmc-77aa11bb22", at(0)).node is None, "of two nodes"
    assert names.find("bmc-rack-07", at(0)).node is None, "a count is no number of a machine"

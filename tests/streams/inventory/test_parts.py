"""What nodes share: labels under any key, names, and what is no such label."""

from __future__ import annotations

import pytest

from streams.inventory.names import NodeLabels
from streams.inventory.nodes import node_fact
from streams.inventory.parts import MAX_PARTS, NodeParts, shared_parts
from tests.streams.inventory.objects import AT, node

SHARED: dict[str, tuple[str, dict[str, str], dict[str, str], tuple[str, ...]]] = {
    "a well-known label": ("a", {"topology.kubernetes.io/zone": "z1"}, {"zone": "z1"}, ()),
    "a key word": ("a", {"dc.example.com/pdu": "B7"}, {"power-feed": "B7"}, ("power-feed",)),
    "a key word with its number": ("a", {"site/cdu2": "c9"}, {"coolant-loop": "c9"}, ("coolant-loop",)),
    "a key word in camel case": ("a", {"site/powerFeed": "A"}, {"power-feed": "A"}, ("power-feed",)),
    "a key word in the prefix": ("a", {"chassis.example.com/id": "7"}, {"chassis": "7"}, ("chassis",)),
    "the label before the guess": (
        "a",
        {"topology.kubernetes.io/zone": "z1", "site/zone": "other"},
        {"zone": "z1"},
        (),
    ),
    "a rack in the name": (
        "gpu-r12-03",
        {},
        {"rack": "r12", "name": "gpu-r12-"},
        ("name", "rack"),
    ),
    "a rack and a node in one word": ("hal-r03n1", {}, {"rack": "r03", "name": "hal-r03"}, ("name", "rack")),
    "a name that begins alike": ("c4n07", {}, {"name": "c4"}, ("name",)),
}


@pytest.mark.parametrize("case", SHARED)
def test_what_a_node_shares_is_told_by_labels_key_words_and_its_name(case: str) -> None:
    name, labels, parts, guessed = SHARED[case]
    assert shared_parts(name, labels) == NodeParts(parts, guessed)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("gpu-07", {"kubernetes.io/arch": "amd64", "nvidia.com/gpu.rack": "x", "app": "zoned"}),
        ("ip-10-12-3-4", {}),
        ("ip-10-12-3-4.eu-west-1.compute.internal", {"site/rack": "unknown"}),
        ("n1", {"example.com/liquid-cooling": "true", "example.com/row": "x" * 64}),
    ],
)
def test_what_names_nothing_shared_is_left_out(name: str, labels: dict[str, str]) -> None:
    assert shared_parts(name, labels) == NodeParts()


def test_a_sites_own_labels_come_first_and_no_more_than_a_few_are_kept() -> None:
    own = [f"kind-{i}=example.com/{i}" for i in range(40)]
    labels = {f"example.com/{i}": "v" for i in range(40)} | {"site/pdu": "B"}
    found = shared_parts("n1", labels, ["power-feed=example.com/1", *own])
    assert found.parts["power-feed"] == "v"
    assert len(found.parts) == MAX_PARTS


def test_the_fact_of_a_node_carries_its_parts() -> None:
    made = node(labels={"site/pdu": "B", "x.io/loop": "7", "topology.kubernetes.io/rack": "r1"})
    fact = node_fact(
        "c1", made, AT, NodeLabels(rack=("topology.kubernetes.io/rack",), parts=("cdu=x.io/loop",))
    )
    assert [part.key for part in fact.shared_parts] == ["cdu/7", "power-feed/B", "rack/r1"]
    assert fact.guessed_parts == ("power-feed",)

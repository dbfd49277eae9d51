"""Which nodes may hang on a switch, by the numbers in their names."""

from __future__ import annotations

import pytest

from streams.inventory.leaf_names import leaf_name, may_hang_on


@pytest.mark.parametrize(
    ("switch", "rack"),
    [
        ("moor-lf-03", 3),
        ("lf03.fabric.example", 3),
        ("leaf-r12", 12),
        ("r07-leaf1", 7),
        ("sw-rack12-2", 12),
        ("TOR-12", 12),
        ("leaf3a", 3),
    ],
)
def test_a_leaf_is_known_by_the_number_of_its_rack(switch: str, rack: int) -> None:
    found = leaf_name(switch)
    assert found is not None
    assert found.rack == rack


@pytest.mark.parametrize(
    "switch", ["moor-sp-3", "spine-3", "r40-spine1", "core1-r3", "leaf", "leaf-1-3", "sw-3", "10.0.0.3"]
)
def test_of_other_names_nothing_is_guessed(switch: str) -> None:
    assert leaf_name(switch) is None


@pytest.mark.parametrize(
    ("switch", "node", "rack", "hangs"),
    [
        ("moor-lf-03", "moor-r3n05", "r3", True),
        ("moor-lf-03", "moor-r4n05", "r4", False),
        ("lf-3", "gpu-0711", "R03", True),
        ("su2-leaf3", "su2-r3-n1", "r3", True),
        ("su2-leaf3", "su1-r3-n1", "r3", False),
        ("lf-03", "gpu-0711", "A3-07", False),
    ],
)
def test_a_node_may_hang_on_the_leaf_of_its_rack(switch: str, node: str, rack: str, hangs: bool) -> None:
    assert may_hang_on(switch, node, rack) is hangs

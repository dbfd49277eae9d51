"""Cables may be told from the switch's end or from the node's."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from streams.inventory.topology_file import read_topology
from streams.model.errors import BadInput

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
BY_SWITCH = "leaf-1:\n  Ethernet0: {node: gpu-1, nic: mlx5_0}\n"
BY_NODE = "nodes:\n  gpu-1: {rack: r1, nics: {mlx5_0: {switch: leaf-1, port: Ethernet0}}}\n"


def test_a_cable_told_from_either_end_is_the_same() -> None:
    (cable,) = read_topology("c1", BY_NODE, NOW).links
    assert [replace(cable, rack=None)] == read_topology("c1", BY_SWITCH, NOW).links
    assert read_topology("c1", BY_SWITCH + BY_NODE, NOW).links == [cable]
    assert cable.rack == "r1"
    assert read_topology("c1", BY_NODE, NOW).places["gpu-1"].rack == "r1"


def test_a_nic_without_a_port_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match=r"gpu-1: nics\.mlx5_0\.port"):
        read_topology("c1", "nodes: {gpu-1: {nics: {mlx5_0: {switch: leaf-1}}}}", NOW)

"""Host lists as Slurm writes them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.inventory.topology_file import read_topology
from streams.model.errors import BadInput
from streams.model.hostlists import MAX_HOSTS, hosts

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-07", ["gpu-07"]),
        ("gpu-[001-003,020]", ["gpu-001", "gpu-002", "gpu-003", "gpu-020"]),
        ("gpu-[9-11]", ["gpu-9", "gpu-10", "gpu-11"]),
        ("login-1,gpu-[01-02],cpu3", ["login-1", "gpu-01", "gpu-02", "cpu3"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("gpu-[1-2]-ib", ["gpu-1-ib", "gpu-2-ib"]),
        ("", []),
        (" gpu-1 , gpu-2 ", ["gpu-1", "gpu-2"]),
    ],
)
def test_lists_are_expanded_in_their_order(text: str, names: list[str]) -> None:
    assert hosts(text) == names


@pytest.mark.parametrize(
    "text",
    ["gpu-[1-2", "gpu-1]", "gpu-[[1]]", "gpu-[2-1]", "gpu-[a-b]", "gpu-[]", "g[0-99999]", "g[0-999]h[0-999]"],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        hosts(text)


@given(st.text(alphabet="gpu-[]0123456789,", max_size=60))
def test_any_text_ends_in_names_or_is_refused(text: str) -> None:
    try:
        assert len(hosts(text)) <= MAX_HOSTS
    except BadInput:
        pass


def test_a_cabling_file_may_name_nodes_by_a_host_list() -> None:
    places = read_topology(
        "east", "nodes:\n  gpu-[01-02,09]: {leaf: leaf-01}\n  gpu-03: {rack: r1}\n", NOW
    ).places
    assert {name: place.leaf for name, place in places.items()} == {
        "gpu-01": "leaf-01",
        "gpu-02": "leaf-01",
        "gpu-09": "leaf-01",
        "gpu-03": None,
    }


def test_numbers_are_names_where_a_site_calls_ports_and_racks_so() -> None:
    read = read_topology(
        "c1", "ib-1:\n  33: {switch: ib-9, port: 1}\n  1: {node: n1}\nnodes:\n  n1: {rack: 12}\n", NOW
    )
    assert [(x.port, x.peer_switch, x.peer_port, x.node) for x in read.links] == [
        ("33", "ib-9", "1", None),
        ("1", None, None, "n1"),
    ]
    assert read.places["n1"].rack == "12"

"""Cables as devices hear of each other over LLDP."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.ingest.lldp import cables, read_neighbours
from streams.model.errors import BadInput
from streams.model.facts import LinkFact
from streams.model.record import Neighbour

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)

HOST = """
{"lldp": {"interface": [
  {"eth2": {"via": "LLDP", "rid": "1", "chassis": {"leaf-03": {
      "id": {"type": "mac", "value": "0c:42:a1:00:00:03"},
      "capability": [{"type": "Bridge", "enabled": true}, {"type": "Router", "enabled": true}]}},
    "port": {"id": {"type": "local", "value": "etp4"}, "descr": "Ethernet12", "ttl": "120"}}},
  {"eth3": {"chassis": {"leaf-04": {"capability": {"type": "Bridge", "enabled": true}}},
    "port": {"id": {"type": "ifname", "value": "Ethernet12"}}}}
]}}
"""
ONE = """
{"lldp": {"interface": {"eth2": {
  "chassis": {"leaf-03": {"capability": [{"type": "Bridge", "enabled": true}]}},
  "port": {"id": {"type": "ifname", "value": "Ethernet1/12"}, "descr": "to gpu-07"}}}}}
"""
TABLE = """
Capability codes: (R) Router, (B) Bridge, (O) Other
LocalPort    RemoteDevice    RemotePortID       Capability    RemotePortDescr
-----------  --------------  -----------------  ------------  ---------------
Ethernet12   gpu-07          b8:59:9f:00:07:02  BR            eth2
Ethernet16   gpu-08          b8:59:9f:00:08:02  O
Ethernet96   spine-1         etp1               BR            Ethernet3
--------------------------------------------------
Total entries displayed:  3
"""
DATABASE = """
{"LLDP_ENTRY_TABLE:Ethernet12": {"type": "hash", "value": {"lldp_rem_sys_name": "gpu-07", \
"lldp_rem_port_id": "b8:59:9f:00:07:02", "lldp_rem_port_desc": "eth2", "lldp_rem_sys_cap_enabled": "00 80"}}}
{"LLDP_ENTRY_TABLE:Ethernet96": {"lldp_rem_sys_name": "spine-1", "lldp_rem_port_id": "etp1", \
"lldp_rem_port_desc": "Ethernet3", "lldp_rem_sys_cap_enabled": "28 00"}}
"""


def links(**tables: str) -> dict[str, tuple[str | None, str | None]]:
    """By `switch/port`: what is at the other end."""
    heard = [n for device, table in tables.items() for n in read_neighbours(device.replace("_", "-"), table)]
    return {
        f"{f.switch}/{f.port}": (f.node or f.peer_switch, f.nic or f.peer_port)
        for f in cables("c1", heard, AT)
    }


def test_a_host_that_runs_lldpd_tells_which_ports_it_hangs_on() -> None:
    assert links(gpu_07=HOST) == {
        "leaf-03/Ethernet12": ("gpu-07", "eth2"),
        "leaf-04/Ethernet12": ("gpu-07", "eth3"),
    }


def test_a_host_with_a_single_neighbour_is_read_too() -> None:
    assert links(gpu_07=ONE) == {"leaf-03/Ethernet1/12": ("gpu-07", "eth2")}


@pytest.mark.parametrize("table", [TABLE, DATABASE], ids=["show lldp table", "LLDP_ENTRY_TABLE"])
def test_a_switch_tells_hosts_from_switches(table: str) -> None:
    told = links(leaf_03=table)
    assert told["leaf-03/Ethernet12"] == ("gpu-07", "eth2")
    assert told["leaf-03/Ethernet96"] == ("spine-1", "Ethernet3")


def test_a_host_that_tells_an_address_only_is_known_without_its_nic() -> None:
    assert links(leaf_03=TABLE)["leaf-03/Ethernet16"] == ("gpu-08", None)


def test_both_ends_of_a_cable_are_one_link_that_bears_the_hosts_own_name() -> None:
    address = TABLE.replace("eth2", "    ")
    assert links(leaf_03=address, gpu_07=HOST)["leaf-03/Ethernet12"] == ("gpu-07", "eth2")


def test_a_switch_is_heard_by_hosts_and_told_by_its_own_lldpd_alike() -> None:
    spine = HOST.replace("eth2", "Ethernet0").replace("eth3", "Ethernet4")
    assert links(spine_1=spine)["spine-1/Ethernet0"] == ("leaf-03", "Ethernet12")


def test_tables_as_lines_name_their_device_themselves() -> None:
    line = (
        '{"host": "gpu-09", "lldp": {"interface": {"eth5": {"chassis": {"leaf-09": {"capability": '
        '[{"type": "Bridge", "enabled": true}]}}, "port": {"id": {"type": "ifname", "value": "swp5"}}}}}}'
    )
    assert links(all_hosts=f"{line}\n{line.replace('gpu-09', 'gpu-10').replace('swp5', 'swp6')}") == {
        "leaf-09/swp5": ("gpu-09", "eth5"),
        "leaf-09/swp6": ("gpu-10", "eth5"),
    }


def test_two_hosts_that_hear_each_other_are_no_cable_of_a_switch() -> None:
    assert cables("c1", [Neighbour("gpu-01", "eth2", "gpu-02", "eth2", False)], AT) == []


def test_the_order_of_tables_makes_no_difference() -> None:
    rows = [*read_neighbours("leaf-03", TABLE), *read_neighbours("gpu-07", HOST)]
    facts: list[LinkFact] = cables("c1", rows, AT)
    assert cables("c1", reversed(rows), AT) == facts


@pytest.mark.parametrize(
    "content",
    ["", "no table at all", "{", '{"other": 1}', "[1]", "LocalPort  RemoteDevice\nno rule\n",
     '{"LLDP_ENTRY_TABLE:Ethernet0": {"lldp_rem_sys_cap_enabled": "zz"}}'],
)  # fmt: skip
def test_what_is_no_table_is_refused(content: str) -> None:
    with pytest.raises(BadInput):
        read_neighbours("leaf-03", content)


@pytest.mark.parametrize("content", ['{"lldp": []}', '{"lldp": {"interface": null}}', '{"lldp": {}}'])
def test_a_device_that_hears_nobody_has_no_cables(content: str) -> None:
    assert read_neighbours("gpu-01", content) == []

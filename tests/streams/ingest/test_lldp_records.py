"""Tables of neighbours as shippers send them: every shape gives the same cables."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from streams.detect.detector import Detector
from streams.model.signal import Signal
from tests.streams.detect.lines import is_unknown, record

TO_HOST = {"node": "gpu-07", "nic": "eth2"}


def lldpctl(device: str | None = "leaf-03") -> dict[str, Any]:
    chassis = {"gpu-07": {"capability": [{"type": "Bridge", "enabled": False}]}}
    port = {"id": {"type": "mac", "value": "b8:59:9f:00:07:02"}, "descr": "eth2"}
    table = {"interface": [{"Ethernet12": {"chassis": chassis, "port": port}}]}
    return {"lldp": table, **({"host": device} if device else {})}


JSON0 = {
    "host": "gpu-07",
    "lldp": [{"interface": [{
        "name": "eth2",
        "chassis": [{"name": [{"value": "leaf-03"}], "capability": [{"type": "Bridge", "enabled": True}]}],
        "port": [{"id": [{"type": "ifname", "value": "Ethernet12"}], "descr": [{"value": "to the hosts"}]}],
    }]}],
}  # fmt: skip
TABLE = (
    "LocalPort    RemoteDevice    RemotePortID       Capability    RemotePortDescr\n"
    "-----------  --------------  -----------------  ------------  ---------------\n"
    "Ethernet12   gpu-07          b8:59:9f:00:07:02  O             eth2\n"
)
GNMI = {
    "fields": {"system_name": "gpu-07", "port_id": "b8:59:9f:00:07:02", "port_description": "eth2"},
    "name": "openconfig_lldp",
    "tags": {
        "host": "collector-1", "source": "leaf-03", "name": "Ethernet12",
        "path": "/lldp/interfaces/interface/neighbors/neighbor/state",
    },
    "timestamp": 1795245193,
}  # fmt: skip
INFLUX = (
    "openconfig_lldp,host=collector-1,source=leaf-03,name=Ethernet12,path=/lldp/interfaces/interface/neighbors "
    'system_name="gpu-07",port_id="eth2" 1795245193000000000'
)
NO_PATH = {
    "fields": {"system_name": "gpu-07", "port_id": "eth2"},
    "name": "lldp",
    "tags": {"host": "collector-1", "source": "leaf-03:57400", "name": "Ethernet12"},
    "timestamp": 1795245193,
}
_STATE = "/lldp/interfaces/interface/neighbors/neighbor/state"
GNMIC = [{
    "name": "lldp", "timestamp": 1795245193000000000,
    "tags": {"source": "leaf-03:57400", "interface_name": "Ethernet12", "subscription-name": "lldp"},
    "values": {f"{_STATE}/system-name": "gpu-07", f"{_STATE}/port-id": "eth2"},
}]  # fmt: skip
DATABASE = {
    "host": "leaf-03",
    "LLDP_ENTRY_TABLE:Ethernet12": {
        "lldp_rem_sys_name": "gpu-07", "lldp_rem_port_id": "eth2", "lldp_rem_sys_cap_enabled": "00 80",
    },
}  # fmt: skip
SUBNET = (
    '0x0c42a10300000003 "                   leaf-03"      3   12[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>  '
    '0xb8599f0300000007     71    1[  ] "            gpu-07 mlx5_2" (  )'
)
SHAPES = {
    "lldpctl": orjson.dumps(lldpctl()),
    "json0": orjson.dumps(JSON0),
    "lldpctl in a log": orjson.dumps({"host": "leaf-03", "message": orjson.dumps(lldpctl(None)).decode()}),
    "table in a log": orjson.dumps({"host": "leaf-03", "message": TABLE}),
    "Telegraf": orjson.dumps(GNMI),
    "Telegraf without the path": orjson.dumps(NO_PATH),
    "line protocol": INFLUX.encode(),
    "gnmic": orjson.dumps(GNMIC),
    "LLDP_ENTRY_TABLE": orjson.dumps(DATABASE),
}


def told(value: bytes, key: bytes | None = None) -> list[Signal]:
    return list(Detector("c1").detect(record(value, topic="raw.fabric", key=key)).signals)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_tells_of_the_cable(shape: str) -> None:
    (signal,) = told(SHAPES[shape])
    assert (signal.kind, signal.entity.key) == ("fabric.neighbour", "port/leaf-03/Ethernet12")
    assert dict(signal.attributes) == TO_HOST


def test_a_table_without_a_name_is_that_of_the_records_key() -> None:
    (signal,) = told(TABLE.encode(), b"leaf-03")
    assert (signal.entity.switch, dict(signal.attributes)) == ("leaf-03", TO_HOST)


def test_a_subnets_listing_tells_of_hosts_and_of_switches() -> None:
    (host,) = told(SUBNET.encode())
    assert (host.entity.key, dict(host.attributes)) == (
        "port/leaf-03/12",
        {"node": "gpu-07", "nic": "mlx5_2"},
    )
    (uplink,) = told(SUBNET.replace("gpu-07 mlx5_2", "spine-1").encode())
    assert dict(uplink.attributes) == {"peer_switch": "spine-1", "peer_port": "1"}
    assert not told(SUBNET.replace("LinkUp", "Down").encode())


@pytest.mark.parametrize(
    "value",
    [
        b"lldpd[77]: unable to send packet on eth2",
        b'{"host": "leaf-03", "message": "lldp#lldpmgrd: entry for Ethernet12 was updated"}',
        b"if the table says LocalPort RemoteDevice you are on a switch",
        b'{"lldp": {}, "host": "leaf-03"}',
        b'{"lldp": {"interface": [{"eth2": {"chassis": {"gpu-08": {}}, "port": {"descr": "eth2"}}}]}, "host": "gpu-07"}',
    ],
)
def test_what_only_speaks_of_neighbours_tells_of_none(value: bytes) -> None:
    assert all(is_unknown(one) for one in told(value))


def test_a_table_that_says_the_same_is_told_once_an_hour() -> None:
    from datetime import timedelta

    from tests.streams.detect.lines import NOW

    detector = Detector("c1")
    raw = SHAPES["lldpctl"]
    counts = [
        len(detector.detect(record(raw, at=NOW + timedelta(minutes=minutes))).signals)
        for minutes in (0, 1, 30, 61, 62)
    ]
    assert counts == [1, 0, 0, 1, 0]
    moved = raw.replace(b"gpu-07", b"gpu-08")
    assert len(detector.detect(record(moved, at=NOW + timedelta(minutes=63))).signals) == 1


CHIP = SUBNET.replace("leaf-03", "MF0;leaf-03:MQM9700/U1")


@pytest.mark.parametrize(
    ("described", "port"),
    [
        ("MF0;leaf-03:MQM9700/U1", "12"),
        ("MF0;leaf-03.fabric.example:MQM8700/U1", "12"),
        ("MF0;leaf-03:Q3400-RA/U2", "U2/12"),
        ("MF0;leaf-03:CS8500/L07/U1", "L07/12"),
        ("leaf-03", "12"),
    ],
)
def test_a_switch_is_called_by_its_name_and_not_by_its_node_description(described: str, port: str) -> None:
    (host,) = told(SUBNET.replace("leaf-03", described).encode())
    assert (host.entity.switch, host.entity.port) == (described.split(";")[-1].split(":")[0], port)


def test_the_far_end_of_an_uplink_is_called_by_its_name_too() -> None:
    (uplink,) = told(CHIP.replace("gpu-07 mlx5_2", "MF0;spine-1:CS8500/L02/U1").encode())
    assert dict(uplink.attributes) == {"peer_switch": "spine-1", "peer_port": "L02/1"}


def test_the_cards_of_one_director_are_joined_by_no_cable() -> None:
    inside = SUBNET.replace("leaf-03", "MF0;core-1:CS8500/L07/U1")
    assert not told(inside.replace("gpu-07 mlx5_2", "MF0;core-1:CS8500/S02/U1").encode())

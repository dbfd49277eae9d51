"""Samples as JSON of other shippers: Vector, collectd, gNMI through Telegraf and gnmic, SNMP, Avro-JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.detect import Detector
from streams.ingest import RecordContext, open_record
from streams.model.record import LogLine, Sample
from tests.effort import tries
from tests.streams.detect.lines import record

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
AT = datetime(2026, 11, 21, 7, 13, 15, tzinfo=UTC)
NANOS = int(AT.timestamp()) * 10**9
OUTSIDE = RecordContext(NOW, "from-key")


def opened(document: Any) -> list[Any]:
    result = open_record(document if isinstance(document, bytes) else orjson.dumps(document), OUTSIDE)
    assert not result.unreadable
    return list(result.observations)


def one(document: Any) -> Sample:
    (found,) = opened(document)
    assert isinstance(found, Sample)
    return found


DCGM = {"gpu": "3", "UUID": "GPU-1", "Hostname": "n1"}


def remote_write(samples: list[dict[str, Any]], **labels: str) -> dict[str, Any]:
    pairs = {"__name__": "m", **DCGM, **labels}.items()
    series = {"labels": [{"name": name, "value": text} for name, text in pairs], "samples": samples}
    return {"timeseries": [series]}


@pytest.mark.parametrize(
    "document",
    [
        {"timestamp": "2026-11-21T07:13:15Z", "value": "79", "name": "m", "labels": DCGM},
        {
            "timestamp": {"string": "2026-11-21T07:13:15Z"},
            "value": {"string": "79"},
            "name": {"string": "m"},
            "labels": {"map": {name: {"string": value} for name, value in DCGM.items()}},
        },
        {"timestamp": {"long": NANOS // 10**6}, "value": {"double": 79.0}, "name": "m", "labels": DCGM},
        {
            "name": "m",
            "tags": DCGM,
            "timestamp": "2026-11-21T07:13:15Z",
            "kind": "absolute",
            "gauge": {"value": 79.0},
        },
        {
            "metric": {
                "name": "m",
                "tags": {name: [value, None] for name, value in DCGM.items()},
                "timestamp": "2026-11-21T07:13:15Z",
                "kind": "absolute",
                "counter": {"value": 79},
            }
        },
        {"name": "m", "tags": DCGM, "timestamp": NANOS // 10**9, "fields": {"gauge": 79}},
        {
            "@timestamp": "2026-11-21T07:13:15Z",
            "host": {"name": "beats-0"},
            "prometheus": {"metrics": {"m": 79}, "labels": DCGM},
        },
        {"@timestamp": "2026-11-21T07:13:15Z", "prometheus": {"m": {"value": 79}, "labels": DCGM}},
        remote_write([{"value": 79, "timestamp": str(NANOS // 10**6)}]),
        remote_write([{"value": "79", "timestamp": NANOS // 10**6}]),
        {
            "symbols": ["", "__name__", "m", *(text for pair in DCGM.items() for text in pair)],
            "timeseries": [
                {
                    "labelsRefs": [*range(1, 3 + 2 * len(DCGM))],
                    "samples": [{"value": 79, "timestamp": str(NANOS // 10**6)}],
                }
            ],
        },
    ],
    ids=[
        "adapter",
        "avro unions",
        "avro numbers",
        "vector",
        "vector native",
        "telegraf",
        "metricbeat",
        "metricbeat, typed",
        "remote-write as JSON",
        "remote-write as JSON, numbers the other way round",
        "remote-write 2 as JSON",
    ],
)
def test_a_sample_is_the_same_whoever_ships_it(document: Any) -> None:
    for shipped in (document, [document]):
        found = one(shipped)
        assert (found.name, found.value, found.at, found.node, found.labels) == ("m", 79.0, AT, "n1", DCGM)


def test_each_sample_of_remote_write_as_json_is_one() -> None:
    found = opened(remote_write([{"timestamp": "1000"}, {"value": "NaN", "timestamp": "2000"}, {"value": 3}]))
    assert [str(one.value) for one in found] == ["0.0", "nan", "3.0"]


@pytest.mark.parametrize(
    "series",
    [
        {"labels": [{"name": "__name__", "value": "m"}], "samples": [{"value": "many", "timestamp": "1"}]},
        {"labels": [{"name": 3}], "samples": []},
        {"labelsRefs": [1, 2], "samples": []},
        {"labelsRefs": [0], "samples": []},
    ],
)
def test_what_cannot_be_read_of_remote_write_as_json_is_said(series: dict[str, Any]) -> None:
    result = open_record(orjson.dumps({"symbols": ["m"], "timeseries": [series]}), OUTSIDE)
    assert not result.observations
    assert result.unreadable
    assert "remote-write JSON" in result.unreadable[0]


def test_what_vector_counts_since_the_last_record_is_no_counter() -> None:
    assert not opened({"name": "m", "tags": {}, "kind": "incremental", "counter": {"value": 3.0}})


def test_a_distribution_is_its_count_and_its_sum() -> None:
    histogram = {
        "name": "m",
        "kind": "absolute",
        "aggregated_histogram": {"buckets": [], "count": 3, "sum": 4.5},
    }
    assert [(s.name, s.value) for s in opened(histogram)] == [("m_count", 3.0), ("m_sum", 4.5)]


def test_collectd_names_a_counter_of_the_driver_and_its_interface() -> None:
    shared = {
        "dstypes": ["derive"],
        "dsnames": ["value"],
        "time": NANOS / 10**9,
        "interval": 10,
        "host": "n1",
    }
    found = one(
        [
            shared
            | {
                "values": [12],
                "plugin": "ethstat",
                "plugin_instance": "eth2",
                "type": "derive",
                "type_instance": "tx_prio3_pause",
            }
        ]
    )
    assert (found.name, found.value, found.node, found.at) == ("tx_prio3_pause", 12.0, "n1", AT)
    assert found.labels["device"] == "eth2"
    heat = {
        "values": [61],
        "plugin": "gpu_nvidia",
        "plugin_instance": "0",
        "type": "temperature",
        "type_instance": "",
    }
    assert (one([shared | heat]).name, one([shared | heat]).labels["gpu"]) == ("gpu_nvidia_temperature", "0")


def test_telegrafs_gnmi_is_of_the_switch_and_its_interface() -> None:
    found = one(
        f"ifcounters,host=collector,name=Ethernet112,path=openconfig:/interfaces/interface/state/counters,"
        f"source=leaf-2:6030 in-octets=17i {NANOS}".encode()
    )
    assert (found.name, found.value, found.node, found.at) == ("in-octets", 17.0, "leaf-2", AT)
    assert found.labels["interface"] == "Ethernet112"
    assert "host" not in found.labels


def test_telegrafs_gnmi_gives_states_in_words_as_numbers() -> None:
    shared = (
        f"ifstate,host=collector,name=Ethernet8,path=/interfaces/interface/state,source=leaf-2 %s {NANOS}"
    )
    down = one((shared % 'state/oper_status="DOWN"').encode())
    assert (down.name, down.value, down.labels["state"]) == ("oper_status", 0.0, "down")
    assert one((shared % 'oper_status="UP",description="to spine"').encode()).value == 1.0


def test_a_table_of_sonics_counters_names_the_interface_in_its_path() -> None:
    document = {
        "name": "pfc",
        "tags": {"host": "collector", "source": "leaf-2", "path": "COUNTERS_DB:/COUNTERS/Ethernet112"},
        "fields": {"SAI_PORT_STAT_PFC_3_RX_PKTS": "17"},
        "timestamp": NANOS // 10**9,
    }
    found = one(document)
    assert (found.name, found.value, found.node) == ("SAI_PORT_STAT_PFC_3_RX_PKTS", 17.0, "leaf-2")
    assert found.labels["interface"] == "Ethernet112"


def test_a_tree_of_nxos_names_the_interface_in_its_path() -> None:
    document = {
        "name": "dot3",
        "tags": {
            "host": "collector",
            "source": "leaf-2",
            "path": "device:/sys/intf/phys-[eth1/49]/dbgDot3Stats",
        },
        "fields": {"fCSErrors": "17"},
        "timestamp": NANOS // 10**9,
    }
    found = one(document)
    assert (found.name, found.value, found.node) == ("fCSErrors", 17.0, "leaf-2")
    assert found.labels["interface"] == "eth1/49"


@pytest.mark.parametrize(
    ("tags", "port"),
    [
        ("guid=0xb8599f0300ab12cd,switch=ib-leaf-2,port=36", "36"),
        ("node_desc=ib-leaf-2,port_num=45,port_label=1/23/1", "1/23/1"),
    ],
    ids=["infiniband_exporter", "its cage and half"],
)
def test_a_port_of_a_subnet_is_of_its_switch_and_called_as_the_switch_does(tags: str, port: str) -> None:
    line = f"prometheus,host=collector,{tags} infiniband_switch_symbol_error_total=47i {NANOS}"
    found = one(line.encode())
    assert (found.node, found.labels["interface"]) == ("ib-leaf-2", port)


def test_a_label_of_a_hosts_leaf_makes_its_port_no_switchs() -> None:
    tags = "instance=gpu-07:9100,guid=0xb8599f0300ab12cd,switch=ib-leaf-2,device=mlx5_2,port=1"
    line = f"prometheus,{tags} node_infiniband_symbol_error_total=47i {NANOS}"
    assert one(line.encode()).node == "gpu-07"


def test_telegrafs_snmp_is_of_the_agent() -> None:
    tags = "agent_host=10.0.7.2,hostname=leaf-2,host=collector,ifName=Ethernet1/8"
    found = one(f"interface,{tags} ifOperStatus=2i {NANOS}".encode())
    assert (found.name, found.value, found.node, found.labels["interface"]) == (
        ("ifOperStatus", 2.0, "leaf-2", "Ethernet1/8")
    )


def test_gnmics_events_are_leaves_by_their_last_name() -> None:
    event = {
        "name": "sub1",
        "timestamp": NANOS,
        "tags": {"interface_name": "ethernet-1/1", "source": "leaf-2:57400", "subscription-name": "sub1"},
        "values": {
            "/srl_nokia-interfaces:interface/statistics/in-octets": "4108666",
            "/interfaces/interface/state": {"oper-status": "UP", "counters": {"in-pkts": 3}},
        },
    }
    found = opened([event, {**event, "values": None, "deletes": ["/interfaces/interface"]}])
    assert [(s.name, s.value, s.node, s.labels["interface"]) for s in found] == [
        ("in-octets", 4108666.0, "leaf-2", "ethernet-1/1"),
        ("oper-status", 1.0, "leaf-2", "ethernet-1/1"),
        ("in-pkts", 3.0, "leaf-2", "ethernet-1/1"),
    ]


def test_gnmics_json_has_the_interface_in_its_path() -> None:
    path = "interfaces/interface[name=Ethernet1/8]/state/counters/in-pkts"
    document = {
        "source": "leaf-2:57400",
        "subscription-name": "default-1",
        "timestamp": NANOS,
        "updates": [{"Path": path, "values": {"interfaces/interface/state/counters/in-pkts": 3}}],
    }
    found = one(document)
    assert (found.name, found.node, found.labels["interface"]) == ("in-pkts", "leaf-2", "Ethernet1/8")


STORM = {
    "sonic-events-swss:pfc-storm": {
        "ifname": "Ethernet112",
        "queue_index": "3",
        "queue_id": "0x150000000005bb",
        "port_id": "0x1000000000003",
        "timestamp": "2026-11-21T07:13:15.000000Z",
    }
}


@pytest.mark.parametrize(
    "document",
    [
        STORM,
        {"source": "leaf-2", **STORM},
        [{"timestamp": NANOS, "tags": {"source": "leaf-2"}, "values": {"/events": STORM}}],
    ],
    ids=["bare", "with its source", "gnmic"],
)
def test_a_structured_event_of_sonic_is_the_storm_that_it_tells_of(document: Any) -> None:
    (line,) = opened(document)
    assert isinstance(line, LogLine)
    assert line.at == AT
    (signal,) = Detector("c1").detect(record(orjson.dumps(document))).signals
    assert (signal.kind, signal.entity.port, signal.attributes["queue"]) == (
        "fabric.pfc_storm",
        "Ethernet112",
        3,
    )
    assert signal.entity.switch == ("leaf-2" if isinstance(document, list) or "source" in document else None)


scalar = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.text()
)
tree = st.recursive(
    scalar,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
)
KEYS = [
    *(
        "name",
        "tags",
        "metric",
        "kind",
        "gauge",
        "values",
        "updates",
        "source",
        "Path",
        "timestamp",
        "fields",
        "labels",
    ),
    *(
        "dsnames",
        "plugin",
        "plugin_instance",
        "type",
        "type_instance",
        "host",
        "time",
        "value",
        "aggregated_histogram",
    ),
    *("sonic-events-swss:pfc-storm", "subscription-name", "deletes", "agent_host", "path"),
]


@settings(max_examples=tries(400))
@given(st.dictionaries(st.sampled_from(KEYS), tree, max_size=9))
def test_any_record_of_such_keys_is_read(document: Any) -> None:
    document.setdefault("kind", "absolute")
    for shipped in (document, [document], {"metric": document}):
        Detector("c1").read(record(orjson.dumps(shipped)))


PROMETHEUS = {"metric": {"__name__": "m", **DCGM}, "value": [NANOS / 10**9, "79"]}


@pytest.mark.parametrize(
    "document",
    [
        PROMETHEUS,
        {"status": "success", "data": {"resultType": "vector", "result": [PROMETHEUS]}},
        {"metric": PROMETHEUS["metric"], "values": [[NANOS // 10**9, "79"]]},
        {"metric": PROMETHEUS["metric"], "values": [79], "timestamps": [NANOS // 10**6]},
    ],
    ids=["a series", "an answer", "a range", "an export"],
)
def test_an_answer_of_prometheus_is_its_samples(document: Any) -> None:
    found = one(document)
    assert (found.name, found.value, found.node, found.at) == ("m", 79.0, "n1", AT)
    assert found.labels == DCGM


def test_a_series_of_an_answer_may_have_no_number() -> None:
    result = open_record(orjson.dumps(PROMETHEUS | {"value": [1, "n/a"]}), OUTSIDE)
    assert not result.observations
    assert "no number" in result.unreadable[0]


def test_telegrafs_modbus_is_of_the_device_it_polls() -> None:
    found = one(f"modbus,host=collector,name=cdu-9,slave_id=1,type=holding leak_detected=1i {NANOS}".encode())
    assert (found.name, found.value, found.node, found.labels["name"]) == (
        "leak_detected",
        1.0,
        "cdu-9",
        "cdu-9",
    )
    assert "host" not in found.labels


@pytest.mark.parametrize(("said", "admin"), [("UP", "up"), ("DOWN", "down"), (None, None)])
def test_an_update_of_an_interface_says_whether_somebody_shut_it(said: str | None, admin: str | None) -> None:
    path = "/interfaces/interface/state/"
    values = {f"{path}oper-status": "DOWN"} | ({f"{path}admin-status": said} if said else {})
    tags = {"interface_name": "Ethernet7", "source": "leaf-2", "subscription-name": "s"}
    found = opened([{"name": "s", "timestamp": NANOS, "tags": tags, "values": values}])
    assert found[0].labels.get("admin") == admin


CREATED = {
    "severity": "quark-types:MAJOR",
    "text": "a quark\nis gone",
    "time-created": str(NANOS - 7 * 10**9),
}


@pytest.mark.parametrize(
    "document",
    [
        {"name": "q", "timestamp": NANOS, "tags": {"source": "leaf-9:57400"}, "values": CREATED},
        {"source": "leaf-9:57400", "timestamp": NANOS, "updates": [{"Path": "alarm", "values": {"state": CREATED}}]},
        {"name": "q", "timestamp": NANOS // 10**9, "tags": {"source": "leaf-9", "path": "/alarms"}, "fields": CREATED},
    ],
    ids=["gnmic's event", "gnmic's JSON", "Telegraf"],
)  # fmt: skip
def test_an_alarm_is_a_line_of_the_switch_at_its_level_and_of_the_time_at_which_it_was_created(
    document: Any,
) -> None:
    (line,) = opened(document)
    assert isinstance(line, LogLine)
    assert (line.text, line.node, line.level, line.source) == ("a quark is gone", "leaf-9", 3, "gnmi")
    assert line.at == AT - timedelta(seconds=7)


def test_a_text_without_a_severity_is_no_alarm() -> None:
    assert not opened({"name": "q", "tags": {"source": "leaf-9"}, "values": {"text": "a quark is gone"}})

"""Samples: gauges that stick, counters that run and reset, sentinels."""

from __future__ import annotations

from datetime import timedelta

import orjson
import pytest

from streams.detect import Detector
from streams.model.clock import rfc3339
from streams.model.signal import Signal, SignalState
from tests.streams.detect.lines import NOW, firm, is_unknown, record


class Scrapes:
    """Samples of one exporter, 15 s apart, through one detector."""

    def __init__(self) -> None:
        self.detector = Detector("c1")
        self.at = NOW

    def sample(self, name: str, value: float | str, **labels: str) -> tuple[Signal, ...]:
        self.at += timedelta(seconds=15)
        sample = {
            "timestamp": rfc3339(self.at),
            "value": str(value),
            "name": name,
            "labels": {"__name__": name, "instance": "10.0.0.5:9400", **labels},
        }
        return self.detector.detect(record(orjson.dumps(sample), topic="raw.metrics", at=self.at)).signals

    def xid(self, value: float | str, **labels: str) -> tuple[Signal, ...]:
        labels = {"gpu": "3", "UUID": "GPU-1", "pci_bus_id": "00000000:1B:00.0", "Hostname": "gpu-1"} | labels
        return self.sample("DCGM_FI_DEV_XID_ERRORS", value, **labels)


def test_the_xid_gauge_tells_only_of_its_changes() -> None:
    scrapes = Scrapes()
    assert not firm(scrapes.xid(43)), "last week's code"
    assert not scrapes.xid(43)
    (signal,) = scrapes.xid(79)
    assert signal.entity.key == "gpu/gpu-1/0000:1b:00"
    assert (signal.attributes["xid"], signal.attributes["subtype"]) == (79, "dcgm")
    assert not scrapes.xid(79)
    assert not scrapes.xid(0)


@pytest.mark.parametrize("blank", ["NaN", "+Inf", "9223372036854775794", "140737488355328", "-1"])
def test_a_sentinel_is_no_value(blank: str) -> None:
    scrapes = Scrapes()
    assert not scrapes.xid(0)
    assert not scrapes.xid(blank)
    assert not scrapes.xid(0)
    assert scrapes.xid(31)


def test_an_older_sample_of_another_partition_changes_nothing() -> None:
    scrapes = Scrapes()
    scrapes.xid(0)
    assert scrapes.xid(79)
    scrapes.at -= timedelta(seconds=60)
    assert not scrapes.xid(0)
    scrapes.at += timedelta(seconds=60)
    assert not scrapes.xid(79)


def test_a_count_of_xids_is_news_when_it_appears_or_grows() -> None:
    scrapes = Scrapes()
    labels = {"gpu": "3", "UUID": "GPU-1", "Hostname": "gpu-1", "xid": "79"}
    name = "DCGM_EXP_XID_ERRORS_COUNT"
    found = [scrapes.sample(name, value, **labels) for value in (1, 1, 2, 1, 0, 1)]
    assert [len(signals) for signals in found] == [1, 0, 1, 0, 0, 1]
    assert found[0][0].attributes["xid"] == 79
    assert not scrapes.sample(name, 1, **labels | {"xid": ""})


def test_a_total_of_xids_is_news_only_when_it_grows() -> None:
    scrapes = Scrapes()
    labels = {"gpu": "3", "UUID": "GPU-1", "Hostname": "gpu-1", "xid": "63"}
    found = [scrapes.sample("DCGM_EXP_XID_ERRORS_TOTAL", value, **labels) for value in (4, 4, 5, 0, 0)]
    assert [len(signals) for signals in found] == [0, 0, 1, 0, 0]


def test_a_switchs_last_sxid_tells_of_its_changes() -> None:
    scrapes = Scrapes()
    labels = {"nvswitch": "nvswitch2", "Hostname": "gpu-1"}
    name = "DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS"
    found = [scrapes.sample(name, value, **labels) for value in (11012, 11012, 20034, 20034, 0)]
    assert [len(signals) for signals in found] == [1, 0, 1, 0, 0]
    (first,) = found[0]
    assert is_unknown(first)  # of whatever age it is
    (signal,) = found[2]
    assert (signal.kind, signal.attributes["sxid"], signal.attributes["device"]) == (
        "gpu.sxid",
        20034,
        "nvswitch2",
    )
    assert signal.entity.node == "gpu-1"


SENT = "node_ethtool_transmitted_prio3_pause_duration"


def test_a_nic_that_pauses_its_switch_all_the_time_is_a_storm_until_it_stops() -> None:
    scrapes = Scrapes()
    us = 0.0
    seen = []
    for share in (0, 0, 0.97, 0.99, 1, 0.8, 0.01, 0):
        us += share * 15e6
        seen.append(
            [
                (s.state, s.attributes["fraction"])
                for s in scrapes.sample(SENT, us, device="eth2", node="gpu-1")
            ]
        )
    assert seen == [[], [], [], [(SignalState.FIRING, 0.99)], [], [], [(SignalState.CLEARED, 0.01)], []]


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        (SENT, "sent"),
        ("node_ethtool_received_prio3_pause_duration", "received"),
        ("tx_prio3_pause_duration", "sent"),
        ("rx_prio3_pause_duration", "received"),
    ],
)
def test_who_pauses_whom_is_in_the_counters_name(name: str, direction: str) -> None:
    scrapes = Scrapes()
    found = [s for us in (0, 15e6, 30e6) for s in scrapes.sample(name, us, device="eth2", node="gpu-1")]
    assert [(s.entity.key, s.attributes["direction"], s.attributes["queue"]) for s in found] == [
        ("nic/gpu-1/eth2", direction, 3)
    ]


def test_congestion_is_no_storm() -> None:
    scrapes = Scrapes()
    assert not [s for i in range(10) for s in scrapes.sample(SENT, i * 15e6 * 0.4, device="eth2")]


def test_a_counter_that_starts_again_is_no_storm() -> None:
    scrapes = Scrapes()
    values = (9e9, 1e6, 2e6, 0, 1e6)
    assert not [s for us in values for s in scrapes.sample(SENT, us, device="eth2")]


def test_frames_count_only_where_there_is_no_duration() -> None:
    scrapes = Scrapes()
    frames = "node_ethtool_received_prio3_pause"
    found = [s for n in (0, 60_000, 120_000) for s in scrapes.sample(frames, n, device="eth2", node="gpu-1")]
    assert [s.attributes["frames_per_s"] for s in found] == [4000.0]
    scrapes.sample(frames + "_duration", 0, device="eth3", node="gpu-1")
    assert not [
        s for n in (0, 60_000, 120_000) for s in scrapes.sample(frames, n, device="eth3", node="gpu-1")
    ]


def test_the_nics_own_storm_counter_is_taken_at_once() -> None:
    scrapes = Scrapes()
    name = "node_ethtool_transmitted_pause_storm_error_events"
    assert not scrapes.sample(name, 4, device="eth2", node="gpu-1")
    (signal,) = scrapes.sample(name, 5, device="eth2", node="gpu-1")
    assert signal.attributes["direction"] == "sent"
    (over,) = scrapes.sample(name, 5, device="eth2", node="gpu-1")
    assert over.state is SignalState.CLEARED

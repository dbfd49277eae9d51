"""Series that a recording rule of Prometheus made of a counter: they are rates, and no counters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import orjson
import pytest

from streams.detect import Detector
from streams.detect.metrics.recorded_rates import RecordedRate, recorded_rate
from streams.model.clock import rfc3339
from streams.model.signal import Signal, SignalState
from tests.streams.detect.lines import NOW, firm, record

FIRING, CLEARED = SignalState.FIRING, SignalState.CLEARED


def found(name: str, values: Iterable[float], step: int = 60, **labels: str) -> list[Signal]:
    """The signals of a series' values, so many seconds apart."""
    detector, signals = Detector("c1"), list[Signal]()
    for number, value in enumerate(values):
        at = NOW + timedelta(seconds=step * number)
        sample = {
            "timestamp": rfc3339(at),
            "value": str(value),
            "name": name,
            "labels": {"__name__": name, "instance": "gpu-1:9100", **labels},
        }
        signals += firm(detector.detect(record(orjson.dumps(sample), topic="raw.metrics", at=at)).signals)
    return signals


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("node_device:roce_adp_retrans:rate5m", RecordedRate("roce_adp_retrans", 1.0, 300_000)),
        ("instance_port:ifInErrors:rate1m", RecordedRate("ifInErrors", 1.0, 60_000)),
        ("instance_port:ifInErrors:rate_5m", RecordedRate("ifInErrors", 1.0, 300_000)),
        ("ifInErrors:irate30s", RecordedRate("ifInErrors", 1.0, 30_000)),
        ("instance:ifInErrors:sum_rate5m", RecordedRate("ifInErrors", 1.0, 300_000)),
        ("instance:ifInErrors:rate:sum", RecordedRate("ifInErrors", 1.0, 300_000)),
        ("device:link_downed:increase10m", RecordedRate("link_downed", 1 / 600, 600_000)),
    ],
)
def test_the_name_of_a_recorded_rate_tells_of_its_counter(name: str, rate: RecordedRate) -> None:
    assert recorded_rate(name) == rate


@pytest.mark.parametrize(
    "name",
    [
        "ifInErrors",
        "node:dcgm_gpu_temp:max",
        "node:dcgm_power_usage:sum",
        "job:ifInErrors_per_ifInOctets:ratio_rate5m",
        "instance:ifInErrors:p99_rate5m",
        "instance:ifInErrors:increase",
        "instance:ifInErrors:rate0x",
        ":rate5m",
        "rate5m",
        "::",
    ],
)
def test_other_names_tell_of_none(name: str) -> None:
    assert recorded_rate(name) is None


def test_a_rate_that_stays_high_is_firing_until_it_is_low() -> None:
    name = "node_device:roce_adp_retrans:rate5m"
    fired, over = found(name, [0, 0, *[150] * 20, *[0] * 15], device="mlx5_6", port="1")
    assert (fired.entity.key, fired.state) == ("nic/gpu-1/mlx5_6", FIRING)
    assert fired.attributes["subtype"] == "lost_packets"
    assert fired.attributes["count_per_minute"] == pytest.approx(4500), "half of the ten minutes so far"
    assert over.state is CLEARED


def test_a_low_rate_that_rises_and_falls_says_nothing() -> None:
    assert not found("node_device:roce_adp_retrans:rate5m", [0.1, 1.9, 0.2, 1.8] * 30, device="mlx5_6")


def test_a_rate_over_a_minute_must_last_or_be_high() -> None:
    """600 drops a minute over ten minutes: 25 a second for a minute are too few, 25 a second for long are not."""
    name = "instance_port:ifOutDiscards:rate1m"
    assert not found(name, [0, 25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], ifName="Ethernet7/1")
    (fired,) = found(name, [0, *[25] * 12], ifName="Ethernet7/1")
    assert (fired.entity.key, fired.attributes["subtype"]) == ("port/gpu-1/Ethernet7/1", "drops")


def test_a_counter_and_the_rate_of_it_are_one_series() -> None:
    """The counter goes up by 9,000 a minute, and so does the rate that was made of it."""
    detector, signals = Detector("c1"), list[Signal]()
    for minute in range(30):
        at = NOW + timedelta(minutes=minute)
        for name, value in (
            ("packet_seq_err", 9000 * minute),
            ("instance_device:packet_seq_err:rate5m", 150),
        ):
            labels = {"__name__": name, "instance": "gpu-1:9100", "device": "mlx5_6", "port": "1"}
            sample = {"timestamp": rfc3339(at), "value": str(value), "name": name, "labels": labels}
            signals += firm(detector.detect(record(orjson.dumps(sample), topic="raw.metrics", at=at)).signals)
    assert [s.state for s in signals] == [FIRING]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device:node_infiniband_link_downed:rate5m", 1 / 300),
        ("device:node_infiniband_link_downed:increase5m", 1.2),
    ],
)
def test_an_increase_is_one_signal_as_long_as_its_time_lasts(name: str, value: float) -> None:
    fired, over = found(name, [0, 0, *[value] * 5, *[0] * 20], device="mlx5_3", port="1")
    assert (fired.state, fired.attributes["subtype"], fired.attributes["count"]) == (FIRING, "link_downed", 1)
    assert over.state is CLEARED


def test_an_increase_of_a_counter_that_is_read_itself_is_no_second_one() -> None:
    detector, signals = Detector("c1"), list[Signal]()
    for minute, value in enumerate([0, 0, 1, 1, 1, 1]):
        at = NOW + timedelta(minutes=minute)
        for name in ("node_infiniband_link_downed_total", "device:node_infiniband_link_downed:increase5m"):
            labels = {"__name__": name, "instance": "gpu-1:9100", "device": "mlx5_3", "port": "1"}
            sample = {"timestamp": rfc3339(at), "value": str(value), "name": name, "labels": labels}
            signals += firm(detector.detect(record(orjson.dumps(sample), topic="raw.metrics", at=at)).signals)
    assert [s.attributes["count"] for s in signals] == [1]


def test_an_increase_over_a_day_tells_of_no_moment() -> None:
    assert not found("device:node_infiniband_link_downed:increase1d", [0, 1, 1, 1], device="mlx5_3")


def test_the_share_of_time_that_a_nic_pauses_is_no_counter_of_it() -> None:
    name = "device:node_ethtool_transmitted_prio3_pause_duration:rate1m"
    fired, over = found(name, [0, 0, *[990_000] * 4, 0, 0], device="eth4")
    assert (fired.state, fired.attributes["direction"], fired.attributes["fraction"]) == (
        FIRING,
        "sent",
        0.99,
    )
    assert over.state is CLEARED
    # As a counter these would go up by far more than a second of each second.
    assert not found(name, [0, 1, 2_000, 100_000, 400_000] * 6, step=1, device="eth4")


def test_a_sum_over_a_cluster_is_about_no_node() -> None:
    assert not found("cluster:SymbolErrorCounter:rate5m", [0, *[900] * 30], instance="", interface="36")


def test_columns_of_if_mib_name_a_switchs_port() -> None:
    values = [300 * minute for minute in range(30)]
    (fired,) = found("ifInErrors", values, ifIndex="101", ifName="Ethernet9/1", ifDescr="Ethernet9/1")
    assert fired.entity.key == "port/gpu-1/Ethernet9/1"

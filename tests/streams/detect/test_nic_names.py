"""What gives one NIC two names: lines of the kernel and of tools, labels of metrics."""

from __future__ import annotations

from datetime import datetime, timedelta

import orjson
import pytest

from streams.detect import Detector
from streams.model.clock import rfc3339
from streams.model.signal import Attribute, Severity, Signal
from tests.streams.detect.lines import NOW, record


def named(detector: Detector, message: str, after: timedelta = timedelta()) -> list[Signal]:
    at = NOW + after
    line = f"{at:%b %d %H:%M:%S} gpu-7 health-check: {message}"
    found = detector.detect(record(line, at=at, offset=int(after.total_seconds()))).signals
    return [one for one in found if one.kind == "fabric.nic_names"]


def sampled(
    detector: Detector, name: str, labels: dict[str, str], at: datetime = NOW
) -> list[dict[str, Attribute]]:
    sample = {
        "timestamp": rfc3339(at),
        "value": "1",
        "name": name,
        "labels": {"__name__": name, "node": "gpu-7", **labels},
    }
    found = detector.detect(record(orjson.dumps(sample), topic="raw.metrics", at=at)).signals
    return [dict(one.attributes) for one in found if one.kind == "fabric.nic_names"]


def test_a_tool_that_prints_the_same_every_minute_reports_it_once() -> None:
    detector = Detector("c1")
    (first,) = named(detector, "mlx5_1 port 1 ==> eth3 (Up)")
    assert (first.entity.node, first.entity.nic, first.severity) == ("gpu-7", "mlx5_1", Severity.INFO)
    assert not named(detector, "mlx5_1 port 1 ==> eth3 (Down)", timedelta(minutes=1))
    assert named(detector, "mlx5_1 port 1 ==> eth5 (Up)", timedelta(minutes=2)), "another name is news"
    assert named(detector, "mlx5_1 port 1 ==> eth3 (Up)", timedelta(minutes=70))


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        (
            "node_ethtool_info",
            {"device": "eth3", "bus_info": "0000:5e:00.0", "driver": "mlx5_core"},
            {"netdev": "eth3", "pci": "0000:5e:00.0"},
        ),
        (
            "amd_rdma_tx_ucast_pkts",
            {"eth_intf_name": "eth3", "rdma_dev_name": "rocep94s0", "pcie_bus_id": "0000:5e:00.0"},
            {"netdev": "eth3", "rdma_device": "rocep94s0", "pci": "0000:5e:00.0"},
        ),
        (
            "port_xmit_data",
            {"device": "mlx5_3", "port": "1", "netdev": "eth3"},
            {"rdma_device": "mlx5_3", "netdev": "eth3"},
        ),
    ],
)
def test_labels_name_healthy_nics(name: str, labels: dict[str, str], expected: dict[str, Attribute]) -> None:
    detector = Detector("c1")
    assert sampled(detector, name, labels) == [expected]
    assert not sampled(detector, name, labels, NOW + timedelta(minutes=50))
    assert sampled(detector, name, labels, NOW + timedelta(minutes=70)) == [expected]


@pytest.mark.parametrize("labels", [{"device": "lo", "bus_info": ""}, {"device": "bond0", "bus_info": "N/A"}])
def test_labels_with_one_name_report_nothing(labels: dict[str, str]) -> None:
    assert not sampled(Detector("c1"), "node_ethtool_info", labels)


def test_a_dead_link_tells_which_port_of_its_card_it_is() -> None:
    line = "Nov 21 07:13:13 gpu-7 kernel: [9.1] mlx5_core 0000:5e:00.1 eth4: Link down"
    (found,) = Detector("c1").detect(record(line)).signals
    assert (found.attributes["pci"], found.attributes["pci_function"]) == ("0000:5e:00", 1)

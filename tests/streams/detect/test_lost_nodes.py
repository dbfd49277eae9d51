"""A launcher or a control store tells of the node that it lost, not of the one that it runs on."""

from __future__ import annotations

import orjson
import pytest

from streams.detect import Detector
from tests.streams.detect.lines import record

RAY = (
    "The node with node id: 82f3 and address: 10.4.0.7 and node name: {} has been marked dead because the detector has missed "
    "too many heartbeats from it."
)


@pytest.mark.parametrize(("name", "node"), [("10.4.0.7", "10.4.0.7"), ("gpu-7", "gpu-7")])
def test_a_node_that_ray_marked_dead_is_the_one_with_that_address(name: str, node: str) -> None:
    event = {
        "host_name": "head-1",
        "label": "RAY_NODE_REMOVED",
        "message": RAY.format(name),
        "severity": "ERROR",
    }
    (found,) = Detector("c1").detect(record(orjson.dumps(event), key=b"head-1")).signals
    assert (found.kind, found.entity.node) == ("job.failed", node)


def test_the_daemon_that_a_launcher_lost_is_on_the_node_behind_its_name() -> None:
    text = (
        "ORTE has lost communication with a remote daemon.\n\n"
        "  HNP daemon   : [[4711,0],0] on node login-1\n  Remote daemon: [[4711,0],7] on node gpu-7\n"
    )
    found = Detector("c1").detect(record(text, topic="raw.job-logs")).signals
    assert [signal.entity.node for signal in found] == [None, "gpu-7"]

"""Which hosts have GPUs, as their metrics tell."""

from __future__ import annotations

from datetime import datetime, timedelta

import orjson

from streams.detect import Detector
from streams.model.clock import rfc3339
from streams.model.signal import Severity, Signal
from tests.streams.detect.lines import NOW, record

LABELS = {"gpu": "3", "UUID": "GPU-1", "instance": "10.0.0.5:9400"}


def hosts(detector: Detector, at: datetime, **labels: str) -> list[Signal]:
    name = "DCGM_FI_DEV_GPU_UTIL"
    sample = {
        "timestamp": rfc3339(at),
        "value": "37",
        "name": name,
        "labels": {"__name__": name, **LABELS, **labels},
    }
    raw = record(orjson.dumps(sample), topic="raw.metrics", at=at)
    return [one for one in detector.detect(raw).signals if one.kind == "node.gpus"]


def test_a_host_is_told_of_once_and_hours_later_again() -> None:
    detector = Detector("c1")
    (first,) = hosts(detector, NOW, Hostname="gpu-1")
    assert (first.entity.node, first.entity.gpu, first.severity) == ("gpu-1", None, Severity.INFO)
    assert not hosts(detector, NOW + timedelta(minutes=1), Hostname="gpu-1")
    assert not hosts(detector, NOW + timedelta(hours=5), Hostname="gpu-1", gpu="4")
    assert hosts(detector, NOW + timedelta(hours=7), Hostname="gpu-1")


def test_each_host_is_told_of() -> None:
    detector = Detector("c1")
    assert hosts(detector, NOW, Hostname="gpu-1")
    assert hosts(detector, NOW, Hostname="gpu-2")


def test_a_clock_that_jumps_does_not_silence_it() -> None:
    detector = Detector("c1")
    assert hosts(detector, NOW + timedelta(days=3), Hostname="gpu-1")
    assert hosts(detector, NOW, Hostname="gpu-1")


def test_the_labels_of_its_metrics_name_its_rack() -> None:
    (one,) = hosts(Detector("c1"), NOW, Hostname="gpu-1", rack="R14", cdu_loop="cdu4", zone="")
    assert one.attributes["shares"] == ("coolant-loop=cdu4", "rack=R14")
    (other,) = hosts(Detector("c1"), NOW, Hostname="gpu-1")
    assert "shares" not in other.attributes

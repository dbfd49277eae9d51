from datetime import UTC, datetime, timedelta

import orjson

from streams.detect import Detector
from streams.model.record import RawRecord

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def sample(second: int, microseconds_paused: int) -> RawRecord:
    labels = {
        "__name__": "node_ethtool_transmitted_prio3_pause_duration",
        "device": "eth4",
        "instance": "node-07:9100",
    }
    at = NOON + timedelta(seconds=second)
    value = {
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": str(microseconds_paused),
        **{"labels": labels},
    }
    value["name"] = labels["__name__"]
    return RawRecord("raw.metrics", 0, second, at, None, orjson.dumps(value))


def test_the_evidence_of_a_metric_is_the_sample_itself() -> None:
    detector = Detector("east")
    found = [
        s for second in range(0, 75, 15) for s in detector.detect(sample(second, second * 990_000)).signals
    ]
    assert found
    text = found[0].evidence[0].text
    assert text.startswith(
        'node_ethtool_transmitted_prio3_pause_duration{device="eth4", instance="node-07:9100"} '
    )

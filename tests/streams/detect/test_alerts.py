"""Alerts by the samples of `catalog/alerts.yaml`, and what must never come of one."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from streams.detect.alerts import KINDS, UNMAPPED, AlertLabels, AlertSample, sheet
from streams.model.signal import Severity, Signal, SignalState
from tests.streams.detect.lines import detect, signals


def webhook(name: str, labels: dict[str, str], *, status: str = "firing", **more: Any) -> bytes:
    """What Alertmanager posts for one alert."""
    alert = {
        "status": status,
        "labels": {"alertname": name, **labels},
        "annotations": {"summary": f"{name} is at 91"},
        "startsAt": "2026-11-21T07:10:00Z",
        "endsAt": "0001-01-01T00:00:00Z" if status == "firing" else "2026-11-21T07:12:00Z",
        **more,
    }
    group = {"receiver": "faultline", "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}}
    return orjson.dumps({"version": "4", "status": status, **group, "alerts": [alert]})


def one(sample: AlertSample, **more: Any) -> Signal:
    (found,) = signals(webhook(sample.alert, dict(sample.labels), **more))
    return found


@pytest.mark.parametrize("sample", sheet().samples, ids=lambda sample: sample.alert)
def test_an_alert_becomes_what_its_row_says(sample: AlertSample) -> None:
    signal = one(sample)
    assert signal.kind == sample.kind
    assert sample.entity is None or signal.entity.key == sample.entity
    assert {name: signal.attributes.get(name) for name in sample.expect} == dict(sample.expect)
    assert signal.attributes["alert"] == sample.alert


def recorded(sample: AlertSample, *, as_pairs: bool) -> bytes:
    """What Alertmanager's event recorder writes for one alert."""
    labels: Any = {"alertname": sample.alert, **sample.labels}
    if as_pairs:
        labels = {"labels": [{"key": name, "value": value} for name, value in labels.items()]}
    alert = {"name": sample.alert, "labels": labels, "startsAt": "2026-11-21T07:10:00Z"}
    return orjson.dumps(
        {"@timestamp": "2026-11-21T07:10:01Z", "instance": "am-0", "data": {"alertCreated": {"alert": alert}}}
    )


@pytest.mark.parametrize("as_pairs", [True, False])
@pytest.mark.parametrize("sample", sheet().samples, ids=lambda sample: sample.alert)
def test_an_alert_that_alertmanager_records_becomes_what_its_webhook_does(
    sample: AlertSample, as_pairs: bool
) -> None:
    (found,) = signals(recorded(sample, as_pairs=as_pairs))
    posted = one(sample)
    assert (found.kind, found.entity, found.state) == (posted.kind, posted.entity, posted.state)


PLACED = [sample for sample in sheet().samples if sample.entity is not None]


@pytest.mark.parametrize("sample", PLACED, ids=lambda sample: sample.alert)
def test_an_alert_that_is_over_clears_and_one_sent_again_is_the_same(sample: AlertSample) -> None:
    assert one(sample, status="resolved").state == SignalState.CLEARED
    assert one(sample).id == one(sample, annotations={"summary": "now at 93"}).id


@pytest.mark.parametrize("name", ["Watchdog", "InfoInhibitor", "DeadMansSwitch", "dead_mans_switch"])
def test_what_only_proves_that_alerting_works_is_no_signal(name: str) -> None:
    assert not detect(webhook(name, {"severity": "none"})).signals


@pytest.mark.parametrize("severity", ["critical", "page", "warning", "none", ""])
def test_an_unknown_alert_says_nothing_and_a_kind_that_there_is_not_is_never_more_than_info(
    severity: str,
) -> None:
    labels = {"severity": severity, "node": "gpu-7"}
    assert not signals(webhook("TheCoffeeIsCold", labels))
    (signal,) = signals(webhook("TheCoffeeIsCold", {**labels, "faultline_kind": "node.teapot"}))
    assert (signal.kind, signal.severity, signal.entity.node) == (UNMAPPED, Severity.INFO, "gpu-7")
    assert "TheCoffeeIsCold" in signal.evidence[0].text


@pytest.mark.parametrize("alike", sheet().look_alikes, ids=lambda alike: alike.alert)
def test_an_alert_of_something_else_says_nothing(alike: AlertLabels) -> None:
    assert not signals(webhook(alike.alert, dict(alike.labels)))


def test_the_end_of_an_alert_that_was_nowhere_says_nothing() -> None:
    assert not signals(webhook("DiskFull", {"mountpoint": "/tmp"}, status="resolved"))


def test_no_row_promises_a_kind_that_nobody_knows() -> None:
    assert {row.kind for row in sheet().rows} <= KINDS


@pytest.mark.parametrize(
    "labels", [{"xid": "7" * 40}, {"xid": "-1"}, {"gpu": "x" * 5000}, {"pci_bus_id": "?"}]
)
def test_odd_labels_are_read_as_far_as_they_make_sense(labels: dict[str, str]) -> None:
    (signal,) = signals(webhook("GpuXidError", {"node": "gpu-7", **labels}))
    assert (signal.kind, signal.entity.node) == ("gpu.driver", "gpu-7")

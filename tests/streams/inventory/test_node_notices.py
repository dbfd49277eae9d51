"""What clouds announce on Node objects, and for when."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from streams.inventory.node_notices import due_in, node_notice, notice_marks
from streams.inventory.nodes import node_fact
from streams.model.codec import decode, encode
from streams.model.facts import NodeFact
from tests.streams.inventory.objects import AT, node

SOON = AT + timedelta(hours=2)


def taint(key: str, **metadata: Any) -> dict[str, Any]:
    shown = node(**metadata)
    shown["spec"]["taints"] = [{"key": key, "value": "x", "effect": "NoSchedule"}]
    return shown


def azure(message: str, reason: str = "VMEventScheduled", status: str = "True") -> dict[str, Any]:
    shown = node()
    told = {"type": "VMEventScheduled", "status": status, "reason": reason, "message": message}
    shown["status"].setdefault("conditions", []).append(told)
    return shown


def http_date(at: datetime) -> str:
    return at.strftime("%a, %d %b %Y %H:%M:%S GMT")


def test_a_label_with_seconds_since_1970_says_when() -> None:
    found = node_notice(
        node(labels={"cloud.google.com/scheduled-maintenance-time": str(int(SOON.timestamp()))}), AT
    )
    assert found is not None
    assert (found.subtype, found.not_before) == ("host_maintenance", SOON.replace(microsecond=0))


@pytest.mark.parametrize(
    ("event", "subtype"),
    [
        ("Preempt", "termination"),
        ("Terminate", "termination"),
        ("Redeploy", "scheduled_event"),
        ("Reboot", "scheduled_event"),
        ("Freeze", "freeze"),
    ],
)
def test_a_condition_says_what_and_when(event: str, subtype: str) -> None:
    found = node_notice(azure(f"{event} Scheduled: {http_date(SOON)}"), AT)
    assert found is not None
    assert (found.subtype, found.not_before) == (subtype, SOON.replace(microsecond=0))


@pytest.mark.parametrize("written", ["tomorrow", "", "99999999999", "10:30"])
def test_a_time_that_cannot_be_read_is_kept_as_it_stands(written: str) -> None:
    found = node_notice(node(annotations={"faultline.dev/leaves-at": written}), AT)
    assert found is not None
    assert (found.not_before, found.unread) == (None, written or "nothing")
    fact = node_fact("c1", node(annotations={"faultline.dev/leaves-at": written}), AT)
    assert decode(NodeFact, encode(fact)).notice == found


def test_a_condition_that_names_no_time_is_no_time_that_cannot_be_read() -> None:
    found = node_notice(azure("Preempt Scheduled"), AT)
    assert found is not None
    assert (found.not_before, found.unread) == (None, None)


def test_a_condition_that_is_over_is_no_notice() -> None:
    assert node_notice(azure("VM has no scheduled event", "NoVMEventScheduled", "False"), AT) is None


def test_what_is_due_by_the_clouds_word_alone_says_so() -> None:
    found = node_notice(taint("aws-node-termination-handler/spot-itn"), AT)
    assert found is not None
    assert (found.subtype, found.not_before, found.within_s) == ("termination", None, 120)


def test_the_same_taint_leaves_less_time_on_a_spot_node() -> None:
    key = "cloud.google.com/impending-node-termination"
    spot, other = taint(key, labels={"cloud.google.com/gke-spot": "true"}), taint(key)
    assert [n.within_s for s in (spot, other) if (n := node_notice(s, AT))] == [30, None]


def test_of_two_notices_the_earlier_counts_and_a_freeze_never_hides_one() -> None:
    shown = azure(f"Freeze Scheduled: {http_date(AT + timedelta(minutes=1))}")
    shown["metadata"].setdefault("labels", {})["cloud.google.com/scheduled-maintenance-time"] = str(
        int(SOON.timestamp())
    )
    found = node_notice(shown, AT)
    assert found is not None
    assert found.subtype == "host_maintenance"


def test_a_mark_that_was_left_behind_is_no_notice() -> None:
    label = {"cloud.google.com/scheduled-maintenance-time": str(int((AT - timedelta(days=2)).timestamp()))}
    assert node_notice(node(labels=label), AT) is None


@pytest.mark.parametrize(
    "value", ["soon", "", "0", "17", "99999999999999999999999", "2026-13-45T99:00:00Z", "NaN"]
)
def test_a_time_that_cannot_be_read_leaves_the_notice(value: str) -> None:
    found = node_notice(node(annotations={"faultline.dev/leaves-at": value}), AT)
    assert found is not None
    assert found.not_before is None


def test_a_time_with_an_offset_is_read_in_utc() -> None:
    assert due_in("2026-03-01T03:09:00+01:00") == due_in("2026-03-01T02:09:00Z") is not None


def test_a_fact_carries_it_there_and_back() -> None:
    fact = node_fact("c1", taint("aws-node-termination-handler/spot-itn"), AT)
    assert fact.notice is not None
    assert decode(NodeFact, encode(fact)) == fact


def test_no_row_is_hidden_by_another_one() -> None:
    for mark in notice_marks():
        assert mark.by

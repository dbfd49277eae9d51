"""When an announced end of a node is due, as it stands in lines, Events and documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from streams.detect.notice_times import with_time
from streams.model.signal import Signal
from tests.streams.detect.lines import detect

DUE = "2026-11-21T07:15:13Z"
SAID = datetime(2026, 11, 21, 7, 13, 13, tzinfo=UTC)


def notices(value: object) -> list[Signal]:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return [s for s in detect(text).signals if s.kind == "node.maintenance"]


def azure(kind: str, *machines: str, status: str = "Scheduled") -> dict[str, object]:
    event = {
        "EventId": "A1", "EventType": kind, "ResourceType": "VirtualMachine", "Resources": list(machines),
        "EventStatus": status, "NotBefore": "Sat, 21 Nov 2026 07:15:13 GMT", "DurationInSeconds": 9,
    }  # fmt: skip
    return {"DocumentIncarnation": 2, "Events": [event]}


@pytest.mark.parametrize(
    "line",
    [
        "Nov 21 07:13:13 gpu-7 nth[3]: Spot ITN received. Instance will be interrupted at 2026-11-21T07:15:13Z",
        "VM gpu-7 has a scheduled event Redeploy: NotBefore Sat, 21 Nov 2026 07:15:13 GMT",
        'upcomingMaintenance: {"maintenanceStatus":"PENDING","type":"SCHEDULED","windowStartTime":"2026-11-21T08:15:13+01:00"}',
    ],
)
def test_every_writing_of_a_time_is_one_time(line: str) -> None:
    assert [s.attributes["not_before"] for s in notices(line)] == [DUE]


def test_each_machine_of_a_document_gets_the_notice_and_no_other() -> None:
    found = notices(azure("Preempt", "gpu_7", "gpu_8"))
    assert sorted(s.entity.node or "" for s in found) == ["gpu_7", "gpu_8"]
    assert {(s.attributes["subtype"], s.attributes["not_before"]) for s in found} == {("termination", DUE)}


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [("Reboot", "scheduled_event"), ("Redeploy", "scheduled_event"), ("Freeze", "freeze")],
)
def test_what_happens_to_the_machine_is_told_apart(kind: str, subtype: str) -> None:
    assert [s.attributes["subtype"] for s in notices(azure(kind, "gpu_7"))] == [subtype]


@pytest.mark.parametrize("status", ["Completed", "Canceled"])
def test_an_event_that_is_over_is_no_notice(status: str) -> None:
    assert notices(azure("Redeploy", "gpu_7", status=status)) == []


def test_a_migration_that_nobody_notices_is_told_as_one() -> None:
    found = notices("Nov 21 07:13:13 gpu-7 agent[7]: maintenance-event: MIGRATE_ON_HOST_MAINTENANCE")
    assert [s.attributes["subtype"] for s in found] == ["migration"]


def given(text: str, *, of_event: bool = True, **attributes: str) -> dict[str, object]:
    return dict(with_time("node.maintenance", attributes, text, SAID, of_event=of_event))


def test_the_first_time_of_a_log_line_is_its_own() -> None:
    text = "at 2026-11-21 07:13:13 the host said it goes"
    assert "not_before" not in given(text, of_event=False)


@pytest.mark.parametrize(
    "text",
    [
        "Preempt Scheduled: Sat, 21 Nov 2026 07:15:13 GMT",
        "Spot ITN received. Instance will be interrupted at 2026-11-21T07:15:13Z",
        "system-reboot will occur between 2026-11-21T07:15:13Z and 2026-11-21T09:15:13Z",
    ],
)
def test_the_message_of_an_event_says_when(text: str) -> None:
    assert given(text)["not_before"] == DUE


def test_a_time_without_a_zone_says_that_one_was_assumed() -> None:
    assert given("it", due="2026-11-21T07:15:13") == {
        "due": "2026-11-21T07:15:13", "not_before": DUE, "not_before_zone": "UTC",
    }  # fmt: skip


@pytest.mark.parametrize(
    "due", ["1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "soon", "0"]
)
def test_a_time_that_cannot_be_meant_is_none(due: str) -> None:
    assert "not_before" not in given("it", due=due)


def test_a_notice_that_names_no_time_is_due_by_its_makers_word() -> None:
    said = given(
        'EC2 Spot Instance Interruption Warning: {"instance-id":"i-0a1b2c3d4e5f60718"}', of_event=False
    )
    assert said["not_before"] == DUE
    assert SAID + timedelta(seconds=120) == datetime(2026, 11, 21, 7, 15, 13, tzinfo=UTC)

"""Silences for closed nodes, annotations of incidents, and mails."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from streams.model.incident import Audience, Certainty, Incident, IncidentState
from streams.model.run import RunOutcome
from streams.model.signal import Severity
from streams.model.thread import Thread
from tests.faultline.notify.stories import NOW, Story, act, asking, ended, incident, node

LATER = NOW + timedelta(minutes=2)


def over(one: Incident, at: datetime = LATER) -> Incident:
    return replace(one, revision=9, state=IncidentState.RESOLVED, closed_at=at)


def document(story: Story, one: Incident, now: datetime = LATER) -> Thread:
    (key,) = story.planner.look(one.id, now).keys
    return story.documents.get(key) or story.store(Thread(key, "c1", "sink", now, now))


# -- silences


def test_a_closed_node_is_silenced_until_it_returns() -> None:
    one, story = incident(), Story("alertmanager")
    story.take(one, node("gpu-17"))
    assert story.planner.look(one.id, NOW).keys == ()
    story.take(node("gpu-17", one.id))
    silence = document(story, one)
    slot = story.slot(silence)
    assert silence.incident == f"sink/{one.id}/gpu-17"
    assert (slot.params["node"], slot.params["state"], slot.params["incident"]) == (
        "gpu-17",
        "silenced",
        one.id,
    )
    story.send(silence)
    # The incident ends, the node stays closed: no alarms from it either.
    story.take(over(one))
    assert story.slot(silence).params["state"] == "silenced"
    story.take(node("gpu-17"))
    assert story.slot(silence).params["state"] == "lifted"
    story.send(silence)
    assert story.planner.look(one.id, NOW).keys == ()


def test_a_node_that_is_closed_again_gets_another_silence() -> None:
    one, story = incident(), Story("alertmanager")
    story.take(one, node("gpu-17", one.id))
    story.send(document(story, one))
    story.take(node("gpu-17"))
    story.send(document(story, one))
    story.take(node("gpu-17", one.id))
    assert document(story, one).incident == f"sink/{one.id}/gpu-17/2"


def test_a_silence_that_a_person_lifted_is_not_set_again() -> None:
    one, story = incident(), Story("alertmanager")
    story.take(one, node("gpu-17", one.id))
    story.send(document(story, one), gone=True)
    assert story.planner.look(one.id, NOW).keys == ()


def test_a_node_that_somebody_else_closed_is_their_own() -> None:
    one, story = incident(), Story("alertmanager")
    story.take(one, replace(node("gpu-17"), unschedulable=True))
    assert story.planner.look(one.id, NOW).keys == ()


def test_a_silence_is_renewed_long_before_it_ends_and_not_with_all_others() -> None:
    moved = set()
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        one, story = incident(name), Story("alertmanager", silence_s=4 * 3600)
        story.take(one, node(name, one.id))
        silence = document(story, one)
        for minute in range(0, 600, 7):
            now = NOW + timedelta(minutes=minute)
            until = datetime.fromisoformat(str(story.slot(silence, now).params["until"]))
            assert timedelta(hours=3) <= until - now <= timedelta(hours=4)
        again = story.planner.wanted(silence, NOW).again_at
        assert again is not None
        assert story.slot(silence, again).digest != story.slot(silence, NOW).digest
        moved.add(again)
    assert len(moved) == 3


# -- annotations


def test_an_incident_is_drawn_once_it_has_lasted_and_gets_its_end() -> None:
    one, story = incident(), Story("grafana")
    story.take(one)
    assert story.planner.look(one.id, NOW).keys == ()
    assert story.planner.look(one.id, NOW).again_at == NOW + timedelta(minutes=1)
    annotation = document(story, one)
    slot = story.slot(annotation)
    assert slot.params["tags"] == ("c1", "gpu_off_bus", "critical")
    assert "end_ms" not in slot.params
    story.send(annotation)
    story.take(over(one))
    assert story.slot(annotation).params["end_ms"] == int(LATER.timestamp() * 1000)


@pytest.mark.parametrize(
    "change",
    [{"state": IncidentState.SUPPRESSED}, {"certainty": Certainty.WEAK}, {"state": IncidentState.RESOLVED}],
)
def test_nothing_is_drawn_of(change: dict[str, object]) -> None:
    one, story = replace(incident(), **change), Story("grafana")  # type: ignore[arg-type]
    story.take(one)
    assert story.planner.look(one.id, LATER).keys == ()


# -- mails


def names(story: Story, mail: Thread, now: datetime = LATER) -> list[str]:
    return [slot.name for slot in story.slots(mail, now) if not slot.moot]


@pytest.mark.parametrize(
    ("settings", "mails"), [({}, 0), ({"families": ["application"]}, 1), ({"namespaces": ["res*"]}, 1)]
)
def test_what_is_for_a_jobs_owner_is_mailed_to_those_who_want_its_kind(
    settings: dict[str, object], mails: int
) -> None:
    story, one = Story("email", **settings), incident(family="application", audience=Audience.OWNER)
    story.take(one)
    assert len(story.start(LATER)) == mails
    if not mails:
        # A question to those on call is theirs.
        story.take(asking(one))
        assert len(story.start(LATER)) == 1


def test_a_mail_tells_of_the_beginning_of_what_waits_and_of_the_end() -> None:
    one, story = incident(), Story("email")
    story.take(one)
    assert story.start(NOW) == []
    (mail,) = story.start(LATER)
    (first,) = story.slots(mail)
    assert first.message.summary == "Opened: GPU fell off the bus · c1"
    assert first.params == {
        "thread": one.id,
        "first": True,
        "subject": "GPU fell off the bus · c1",
        "incident": one.id,
    }
    story.send(mail)
    story.take(asking(one))
    (asked,) = [slot for slot in story.slots(mail) if not slot.moot]
    assert asked.message.summary == "Waits for an approval: GPU fell off the bus · c1"
    assert asked.params["first"] is False
    story.send(mail)
    assert names(story, mail) == []
    story.take(
        replace(one, revision=2, state=IncidentState.AWAITING_HUMAN),
        replace(ended(one, RunOutcome.FAILED), id=asking(one).id),
    )
    assert names(story, mail) == ["failed"]
    story.send(mail)
    story.take(over(one))
    assert names(story, mail) == ["ended"]
    story.send(mail)
    assert story.slots(mail) == () or names(story, mail) == []


def test_that_nobody_handles_it_is_told_after_five_minutes() -> None:
    one, story = incident(), Story("email")
    story.take(one)
    (mail,) = story.start(LATER)
    story.send(mail)
    assert names(story, mail) == []
    assert story.planner.wanted(story.documents[mail.incident], LATER).again_at == NOW + timedelta(minutes=5)
    assert names(story, mail, NOW + timedelta(minutes=5)) == ["unattended"]


def test_a_node_that_stays_closed_is_told_as_contained() -> None:
    one, story = incident(), Story("email")
    story.take(one, node("gpu-17", one.id))
    (mail,) = story.start(LATER)
    story.send(mail)
    story.take(over(one))
    (end,) = [slot for slot in story.slots(mail) if not slot.moot]
    assert end.message.summary == "Contained: GPU fell off the bus · c1"


def test_what_was_over_within_a_minute_is_not_mailed() -> None:
    one, story = incident(), Story("email")
    story.take(one, over(one, NOW + timedelta(seconds=40)))
    assert story.start(LATER) == []


def test_what_ended_while_the_mail_waited_is_not_mailed_and_neither_is_its_end() -> None:
    one, story = incident(), Story("email")
    story.take(one)
    (mail,) = story.start(LATER)
    story.take(over(one))
    assert names(story, mail) == []


def test_two_thousand_incidents_are_one_mail_and_the_next_ones_wait_for_the_window() -> None:
    story = Story("email")
    story.take(*(incident(f"gpu-{n}") for n in range(2_000)))
    (mail,) = story.start(LATER)
    assert story.slots(mail)[0].message.summary == "Opened: GPU fell off the bus · c1 (+1999 more)"
    late = incident("gpu-5000")
    story.take(late)
    assert story.planner.start([late.id], LATER + timedelta(minutes=1)) == ([], LATER + timedelta(minutes=5))
    assert len(story.start(LATER + timedelta(minutes=5, seconds=1))) == 1


def test_a_silenced_incident_is_not_mailed() -> None:
    one, story = incident(), Story("email")
    story.take(one, act(one, "person.silence"))
    assert story.start(LATER) == []


def test_a_node_under_planned_work_is_silenced_whatever_severity_the_sink_wants() -> None:
    story = Story("alertmanager")
    one = replace(incident(), family="planned_work", severity=Severity.INFO)
    story.take(one, node("gpu-17", one.id))
    assert story.slot(document(story, one)).params["state"] == "silenced"
    other = replace(incident(), id="inc-other", family="preemption", severity=Severity.INFO)
    story.take(other, node("gpu-18", other.id))
    assert story.planner.look(other.id, NOW).keys == ()

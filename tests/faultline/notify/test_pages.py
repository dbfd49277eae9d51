"""Pages: grouped, ended, taken over, and never twice for the same."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from streams.model.clock import rfc3339
from streams.model.drill import PREFIX
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectRecord, EffectState, Mode, RunOutcome, Target
from streams.model.signal import Severity
from streams.model.thread import ROOT, Post, Thread
from tests.connectors.chat import thread_documents
from tests.faultline.notify.stories import NOW, Story, act, asking, ended, incident

LATE = NOW + timedelta(minutes=11)
"""When an approval has waited too long."""


def resolved(one: Incident) -> Incident:
    return replace(one, revision=9, state=IncidentState.RESOLVED, closed_at=LATE)


def story_of(*incidents: Incident, **settings: object) -> Story:
    story = Story(**settings)  # type: ignore[arg-type]
    story.take(*incidents, *(asking(one) for one in incidents))
    return story


def paged(story: Story) -> Thread:
    (page,) = story.start(LATE)
    return story.send(page, LATE)


def test_an_approval_that_nobody_gives_wakes_somebody_after_ten_minutes_and_not_before() -> None:
    one = incident()
    story = story_of(one)
    assert story.start(NOW + timedelta(minutes=9)) == []
    (page,) = story.start(LATE)
    slot = story.slot(page, LATE)
    assert page.members == (one.id,)
    assert slot.message.summary == "c1: GPU fell off the bus: waits for an approval"
    assert (slot.params["dedup_key"], slot.params["state"], slot.params["severity"]) == (
        f"{one.id}-1",
        "triggered",
        "critical",
    )
    details = json.loads(str(slot.params["details"]))
    assert details["Culprit"] == "node gpu-17"
    assert details["Why you"] == "the mitigation waits for an approval that nobody has given"
    assert "fallen off the bus" in details["Evidence"]
    assert details["Impact"] == "16 GPUs idle, 16 GPU-hours/h"
    assert details["Jobs"] == "research/llm-70b"


def test_a_page_leads_to_the_console_and_to_the_thread_also_where_that_is_a_summarys() -> None:
    one = incident()
    story = story_of(one)
    page = paged(story)
    console = [f"https://faultline.example.test/incidents/{one.id}", "Faultline console"]
    assert json.loads(str(story.slot(page, LATE).params["links"])) == [console]
    story.sources.take_thread(Thread(one.id, "c1", "C1", NOW, NOW, parent="sum-1"))
    effect = EffectRecord(
        "k",
        "open_thread",
        Target("Channel", "C2"),
        EffectState.CONFIRMED,
        NOW,
        NOW,
        result={"ts": "1770000000.000100"},
    )
    story.sources.take_thread(Thread("sum-1", "c1", "C2", NOW, NOW, posts=(Post(ROOT, effect),)))
    thread = ["https://acme.slack.com/archives/C2/p1770000000000100", "Thread in Slack"]
    assert json.loads(str(story.slot(page, LATE).params["links"])) == [console, thread]


def test_a_drill_wakes_nobody_even_where_plans_in_shadow_mode_do() -> None:
    real, drill = incident(), incident(f"{PREFIX}abc")
    story = Story(page_shadow=True)
    story.take(*(one for of in (real, drill) for one in (of, thread_documents.run(of, Mode.SHADOW))))
    (page,) = story.start(LATE)
    assert page.members == (real.id,)


def test_nobody_is_paged_twice_for_the_same() -> None:
    story = story_of(incident())
    paged(story)
    assert story.start(LATE + timedelta(hours=3)) == []


def test_two_thousand_incidents_at_once_are_one_page_with_the_worst_first() -> None:
    errors = [
        incident(f"gpu-{n}", severity=Severity.ERROR, family="storage_fault") for n in range(1_000, 2_999)
    ]
    worst = incident("gpu-1")
    story = story_of(*errors, worst)
    (page,) = story.start(LATE)
    assert page.members[0] == worst.id
    assert len(page.members) == 2_000
    slot = story.slot(page, LATE)
    assert slot.message.summary.startswith("c1: GPU fell off the bus (+1999 more)")
    assert len(str(slot.params["details"])) < 10_000


def test_what_comes_up_within_the_window_joins_the_page_and_later_it_is_another_one() -> None:
    story = story_of(incident("gpu-1"))
    page = paged(story)
    second = incident("gpu-2")
    story.take(second, asking(second, NOW + timedelta(minutes=2)))
    (joined,) = story.start(LATE + timedelta(minutes=2))
    assert joined.incident == page.incident
    assert "(+1 more)" in story.slot(joined, LATE).message.summary
    third = incident("gpu-3")
    story.take(third, asking(third, NOW))
    (another,) = story.start(LATE + timedelta(minutes=6))
    assert another.members == (third.id,)


@pytest.mark.parametrize("how", ["another cause", "another cluster", "worse", "taken", "window 0"])
def test_it_does_not_join_a_page_of(how: str) -> None:
    first = incident("gpu-1", severity=Severity.ERROR, family="storage_fault")
    story = story_of(first, group_window_s=0 if how == "window 0" else 300)
    page = paged(story)
    second = incident(
        "gpu-2", severity=Severity.CRITICAL if how == "worse" else Severity.ERROR, family="storage_fault"
    )
    run = asking(second)
    if how == "another cause":
        second = replace(second, state=IncidentState.AWAITING_HUMAN)
        run = ended(second, RunOutcome.FAILED)
    elif how == "another cluster":
        second = replace(second, cluster="c2")
    elif how == "taken":
        story.take(act(first, "person.ack", LATE))
        story.send(page, LATE)
    story.take(second, run)
    (another,) = story.start(LATE + timedelta(minutes=1))
    assert another.members == (second.id,)


def test_an_acknowledgement_anywhere_acknowledges_the_page_and_says_who() -> None:
    one = incident()
    story = story_of(one)
    page = paged(story)
    story.take(act(one, "person.ack", LATE))
    slot = story.slot(page, LATE)
    assert (slot.mark, slot.params["actor"]) == ("acknowledged", "alice (U1)")
    # Later trouble of the same incident is theirs, too.
    story.take(replace(asking(one), id="run-2", created_at=LATE, updated_at=LATE))
    assert story.start(LATE + timedelta(hours=1)) == []


def test_a_page_ends_with_its_incidents_and_not_before() -> None:
    one, other = incident("gpu-1"), incident("gpu-2")
    story = story_of(one, other)
    page = paged(story)
    story.take(resolved(one))
    assert story.slot(page, LATE).mark == "triggered"
    assert story.slot(page, LATE).message.summary == "c1: GPU fell off the bus: waits for an approval"
    story.take(resolved(other))
    assert story.slot(page, LATE).mark == "resolved"
    story.send(page, LATE)
    assert story.slots(page, LATE) == ()


def test_a_page_ends_when_faultline_goes_on_and_what_fails_then_is_another_page() -> None:
    one = incident()
    story = story_of(one)
    page = paged(story)
    going = replace(thread_documents.run(one), revision=2)
    story.take(going)
    assert story.slot(page, LATE).mark == "resolved"
    story.send(page, LATE)
    failed = replace(ended(one, RunOutcome.FAILED, LATE + timedelta(minutes=2)), id=going.id)
    story.take(replace(one, revision=2, state=IncidentState.AWAITING_HUMAN), failed)
    (second,) = story.start(LATE + timedelta(minutes=4))
    slot = story.slot(second, LATE + timedelta(minutes=4))
    assert slot.params["dedup_key"] == f"{one.id}-1-2"
    assert "the automation failed" in slot.message.summary


def test_an_open_page_says_when_what_it_waits_for_has_changed() -> None:
    one = incident()
    story = story_of(one)
    page = paged(story)
    failed = replace(ended(one, RunOutcome.EXPIRED, LATE), id=asking(one).id)
    story.take(replace(one, revision=2, state=IncidentState.AWAITING_HUMAN, impact=one.impact), failed)
    slot = story.slot(page, LATE)
    assert slot.mark == "triggered"
    assert slot.digest != page.posts[0].shown
    assert "the automation failed" in slot.message.summary
    story.send(page, LATE)
    story.take(replace(one, revision=3, state=IncidentState.AWAITING_HUMAN, reason="more evidence"))
    shown = story.documents[page.incident].posts[0].shown
    assert story.slot(page, LATE).digest == shown


def test_what_a_person_has_resolved_in_the_pager_stays_resolved() -> None:
    story = story_of(incident())
    (page,) = story.start(LATE)
    story.send(page, LATE, gone=True)
    assert story.slots(page, LATE) == ()
    assert story.start(LATE + timedelta(hours=2)) == []


def test_what_ended_before_its_page_left_is_not_sent() -> None:
    one = incident()
    story = story_of(one)
    (page,) = story.start(LATE)
    story.take(resolved(one))
    assert story.slot(page, LATE).moot
    assert story.start(LATE + timedelta(minutes=1)) == []


def test_silence_holds_pages_back_until_it_ends() -> None:
    one = incident()
    story = story_of(one)
    story.take(act(one, "person.silence", until=rfc3339(NOW + timedelta(hours=1))))
    assert story.start(LATE) == []
    assert story.planner.look(one.id, LATE).again_at == NOW + timedelta(hours=1)
    assert len(story.start(NOW + timedelta(hours=1))) == 1


@pytest.mark.parametrize(
    ("settings", "passes"),
    [
        ({"clusters": ("c1",)}, True),
        ({"clusters": ("c2",)}, False),
        ({"families": ("gpu_off_bus",)}, True),
        ({"families": ("hang",)}, False),
        ({"namespaces": ("nobodys-*",)}, False),
        ({"namespaces": ("nobodys-*", "*")}, True),
        ({"severity": "critical"}, True),
    ],
)
def test_a_sink_filters(settings: dict[str, object], passes: bool) -> None:
    assert bool(story_of(incident(), **settings).start(LATE)) is passes

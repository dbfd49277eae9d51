"""One sink over hours, on a clock that the test moves: renewed, held back outside its hours, away and back again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused, Retry, Unknown
from faultline.notify.notice_documents import DocumentIndex
from faultline.notify.partition_notices import planner_of
from faultline.notify.sink_pause import SinkPause
from faultline.notify.sink_worker import FORGOTTEN_AFTER, SinkWorker
from faultline.notify.sources import NoticeSources
from streams.config.notifier_settings import SinkSettings
from streams.kafka.fenced_store import FencedStore
from streams.model.incident import Incident, IncidentState
from streams.model.run import RunOutcome, RunState
from streams.model.signal import Severity
from streams.model.thread import Thread
from tests.faultline.notify.stories import EXPIRY_S, LINKS, NOW, asking, ended, incident, node

HOUR = timedelta(hours=1)
LATE = NOW + timedelta(minutes=11)


class MemoryStore:
    """What the worker needs of a `FencedStore`."""

    def __init__(self) -> None:
        self.documents: dict[str, Thread] = {}
        self.commits = 0

    async def commit(self, documents: Sequence[Thread] = (), *, gone: Sequence[str] = ()) -> None:
        self.commits += bool(documents)
        self.documents.update({one.incident: one for one in documents})
        for key in gone:
            del self.documents[key]


class Recorder:
    """A connector that remembers what it was told; `answer` decides what becomes of it, `there` is what arrived."""

    actions = frozenset(
        {"page", "update_page", "silence", "update_silence", "annotate", "update_annotation", "post"}
    )

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.there: set[str] = set()
        self.answer: Callable[[Effect], Outcome] = lambda _: Done()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        lease.check()
        outcome = self.answer(effect)
        if isinstance(outcome, Done) and effect.key in self.there and not effect.action.startswith("update"):
            return AlreadyDone()
        if isinstance(outcome, Done):
            self.there.add(effect.key)
            what = effect.params.get("state") or effect.params.get("end_ms") or effect.step
            self.told.append((effect.action, what))
        return outcome

    async def lookup(self, effect: Effect) -> Outcome:
        return AlreadyDone() if effect.key in self.there else Absent()

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        return Refused("not here")

    async def close(self) -> None:
        """Nothing is open."""


class Forgetful(Recorder):
    """A pager that takes everything and processes it later; `loses` of what it takes come to nothing."""

    def __init__(self, loses: int = 0) -> None:
        super().__init__()
        self.loses, self.looked = loses, 0
        self.states: dict[str, str] = {}
        self.keys: set[Any] = set()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        state = str(effect.params["state"])
        if effect.action == "page" and effect.key in self.states:
            return AlreadyDone()
        self.told.append((effect.action, state))
        self.keys.add(effect.params["dedup_key"])
        if self.loses:
            self.loses -= 1
        else:
            self.states[effect.key] = state
        return Done({"dedup_key": "x"}, check_after_s=30)

    async def lookup(self, effect: Effect) -> Outcome:
        self.looked += 1
        found = self.states.get(effect.key, "")
        made = bool(found) if effect.action == "page" else found == effect.params["state"]
        return AlreadyDone() if made else Absent("nothing has its key")


class Sink:
    """A worker, its clock, and what it is made of. `restart` is what a crash of the process leaves."""

    def __init__(self, kind: str = "pagerduty", **settings: object) -> None:
        url = {"url": "http://127.0.0.1:1"} if kind == "alertmanager" else {}
        self.settings = SinkSettings.model_validate({"kind": kind, "key": "k", **url, **settings})
        self.now = NOW
        self.store, self.other_side = MemoryStore(), Recorder()
        self.sources = NoticeSources(approval_expiry_s=EXPIRY_S)
        self.restart()

    def restart(self, pause: SinkPause | None = None) -> None:
        store = cast("FencedStore[Thread]", self.store)
        index = DocumentIndex("sink", store.documents)
        planner = planner_of(self.settings, self.sources, index, LINKS)
        self.worker = SinkWorker(
            self.settings,
            planner,
            index,
            store,
            self.other_side,
            self.sources,
            pause=pause,
            lease_s=30,
            debounce_s=60,
            clock=lambda: self.now,
        )

    async def until(self, at: datetime) -> None:
        """Let time pass, with everything that falls due on the way."""
        await self.worker.begin()
        while (due := await self.worker.advance()) is not None and due <= at:
            self.now = max(self.now, due)
        self.now = at
        await self.worker.advance()

    def take(self, *incidents: Incident) -> None:
        for one in incidents:
            self.sources.take_incident(one)
            self.sources.take_run(asking(one, one.opened_at))


def over(one: Incident) -> Incident:
    return replace(one, revision=9, state=IncidentState.RESOLVED, closed_at=NOW)


async def test_a_page_is_raised_when_its_time_has_come_and_not_again_in_a_day() -> None:
    sink = Sink()
    sink.take(incident())
    await sink.until(NOW + timedelta(minutes=9))
    assert sink.other_side.told == []
    await sink.until(NOW + 24 * HOUR)
    assert sink.other_side.told == [("page", "triggered")]


async def test_a_silence_is_renewed_every_hour_and_never_runs_out() -> None:
    sink, one = Sink("alertmanager"), incident()
    sink.take(one)
    sink.sources.take_node("c1", "gpu-17", node("gpu-17", one.id))
    await sink.until(NOW + 24 * HOUR)
    assert sink.other_side.told[0] == ("silence", "silenced")
    assert sink.other_side.told[1:] == [("update_silence", "silenced")] * 24
    sink.sources.take_node("c1", "gpu-17", node("gpu-17"))
    await sink.until(NOW + 48 * HOUR)
    assert sink.other_side.told[25:] == [("update_silence", "lifted")]


async def test_outside_its_hours_nothing_new_is_sent_and_what_was_sent_is_ended() -> None:
    office = {"cron": "0 8 * * *", "duration_s": 3600 * 8}  # the incident is at 05:06
    sink, one = Sink(hours=[office]), incident()
    sink.take(one)
    await sink.until(NOW + 2 * HOUR)
    assert sink.other_side.told == []
    await sink.until(NOW + 3 * HOUR)
    assert sink.other_side.told == [("page", "triggered")]
    await sink.until(NOW + 14 * HOUR)
    sink.take(over(one))
    await sink.until(NOW + 15 * HOUR)
    assert sink.other_side.told == [("page", "triggered"), ("update_page", "resolved")]


async def test_after_three_hours_away_it_hears_what_holds_and_the_end_of_what_it_had() -> None:
    sink = Sink("grafana", url="http://127.0.0.1:1", settle_s=0)
    had, came_and_went, stays = incident("gpu-1"), incident("gpu-2"), incident("gpu-3")
    sink.take(had)
    await sink.until(NOW + timedelta(minutes=1))
    sink.other_side.answer = lambda _: Retry(1.0, "no connection")
    sink.take(came_and_went, stays)
    await sink.until(NOW + HOUR)
    sink.take(over(had), over(came_and_went))
    await sink.until(NOW + 3 * HOUR)
    sink.other_side.answer = lambda _: Done()
    await sink.until(NOW + 3 * HOUR + timedelta(minutes=2))
    assert [action for action, _ in sink.other_side.told] == ["annotate", "annotate", "update_annotation"]
    assert sink.worker.backlog == 0


async def test_pauses_grow_to_a_minute_while_a_sink_is_away() -> None:
    sink, tries = Sink(), list[datetime]()

    def away(_: Effect) -> Outcome:
        tries.append(sink.now)
        return Retry(1.0, "no connection")

    sink.other_side.answer = away
    sink.take(incident())
    await sink.until(LATE + HOUR)
    pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(tries)]
    assert max(pauses) == 60
    assert len(tries) < 70
    assert tries[0] == NOW + timedelta(minutes=10)


async def test_a_refused_page_is_tried_every_ten_minutes_and_sent_once_somebody_has_mended_it() -> None:
    sink, tries = Sink(), list[datetime]()

    def refuse(_: Effect) -> Outcome:
        tries.append(sink.now)
        return Refused("routing_key is invalid")

    sink.other_side.answer = refuse
    sink.take(incident())
    await sink.until(LATE + 3 * HOUR)
    assert 15 < len(tries) < 30
    sink.other_side.answer = lambda _: Done()
    await sink.until(LATE + 4 * HOUR)
    assert sink.other_side.told == [("page", "triggered")]


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_unknown_outcome_is_looked_up_and_sent_again_only_where_it_did_not_arrive(
    arrived: bool,
) -> None:
    sink, calls = Sink(), list[str]()

    def lose(effect: Effect) -> Outcome:
        calls.append(effect.action)
        if len(calls) == 1:
            if arrived:
                sink.other_side.there.add(effect.key)
            return Unknown("no answer")
        return Done()

    sink.other_side.answer = lose
    sink.take(incident())
    await sink.until(LATE + HOUR)
    # Found, it may show something older, and is brought up to date; not found, it is sent.
    assert calls == (["page", "update_page"] if arrived else ["page", "page"])


async def test_what_ended_while_its_outcome_was_unknown_is_not_sent_again() -> None:
    sink, one = Sink(), incident()
    sink.other_side.answer = lambda _: Unknown("no answer", after_s=60)
    sink.take(one)
    await sink.until(LATE)
    sink.other_side.answer = lambda _: Done()
    sink.take(over(one))
    await sink.until(LATE + HOUR)
    assert sink.other_side.told == []


async def test_two_thousand_incidents_cost_a_handful_of_commits_and_the_critical_one_goes_first() -> None:
    sink = Sink("grafana", url="http://127.0.0.1:1", settle_s=0)
    errors = [incident(f"gpu-{n}", severity=Severity.ERROR) for n in range(300)]
    critical = incident("gpu-999")
    sink.take(*errors, critical)
    first: list[str] = []

    def note(effect: Effect) -> Outcome:
        first.append(effect.incident)
        return Done()

    sink.other_side.answer = note
    await sink.until(NOW + timedelta(minutes=1))
    assert first[0] == critical.id
    assert len(first) == 301
    pages = Sink()
    pages.take(*(incident(f"gpu-{n}") for n in range(2_000)))
    await pages.until(LATE)
    assert pages.other_side.told == [("page", "triggered")]
    assert pages.store.commits == 3


async def test_a_restart_sends_nothing_again() -> None:
    sink, one = Sink(), incident()
    sink.take(one)
    await sink.until(LATE)
    sink.restart()
    await sink.until(LATE + HOUR)
    sink.take(over(one))
    await sink.until(LATE + 2 * HOUR)
    assert sink.other_side.told == [("page", "triggered"), ("update_page", "resolved")]
    assert len(sink.store.documents) == 1


async def test_a_page_that_a_person_ended_is_remembered_as_long_as_its_incident_lasts() -> None:
    sink, one = Sink(), incident()
    sink.take(one)
    await sink.until(LATE)
    (page,) = sink.store.documents.values()
    gone = replace(page.posts[0], gone=True)
    sink.store.documents[page.incident] = page.with_post(gone)
    sink.now += FORGOTTEN_AFTER + HOUR
    sink.restart()
    await sink.until(sink.now + HOUR)
    assert len(sink.store.documents) == 1
    assert sink.other_side.told == [("page", "triggered")]


async def test_what_ended_long_ago_is_forgotten() -> None:
    sink, one = Sink(), incident()
    sink.take(one)
    await sink.until(LATE)
    sink.take(over(one))
    await sink.until(LATE + HOUR)
    sink.now += FORGOTTEN_AFTER
    sink.restart()
    await sink.until(sink.now + HOUR)
    assert sink.store.documents == {}
    assert len(sink.other_side.told) == 2


def forgetful(loses: int = 0, **settings: object) -> tuple[Sink, Forgetful]:
    """A sink whose other side answers that it has taken everything."""
    sink, pager = Sink(**cast("dict[str, Any]", settings)), Forgetful(loses)
    sink.other_side = pager
    sink.restart()
    return sink, pager


async def test_a_page_that_was_taken_and_never_made_is_sent_again_with_its_key() -> None:
    sink, pager = forgetful(loses=1)
    sink.take(incident())
    with capture_logs() as logs:
        await sink.until(LATE)
    assert pager.told == [("page", "triggered")] * 2
    assert len(pager.keys) == 1
    assert [one["log_level"] for one in logs if "never made" in one["event"]] == ["warning"]
    await sink.until(NOW + 24 * HOUR)
    assert pager.told == [("page", "triggered")] * 2
    assert pager.looked == 2


async def test_a_page_that_is_never_made_is_sent_again_with_growing_pauses_and_given_up_with_an_error() -> (
    None
):
    sink, pager = forgetful(loses=1_000)
    sink.take(incident())
    sent: list[datetime] = []
    looked = pager.lookup

    async def look(effect: Effect) -> Outcome:
        sent.append(sink.now)
        return await looked(effect)

    pager.lookup = look  # type: ignore[method-assign]
    with capture_logs() as logs:
        await sink.until(NOW + 24 * HOUR)
    assert pager.told == [("page", "triggered")] * 6
    pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(sent)]
    assert pauses == [60, 120, 240, 480, 960]
    assert [one["event"] for one in logs if one["log_level"] == "error"] == ["taken and never made, given up"]


async def test_a_check_outlives_a_restart() -> None:
    sink, pager = forgetful(loses=1)
    sink.take(incident())
    await sink.until(NOW + timedelta(minutes=10, seconds=5))
    assert pager.told == [("page", "triggered")]
    sink.restart()
    await sink.until(LATE)
    assert pager.told == [("page", "triggered")] * 2


async def test_what_ended_before_its_check_is_not_paged_again() -> None:
    sink, pager = forgetful(loses=1)
    one = incident()
    sink.take(one)
    await sink.until(NOW + timedelta(minutes=10, seconds=5))
    sink.take(over(one))
    await sink.until(LATE + HOUR)
    assert [told for told in pager.told if told[0] == "page"] == [("page", "triggered")]


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_end_that_was_taken_and_came_to_nothing_is_sent_again(restarted: bool) -> None:
    sink, pager = forgetful()
    one = incident()
    sink.take(one)
    await sink.until(LATE)
    pager.loses = 1
    sink.take(over(one))
    await sink.until(LATE + timedelta(seconds=5))
    assert list(pager.states.values()) == ["triggered"]
    if restarted:
        sink.restart()
    await sink.until(LATE + HOUR)
    assert list(pager.states.values()) == ["resolved"]
    assert pager.told == [("page", "triggered"), *[("update_page", "resolved")] * 2]


async def test_what_comes_up_again_while_an_end_is_checked_is_another_page() -> None:
    sink, pager = forgetful()
    one = incident()
    sink.take(one)
    await sink.until(LATE)
    running = replace(asking(one), steps=(), state=RunState.RUNNING, revision=5)
    sink.sources.take_run(replace(running, plan=replace(running.plan, steps=())))
    await sink.until(LATE + timedelta(seconds=5))
    assert pager.told[-1] == ("update_page", "resolved")
    sink.sources.take_run(replace(ended(one, RunOutcome.FAILED, LATE), id=running.id))
    await sink.until(LATE + HOUR)
    assert len(pager.keys) == 2
    assert sorted(pager.states.values()) == ["resolved", "triggered"]


async def test_whoever_needs_somebody_while_a_page_turns_out_to_be_ended_is_paged() -> None:
    sink = Sink()
    one = incident()
    sink.take(one)
    await sink.until(LATE)
    running = replace(asking(one), steps=(), state=RunState.RUNNING, revision=5)
    # The end arrives, and its answer is lost.
    ended_there: list[bool] = []

    def answer(effect: Effect) -> Outcome:
        if effect.params["state"] == "resolved":
            ended_there.append(True)
            return Unknown("no answer", after_s=60)
        if effect.action == "update_page":
            return Refused("a person has resolved it", moot=True)
        return Done()

    async def look(effect: Effect) -> Outcome:
        return Refused("a person has resolved it", moot=True)

    sink.other_side.answer = answer
    sink.other_side.lookup = look  # type: ignore[method-assign]
    sink.sources.take_run(replace(running, plan=replace(running.plan, steps=())))
    await sink.until(LATE + timedelta(seconds=5))
    assert ended_there
    sink.sources.take_run(replace(ended(one, RunOutcome.FAILED, sink.now), id=running.id))
    await sink.until(LATE + HOUR)
    assert sink.other_side.told == [("page", "triggered")] * 2


async def test_checks_cost_one_call_a_page_also_for_two_thousand_incidents() -> None:
    sink, pager = forgetful()
    sink.take(*(incident(f"gpu-{n}") for n in range(2_000)))
    await sink.until(LATE + HOUR)
    assert (len(pager.told), pager.looked) == (1, 1)


async def test_a_token_that_may_not_look_makes_no_second_page() -> None:
    sink, pager = forgetful()

    async def look(effect: Effect) -> Outcome:
        return Refused(f"{effect.action}: refused with 401")

    pager.lookup = look  # type: ignore[method-assign]
    sink.take(incident())
    with capture_logs() as logs:
        await sink.until(LATE + HOUR)
    assert pager.told == [("page", "triggered")]
    assert [one["event"] for one in logs if one["log_level"] == "error"] == [
        "cannot be checked whether it was made"
    ]


async def test_a_pause_that_a_sink_asks_for_holds_for_all_of_its_partitions_and_all_kinds_of_work() -> None:
    pause, one, other = SinkPause(), Sink(), Sink(group_window_s=0)
    one.restart(pause)
    other.restart(pause)
    other.take(incident("gpu-2"))
    await other.until(LATE)
    assert other.other_side.told == [("page", "triggered")]
    one.other_side.answer = lambda _: Retry(120.0, "too many requests", asked=True)
    one.take(incident())
    await one.until(NOW + timedelta(minutes=10, seconds=1))
    other.now = one.now
    other.take(over(incident("gpu-2")), incident("gpu-3"))
    await other.until(NOW + timedelta(minutes=11, seconds=59))
    assert other.other_side.told == [("page", "triggered")]
    await other.until(NOW + timedelta(minutes=12, seconds=1))
    assert len(other.other_side.told) == 3


async def test_a_pause_that_nobody_asked_for_holds_for_its_own_partition() -> None:
    pause, one, other = SinkPause(), Sink(), Sink()
    one.restart(pause)
    other.restart(pause)
    one.other_side.answer = lambda _: Retry(60.0, "the silence would have ended already")
    one.take(incident())
    await one.until(NOW + timedelta(minutes=10, seconds=1))
    other.take(incident("gpu-2"))
    await other.until(NOW + timedelta(minutes=10, seconds=1))
    assert other.other_side.told == [("page", "triggered")]


async def test_a_page_held_back_by_a_broken_sink_is_not_sent_for_a_question_that_is_new() -> None:
    sink, one = Sink(), incident()
    sink.other_side.answer = lambda _: Retry(1.0, "no connection")
    sink.take(one)
    await sink.until(LATE)
    # Approved, and the next question is a minute old when the sink is back.
    running = replace(asking(one), steps=(), state=RunState.RUNNING, revision=5)
    sink.sources.take_run(replace(running, plan=replace(running.plan, steps=())))
    await sink.until(LATE + timedelta(minutes=9))
    asked_again = LATE + timedelta(minutes=10)
    sink.now = asked_again
    sink.sources.take_run(asking(one, asked_again))
    sink.other_side.answer = lambda _: Done()
    await sink.until(asked_again + timedelta(minutes=9))
    assert sink.other_side.told == []
    await sink.until(asked_again + timedelta(minutes=11))
    assert sink.other_side.told == [("page", "triggered")]

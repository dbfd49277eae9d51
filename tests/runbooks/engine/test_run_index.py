"""Runs found by what is asked of them, and finished ones that stay the bytes they were read as."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from connectors.base import Done, Refused
from runbooks.engine import run_summaries
from runbooks.engine.guardrails.cordoned_nodes import cordons
from runbooks.engine.guardrails.run_counts import RunCounts
from runbooks.engine.partition_state import KEEP_FINISHED, READ_LATER, PartitionState
from runbooks.engine.priority_queue import PriorityQueue
from runbooks.engine.run.machine import advance
from runbooks.engine.run.outcomes import recover
from runbooks.engine.run.plan import MAX_STEPS
from runbooks.engine.run.transition import MAX_REASON, RunContext, TransitionResult
from runbooks.engine.run_index import RunIndex, UnreadableRun
from runbooks.engine.run_summaries import (
    FinishedRunHeader,
    IncidentSummary,
    PartialRun,
    RunSummary,
    finished_header,
    read_finished_header,
    summary_if_finished,
)
from streams.kafka.fenced_store import MAX_DOCUMENT_BYTES
from streams.kafka.lazy_documents import LazyDocuments
from streams.kafka.lease import MARGIN_S
from streams.model.codec import decode, encode
from streams.model.entity import Entity
from streams.model.errors import BadInput
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectState, Mode, Run, RunState, StepState
from tests.runbooks.scenes import ACTIONS, AUTO, JOB, LIBRARY, NOW, Play, at, cluster, incident, radius


def finished(number: int = 0) -> Run:
    """A run that went well, under a name of its own."""
    play = Play(incident(id=f"inc-{number:04}"))
    play.play()
    play.tick(1)
    play.progress()
    play.tick(1)
    assert not play.run.has_work
    return play.run


def under_way(number: int = 0) -> Run:
    play = Play(incident(id=f"inc-{number:04}"))
    play.play(until="suspend_job")
    return play.run


def shelved(*runs: Run) -> LazyDocuments[Run, RunSummary]:
    """As the journal reads them."""
    shelf: LazyDocuments[Run, RunSummary] = LazyDocuments(lambda raw: decode(Run, raw))
    for run in runs:
        shelf.store(run.id, encode(run), summary_if_finished(run.id, encode(run)))
    return shelf


def over(number: int, revision: int = 1) -> Incident:
    return incident(id=f"inc-{number:04}", state=IncidentState.RESOLVED, revision=revision)


HISTORY = [finished(number) for number in range(30)]


def test_a_finished_run_is_decoded_only_when_it_is_asked_for() -> None:
    shelf = shelved(*HISTORY[:3])
    assert (len(shelf), shelf.decoded, len(shelf.summaries)) == (3, 0, 3)
    assert shelf[HISTORY[1].id] == HISTORY[1]
    assert (shelf.decoded, set(shelf.summaries)) == (1, {HISTORY[0].id, HISTORY[2].id})
    assert shelf[HISTORY[1].id] is shelf[HISTORY[1].id]


def test_what_is_put_over_a_document_at_rest_replaces_it() -> None:
    shelf = shelved(HISTORY[0])
    newer = replace(HISTORY[0], revision=99)
    copy = shelf.copy()
    shelf[newer.id] = newer
    assert shelf[newer.id] is newer
    assert not shelf.summaries
    assert copy[newer.id] == HISTORY[0]
    del shelf[newer.id]
    assert newer.id not in shelf


def test_a_document_at_rest_is_thrown_away_unread_even_if_nobody_could_read_it() -> None:
    shelf = _spoilt(HISTORY[0])
    shelf.discard(HISTORY[0].id)
    shelf.discard("never-there")
    assert (len(shelf), len(shelf.summaries), shelf.decoded) == (0, 0, 0)


def _with_step(run: Run, **changes: object) -> Run:
    return replace(run, steps=(replace(run.steps[1], **changes), *run.steps[2:], run.steps[0]))  # type: ignore[arg-type]


UNDO = HISTORY[0].steps[1].effect
assert UNDO is not None
TARGET = UNDO.target
FORMS: dict[str, Run] = {
    "finished": HISTORY[0],
    "under way": under_way(),
    "a ticket is still to be opened": _with_step(HISTORY[0], state=StepState.PENDING),
    "something is being taken back": _with_step(HISTORY[0], undo=replace(UNDO, state=EffectState.WAITING)),
    "that is looked up": _with_step(HISTORY[0], undo=replace(UNDO, state=EffectState.UNKNOWN)),
    "it was taken back": _with_step(HISTORY[0], undo=replace(UNDO, state=EffectState.UNDONE)),
    "it could not be taken back": _with_step(HISTORY[0], undo=replace(UNDO, state=EffectState.REFUSED)),
}


@pytest.mark.parametrize("name", FORMS)
def test_only_a_run_without_work_is_put_to_rest(name: str) -> None:
    run = FORMS[name]
    brief = decode(PartialRun, encode(run))
    assert brief.has_work is run.has_work
    assert (summary_if_finished(run.id, encode(run)) is None) is run.has_work


def test_a_document_of_another_form_is_never_put_to_rest() -> None:
    older = encode(HISTORY[0]).replace(b'"schema":2', b'"schema":1')
    assert summary_if_finished(HISTORY[0].id, older) is None
    newer = encode(HISTORY[0]).replace(b'"schema":2', b'"schema":3')
    shelf: LazyDocuments[Run, RunSummary] = LazyDocuments(lambda raw: decode(Run, raw))
    for document in (newer, newer.replace(b'"plan":', b'"project":')):
        brief = summary_if_finished(HISTORY[0].id, document)
        assert brief is None
        with pytest.raises(BadInput, match="newer"):
            shelf.store("run", document, brief)


def test_runs_are_found_by_incident_target_and_offender() -> None:
    runs = RunIndex(shelved(*HISTORY[:5], under_way(7)))
    assert list(runs.live) == [under_way(7).id]
    assert runs.of("inc-0002") == [HISTORY[2]]
    assert len(runs.ids_on("c1", "Node//node-03")) == 6
    assert not runs.ids_on("c2", "Node//node-03")
    assert len(runs.counted_for("c1", ["gpu:node-03/0000:1b:00", "node:node-03"])) == 6
    assert not runs.counted_for("c1", ["node:node-04"])
    peers = runs.peers(under_way(7))
    assert sorted(run.incident for run in peers) == [f"inc-{n:04}" for n in range(5)]
    assert len(list(peers)) == 5


def test_a_run_that_grows_is_found_by_its_new_targets_and_one_that_is_forgotten_by_none() -> None:
    runs = RunIndex(shelved(HISTORY[0]))
    step = replace(HISTORY[0].plan.steps[1], id="more", target=replace(TARGET, name="node-09"))
    grown = replace(HISTORY[0], plan=replace(HISTORY[0].plan, steps=(*HISTORY[0].plan.steps, step)))
    runs.put(grown)
    assert runs.ids_on("c1", "Node//node-09") == (grown.id,)
    runs.forget(grown.id)
    assert not runs.ids_on("c1", "Node//node-09")
    assert not runs.ids_of(grown.incident)
    assert not runs


def board(shelf: LazyDocuments[Run, RunSummary]) -> PartitionState:
    made = PartitionState(LIBRARY, AUTO, ACTIONS, shelf)
    know(made)
    return made


def know(made: PartitionState, seen_at: datetime = NOW) -> None:
    view = cluster()
    facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
    for fact in facts:
        made.take_fact(fact.key, replace(fact, observed_at=seen_at))


def told(made: PartitionState, about: Incident) -> bool:
    """What the responder does with an incident while it reads everything back; whether it was put away."""
    raw = encode(about)
    away = made.take_finished_incident(decode(IncidentSummary, raw), raw)
    if not away:
        made.take_incident(decode(Incident, raw))
    return away


def test_taking_over_decodes_what_is_alive_and_not_what_was() -> None:
    """This is what bounds the time of a recovery: thirty finished runs or ten thousand, only the one under way is decoded."""
    work = under_way(99)
    for history in (HISTORY[:3], HISTORY):
        made = board(shelved(*history, work))
        know(made, seen_at=at(86400))
        assert made.runs.decoded == 1
        assert all(told(made, over(number)) for number in range(len(history)))
        told(made, incident(id=work.incident))
        list(made.recovering(at(86400)))
        made.advance(at(86400))
        changes = made.collect()
        assert [run.id for run in changes.runs] == [work.id]
        assert [(call.run, call.kind) for call in changes.calls] == [(work.id, "lookup")]
        assert made.incidents.decoded == 0
        assert made.runs.decoded == 1


SAYS: dict[str, tuple[Incident, bool]] = {
    "over, and its run knows": (over(0, revision=1), True),
    "over, and no run is there": (over(77), True),
    "over in a revision that its run has not heard of": (over(0, revision=2), False),
    "open": (incident(id="inc-0000"), False),
}


@pytest.mark.parametrize("name", SAYS)
def test_only_an_incident_that_no_run_has_to_hear_of_is_put_away(name: str) -> None:
    about, away = SAYS[name]
    made = board(shelved(replace(HISTORY[0], incident_revision=1)))
    assert told(made, about) is away
    assert made.incidents[about.id] == about


def test_a_board_read_from_bytes_does_the_same_as_one_that_decodes_everything() -> None:
    """What comes next for a node must not depend on whether its history has been decoded."""
    ends = []
    runs = (*HISTORY, under_way(99))
    for shelf in (shelved(*runs), {run.id: run for run in runs}):
        made = PartitionState(LIBRARY, AUTO, ACTIONS, shelf)
        know(made)
        for number in range(len(HISTORY)):
            told(made, over(number))
        told(made, incident(id="inc-0099"))
        told(made, incident(id="inc-again", incarnation=2))
        now, said = at(120), list[tuple[str, ...]]()
        list(made.recovering(now))
        for _ in range(40):
            made.advance(now)
            changes = made.collect()
            said += [(call.run, call.step, call.kind) for call in changes.calls]
            said += [(line.event, line.text) for line in changes.timeline]
            for call in changes.calls:
                made.take_outcome(call, Done(), now)
            now += timedelta(seconds=5)
        ends.append((said, {name: encode(run) for name, run in made.runs.items()}))
    assert ends[0] == ends[1]


def _spoilt(run: Run) -> LazyDocuments[Run, RunSummary]:
    """A finished run that can be skimmed, but not read whole."""
    raw = encode(run).replace(b'"approvals":[]', b'"approvals":[7]')
    shelf: LazyDocuments[Run, RunSummary] = LazyDocuments(lambda raw: decode(Run, raw))
    shelf.store(run.id, raw, summary_if_finished(run.id, raw))
    assert shelf.summaries
    return shelf


def test_a_finished_run_that_cannot_be_read_is_not_done_again_and_a_person_is_told_once() -> None:
    whole = HISTORY[0]
    lost = UnreadableRun(whole.id, whole.incident, "c1", "runs:0:7: no JSON")
    for made in (
        PartitionState(LIBRARY, AUTO, ACTIONS, _spoilt(whole)),
        PartitionState(LIBRARY, AUTO, ACTIONS, {}, [lost]),
    ):
        know(made)
        made.take_incident(incident(id=whole.incident, revision=7))
        other = incident(id="inc-other", root=Entity("c1", node="node-07"), jobs=())
        made.take_incident(other)
        list(made.recovering(NOW))
        said = []
        for seconds in (0, 5, 10):
            made.advance(at(seconds))
            changes = made.collect()
            said += [(line.event, line.incident) for line in changes.timeline]
            assert all(call.effect.incident == other.id for call in changes.calls)
        assert said.count(("run.lost", whole.incident)) == 1
        assert ("run.none", whole.incident) in said
        assert ("run.planned", other.id) in said
        assert whole.id not in made.runs


def test_a_node_that_a_run_closed_which_cannot_be_read_counts_by_its_marks() -> None:
    made = board(_spoilt(HISTORY[0]))
    fact = NodeFact("c1", "node-03", "u", NOW, unschedulable=True, owner_incident=HISTORY[0].incident)
    made.take_fact(fact.key, fact)
    list(made.recovering(at(86400)))
    census = made._documents.cluster("c1").run_counts
    before = census.cordoned(made.view("c1"), shadow=False, now=at(86400), window_s=3600)
    assert (before, made.runs.decoded) == (frozenset({"node-03"}), 0)
    made.advance(at(86400))
    closed = census.cordoned(made.view("c1"), shadow=False, now=at(86400), window_s=3600)
    assert (closed, list(made.runs.unreadable)) == (frozenset({"node-03"}), [HISTORY[0].id])
    assert [line.event for line in made.collect().timeline] == ["run.lost"]
    assert not census._parts


def test_runs_that_may_hold_a_node_are_read_whole_after_the_takeover() -> None:
    made = board(shelved(*HISTORY, under_way(99)))
    fact = NodeFact("c1", "node-03", "u", NOW, unschedulable=True, owner_incident=HISTORY[0].incident)
    made.take_fact(fact.key, fact)
    told(made, incident(id="inc-0099"))
    now = at(86400)
    list(made.recovering(now))
    census = made._documents.cluster("c1").run_counts
    assert made.runs.decoded == 1
    assert census.cordoned_for(JOB.key, ["node-03"], shadow=False) == {"node-03"}
    decoded = [1]
    while made.is_behind(now):
        made.advance(now)
        decoded.append(made.runs.decoded)
    assert decoded[-1] == 31
    assert all(later - earlier <= READ_LATER for earlier, later in pairwise(decoded))
    assert census.cordoned_for(JOB.key, ["node-03"], shadow=False) == {"node-03"}


ENDED = {
    "went well": HISTORY[0],
    "it was taken back": FORMS["it was taken back"],
    "it could not be taken back": FORMS["it could not be taken back"],
    "in shadow mode": replace(HISTORY[0], plan=replace(HISTORY[0].plan, mode=Mode.SHADOW)),
    "never admitted": replace(HISTORY[0], admitted_at=None),
}


@pytest.mark.parametrize("name", ENDED)
@pytest.mark.parametrize("closed", [True, False])
def test_of_a_run_that_ended_before_every_window_its_summary_counts_the_same(name: str, closed: bool) -> None:
    run = ENDED[name]
    found = decode(PartialRun, encode(run)).summary
    by_run, by_summary = RunCounts([run]), RunCounts()
    by_summary.put_ended(run.id, found.created_at, found.cordons, found.jobs, shadow=found.shadow)
    view, now, since = cluster(), at(86400), at(80000)
    view.put(replace(view.nodes["node-03"], unschedulable=closed, observed_at=now))

    def counted(counts: RunCounts, shadow: bool) -> tuple[object, ...]:
        cordoned = counts.cordoned(view, shadow=shadow, now=now, window_s=3600)
        return (
            cordoned,
            counts.cordoned_for(JOB.key, ["node-03"], shadow=shadow),
            counts.spent(shadow=shadow, since=since),
            counts.failures(since),
            list(counts.wanting(shadow=shadow, since=since)),
            counts.rival(replace(run, id="run-other"), {"Node//node-03", JOB.key}),
        )

    for shadow in (True, False):
        assert counted(by_run, shadow) == counted(by_summary, shadow)


@pytest.mark.parametrize("state", RunState)
def test_the_document_of_a_run_that_is_not_over_is_not_read_twice(
    state: RunState, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def counted(kind: type[PartialRun], raw: bytes) -> PartialRun:
        read.append(kind)
        return decode(kind, raw)

    monkeypatch.setattr(run_summaries, "decode", counted)
    run = replace(
        HISTORY[0], state=state, context={"state": "running", "steps": '"state":"running","steps":['}
    )
    assert (summary_if_finished(run.id, encode(run)) is None) is not state.is_over
    assert read == ([PartialRun] if state.is_over else [])


@pytest.mark.parametrize("name", FORMS)
def test_only_a_run_without_work_is_marked_as_finished(name: str) -> None:
    run = FORMS[name]
    found = read_finished_header((("other", b""), *finished_header(run)))
    assert found == (None if run.has_work else FinishedRunHeader(run.incident, run.cluster, run.schema))


def test_a_mark_that_is_damaged_or_of_a_newer_form_is_none() -> None:
    ((name, mark),) = finished_header(HISTORY[0])
    assert read_finished_header(((name, mark[:-5]),)) is None
    assert read_finished_header(((name, mark.replace(b'"schema":2', b'"schema":3')),)) is None


def test_an_old_run_is_forgotten_without_being_decoded() -> None:
    made = board(shelved(*HISTORY[:2]))
    told(made, over(0))
    told(made, incident(id="inc-0001"))
    made.advance(NOW + KEEP_FINISHED + timedelta(hours=1))
    assert made.collect().deleted == (HISTORY[0].id,)


def test_a_turn_without_news_looks_at_no_run_that_is_not_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns are taken many times a second: one must cost what is due, not what is there."""
    looked: list[str] = []
    made = board(shelved())
    for number in range(20):
        made.take_incident(incident(id=f"inc-{number:04}", jobs=()))
    made.advance(NOW)
    made.collect()
    made.advance(at(1))
    made.collect()

    def counted(run: Run, situation: RunContext, now: datetime) -> TransitionResult:
        looked.append(run.id)
        return advance(run, situation, now)

    monkeypatch.setattr("runbooks.engine.run_schedule.advance", counted)
    made.advance(at(1.1))
    assert looked == []
    about = next(iter(made.incidents.values()))
    made.take_incident(replace(about, revision=2))
    made.advance(at(1.2))
    assert len({made.runs[name].incident for name in looked}) <= 20
    assert about.id in {made.runs[name].incident for name in looked}


def test_the_timers_keep_one_time_for_each_name() -> None:
    timers = PriorityQueue()
    assert timers.first_key is None
    timers.put("b", at(5))
    timers.put("a", at(5))
    timers.put("c", at(9))
    timers.put("c", at(7))
    timers.bring_forward("b", at(6))
    timers.bring_forward("a", at(4))
    assert timers.first_key == at(4)
    assert timers.take(until=at(5)) == ["a", "b"]
    timers.drop("c")
    assert timers.take(until=at(99)) == []
    assert len(timers) == 0


def test_a_queue_that_is_often_changed_does_not_grow() -> None:
    timers = PriorityQueue()
    for second in range(10_000):
        timers.put("a", at(second))
    assert len(timers._heap) < 100
    assert timers.take(until=at(9_999)) == ["a"]


def test_a_run_in_shadow_rests_like_any_other() -> None:
    made = PartitionState(LIBRARY, AUTO.model_copy(update={"mode": Mode.SHADOW}), ACTIONS)
    made.take_incident(incident())
    made.advance(NOW)
    (run,) = made.collect().runs
    assert summary_if_finished(run.id, encode(run)) is not None


def test_a_brief_holds_the_nodes_that_the_whole_run_holds() -> None:
    for run in (*FORMS.values(), _shadowed(), replace(_shadowed(), undoing="the incident is over")):
        brief = decode(PartialRun, encode(run))
        whole = [
            (p.target.name, r.effect.confirmed_at if r.effect else None) for r, p in cordons(run) if p.target
        ]
        assert list(brief.cordons) == whole, run.state


def _shadowed() -> Run:
    made = PartitionState(LIBRARY, AUTO.model_copy(update={"mode": Mode.SHADOW}), ACTIONS)
    know(made)
    made.take_incident(incident())
    made.advance(NOW)
    (run,) = made.runs.values()
    assert run.state is RunState.SHADOWED
    return run


SEEN: dict[str, tuple[NodeFact | None, int]] = {
    "open again": (NodeFact("c1", "node-03", "u", at(86400)), 0),
    "closed": (NodeFact("c1", "node-03", "u", at(86400), unschedulable=True), 1),
    "not seen since it was closed": (NodeFact("c1", "node-03", "u", at(0)), 1),
    "gone": (None, 0),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_finished_run_counts_against_the_limits_after_a_restart_while_its_node_is_closed(name: str) -> None:
    """Ten days later only what inventory shows tells whether the node was given back; the run need not be asked otherwise."""
    fact, held = SEEN[name]
    ends = []
    for runs in (shelved(HISTORY[0]), {HISTORY[0].id: HISTORY[0]}):
        made = PartitionState(LIBRARY, AUTO, ACTIONS, runs)
        if fact is not None:
            made.take_fact(fact.key, fact)
        now = at(86400 * 10)
        list(made.recovering(now))
        census = made._documents.cluster("c1").run_counts
        ends.append(census.cordoned(made.view("c1"), shadow=False, now=now, window_s=3600))
        assert made.runs.decoded <= held
    assert ends[0] == ends[1] == frozenset({"node-03"} if held else ())


def test_what_failed_within_the_breakers_window_counts_after_a_restart() -> None:
    play = Play(incident())
    play.play(until="suspend_job")
    play.answer(Refused("no"))
    play.play()
    failed = play.run
    assert (failed.outcome, failed.has_work) == ("failed", False)
    for after_s, counted in ((3600, [failed.id]), (86400, [])):
        made = board(shelved(failed))
        list(made.recovering(at(after_s)))
        census = made._documents.cluster("c1").run_counts
        assert census.failures(at(after_s - AUTO.breaker.failures_window_s)) == counted


def test_a_run_whose_every_call_was_long_winded_still_fits_the_journal() -> None:
    """Two hundred steps, and a server that answers each call with a page of text."""
    jobs = tuple(replace(JOB, name=f"job-{number:02}", uid=f"uid-{number}") for number in range(45))
    play = Play(incident(jobs=jobs), settings=radius(max_per_window=1_000))
    assert 150 < len(play.run.plan.steps) <= MAX_STEPS
    play.tick()
    for _ in range(1_000):
        if not play.air:
            break
        play.answer(Done({"prior": "x" * 200}, "said " * 2_000))
    assert all(record.effect for record in play.run.steps if record.id.startswith("suspend"))
    assert max(len(record.reason) for record in play.run.steps) == MAX_REASON
    assert len(encode(play.run)) < MAX_DOCUMENT_BYTES / 2


def test_a_run_too_large_to_be_kept_is_not_begun_and_a_person_is_told() -> None:
    made = board(shelved())
    made.take_incident(incident(facts={"xid": 79, "xids": "79 " * 200_000}))
    made.advance(NOW)
    changes = made.collect()
    assert not made.runs
    assert not changes.calls
    assert [line.event for line in changes.timeline] == ["run.none"]
    assert "limit" in changes.timeline[0].text


@pytest.mark.parametrize("ahead_s", [0.0, 60.0, 3500.0])
def test_a_predecessor_whose_clock_was_ahead_is_waited_for_no_longer_than_its_lease(ahead_s: float) -> None:
    play = Play(incident(), now=at(ahead_s))
    play.play(until="cordon_node")
    (left,) = [r for r in play.run.steps if r.effect is not None and r.effect.action == "cordon_node"]
    assert left.effect is not None
    lease_s = (left.effect.lease_until - left.effect.intended_at).total_seconds()
    due = recover(play.run, NOW).run.step("cordon").due_at
    assert due == at(lease_s + MARGIN_S)

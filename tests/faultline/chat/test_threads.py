"""What to do next for a thread: the most urgent first, a change of state at once, a change of detail in its time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from faultline.chat.run_messages import run_message, took
from faultline.chat.thread_messages import evidence_message
from faultline.chat.thread_plan import (
    Doing,
    Slot,
    Urgency,
    is_worth_a_thread,
    next_task,
    still_updated,
    wanted,
)
from streams.kafka.lease import MARGIN_S
from streams.model.codec import decode, encode
from streams.model.incident import IncidentState
from streams.model.message import MAX_STEPS, Buttons, Code, Facts, Message, Steps
from streams.model.node_notice import OPENS
from streams.model.run import Approval, EffectRecord, EffectState, Mode, StepRecord, StepState, Target
from streams.model.thread import ROOT, Post, Thread, post_key
from tests.connectors.chat.thread_documents import NOW, incident, run

CHANNEL = Target("Channel", "C1")
EMPTY = Thread("inc-1", "c1", "C1", created_at=NOW, updated_at=NOW)
OLD, NEW, OTHER_STATE = Message("old"), Message("new"), Message("other state")


def post(slot: str, state: EffectState = EffectState.CONFIRMED, **changes: object) -> Post:
    record = EffectRecord("k", "reply", CHANNEL, state, NOW, NOW + timedelta(seconds=20), 1, {"ts": "1.1"})
    return replace(
        Post(slot, record, shown=OLD.digest, mark="open", changed_at=NOW),
        **changes,  # type: ignore[arg-type]
    )


def slot(name: str, message: Message = OLD, mark: str = "open", urgency: Urgency = Urgency.STEP) -> Slot:
    return Slot(name, message, mark, urgency)


def with_posts(*posts: Post) -> Thread:
    return replace(EMPTY, posts=posts)


def test_the_root_comes_before_everything_that_replies_to_it() -> None:
    slots = [slot("approval/r/s", urgency=Urgency.APPROVAL), slot(ROOT, urgency=Urgency.ROOT)]
    task = next_task(EMPTY, slots, NOW, debounce_s=1)
    assert task is not None
    assert (task.doing, task.slot.name) == (Doing.CREATE, ROOT)


def test_an_approval_overtakes_steps_and_evidence() -> None:
    slots = [
        slot(ROOT),
        slot("evidence", urgency=Urgency.EVIDENCE),
        slot("step/r/a"),
        slot("approval/r/s", urgency=Urgency.APPROVAL),
    ]
    task = next_task(with_posts(post(ROOT)), slots, NOW, debounce_s=1)
    assert task is not None
    assert task.slot.name == "approval/r/s"


@pytest.mark.parametrize(
    ("shown", "after_s", "due_in_s"),
    [
        (slot(ROOT, OLD), 0, None),
        (slot(ROOT, NEW), 0, 1.0),
        (slot(ROOT, NEW), 5, 0.0),
        (slot(ROOT, OTHER_STATE, mark="resolved"), 0, 0.0),
        (Slot(ROOT, NEW, "open", Urgency.ROOT, patience_s=3), 1, 2.0),
    ],
    ids=["nothing changed", "detail waits", "first detail after quiet", "state at once", "patient detail"],
)
def test_an_edit_is_made_in_its_time(shown: Slot, after_s: float, due_in_s: float | None) -> None:
    now = NOW + timedelta(seconds=after_s)
    task = next_task(with_posts(post(ROOT)), [shown], now, debounce_s=1)
    assert (task and (task.doing, (task.due_at - now).total_seconds())) == (
        None if due_in_s is None else (Doing.EDIT, due_in_s)
    )


def test_what_somebody_else_meant_to_send_is_looked_up_only_after_their_lease() -> None:
    thread = with_posts(post(ROOT, EffectState.INTENDED))
    task = next_task(thread, [slot(ROOT)], NOW, debounce_s=1)
    assert task is not None
    assert (task.doing, task.due_at) == (Doing.LOOK_UP, NOW + timedelta(seconds=20 + MARGIN_S))


@pytest.mark.parametrize(
    ("state", "doing"), [(EffectState.UNKNOWN, Doing.LOOK_UP), (EffectState.REFUSED, Doing.CREATE)]
)
def test_what_is_unknown_is_looked_up_and_what_surely_failed_is_sent_again(
    state: EffectState, doing: Doing
) -> None:
    due = NOW + timedelta(seconds=7)
    task = next_task(with_posts(post(ROOT, state, due_at=due)), [slot(ROOT)], NOW, debounce_s=1)
    assert task is not None
    assert (task.doing, task.due_at) == (doing, due)


def test_a_kind_of_work_that_is_held_back_lets_the_others_go_on() -> None:
    held = {Doing.CREATE: NOW + timedelta(seconds=30)}
    slots = [slot(ROOT, OTHER_STATE, mark="resolved"), slot("approval/r/s", urgency=Urgency.APPROVAL)]
    task = next_task(with_posts(post(ROOT)), slots, NOW, debounce_s=1, paused=held)
    assert task is not None
    assert (task.doing, task.slot.name) == (Doing.EDIT, ROOT)


def test_a_deleted_reply_is_left_deleted() -> None:
    thread = with_posts(post(ROOT), post("step/r/a", gone=True))
    assert next_task(thread, [slot(ROOT), slot("step/r/a", NEW, mark="x")], NOW, debounce_s=1) is None


def test_a_run_is_one_reply_with_the_state_of_each_step_from_when_it_begins() -> None:
    waiting, begun = run(incident()), run(incident(), cordon=StepState.RUNNING)
    assert not [s for s in wanted(incident(), [waiting], []) if s.name.startswith("run/")]
    (shown,) = [s for s in wanted(incident(), [begun], []) if s.name == f"run/{begun.id}"]
    (steps,) = [block for block in shown.message.blocks if isinstance(block, Steps)]
    assert [(step.id, step.state) for step in steps.steps] == [
        ("cordon", "in_progress"),
        ("ticket", "pending"),
    ]


def test_a_thread_that_began_with_a_reply_per_step_goes_on_so() -> None:
    begun = run(incident(), cordon=StepState.DONE, ticket=StepState.RUNNING)
    old = frozenset({ROOT, f"step/{begun.id}/cordon"})
    names = [s.name for s in wanted(incident(), [begun], [], old) if "/" in s.name]
    assert names == [f"step/{begun.id}/cordon", f"step/{begun.id}/ticket"]


def test_only_what_a_mark_cannot_say_is_said_in_words() -> None:
    made = run(incident(), cordon=StepState.CANCELLED, ticket=StepState.BLOCKED)
    (steps,) = [block for block in run_message(made).blocks if isinstance(block, Steps)]
    assert [step.title for step in steps.steps] == [
        "1. Cordon node-07 (cancelled)",
        "2. ticket: Open a ticket (blocked)",
    ]


@pytest.mark.parametrize("current", [0, 30, 99])
def test_a_long_run_shows_the_steps_around_the_current_one(current: int) -> None:
    made = run(incident())
    steps = tuple(replace(made.plan.steps[0], id=f"s{n}", describe=f"step {n}") for n in range(100))
    states = [StepState.DONE] * current + [StepState.RUNNING] + [StepState.PENDING] * (99 - current)
    records = tuple(StepRecord(step.id, state) for step, state in zip(steps, states, strict=True))
    message = run_message(replace(made, plan=replace(made.plan, steps=steps), steps=records))
    (shown,) = [b for b in message.blocks if isinstance(b, Steps)]
    assert len(shown.steps) <= MAX_STEPS
    assert f"s{current}" in [step.id for step in shown.steps]
    folded = [int(step.title.split()[0]) for step in shown.steps if step.id.endswith("-these")]
    assert sum(folded) + sum(step.id.startswith("s") for step in shown.steps) == 100


def test_buttons_are_there_while_a_step_waits_and_vanish_with_the_decision() -> None:
    asking = run(incident(), Mode.APPROVE, cordon=StepState.AWAITING_APPROVAL)
    decided = replace(
        run(incident(), Mode.APPROVE, cordon=StepState.RUNNING),
        approvals=(Approval("cordon", True, "alice", NOW, asking.plan.digest),),
    )
    expired = run(incident(), Mode.APPROVE, cordon=StepState.FAILED)
    name = f"approval/{asking.id}/cordon"
    for state, buttons in ((asking, 1), (decided, 0), (expired, 0)):
        (shown,) = [s for s in wanted(incident(), [state], [], frozenset({name})) if s.name == name]
        assert sum(isinstance(block, Buttons) for block in shown.message.blocks) == buttons


def test_steps_that_are_due_at_once_are_told_in_their_order() -> None:
    made = run(incident(), cordon=StepState.DONE, ticket=StepState.DONE)
    steps = tuple(
        replace(step, id=f"{name}-{step.id}") for name, step in zip("zy", made.plan.steps, strict=True)
    )
    records = tuple(replace(record, id=step.id) for record, step in zip(made.steps, steps, strict=True))
    made = replace(made, plan=replace(made.plan, steps=steps), steps=records)
    old = frozenset({f"step/{made.id}/z-cordon"})
    slots = wanted(incident(), [made], [], old)
    task = next_task(with_posts(post(ROOT, mark=slots[0].mark)), slots, NOW, debounce_s=60)
    assert task is not None
    assert task.slot.name == f"step/{made.id}/z-cordon"


def test_the_culprit_stands_before_the_other_nodes_of_its_job() -> None:
    many = tuple(f"node-{n:02}" for n in range(8))
    root, *_ = wanted(incident(nodes=many), [], [])
    (facts,) = [block for block in root.message.blocks if isinstance(block, Facts)]
    (nodes,) = [fact.text for fact in facts.facts if fact.label == "Nodes"]
    assert nodes == "node-07, node-00, node-01, node-02, node-03, node-04, +2 more"


def test_the_thread_of_what_was_over_long_ago_is_edited_only_for_another_state() -> None:
    words, state = slot(ROOT, NEW), slot(ROOT, OTHER_STATE, mark="contained")
    assert still_updated(with_posts(post(ROOT)), [words]) == ()
    assert still_updated(with_posts(post(ROOT)), [state]) == (state,)
    assert still_updated(with_posts(post(ROOT, EffectState.INTENDED)), [words]) == (words,)
    assert still_updated(with_posts(), [words]) == ()


def test_one_observation_is_one_and_has_no_syslog_priority() -> None:
    proof = incident().proofs[0]
    line = replace(proof.evidence[0], text="<4>Mar  3 03:04:12 node-07 kernel: NVRM: Xid 79")
    shown = evidence_message(incident(proofs=(replace(proof, evidence=(line,)),)))
    assert shown.summary == "Evidence: 1 observation"
    assert shown.blocks[-1] == Code("Mar  3 03:04:12 node-07 kernel: NVRM: Xid 79")


def test_in_shadow_the_whole_plan_is_one_reply() -> None:
    would = run(incident(), Mode.SHADOW, cordon=StepState.WOULD, ticket=StepState.WOULD)
    replies = [s.name for s in wanted(incident(), [would], []) if "/" in s.name]
    assert replies == [f"plan/{would.id}"]


def test_what_was_over_long_ago_gets_no_thread_and_what_ended_just_now_does() -> None:
    over = incident(state=IncidentState.RESOLVED, closed_at=NOW)
    assert is_worth_a_thread(over, NOW + timedelta(hours=1))
    assert not is_worth_a_thread(over, NOW + timedelta(days=2))
    assert is_worth_a_thread(incident(), NOW + timedelta(days=2))


def test_what_a_cloud_announced_for_another_day_gets_no_thread_before_its_lead_begins() -> None:
    told = incident(state=IncidentState.OPEN)
    ahead = replace(told, state=IncidentState.SUPPRESSED, facts={**told.facts, OPENS: "2026-03-09T12:00:00Z"})
    assert is_worth_a_thread(told, NOW)
    assert not is_worth_a_thread(ahead, NOW)
    assert not is_worth_a_thread(replace(ahead, state=IncidentState.RESOLVED, closed_at=NOW), NOW)
    assert is_worth_a_thread(replace(ahead, state=IncidentState.AWAITING_HUMAN), NOW)


def test_a_thread_survives_the_way_through_kafka() -> None:
    thread = with_posts(post(ROOT), post("step/r/a", check_at=NOW))
    assert decode(Thread, encode(thread)) == thread


def test_a_new_generation_has_new_keys() -> None:
    assert post_key("inc-1", 1, 1, ROOT) != post_key("inc-1", 1, 2, ROOT)


@pytest.mark.parametrize(
    ("seconds", "said"), [(-5, "0 s"), (42, "42 s"), (120, "2 min"), (185, "3 min 5 s"), (7800, "2 h 10 min")]
)
def test_durations_read_as_people_say_them(seconds: int, said: str) -> None:
    assert took(timedelta(seconds=seconds)) == said


def test_a_thread_says_who_started_or_took_up_a_run() -> None:
    by_hand = replace(run(incident()), started_by="ada")
    assert "started by ada)" in str(run_message(by_hand).blocks[0])
    goes_on = replace(by_hand, continues="run-1")
    assert "ada took up run-1 again)" in str(run_message(goes_on).blocks[0])
    assert "started by" not in str(run_message(run(incident())).blocks[0])

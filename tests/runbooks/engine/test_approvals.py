"""Who may approve, how many it takes, what a word is bound to, and what is said to whom."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from faultline.chat.thread_messages import approval_message
from runbooks.engine import approvals
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.human_decisions import decided
from runbooks.language import approval_rules
from streams.config.settings import ResponderSettings
from streams.model.codec import decode, encode
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.incident import Certainty
from streams.model.message import Buttons, Code, Facts, Paragraph
from streams.model.run import Demand, Mode, PlannedStep, Run, RunOutcome, RunState, StepState, Target
from tests.runbooks.engine.test_run import decide, revise
from tests.runbooks.scenes import ACTIONS, CLUSTER, LIBRARY, NOW, OTHER_JOB, Play, at, cluster, incident

GROUPS = {"oncall": ("ada", "bob|U024BE7LH"), "leads": ("cora", "dan", "bob|U024BE7LH")}
TICKETLESS = ACTIONS - {"open_ticket"}


def settings(**changes: object) -> ResponderSettings:
    return ResponderSettings.model_validate({"mode": Mode.AUTO, "approval_groups": GROUPS, **changes})


def step(action: str, group: str = "", quorum: int = 1) -> PlannedStep:
    target = Target("Node", "node-03")
    return PlannedStep("s", action, target, {}, True, approval_group=group, quorum=quorum)


def asking(policy: ResponderSettings, **changes: object) -> Play:
    """A run whose cordon waits for a person; `changes` are of its planned steps."""
    play = Play(incident(certainty=Certainty.LIKELY), actions=TICKETLESS, settings=policy)
    steps = tuple(replace(s, **changes) for s in play.run.plan.steps)  # type: ignore[arg-type]
    play.run = replace(play.run, plan=replace(play.run.plan, steps=steps))
    play.tick()
    assert play.stands() is RunState.AWAITING_APPROVAL
    return play


def say(play: Play, actor: str, verb: Verb = Verb.APPROVE, **changes: object) -> None:
    decide(play, verb, id=f"cmd-{len(play.run.commands)}-{actor}", actor=actor, at=play.now, **changes)


@pytest.mark.parametrize(
    ("rules", "planned", "expected"),
    [
        ({"approval_groups": {}}, step("cordon_node"), [("", 1, None)]),
        ({"approval_groups": {}}, step("reboot_node"), [("", 1, None)]),
        (
            {"approval_groups": {}, "approvers": ("eve",)},
            step("cordon_node"),
            [("responder.approvers", 1, ("eve",))],
        ),
        (
            {},
            step("cordon_node"),
            [("an approval group", 1, ("ada", "bob|U024BE7LH", "cora", "dan"))],
        ),
        (
            {},
            step("reboot_node"),
            [("an approval group", 2, ("ada", "bob|U024BE7LH", "cora", "dan"))],
        ),
        (
            {"approval_classes": {"reboot": {"group": "leads"}}},
            step("reboot_node"),
            [("leads", 2, GROUPS["leads"])],
        ),
        (
            {"approval_classes": {"reboot": {"group": "leads", "quorum": 1}}},
            step("reboot_node"),
            [("leads", 1, GROUPS["leads"])],
        ),
        (
            {"approval_classes": {"close": {"group": "oncall"}}},
            step("cordon_node", quorum=2),
            [("oncall", 2, GROUPS["oncall"])],
        ),
        (
            {"approval_classes": {"close": {"group": "oncall"}}},
            step("cordon_node", "leads", 2),
            [("oncall", 1, GROUPS["oncall"]), ("leads", 2, GROUPS["leads"])],
        ),
        ({"approval_groups": {}}, step("cordon_node", "network"), [("network", 1, ())]),
    ],
)
def test_what_an_approval_takes(
    rules: dict[str, object], planned: PlannedStep, expected: list[tuple[str, int, object]]
) -> None:
    found = approval_rules.rules(planned, settings(**rules))
    assert [(d.group, d.quorum, d.people) for d in found] == expected


@pytest.mark.parametrize(
    ("actor", "people", "member"),
    [
        ("ada", ("ada",), "ada"),
        ("eve", ("ada",), None),
        ("bob", GROUPS["oncall"], "bob|U024BE7LH"),
        ("robert (U024BE7LH)", GROUPS["oncall"], "bob|U024BE7LH"),
        ("ada (U666)", ("ada",), None),
        ("ada (U666)", ("ada (U666)",), "ada (U666)"),
        ("anybody", None, "anybody"),
        ("anybody (U1)", None, "U1"),
        ("x" * 10_000 + " (", ("ada",), None),
    ],
)
def test_a_person_is_known_by_a_name_of_the_group_or_by_the_id_and_never_by_the_name_a_chat_shows(
    actor: str, people: tuple[str, ...] | None, member: str | None
) -> None:
    assert approvals.person(actor, people) == member


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"approval_classes": {"close": {"group": "network"}}}, "no group network"),
        ({"approval_classes": {"close": {"group": "oncall", "quorum": 3}}}, "needs 3 approvers"),
        ({"approval_classes": {"explode": {"group": "oncall"}}}, "explode"),
        ({"approval_groups": {"oncall": []}}, "the group has no members"),
        ({"approval_groups": {"oncall": ["ada"]}}, "approval_classes.reboot: needs 2 approvers"),
    ],
)
def test_rules_that_nobody_could_meet_are_refused_at_the_start(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        settings(**wrong)


def test_two_different_people_are_needed_and_the_same_twice_is_one() -> None:
    play = asking(settings(approval_classes={"close": {"group": "oncall", "quorum": 2}}))
    say(play, "ada")
    assert play.air == []
    assert "still needs one more of oncall (ada, bob), ada having approved" in play.notes[-1]
    say(play, "ada")
    assert play.air == []
    assert "ada has already approved" in play.notes[-1]
    say(play, "bob")
    assert [c.effect.action for c in play.air] == ["cordon_node"]
    assert [a.actor for a in play.run.approvals] == ["ada", "bob"]


def test_one_person_with_two_names_is_one_person() -> None:
    play = asking(settings(approval_classes={"close": {"group": "oncall", "quorum": 2}}))
    say(play, "bob")
    say(play, "robert (U024BE7LH)")
    assert play.air == []
    assert "has already approved" in play.notes[-1]


def test_an_outsider_of_the_group_does_not_count_and_is_told_who_does() -> None:
    play = asking(settings(approval_classes={"close": {"group": "oncall"}}))
    say(play, "cora")
    assert play.air == []
    assert "cora is not among oncall (ada, bob)" in play.notes[-1]
    assert play.run.approvals == ()


def test_a_step_with_a_group_of_its_own_takes_a_word_of_both() -> None:
    play = asking(
        settings(approval_classes={"close": {"group": "oncall"}, "move": {"group": "oncall"}}),
        approval_group="leads",
    )
    say(play, "ada")
    assert play.air == []
    assert "one of leads" in play.notes[-1]
    say(play, "cora")
    assert [c.effect.action for c in play.air] == ["cordon_node"]


def test_who_is_in_both_groups_speaks_for_both() -> None:
    play = asking(settings(approval_classes={"close": {"group": "oncall"}}), approval_group="leads")
    say(play, "bob")
    assert [c.effect.action for c in play.air] == ["cordon_node"]


def test_a_graver_step_of_the_same_plan_asks_again_for_those_it_takes() -> None:
    rules = {"close": {"group": "oncall"}, "move": {"group": "leads", "quorum": 2}}
    play = Play(incident(), actions=TICKETLESS, settings=settings(mode=Mode.APPROVE, approval_classes=rules))
    play.tick()
    say(play, "ada")
    play.play()
    assert play.made == ["cordon_node"]
    assert play.state("suspend") is StepState.AWAITING_APPROVAL
    say(play, "bob")
    assert play.air == []
    say(play, "dan")
    assert [c.effect.action for c in play.air] == ["suspend_job"]


def test_the_first_word_that_decides_wins_and_later_ones_hear_who_it_was_and_when() -> None:
    play = asking(settings())
    say(play, "ada")
    play.tick(60)
    say(play, "bob")
    assert f"bob not accepted: ada approved it at {at(0):%Y-%m-%dT%H:%M:%S}" in play.notes[-1]
    say(play, "bob", Verb.REJECT)
    assert "ada approved it at" in play.notes[-1]
    assert play.run.outcome == ""

    play = asking(settings())
    say(play, "eve", Verb.REJECT, reason="maintenance tonight")
    say(play, "ada")
    assert "ada not accepted: eve rejected it at" in play.notes[-1]
    assert play.run.outcome == "rejected"
    assert play.made == []


def test_a_rejection_between_two_approvals_ends_it() -> None:
    play = asking(settings(approval_classes={"close": {"group": "oncall", "quorum": 2}}))
    say(play, "ada")
    say(play, "bob", Verb.REJECT)
    say(play, "bob")
    assert play.run.outcome == "rejected"
    assert play.made == []


def test_a_first_word_that_has_gone_stale_has_to_be_given_again() -> None:
    policy = settings(approval_classes={"close": {"group": "oncall", "quorum": 2}}, freshness_s=600)
    play = asking(policy)
    say(play, "ada")
    play.tick(601)
    say(play, "bob")
    assert play.air == []
    assert "one more of oncall (ada, bob), bob having approved" in play.notes[-1]
    say(play, "ada")
    assert [c.effect.action for c in play.air] == ["cordon_node"]


def test_words_for_a_plan_that_has_grown_count_for_nothing_and_that_is_said() -> None:
    play = asking(settings(approval_classes={"close": {"group": "oncall", "quorum": 2}}))
    before = play.run.plan.digest
    say(play, "ada")
    revise(play, jobs=(*play.about.jobs, OTHER_JOB))
    assert play.run.plan.digest != before
    assert any("the approval by ada covers the previous plan only" in note for note in play.notes)
    assert play.state("cordon") is StepState.AWAITING_APPROVAL
    (demand,) = play.run.step("cordon").demands
    assert demand.given == ()
    say(play, "bob", digest=before)
    assert "an outdated plan" in play.notes[-1]
    shown = approval_message(play.about, play.run, play.run.planned("cordon"))
    assert any("changed after ada approved it" in b.text for b in shown.blocks if isinstance(b, Paragraph))
    assert any(isinstance(block, Buttons) for block in shown.blocks)
    for actor in ("ada", "bob"):
        say(play, actor)
    assert [c.effect.action for c in play.air] == ["cordon_node"]


def test_what_expires_says_that_nobody_decided_and_a_late_word_changes_nothing() -> None:
    play = asking(settings(approval_classes={"close": {"group": "oncall", "quorum": 2}}))
    say(play, "ada")
    play.tick(4 * 3600)
    assert play.run.outcome == "expired"
    say(play, "bob")
    assert play.made == []


def test_the_message_says_who_may_how_many_are_missing_until_when_and_the_line_to_type() -> None:
    play = asking(settings(approval_classes={"close": {"group": "oncall", "quorum": 2}}))
    say(play, "ada")
    message = approval_message(play.about, play.run, play.run.planned("cordon"))
    (facts,) = [block for block in message.blocks if isinstance(block, Facts)]
    told = {fact.label: fact.text or fact.at for fact in facts.facts}
    assert told["May approve"] == "oncall (ada, bob)"
    assert told["Approvals missing"] == "one more of oncall (ada, bob), ada having approved"
    assert told["Expires"] == at(4 * 3600)
    (typed,) = [block for block in message.blocks if isinstance(block, Code)]
    assert typed.text.splitlines() == [
        f"faultline incidents {word} {play.about.id} --step cordon" for word in ("approve", "reject")
    ]


def test_a_word_is_given_to_the_run_of_its_plan_and_answered_once() -> None:
    board, policy = PartitionState(LIBRARY, settings(), frozenset(TICKETLESS)), settings()
    for fact in cluster().nodes.values():
        board.take_fact(fact.key, fact)
    about = incident(certainty=Certainty.LIKELY)
    board.take_incident(about)
    board.advance(NOW)
    (run,) = board.runs.values()
    older = replace(
        run, id="run-older", state=RunState.CANCELLED, outcome=RunOutcome.CANCELLED,
        plan=replace(run.plan, digest="0" * 32), created_at=at(-60),
    )  # fmt: skip
    board = PartitionState(LIBRARY, policy, frozenset(TICKETLESS), {older.id: older, run.id: run})
    for fact in cluster().nodes.values():
        board.take_fact(fact.key, fact)
    board.take_incident(about)
    board.take_command(
        Command("c-1", about.id, CLUSTER, Verb.APPROVE, "ada", NOW, digest=run.plan.digest, via="slack")
    )
    board.advance(NOW)
    answers = [e for e in board.collect().timeline if e.attributes.get("command") == "c-1"]
    assert [(e.event, e.attributes["run"], e.attributes["via"]) for e in answers] == [
        ("person.approved", run.id, "slack")
    ]


def test_every_answer_names_its_command_and_the_reason_that_was_given() -> None:
    play = asking(settings())
    for verb, event in (
        (Verb.ACK, "person.ack"), (Verb.APPROVE, "person.approved"),
        (Verb.REJECT, "person.rejection_refused"), (Verb.STOP, "person.stopped"),
    ):  # fmt: skip
        said = Command(
            f"c-{verb}", play.run.incident, CLUSTER, verb, "ada", NOW, digest=play.run.plan.digest, reason="why not"
        )  # fmt: skip
        turn = play.take(decided(play.run, said, play.settings, play.now))
        (note,) = [note for note in turn.notes if note.event == event]
        assert (note.actor, note.attributes["command"]) == ("ada", said.id)
        assert verb is Verb.REJECT or "why not" in note.text


def test_a_run_from_before_approvals_had_groups_is_read_and_goes_on() -> None:
    play = asking(ResponderSettings(mode=Mode.AUTO))
    document = json.loads(encode(play.run))
    for record in document["steps"]:
        del record["demands"]
    for planned in document["plan"]["steps"]:
        del planned["approval_group"], planned["quorum"]
    raw = json.dumps(document)
    play.run = decode(Run, raw)
    say(play, "ada")
    assert [c.effect.action for c in play.air] == ["cordon_node"]


def test_a_document_keeps_a_bounded_number_of_names() -> None:
    many = Demand("crowd", 1, tuple(f"person-{i}" for i in range(500)))
    (kept,) = approvals.shown((many,))
    assert kept.people is not None
    assert len(kept.people) == approvals.MAX_PEOPLE
    entry = TimelineEntry(
        "inc-1", CLUSTER, NOW, "responder", "step.awaiting_approval", approvals.wanted((kept,))
    )
    assert "+6 more" in entry.text

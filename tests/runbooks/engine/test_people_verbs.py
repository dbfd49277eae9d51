"""What people can do besides approve and stop: take over, not now, silence, a note; and groups of other systems as approvers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from pydantic import ValidationError

from connectors.base import Done
from runbooks.engine.approvals import may_relax_controls
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.human_decisions import MAX_NOTE, decided
from streams.config.settings import ResponderSettings
from streams.model.codec import decode, encode
from streams.model.conversation import Command, TimelineEntry, Verb, is_group
from streams.model.facts import Fact
from streams.model.incident import Certainty, IncidentState
from streams.model.run import Mode, Run, RunOutcome, RunState, StepState
from tests.runbooks.engine.test_run import command, decide, revise
from tests.runbooks.scenes import ACTIONS, CLUSTER, LIBRARY, NOW, Play, at, cluster, incident

TICKETLESS = ACTIONS - {"open_ticket"}
SRE = "slack:S0SRE"


def settings(**changes: object) -> ResponderSettings:
    return ResponderSettings.model_validate({"mode": Mode.AUTO, **changes})


def later(play: Play, minutes: float) -> datetime:
    return play.now + timedelta(minutes=minutes)


# -- hand over


def test_who_takes_over_stops_the_run_and_nothing_is_undone() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="drain_node")
    decide(play, Verb.HAND_OVER, reason="looking myself")
    play.answer(Done())
    assert play.made == ["cordon_node", "suspend_job", "drain_node"]
    assert (play.air, play.run.outcome, play.run.overruled) == ([], RunOutcome.CANCELLED, True)
    assert play.run.reason == "taken over by ada: looking myself"
    assert not any(record.is_being_undone for record in play.run.steps)
    assert any("cordon_node Node node-03 stays in place" in note for note in play.notes)


def test_what_somebody_has_taken_over_stays_when_the_incident_is_merged() -> None:
    taken, stopped = Play(incident(), actions=TICKETLESS), Play(incident(), actions=TICKETLESS)
    for play, verb in ((taken, Verb.HAND_OVER), (stopped, Verb.STOP)):
        play.play(until="suspend_job")
        decide(play, verb)
        play.answer(Done())
        revise(play, state=IncidentState.MERGED, merged_into="inc-other", closed_at=play.now)
    assert [call.kind for call in stopped.air] == ["undo"]
    assert taken.air == []


def test_a_second_person_takes_over_from_the_first() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.tick()
    decide(play, Verb.HAND_OVER)
    play.answer(Done())
    decide(play, Verb.HAND_OVER, id="cmd-2", actor="bob")
    assert play.run.reason == "taken over by bob"
    assert "the run is already over: cancelled" in play.notes[-1]


def test_a_run_that_succeeded_stays_so_when_somebody_takes_over() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play()
    play.now = later(play, 2)
    play.progress()
    play.tick()
    assert play.stands() is RunState.SUCCEEDED
    decide(play, Verb.HAND_OVER)
    assert (play.run.outcome, play.run.reason) == (RunOutcome.SUCCEEDED, play.about.reason)


# -- snooze


def test_not_now_delays_what_has_not_begun_and_then_it_goes_on_by_itself() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.take(decided(play.run, command(play, Verb.SNOOZE, until=later(play, 10)), play.settings, play.now))
    play.tick()
    assert (play.air, play.state("cordon")) == ([], StepState.BLOCKED)
    assert "snooze: ada snoozed it until 2026-03-01T12:10:00Z" in "".join(r.reason for r in play.run.steps)
    play.tick(601)
    assert [call.effect.action for call in play.air] == ["cordon_node"]


def test_not_now_does_not_interrupt_what_has_begun() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="drain_node")
    decide(play, Verb.SNOOZE, until=later(play, 10))
    assert "snooze by ada not accepted: no destructive step is left" in play.notes[-1]
    play.answer(Done())
    assert "drain_node" in play.made


def test_a_question_waits_with_its_step_and_comes_back_with_its_whole_time() -> None:
    play = Play(incident(certainty=Certainty.LIKELY), actions=TICKETLESS, settings=settings())
    play.tick()
    assert play.stands() is RunState.AWAITING_APPROVAL
    decide(play, Verb.SNOOZE, until=later(play, 10))
    decide(play, Verb.APPROVE)
    assert "no step is pending approval" in play.notes[-1]
    play.tick(601)
    assert play.stands() is RunState.AWAITING_APPROVAL
    asked = next(r for r in play.run.steps if r.state is StepState.AWAITING_APPROVAL)
    assert asked.deadline_at == play.now + timedelta(seconds=play.settings.approval_expiry_s)


def test_all_snoozes_of_a_run_together_are_bounded() -> None:
    play = Play(incident(), actions=TICKETLESS, settings=settings(snooze_max_s=1800))
    decide(play, Verb.SNOOZE, id="1", until=later(play, 20))
    play.tick(900)
    decide(play, Verb.SNOOZE, id="2", actor="bob", until=later(play, 60))
    assert play.run.snooze is not None
    assert play.run.snooze.until == at(1800)
    assert "snoozed by bob until 2026-03-01T12:30:00Z" in "".join(play.notes)
    play.tick(899)
    assert play.air == []
    decide(play, Verb.SNOOZE, id="3", until=later(play, 60))
    assert "bob snoozed it until" in play.notes[-1]
    play.tick(2)
    assert [call.effect.action for call in play.air] == ["cordon_node"]


@pytest.mark.parametrize(
    ("minutes", "refusal"), [(None, "it has no end"), (-5, "it ended at 2026-03-01T11:55:00Z")]
)
def test_a_snooze_that_is_over_before_it_is_heard_changes_nothing(
    minutes: float | None, refusal: str
) -> None:
    play = Play(incident(), actions=TICKETLESS)
    until = later(play, minutes) if minutes is not None else None
    decide(play, Verb.SNOOZE, until=until)
    assert any(note.startswith("person.snooze_refused") and refusal in note for note in play.notes)
    assert [call.effect.action for call in play.air] == ["cordon_node"]


def test_a_snooze_survives_the_run_document() -> None:
    play = Play(incident(), actions=TICKETLESS)
    decide(play, Verb.SNOOZE, until=later(play, 10))
    assert decode(Run, encode(play.run)) == play.run


def test_a_snoozed_run_is_looked_at_again_when_the_snooze_ends_without_any_news() -> None:
    state = PartitionState(LIBRARY, settings(), frozenset(TICKETLESS))
    state.take_incident(incident())
    facts: list[Fact] = [*cluster().nodes.values(), *cluster().jobs.values()]
    for fact in facts:
        state.take_fact(fact.key, fact)
    state.take_command(said(Verb.SNOOZE, until=at(600)))
    state.advance(NOW)
    assert state.collect().calls == ()
    calls: list[str] = []
    now = NOW
    while not calls and now < at(3600):
        due = state.due_at()
        assert due is not None, "it would never be looked at again"
        now = due
        state.advance(now)
        calls = [call.effect.action for call in state.collect().calls]
    assert calls == ["cordon_node"]
    assert at(600) <= now < at(660)


# -- silence and notes


def said(verb: Verb, name: str = "c-1", **changes: object) -> Command:
    made = Command(name, incident().id, CLUSTER, verb, "ada (U1)", NOW, via="slack")
    return replace(made, **changes)  # type: ignore[arg-type]


def answers(state: PartitionState, *commands: Command) -> list[TimelineEntry]:
    """What the timeline says to commands, each given twice."""
    for one in commands:
        state.take_command(one)
        state.take_command(one)
    state.advance(at(1))
    return [entry for entry in state.collect().timeline if entry.attributes.get("command")]


@pytest.mark.parametrize("has_run", [True, False])
@pytest.mark.parametrize(
    ("given", "event", "text", "until"),
    [
        (said(Verb.NOTE, reason="new \x1b[31mcable"), "person.note", "new [31mcable", None),
        (said(Verb.NOTE, reason=" \x00 "), "person.note_refused", "it is empty", None),
        (said(Verb.NOTE, reason="x" * 9000), "person.note", "x" * (MAX_NOTE - 1) + "…", None),
        (
            said(Verb.SILENCE, until=at(3600)),
            "person.silence",
            "silenced by ada (U1) until",
            "2026-03-01T13:00:00Z",
        ),
        (said(Verb.SILENCE, until=at(1e7)), "person.silence", "silenced by", "2026-03-02T12:00:01Z"),
        (said(Verb.SILENCE, until=at(-1)), "person.silence_refused", "it ended at", None),
        (said(Verb.SILENCE), "person.silence_refused", "it has no end", None),
    ],
)
def test_silence_and_notes_write_one_line_whether_or_not_there_is_a_run(
    has_run: bool, given: Command, event: str, text: str, until: str | None
) -> None:
    state = PartitionState(LIBRARY, settings(), frozenset(TICKETLESS))
    if has_run:
        state.take_incident(incident())
        state.advance(NOW)
        state.collect()
        before = dict(state.runs)
    (line,) = answers(state, given)
    assert line.event == event
    assert text in line.text
    assert (line.actor, line.incident) == ("ada (U1)", incident().id)
    assert (line.attributes["command"], line.attributes["via"]) == ("c-1", "slack")
    assert line.attributes.get("until") == until
    if has_run:
        assert [run.state for run in before.values()] == [run.state for run in state.runs.values()]


def test_a_snooze_of_an_incident_without_a_run_is_refused() -> None:
    state = PartitionState(LIBRARY, settings(), frozenset(TICKETLESS))
    (one, _) = answers(state, said(Verb.SNOOZE, until=at(600)))
    assert (one.event, "this incident has no run" in one.text) == ("command.refused", True)


# -- groups


def ask(**rules: object) -> Play:
    play = Play(incident(certainty=Certainty.LIKELY), actions=TICKETLESS, settings=settings(**rules))
    play.tick()
    assert play.stands() is RunState.AWAITING_APPROVAL
    return play


def press(play: Play, actor: str, *groups: str, via: str = "slack") -> str:
    name = f"cmd-{len(play.run.commands)}"
    decide(play, Verb.APPROVE, id=name, actor=actor, via=via, groups=groups)
    return next(note for note in reversed(play.notes) if note.startswith("person.approv"))


QUORUM = {
    "approval_groups": {"oncall": (SRE, "oidc:sre", "cora")},
    "approval_classes": {"close": {"group": "oncall", "quorum": 2}},
}


def test_two_members_of_one_group_are_two_people_and_one_who_presses_twice_is_one() -> None:
    play = ask(**QUORUM)
    assert "still needs one more of oncall (slack:S0SRE, oidc:sre, cora), Ada (U1) having" in press(
        play, "Ada (U1)", SRE
    )
    assert "Adalina (U1) has already approved" in press(play, "Adalina (U1)", SRE)
    assert play.air == []
    press(play, "Bob (U2)", SRE, "slack:SOTHER")
    assert [call.effect.action for call in play.air] == ["cordon_node"]
    assert [given.groups for given in play.run.approvals] == [(SRE,), (SRE,)]


@pytest.mark.parametrize(
    ("actor", "groups"),
    [
        ("Eve (U9)", ()),
        ("Eve (U9)", ("slack:SOTHER",)),
        (SRE, ()),
        (f"Eve ({SRE})", ()),
        ("oidc:sre", ("slack:SOTHER",)),
        ("cora (U9)", ()),
    ],
)
def test_who_is_in_none_of_the_groups_does_not_count_whatever_he_calls_himself(
    actor: str, groups: tuple[str, ...]
) -> None:
    play = ask(**QUORUM)
    assert "is not among oncall" in press(play, actor, *groups)
    assert play.run.approvals == ()


def test_one_person_in_a_group_of_slack_and_of_the_login_is_not_two() -> None:
    play = ask(**QUORUM)
    press(play, "Ada (U1)", SRE)
    assert "counts once" in press(play, "Ada L. (ada@example.test)", "oidc:sre", via="console")
    assert play.air == []


def test_two_people_of_different_systems_are_two_where_the_settings_list_their_ids() -> None:
    play = ask(**QUORUM, people=("ada|U1|ada@example.test",))
    press(play, "Ada (U1)", SRE)
    assert "has already approved" in press(play, "Ada (ada@example.test)", "oidc:sre", via="console")
    press(play, "Bob (bob@example.test)", "oidc:sre", via="console")
    assert [call.effect.action for call in play.air] == ["cordon_node"]


def test_a_person_named_and_in_a_group_counts_once() -> None:
    play = ask(
        approval_groups={"oncall": (SRE, "ada|U1")},
        approval_classes={"close": {"group": "oncall", "quorum": 2}},
    )
    press(play, "ada", via="cli")
    assert "has already approved" in press(play, "Ada (U1)", SRE)
    assert play.air == []
    press(play, "Bob (U2)", SRE)
    assert [call.effect.action for call in play.air] == ["cordon_node"]


def test_a_group_can_meet_any_quorum_and_is_no_alias_of_a_person() -> None:
    settings(approval_groups={"oncall": [SRE]}, approval_classes={"reboot": {"group": "oncall", "quorum": 5}})
    with pytest.raises(ValidationError, match="a group is no alias"):
        settings(approval_groups={"oncall": [f"bob|{SRE}", "ada"]})


@pytest.mark.parametrize(
    ("groups", "may"), [((SRE,), True), ((), False), (("slack:S9",), False), (("S0SRE",), False)]
)
def test_the_controls_are_relaxed_by_members_of_the_group(groups: tuple[str, ...], may: bool) -> None:
    made = Command("c", "", CLUSTER, Verb.UNKILL, "Ada (U1)", NOW, via="slack", groups=groups)
    assert may_relax_controls(made, settings(approvers=(SRE,))) is may


@pytest.mark.parametrize(
    ("name", "group"),
    [(SRE, True), ("oidc:sre", True), ("ada", False), ("system:admin", False), ("slack", False)],
)
def test_a_group_names_its_system(name: str, group: bool) -> None:
    assert is_group(name) is group

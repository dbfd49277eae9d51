"""The desk's policy over every system's stand-in: reopened tickets, folded comments, evidence, fields, links."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from connectors.base import Absent, AlreadyDone, Blocked, Done, NoLease, Refused, Unknown, Waiting
from connectors.tickets.desk import TicketDesk
from sandbox.fake_services.github import GitHubStandin
from sandbox.fake_services.gitlab import GitLabStandin, StandinNote
from sandbox.fake_services.jira import JiraStandin
from sandbox.fake_services.server import InjectedFault
from streams.model.codec import encode
from streams.model.hardware_evidence import EVIDENCE, TIMELINE_SVG
from tests.connectors.tickets.ticket_worlds import CONTEXT, NOW, PROOF, WORLDS, World, effect

pytestmark = pytest.mark.embedded

LEASE = NoLease()
OPEN = effect("open_ticket", "a" * 32)
AGAIN = effect("open_ticket", "d" * 32, incident="inc-fedcba9876543210")
CLOSE = effect("close_ticket", "c" * 32, text="node-07 is back")
COMMENT = effect("comment_ticket", "b" * 32, text="node-07 is cordoned")
NOT_SERVICENOW = [name for name in WORLDS if name != "servicenow"]


@pytest.fixture(params=list(WORLDS))
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made = WORLDS[request.param]()
    async with made.server:
        yield made


class Desks:
    """Desks on one system, closed at the end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.made: list[TicketDesk] = []

    def __call__(self, **settings: Any) -> TicketDesk:
        self.made.append(self.world.connector(self.world.server.url, sleep=_at_once, **settings))
        return self.made[-1]


async def _at_once(_: float) -> None:
    return None


@pytest.fixture
async def desk(world: World) -> AsyncIterator[Desks]:
    desks = Desks(world)
    yield desks
    for made in desks.made:
        await made.close()


async def test_a_recurrence_within_the_time_reopens_the_ticket_with_a_comment(
    world: World, desk: Desks
) -> None:
    await desk().apply(OPEN, LEASE)
    world.close_by_hand()
    outcome = await desk(reopen_within_h=24).apply(AGAIN, LEASE)
    assert isinstance(outcome, AlreadyDone)
    (ticket,) = world.seen()
    assert ticket.open
    assert sum("The fault is back" in comment for comment in ticket.comments) == 1
    # A successor finds it done, and says nothing twice.
    assert isinstance(await desk(reopen_within_h=24).lookup(AGAIN), AlreadyDone)
    assert isinstance(await desk(reopen_within_h=24).apply(AGAIN, LEASE), AlreadyDone)
    assert len(world.seen()[0].comments) == len(ticket.comments)


async def test_what_was_closed_before_that_time_stays_closed(world: World, desk: Desks) -> None:
    await desk().apply(OPEN, LEASE)
    world.close_by_hand()

    def later() -> datetime:
        return NOW + timedelta(hours=25)

    assert isinstance(await desk(reopen_within_h=24, clock=later).apply(AGAIN, LEASE), Done)
    assert [ticket.open for ticket in world.seen()] == [False, True]


async def test_by_default_a_recurrence_gets_a_ticket_of_its_own(world: World, desk: Desks) -> None:
    await desk().apply(OPEN, LEASE)
    world.close_by_hand()
    assert isinstance(await desk().apply(AGAIN, LEASE), Done)
    assert len(world.seen()) == 2


async def test_a_ticket_that_is_still_open_takes_the_recurrence_too(world: World, desk: Desks) -> None:
    await desk().apply(OPEN, LEASE)
    assert isinstance(await desk(reopen_within_h=24).apply(AGAIN, LEASE), AlreadyDone)
    (ticket,) = world.seen()
    assert "The fault is back" in ticket.comments[-1]


async def test_a_reopened_ticket_that_is_withdrawn_is_closed_again_and_not_found_any_more(
    world: World, desk: Desks
) -> None:
    await desk().apply(OPEN, LEASE)
    world.close_by_hand()
    await desk(reopen_within_h=24).apply(AGAIN, LEASE)
    if world.name == "servicenow":  # what is reopened there is in progress, and so in a person's hands
        assert isinstance(await desk().undo(AGAIN, LEASE), Blocked)
        return
    assert isinstance(await desk().undo(AGAIN, LEASE), Done)
    assert not world.seen()[0].open
    assert isinstance(await desk().lookup(AGAIN), Absent)


async def test_a_withdrawn_ticket_is_not_reopened(world: World, desk: Desks) -> None:
    await desk().apply(OPEN, LEASE)
    await desk().undo(OPEN, LEASE)
    assert isinstance(await desk(reopen_within_h=24).apply(AGAIN, LEASE), Done)
    assert [ticket.open for ticket in world.seen()] == [False, True]


async def test_another_fault_never_gets_its_ticket(world: World, desk: Desks) -> None:
    await desk().apply(OPEN, LEASE)
    other = replace(AGAIN, context={**CONTEXT, "root": "GPU 0000:5d:00 on node-07"})
    assert isinstance(await desk(reopen_within_h=24).apply(other, LEASE), Done)
    assert len(world.seen()) == 2


@pytest.mark.parametrize("world", NOT_SERVICENOW, indirect=True)  # there all three are requests to one path
async def test_a_crash_between_claim_and_comment_is_finished_by_the_successor(
    world: World, desk: Desks
) -> None:
    await desk().apply(OPEN, LEASE)
    world.close_by_hand()
    path = "/notes" if world.name == "gitlab" else "/comment"
    world.server.fail(InjectedFault(path, "lose_request", times=3))
    await desk(reopen_within_h=24).apply(AGAIN, LEASE)
    world.server.heal()
    successor = desk(reopen_within_h=24)
    assert isinstance(await successor.lookup(AGAIN), Waiting)
    assert isinstance(await successor.apply(AGAIN, LEASE), AlreadyDone)
    (ticket,) = world.seen()
    assert ticket.open
    assert sum("The fault is back" in comment for comment in ticket.comments) == 1


async def test_a_second_run_of_the_incident_gets_the_same_ticket(world: World, desk: Desks) -> None:
    first = await desk().apply(OPEN, LEASE)
    second = await desk().apply(effect("open_ticket", "e" * 32), LEASE)
    assert isinstance(first, Done)
    assert isinstance(second, AlreadyDone)
    assert second.result == first.result
    assert len(world.seen()) == 1


@pytest.mark.parametrize("world", NOT_SERVICENOW, indirect=True)  # whose work notes nobody can take back
async def test_a_doubled_comment_is_taken_back_by_whoever_sees_both(world: World, desk: Desks) -> None:
    await desk().apply(OPEN, LEASE)
    await desk().apply(COMMENT, LEASE)
    said = world.seen()[0].comments[0]
    _again(world)
    assert world.seen()[0].comments.count(said) == 2
    assert isinstance(await desk().apply(COMMENT, LEASE), AlreadyDone)
    assert world.seen()[0].comments.count(said) == 1


@pytest.mark.parametrize("world", NOT_SERVICENOW, indirect=True)
async def test_two_comments_of_one_key_that_differ_in_their_facts_are_one_too(
    world: World, desk: Desks
) -> None:
    await desk().apply(OPEN, LEASE)
    await desk().apply(COMMENT, LEASE)
    first = world.seen()[0].comments[0]
    _again(world, "node-07", "node-08")
    assert isinstance(await desk().apply(COMMENT, LEASE), AlreadyDone)
    assert world.seen()[0].comments == [first]


@pytest.mark.parametrize("world", NOT_SERVICENOW, indirect=True)
async def test_a_closing_text_that_is_there_twice_is_taken_back_by_whoever_closes_again(
    world: World, desk: Desks
) -> None:
    await desk().apply(OPEN, LEASE)
    await desk().apply(CLOSE, LEASE)
    said = world.seen()[0].comments[0]
    _again(world)
    assert world.seen()[0].comments.count(said) == 2
    assert isinstance(await desk().apply(CLOSE, LEASE), AlreadyDone)
    assert world.seen()[0].comments == [said]


def _again(world: World, old: str = "", new: str = "") -> None:
    """The first comment once more, as a lost answer leaves it; with `new` for `old` in its facts."""
    server = world.server
    if isinstance(server, GitHubStandin):
        comments = server.issues[0].comments
        comments[900] = next(iter(comments.values())).replace(old, new)
    elif isinstance(server, GitLabStandin):
        server.issues[0].notes.append(StandinNote(900, server.issues[0].notes[0].body.replace(old, new)))
    elif isinstance(server, JiraStandin):
        again = json.dumps(server.issues[0].comments[0]).replace(old, new)
        server.issues[0].comments.append(json.loads(again))


async def test_the_evidence_of_a_hardware_fault_is_attached_once(world: World, desk: Desks) -> None:
    proven = replace(OPEN, context={**CONTEXT, EVIDENCE: encode(PROOF).decode(), TIMELINE_SVG: "<svg/>"})
    first = await desk().apply(proven, LEASE)
    assert isinstance(first, Waiting)
    again = replace(proven, prior=first.result)
    assert isinstance(await desk().lookup(again), Waiting)
    opened = await desk().apply(again, LEASE)
    assert isinstance(opened, AlreadyDone)
    assert opened.detail == f"opened {first.result['ticket']}", "a new ticket is not called an old one"
    assert isinstance(await desk().lookup(again), AlreadyDone)
    assert isinstance(await desk().apply(again, LEASE), AlreadyDone)
    (ticket,) = world.seen()
    wanted = {"evidence.json", "evidence.txt", "timeline.svg"}
    assert set(ticket.files) == ({"evidence.txt"} if world.name == "github" else wanted)
    assert b"GPU-1b" in ticket.files["evidence.txt"]
    assert "NVRM" not in ticket.body, "the evidence is a file and no part of the text"


async def test_a_file_that_two_processes_attach_at_once_stays_once(world: World, desk: Desks) -> None:
    proven = replace(OPEN, context={**CONTEXT, EVIDENCE: encode(PROOF).decode()})
    await desk().apply(proven, LEASE)
    both = await asyncio.gather(desk().apply(proven, LEASE), desk().apply(proven, LEASE))
    assert all(isinstance(outcome, AlreadyDone) for outcome in both)
    wanted = ["evidence.txt"] if world.name == "github" else ["evidence.json", "evidence.txt"]
    assert sorted(world.seen()[0].file_names) == wanted


@pytest.mark.parametrize("world", [name for name in WORLDS if name != "github"], indirect=True)
async def test_a_ticket_that_takes_no_files_is_still_a_ticket(world: World, desk: Desks) -> None:
    proven = replace(OPEN, context={**CONTEXT, EVIDENCE: encode(PROOF).decode()})
    first = await desk().apply(proven, LEASE)
    path = {"servicenow": "/attachment/file", "gitlab": "/uploads"}
    world.server.fail(InjectedFault(path.get(world.name, "/attachments"), "status", times=9, status=403))
    assert isinstance(first, Waiting)
    outcome = await desk().apply(replace(proven, prior=first.result), LEASE)
    assert isinstance(outcome, AlreadyDone)
    assert "takes no evidence" in outcome.detail


async def test_a_ticket_leads_to_its_incident_in_the_console(world: World, desk: Desks) -> None:
    outcome = await desk(console_url="https://console.example.test").apply(OPEN, LEASE)
    assert isinstance(outcome, Done)
    assert f"https://console.example.test/incidents/{OPEN.incident}" in world.seen()[0].body
    assert set(outcome.result) == {"ticket", "id", "url"}
    assert str(outcome.result["url"]).startswith("http")


async def test_what_a_person_took_on_is_not_withdrawn(world: World, desk: Desks) -> None:
    await desk().apply(OPEN, LEASE)
    world.take_on()
    assert isinstance(await desk().undo(OPEN, LEASE), Blocked)
    assert world.seen()[0].open


async def test_a_title_as_long_as_a_log_line_is_cut_and_not_refused(world: World, desk: Desks) -> None:
    long = replace(OPEN, context={**CONTEXT, "title": "x" * 5000, "reason": "y\n" * 90_000})
    assert isinstance(await desk().apply(long, LEASE), Done)
    assert isinstance(await desk().apply(long, LEASE), AlreadyDone)


async def test_wrong_credentials_are_a_refusal_that_says_where(world: World, desk: Desks) -> None:
    connector = desk()
    world.server.token = "another"  # type: ignore[attr-defined]
    outcome = await connector.apply(OPEN, LEASE)
    assert isinstance(outcome, Refused)
    assert world.seen() == []


LONGEST = {"jira": 240, "jira-dc": 240, "servicenow": 90, "github": 40, "gitlab": 245}
"""Characters of the longest incident id of which every field there keeps the whole mark, by and large."""
STRANGE: dict[str, dict[str, Any]] = {
    "a key that is no number": {"key": "run-1/open_ticket"},
    "a short key": {"key": "a" * 15},
    "no incident": {"incident": ""},
    "an incident that a field cuts": {"incident": "inc-" + "f" * 300},
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE.keys())
@pytest.mark.parametrize("action", ["open_ticket", "comment_ticket", "close_ticket"])
async def test_what_would_not_be_found_again_is_refused_before_anything_is_made(
    world: World, desk: Desks, action: str, strange: dict[str, Any]
) -> None:
    asked = replace(effect(action, "a" * 32), **strange)
    assert isinstance(await desk().apply(asked, LEASE), Refused)
    assert isinstance(await desk().lookup(asked), Refused)
    assert not [request for request in world.server.requests if request.method != "GET"]


async def test_the_longest_id_that_a_field_keeps_is_found_again(world: World, desk: Desks) -> None:
    longest = LONGEST[world.name]
    fits = replace(OPEN, incident="inc-" + "f" * (longest - 10))
    assert isinstance(await desk().apply(fits, LEASE), Done)
    assert isinstance(await desk().lookup(fits), AlreadyDone)
    cut = replace(OPEN, key="e" * 32, incident="inc-" + "f" * (longest + 10))
    assert isinstance(await desk().apply(cut, LEASE), Refused)
    assert len(world.seen()) == 1


async def test_a_ticket_that_is_not_found_by_its_mark_any_more_gets_no_second(
    world: World, desk: Desks
) -> None:
    same = desk()
    made = await same.apply(OPEN, LEASE)
    assert isinstance(made, Done)
    world.hide()
    for _ in range(5):
        again = await same.apply(OPEN, LEASE)
        assert isinstance(again, Blocked)
        assert str(made.result["ticket"]) in again.reason
    # Nor by a successor that knows from the record what was made.
    told = await desk().apply(replace(OPEN, prior=made.result), LEASE)
    assert isinstance(told, Blocked)
    assert len(world.seen()) == 1


@pytest.mark.parametrize("world", ["jira"], indirect=True)
async def test_creates_whose_answers_and_marks_are_lost_do_not_go_on_for_ever(
    world: World, desk: Desks
) -> None:
    time = [NOW]
    same = desk(clock=lambda: time[0])
    for _ in range(100):
        world.server.heal()
        world.server.fail(InjectedFault("/rest/api/3/issue", "lose_answer"))
        outcome = await same.apply(OPEN, LEASE)
        for ticket in range(len(world.seen())):
            world.hide(ticket)
        pause = outcome.after_s if isinstance(outcome, Blocked) else 60.0
        time[0] += timedelta(seconds=max(pause, 60.0))
        if time[0] - NOW > timedelta(days=7):
            break
    assert time[0] - NOW > timedelta(days=7)
    assert isinstance(outcome, Blocked | Unknown)
    assert 8 <= len(world.seen()) <= 20


async def test_a_title_and_a_text_that_say_nothing_do_not_keep_a_ticket_from_closing(
    world: World, desk: Desks
) -> None:
    for number, nothing in enumerate(("\x00", " \n ", "\u200b")):
        key, incident = f"{number}" * 32, f"inc-{number}"
        context = {**CONTEXT, "title": nothing, "reason": nothing}
        for action in ("open_ticket", "close_ticket"):
            blank = effect(action, key, incident=incident, context=context, summary=nothing, text=nothing)
            assert isinstance(await desk().apply(blank, LEASE), Done)
    assert not [ticket for ticket in world.seen() if ticket.open]

"""Jira's own traps: a search that lags, copies that got through, fields it refuses, workflows that differ."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from connectors.base import Absent, AlreadyDone, Blocked, Done, NoLease, Refused, Unknown
from connectors.tickets.jira import Jira
from sandbox.fake_services.jira import JiraStandin
from sandbox.fake_services.server import InjectedFault
from streams.config.ticket_settings import JiraSettings
from streams.model.errors import ConfigError
from tests.connectors.tickets.test_jira_contract import effect, jira

OPEN = effect("open_ticket", "a" * 32)
LEASE = NoLease()


class Time:
    """A clock for the stand-in's search that moves when the connector waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@asynccontextmanager
async def world(
    lag_s: float = 0.0, **settings: object
) -> AsyncIterator[tuple[JiraStandin, Callable[[], Jira], Time]]:
    time, opened = Time(), list[Jira]()
    async with JiraStandin(lag_s=lag_s, clock=time) as server:

        def connector() -> Jira:
            made = jira(server.url, time.sleep, **settings)
            opened.append(made)
            return made

        yield server, connector, time
        for made in opened:
            await made.close()


async def test_a_create_whose_answer_was_lost_is_found_although_the_search_lags() -> None:
    async with world(lag_s=3, search_lag_s=5) as (server, connector, _):
        server.fail(InjectedFault("/rest/api/3/issue", "lose_answer"))
        assert isinstance(await connector().apply(OPEN, LEASE), Unknown)
        found = await connector().lookup(OPEN)
        assert isinstance(found, AlreadyDone)
        assert found.result["ticket"] == "GPU-1"


async def test_nothing_is_believed_to_be_absent_before_the_second_look() -> None:
    async with world(search_lag_s=5) as (server, connector, time):
        assert isinstance(await connector().lookup(OPEN), Absent)
        assert time.now == 5
        assert len(server.calls("search")) == 2


async def test_a_second_call_in_the_same_process_does_not_wait_for_the_search() -> None:
    async with world(lag_s=600) as (server, connector, _):
        same = connector()
        assert isinstance(await same.apply(OPEN, LEASE), Done)
        assert isinstance(await same.apply(OPEN, LEASE), AlreadyDone)
        told = replace(OPEN, prior={"id": "10001"})
        assert isinstance(await connector().apply(told, LEASE), AlreadyDone)
        assert len(server.issues) == 1


async def test_a_copy_that_got_through_is_folded_into_the_first() -> None:
    async with world(lag_s=10) as (server, connector, time):
        for _ in range(2):
            await connector().apply(OPEN, LEASE)
        assert len(server.open_issues()) == 2
        time.now += 10
        comment = effect("comment_ticket", "b" * 32, text="node-07 is closed")
        assert isinstance(await connector().apply(comment, LEASE), Done)
        assert [issue.key for issue in server.open_issues()] == ["GPU-1"]
        assert "GPU-1" in str(server.issues[1].comments)
        assert "node-07 is closed" in str(server.issues[0].comments)


async def test_a_copy_that_its_workflow_will_not_close_does_not_fail_the_step() -> None:
    async with world(lag_s=10, done_transition="Cancelled") as (_, connector, time):
        for _ in range(2):
            await connector().apply(OPEN, LEASE)
        time.now += 10
        assert isinstance(await connector().apply(OPEN, LEASE), AlreadyDone)


async def test_issues_of_another_incident_are_left_alone() -> None:
    async with world() as (server, connector, _):
        other = replace(OPEN, key="d" * 32, incident="inc-other")
        await connector().apply(OPEN, LEASE)
        await connector().apply(other, LEASE)
        await connector().apply(effect("close_ticket", "c" * 32), LEASE)
        assert [issue.status for issue in server.issues] == ["Done", "To Do"]


async def test_a_refused_field_is_named() -> None:
    async with world(issue_type="Epic of Epics") as (_, connector, _):
        outcome = await connector().apply(OPEN, LEASE)
        assert isinstance(outcome, Refused)
        assert "field issuetype: Specify a valid issue type" in outcome.reason


async def test_wrong_credentials_are_a_refusal_and_not_an_error() -> None:
    async with world(user="somebody-else") as (_, connector, _):
        assert isinstance(await connector().apply(OPEN, LEASE), Refused)


async def test_an_unknown_transition_is_refused_with_those_on_offer() -> None:
    async with world(done_transition="Ship it") as (_, connector, _):
        await connector().apply(OPEN, LEASE)
        outcome = await connector().apply(effect("close_ticket", "c" * 32), LEASE)
        assert isinstance(outcome, Refused)
        assert "In Progress, Done" in outcome.reason


async def test_the_transition_is_looked_up_by_name_whatever_its_id_is_there() -> None:
    async with world(done_transition="done") as (server, connector, _):
        server.transitions["To Do"] = {"991": "Done"}
        await connector().apply(OPEN, LEASE)
        assert isinstance(await connector().apply(effect("close_ticket", "c" * 32), LEASE), Done)


async def test_a_comment_before_its_ticket_can_be_found_waits_instead_of_failing() -> None:
    async with world() as (_, connector, _):
        assert isinstance(await connector().apply(effect("comment_ticket", "b" * 32), LEASE), Blocked)


async def test_a_comment_is_found_behind_many_others() -> None:
    async with world() as (server, connector, _):
        await connector().apply(OPEN, LEASE)
        comment = effect("comment_ticket", "b" * 32, text="hello")
        for chatter in range(250):
            server.issues[0].comments.append(_said(f"line {chatter}"))
        await connector().apply(comment, LEASE)
        for chatter in range(250):
            server.issues[0].comments.append(_said(f"line {chatter}"))
        assert isinstance(await connector().apply(comment, LEASE), AlreadyDone)
        assert len(server.issues[0].comments) == 501


async def test_hostile_text_ends_in_text_nodes() -> None:
    async with world() as (server, connector, _):
        hostile = "h1. {html}<script>\x00\x1b[2J [~admin] " + "x" * 50_000 + "\ud800"
        shown = replace(OPEN, context={"title": hostile, "reason": hostile, "link": hostile, "empty": ""})
        assert isinstance(await connector().apply(shown, LEASE), Done)
        assert len(server.issues[0].summary) <= 255


async def test_a_ticket_key_cannot_lead_elsewhere() -> None:
    async with world() as (server, connector, _):
        outcome = await connector().apply(effect("close_ticket", "c" * 32, ticket="../../user?x="), LEASE)
        assert isinstance(outcome, Blocked)
        assert not server.calls("user")


async def test_a_ticket_closed_by_a_person_is_not_closed_again_and_says_so() -> None:
    async with world() as (server, connector, _):
        await connector().apply(OPEN, LEASE)
        server.issues[0].status = "Done"
        assert isinstance(await connector().apply(effect("close_ticket", "c" * 32), LEASE), AlreadyDone)
        assert server.issues[0].comments == []


def test_without_a_base_url_there_is_no_connector() -> None:
    with pytest.raises(ConfigError, match=r"jira\.base_url"):
        Jira(JiraSettings())


def _said(text: str) -> dict[str, object]:
    content = [{"type": "paragraph", "content": [{"type": "text", "text": text}]}]
    return {"type": "doc", "version": 1, "content": content}

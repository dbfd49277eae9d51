"""The traps of each system: what its documentation warns of, and what happens then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from connectors.base import AlreadyDone, Blocked, Done, NoLease, Outcome, Refused, Retry
from connectors.tickets.desk import TicketDesk
from sandbox.fake_services.github import StandinGitHubIssue
from sandbox.fake_services.jira import JiraStandin
from sandbox.fake_services.servicenow import ServiceNowStandin, StandinRecord
from tests.connectors.tickets.ticket_worlds import (
    CONTEXT,
    NOW,
    WORLDS,
    GitHubWorld,
    GitLabWorld,
    JiraWorld,
    ServiceNowWorld,
    World,
    effect,
)

pytestmark = pytest.mark.embedded

LEASE = NoLease()
OPEN = effect("open_ticket", "a" * 32)
CLOSE = effect("close_ticket", "c" * 32, text="it is back")


@asynccontextmanager
async def desk_at(world: World, **settings: Any) -> AsyncIterator[TicketDesk]:
    async def at_once(_: float) -> None:
        return None

    async with world.server:
        desk = world.connector(world.server.url, sleep=at_once, **settings)
        yield desk
        await desk.close()


def reason(outcome: Outcome) -> str:
    assert isinstance(outcome, Refused), outcome
    return outcome.reason


async def test_jira_clouds_old_search_is_gone() -> None:
    async with JiraStandin() as jira, httpx.AsyncClient(auth=(jira.user, jira.token)) as client:
        answer = await client.post(f"{jira.url}/rest/api/3/search", json={"jql": "x"})
        assert answer.status_code == 410


async def test_known_issues_are_reconciled_in_cloud_and_read_by_id_in_data_center() -> None:
    for name in ("jira", "jira-dc"):
        world = WORLDS[name]()
        world.server.lag_s = 600.0  # type: ignore[attr-defined]
        async with desk_at(world) as desk:
            assert isinstance(await desk.apply(OPEN, LEASE), Done)
            assert isinstance(await desk.apply(OPEN, LEASE), AlreadyDone)
            searches = [request.body for request in world.server.calls("search")]
        assert ("reconcileIssues" in searches[-1]) is (name == "jira")
        assert len(world.seen()) == 1


async def test_where_comments_cannot_be_deleted_a_doubled_one_becomes_a_pointer() -> None:
    server = JiraStandin(now=lambda: NOW)
    server.may_delete_comments = False
    comment = effect("comment_ticket", "b" * 32, text="closed")
    async with desk_at(JiraWorld(server)) as desk:
        await desk.apply(OPEN, LEASE)
        await desk.apply(comment, LEASE)
        server.issues[0].comments.append(dict(server.issues[0].comments[0]))
        assert isinstance(await desk.apply(comment, LEASE), AlreadyDone)
    first, second = (str(one) for one in server.issues[0].comments)
    assert "b" * 32 in first
    assert "b" * 32 not in second
    assert "said twice" in second


async def test_a_person_who_quotes_a_comment_keeps_theirs() -> None:
    server = JiraStandin(now=lambda: NOW)
    comment = effect("comment_ticket", "b" * 32, text="closed")
    async with desk_at(JiraWorld(server)) as desk:
        await desk.apply(OPEN, LEASE)
        await desk.apply(comment, LEASE)
        quoted = dict(server.issues[0].comments[0])
        said = {"type": "paragraph", "content": [{"type": "text", "text": "as the bot said"}]}
        server.issues[0].comments.append(quoted | {"content": [*quoted["content"], said]})
        assert isinstance(await desk.apply(comment, LEASE), AlreadyDone)
    assert len(server.issues[0].comments) == 2


async def test_servicenow_ignores_a_query_and_no_foreign_record_is_taken_for_ours() -> None:
    server = ServiceNowStandin(now=lambda: NOW)
    theirs = {"sys_id": "f" * 32, "number": "INC9", "state": "1", "sys_created_on": "2020-01-01 00:00:00"}
    server.records.append(StandinRecord("incident", theirs | {"short_description": "printer"}))
    server.not_queried.add("correlation_id")
    async with desk_at(ServiceNowWorld(server)) as desk:
        outcome = await desk.apply(CLOSE, LEASE)
    assert isinstance(outcome, Blocked)
    assert server.records[0].state == "1"
    assert server.records[0].notes == []


async def test_servicenow_says_which_fields_closing_wants() -> None:
    world = WORLDS["servicenow"]()
    assert isinstance(world, ServiceNowWorld)
    async with desk_at(world) as desk:
        await desk.apply(OPEN, LEASE)
        world.server.may_write = False
        assert "security constraints" in reason(await desk.apply(CLOSE, LEASE))
        world.server.may_write = True
        assert isinstance(await desk.apply(CLOSE, LEASE), Done)
    fields = world.server.records[0].fields
    assert (fields["state"], fields["close_code"]) == ("6", "Solved (Permanently)")
    assert fields["close_notes"]


async def test_servicenow_change_requests_have_states_of_their_own() -> None:
    world = WORLDS["servicenow"]()
    assert isinstance(world, ServiceNowWorld)
    world.table = "change_request"
    async with desk_at(world) as desk:
        assert isinstance(await desk.apply(OPEN, LEASE), Done)
        assert isinstance(await desk.apply(CLOSE, LEASE), Done)
        assert isinstance(await desk.apply(CLOSE, LEASE), AlreadyDone)
    assert world.server.records[0].fields["number"].startswith("CHG")
    assert world.server.records[0].state == "3"


async def test_a_closed_servicenow_incident_is_not_reopened_but_followed_by_another() -> None:
    world = WORLDS["servicenow"]()
    assert isinstance(world, ServiceNowWorld)
    async with desk_at(world, reopen_within_h=24) as desk:
        await desk.apply(OPEN, LEASE)
        world.server.records[0].fields |= {"state": "7", "closed_at": f"{NOW:%Y-%m-%d %H:%M:%S}"}
        again = effect("open_ticket", "d" * 32, incident="inc-fedcba9876543210")
        assert isinstance(await desk.apply(again, LEASE), Done)
    assert len(world.server.records) == 2


async def test_github_pull_requests_among_the_issues_are_left_alone() -> None:
    world = WORLDS["github"]()
    assert isinstance(world, GitHubWorld)
    async with desk_at(world) as desk:
        label = f"faultline-{OPEN.incident}"
        body = f"<!-- faultline-{'a' * 32} -->"
        world.server.issues.append(StandinGitHubIssue(1, "a change", body, [label], [], pull_request=True))
        assert isinstance(await desk.apply(OPEN, LEASE), Done)
    assert [issue.pull_request for issue in world.server.issues] == [True, False]


async def test_a_github_token_that_cannot_label_opens_nothing_it_would_never_find_again() -> None:
    world = WORLDS["github"]()
    assert isinstance(world, GitHubWorld)
    world.server.may_label = False
    async with desk_at(world) as desk:
        assert "may not set labels" in reason(await desk.apply(OPEN, LEASE))
    assert world.server.issues == []


async def test_githubs_secondary_limit_is_a_pause_even_when_only_its_words_say_so() -> None:
    world = WORLDS["github"]()
    assert isinstance(world, GitHubWorld)
    async with desk_at(world) as desk:
        world.server.limit_writes(1)
        outcome = await desk.apply(OPEN, LEASE)
        assert isinstance(outcome, Retry)
        assert outcome.after_s >= 60
        assert isinstance(await desk.apply(OPEN, LEASE), Done)


async def test_github_says_which_field_it_refuses() -> None:
    world = WORLDS["github"]()
    async with desk_at(world, fields={"assignees": ["nobody-here"]}) as desk:
        assert "assignees: nobody-here cannot be assigned" in reason(await desk.apply(OPEN, LEASE))


async def test_whom_the_settings_assign_has_not_taken_the_issue_on() -> None:
    world = WORLDS["github"]()
    async with desk_at(world, fields={"assignees": ["gpu-oncall"]}) as desk:
        await desk.apply(OPEN, LEASE)
        assert isinstance(await desk.undo(OPEN, LEASE), Done)


async def test_a_line_of_a_log_is_no_quick_action_of_gitlab() -> None:
    world = WORLDS["gitlab"]()
    assert isinstance(world, GitLabWorld)
    said = {**CONTEXT, "title": "/close", "reason": "/close\n/assign @me"}
    async with desk_at(world) as desk:
        await desk.apply(effect("open_ticket", "a" * 32, context=said), LEASE)
        comment = effect("comment_ticket", "b" * 32, text="/close\n/close")
        assert isinstance(await desk.apply(comment, LEASE), Done)
    assert world.server.issues[0].state == "opened"


async def test_a_gitlab_token_without_the_scope_is_named_as_that() -> None:
    world = WORLDS["gitlab"]()
    assert isinstance(world, GitLabWorld)
    async with desk_at(world) as desk:
        world.server.may_write = False
        assert "insufficient_scope" in reason(await desk.apply(OPEN, LEASE))


FIELDS: dict[str, tuple[dict[str, Any], Callable[[Any], object], object]] = {
    "jira": (
        {"components": [{"name": "GPU"}], "priority": {"name": "High"}, "labels": ["hw"]},
        lambda server: (server.issues[0].fields["components"], "hw" in server.issues[0].labels),
        ([{"name": "GPU"}], True),
    ),
    "servicenow": (
        {"assignment_group": "gpu-{cluster}", "cmdb_ci": "{node}", "category": "{gpu_uuid}"},
        lambda server: {
            name: server.records[0].fields.get(name) for name in ("assignment_group", "cmdb_ci", "category")
        },
        {"assignment_group": "gpu-c1", "cmdb_ci": "node-07", "category": None},
    ),
    "github": (
        {"assignees": ["gpu-oncall"], "labels": ["{family}"]},
        lambda server: (server.issues[0].assignees, "gpu_off_bus" in server.issues[0].labels),
        (["gpu-oncall"], True),
    ),
    "gitlab": (
        {"assignee_ids": [7], "labels": "hw,{node}"},
        lambda server: (server.issues[0].assignee_ids, server.issues[0].labels[:2]),
        ([7], ["hw", "node-07"]),
    ),
}


@pytest.mark.parametrize("name", FIELDS)
async def test_the_installations_own_fields_are_filled_in(name: str) -> None:
    world, (fields, seen, expected) = WORLDS[name](), FIELDS[name]
    async with desk_at(world, fields=fields) as desk:
        assert isinstance(await desk.apply(OPEN, LEASE), Done)
        assert seen(world.server) == expected


async def test_a_fact_in_a_field_is_no_formula() -> None:
    world = WORLDS["servicenow"]()
    assert isinstance(world, ServiceNowWorld)
    said = {**CONTEXT, "node": "=cmd|' /C calc'!A0\nx"}
    async with desk_at(world, fields={"cmdb_ci": "{node}"}) as desk:
        await desk.apply(effect("open_ticket", "a" * 32, context=said), LEASE)
    assert world.server.records[0].fields["cmdb_ci"].startswith("'=")

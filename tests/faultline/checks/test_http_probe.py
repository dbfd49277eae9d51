"""Chat, ticket systems and pagers, asked with good tokens and with bad ones, of the stand-ins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faultline.checks.finding import CheckFinding
from faultline.checks.http_probe import clock_finding, expiry, service_probes
from faultline.runtime.processes import PROCESSES
from faultline.runtime.settings import Settings
from sandbox.fake_services.alertmanager import AlertmanagerStandin
from sandbox.fake_services.github import GitHubStandin
from sandbox.fake_services.gitlab import GitLabStandin
from sandbox.fake_services.jira import JiraStandin
from sandbox.fake_services.pagerduty import PagerDutyStandin
from sandbox.fake_services.server import InjectedFault
from sandbox.fake_services.servicenow import ServiceNowStandin
from sandbox.fake_services.slack import SlackStandin
from streams.model.errors import Unreachable

NOW = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)


async def found(**sections: Mapping[str, Any]) -> list[CheckFinding]:
    """What all probes of these settings find."""
    probes = list(service_probes(Settings(**sections), tuple(PROCESSES)))  # type: ignore[arg-type]
    assert probes, "something is asked"
    return [finding for _, probe in probes for finding in await probe()]


async def test_slack_with_a_good_token_has_nothing_to_find() -> None:
    async with SlackStandin() as slack:
        assert (
            await found(slack={"token": slack.token, "channel": "C0INCIDENTS", "base_url": slack.base_url})
            == []
        )
        assert not slack.calls("chat."), "nothing was posted"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"token": "xoxb-other"}, "invalid_auth"),
        ({"channel": "C0ELSEWHERE"}, "channel_not_found"),
    ],
)
async def test_slack_says_what_is_wrong_with_token_and_channel(changes: dict[str, str], named: str) -> None:
    async with SlackStandin() as slack:
        section = {"token": slack.token, "channel": "C0INCIDENTS", "base_url": slack.base_url} | changes
        (finding,) = await found(slack=section)
        assert finding.level == "fault"
        assert named in finding.what
        assert finding.remedy


async def test_scopes_that_the_app_lacks_are_named() -> None:
    async with SlackStandin() as slack:
        slack.scopes = ("channels:history",)
        slack.missing_scopes["conversations.history"] = "groups:history"
        section = {"token": slack.token, "channel": "C0INCIDENTS", "base_url": slack.base_url}
        told = " ".join(finding.what for finding in await found(slack=section))
        assert "chat:write" in told
        assert "groups:history" in told


async def test_jira_says_who_the_token_is_and_whether_it_may_create_issues() -> None:
    async with JiraStandin() as jira:
        section = {"base_url": jira.url, "user": jira.user, "token": jira.token, "project": "GPU"}
        assert await found(jira=section) == []
        (finding,) = await found(jira=section | {"token": "wrong"})
        assert finding.where == "jira.token"
        jira.may_create = False
        (finding,) = await found(jira=section)
        assert "may not create issues" in finding.what


async def test_other_ticket_systems_are_asked_with_their_tokens() -> None:
    async with ServiceNowStandin() as now, GitHubStandin() as github, GitLabStandin() as gitlab:
        sections: dict[str, dict[str, Any]] = {
            "servicenow": {"base_url": now.url, "user": now.user, "token": now.token},
            "github": {"base_url": github.url, "token": github.token, "repository": github.repository},
            "gitlab": {"base_url": gitlab.url, "token": gitlab.token, "project": gitlab.project},
        }
        for system, section in sections.items():
            assert await found(tickets={"system": system, system: section}) == [], system
            (finding,) = await found(tickets={"system": system, system: section | {"token": "wrong"}})
            assert (finding.level, "401" in finding.what) == ("fault", True), system


async def test_a_token_that_ends_soon_is_a_warning_where_the_vendor_tells() -> None:
    async with GitHubStandin() as github, GitLabStandin() as gitlab:
        github.token_expires = gitlab.token_expires = datetime.now(UTC) + timedelta(days=3)
        sections = {
            "github": {"base_url": github.url, "token": github.token, "repository": github.repository},
            "gitlab": {"base_url": gitlab.url, "token": gitlab.token, "project": gitlab.project},
        }
        for system, section in sections.items():
            (finding,) = await found(tickets={"system": system, system: section})
            assert (finding.level, "expires" in finding.what) == ("warning", True), system


async def test_pagers_are_asked_and_nobody_is_woken() -> None:
    async with PagerDutyStandin() as pager, AlertmanagerStandin() as alarms:
        sinks = {
            "page": {
                "kind": "pagerduty",
                "key": "k",
                "url": pager.url,
                "api_url": pager.url,
                "api_token": pager.token,
            },
            "quiet": {"kind": "alertmanager", "url": alarms.url},
        }
        assert await found(notifier={"sinks": sinks}) == []
        assert not pager.calls("/v2/enqueue")
        sinks["page"]["api_token"] = "wrong"
        (finding,) = await found(notifier={"sinks": sinks})
        assert finding.where == "notifier.sinks.page"


async def test_a_service_in_trouble_is_unreachable_and_no_fault_of_the_token() -> None:
    async with SlackStandin() as slack:
        slack.fail(InjectedFault("auth.test", "status", status=503))
        section = {"token": slack.token, "channel": "C0INCIDENTS", "base_url": slack.base_url}
        with pytest.raises(Unreachable, match="503"):
            await found(slack=section)


@pytest.mark.parametrize(
    ("date", "finds"),
    [
        ("Sun, 01 Mar 2026 06:00:01 GMT", False),
        ("Sun, 01 Mar 2026 05:59:57 GMT", False),
        ("Sun, 01 Mar 2026 06:00:03 GMT", True),
        ("Sun, 01 Mar 2026 05:59:50 GMT", True),
        ("not a date", False),
        (None, False),
    ],
)
def test_a_clock_that_is_off_by_more_than_two_seconds_is_found(date: str | None, finds: bool) -> None:
    assert bool(list(clock_finding("there", date, NOW))) is finds


@pytest.mark.parametrize(
    ("until", "level"),
    [
        ("2026-02-28", "fault"),
        ("2026-03-10", "warning"),
        ("2026-03-10 06:00:00 UTC", "warning"),
        ("2026-03-10T06:00:00Z", "warning"),
        ("2027-03-10", None),
        ("never", None),
        (None, None),
    ],
)
def test_an_end_is_read_in_each_vendor_s_form(until: str | None, level: str | None) -> None:
    assert [finding.level for finding in expiry("token", until, NOW)] == ([level] if level else [])

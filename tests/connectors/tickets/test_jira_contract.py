"""Jira's three actions under the suite that every connector passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from pydantic import SecretStr

from connectors.base import Effect, NoLease
from connectors.tickets.jira import Jira
from sandbox.fake_services.jira import JiraStandin
from streams.config.ticket_settings import JiraSettings
from streams.model.run import Target
from tests.contract.case import Case
from tests.contract.faults import Answer, FaultProxy
from tests.contract.suite import ConnectorContract, EffectContract

pytestmark = pytest.mark.embedded

INCIDENT = "inc-0123456789abcdef"


def is_write(method: str, path: str) -> bool:
    """A search is a POST that changes nothing."""
    return method != "GET" and "search" not in path


def jira(url: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, **settings: object) -> Jira:
    wishes = {"timeout_s": 5.0, "search_lag_s": 0.05, "user": "faultline@example.test"} | settings
    return Jira(JiraSettings(base_url=url, token=SecretStr("standin-token"), **wishes), sleep=sleep)


def effect(action: str, key: str, **params: str) -> Effect:
    return Effect(
        key=key,
        action=action,
        target=Target("Ticket", INCIDENT),
        cluster="c1",
        incident=INCIDENT,
        run="run-1",
        step=action,
        params=params,
        context={"title": "GPU fell off the bus", "reason": "XID 79 on node-07"},
    )


class TicketCase(Case):
    """An incident's ticket in a Jira of its own."""

    def __init__(self, proxy: FaultProxy, server: JiraStandin) -> None:
        super().__init__(proxy)
        self.server = server

    def connector(self) -> Jira:
        return jira(self.proxy.url, timeout_s=0.4 if self.proxy.will_hang else 3.0)

    async def snapshot(self) -> object:
        return [(i.key, i.status, list(i.labels), [str(c) for c in i.comments]) for i in self.server.issues]

    def refusal(self) -> Answer:
        return Answer(400, '{"errorMessages":[],"errors":{"summary":"Field cannot be set."}}')


class OpenTicket(TicketCase):
    def effect(self) -> Effect:
        return effect("open_ticket", "a" * 32)

    async def changes(self) -> int:
        return sum(f"faultline-{'a' * 32}" in issue.labels for issue in self.server.issues)

    async def foreign_change(self) -> None:
        self.server.issues[0].status = "In Progress"


class CommentTicket(TicketCase):
    def effect(self) -> Effect:
        return effect("comment_ticket", "b" * 32, text="node-07 is cordoned")

    async def changes(self) -> int:
        return sum("b" * 32 in str(comment) for comment in self.server.issues[0].comments)


class CloseTicket(TicketCase):
    """The comment that says why and the transition are two writes; what counts is that each is there once."""

    def effect(self) -> Effect:
        return effect("close_ticket", "c" * 32, text="node-07 is back")

    async def changes(self) -> int:
        issue = self.server.issues[0]
        said = sum("c" * 32 in str(comment) for comment in issue.comments)
        return said if issue.status == "Done" else 0


@pytest.fixture
async def server() -> AsyncIterator[JiraStandin]:
    async with JiraStandin() as standin:
        yield standin


@pytest.fixture
async def proxy(server: JiraStandin) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(server.url, is_write) as standing_between:
        yield standing_between


@pytest.fixture
async def opened(server: JiraStandin) -> None:
    """The incident has its ticket already."""
    connector = jira(server.url)
    await connector.apply(effect("open_ticket", "a" * 32), NoLease())
    await connector.close()


class TestOpenTicket(ConnectorContract):
    @pytest.fixture
    async def case(self, proxy: FaultProxy, server: JiraStandin) -> Case:
        return OpenTicket(proxy, server)


class TestCommentTicket(EffectContract):
    @pytest.fixture
    async def case(self, proxy: FaultProxy, server: JiraStandin, opened: None) -> Case:
        return CommentTicket(proxy, server)


class TestCloseTicket(EffectContract):
    @pytest.fixture
    async def case(self, proxy: FaultProxy, server: JiraStandin, opened: None) -> Case:
        return CloseTicket(proxy, server)

"""Every other ticket system's three actions under the suite that every connector passes; Jira Cloud has a file of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from connectors.base import Effect, NoLease
from connectors.tickets.desk import TicketDesk
from tests.connectors.tickets.ticket_worlds import WORLDS, World, effect
from tests.contract.case import Case
from tests.contract.faults import Answer, FaultProxy
from tests.contract.suite import ConnectorContract, EffectContract

pytestmark = pytest.mark.embedded

OTHERS = ("jira-dc", "servicenow", "github", "gitlab")


def is_write(method: str, path: str) -> bool:
    """Data Center's search is a POST that changes nothing."""
    return method != "GET" and "search" not in path


class TicketCase(Case):
    """An incident's ticket in a system of its own."""

    def __init__(self, proxy: FaultProxy, world: World) -> None:
        super().__init__(proxy)
        self.world = world

    def connector(self) -> TicketDesk:
        return self.world.connector(self.proxy.url, timeout_s=0.4 if self.proxy.will_hang else 3.0)

    async def snapshot(self) -> object:
        return [(s.title, s.open, list(s.comments), s.found_by) for s in self.world.seen()]

    def refusal(self) -> Answer:
        return Answer(400, '{"message":"Field cannot be set."}')

    def throttled(self, after_s: int) -> Answer:
        if self.world.name != "github":
            return super().throttled(after_s)
        # The secondary limit: a 403.
        headers = {"Content-Type": "application/json", "Retry-After": str(after_s)}
        return Answer(403, '{"message":"You have exceeded a secondary rate limit."}', headers)


class OpenTicket(TicketCase):
    def effect(self) -> Effect:
        return effect("open_ticket", "a" * 32)

    async def changes(self) -> int:
        return sum(f"faultline-{'a' * 32}" in ticket.found_by for ticket in self.world.seen())

    async def foreign_change(self) -> None:
        self.world.take_on()


class CommentTicket(TicketCase):
    def effect(self) -> Effect:
        return effect("comment_ticket", "b" * 32, text="node-07 is cordoned")

    async def changes(self) -> int:
        return sum("b" * 32 in comment for comment in self.world.seen()[0].comments)


class CloseTicket(TicketCase):
    """The comment that says why and the closing are two writes; what counts is that each is there once."""

    def effect(self) -> Effect:
        return effect("close_ticket", "c" * 32, text="node-07 is back")

    async def changes(self) -> int:
        ticket = self.world.seen()[0]
        return 0 if ticket.open else sum("c" * 32 in comment for comment in ticket.comments)


@pytest.fixture(params=OTHERS)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made = WORLDS[request.param]()
    async with made.server:
        yield made


@pytest.fixture
async def proxy(world: World) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(world.server.url, is_write) as standing_between:
        yield standing_between


@pytest.fixture
async def opened(world: World) -> None:
    """The incident has its ticket already."""
    connector = world.connector(world.server.url)
    await connector.apply(effect("open_ticket", "a" * 32), NoLease())
    await connector.close()


class TestOpenTicket(ConnectorContract):
    @pytest.fixture
    async def case(self, proxy: FaultProxy, world: World) -> Case:
        return OpenTicket(proxy, world)


class TestCommentTicket(EffectContract):
    @pytest.fixture
    async def case(self, proxy: FaultProxy, world: World, opened: None) -> Case:
        return CommentTicket(proxy, world)


class TestCloseTicket(EffectContract):
    @pytest.fixture
    async def case(self, proxy: FaultProxy, world: World, opened: None) -> Case:
        return CloseTicket(proxy, world)

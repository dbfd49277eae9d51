"""Posts in Teams through a workflow, and what a workflow keeps to itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest
from pydantic import SecretStr

from connectors.base import Absent, AlreadyDone, Done, Effect, NoLease, Refused, Retry, Unknown
from connectors.posts.teams import Teams
from sandbox.fake_services.server import InjectedFault
from sandbox.fake_services.teams import MAX_MESSAGE_BYTES, TeamsStandin
from streams.config.post_settings import TeamsSettings
from streams.model.message import Code, Fact, Facts, Heading, Message, Paragraph, Table
from tests.connectors.posts.blind import BlindContract
from tests.connectors.posts.effects import post
from tests.contract.case import Case, carry_out, when_sent
from tests.contract.faults import Fault, FaultProxy
from tests.contract.suite import MAKES_IT_UNCLEAR, fresh

pytestmark = pytest.mark.embedded


@pytest.fixture
async def server() -> AsyncIterator[TeamsStandin]:
    async with TeamsStandin() as standin:
        yield standin


def teams(url: str, server: TeamsStandin, **settings: object) -> Teams:
    wishes: dict[str, object] = {"timeout_s": 3.0} | settings
    return Teams(TeamsSettings(url=SecretStr(url + server.trigger), **wishes))


async def test_a_post_is_a_card_that_teams_takes_and_names_its_incident(server: TeamsStandin) -> None:
    connector = teams(server.url, server)
    outcome = await connector.apply(post(first=False, subject="Incident 7: gpu-17"), NoLease())
    await connector.close()
    assert isinstance(outcome, Done)
    assert server.lost == []
    shown = orjson.dumps(server.posts[0]).decode()
    assert "Incident 7: gpu-17" in shown
    assert "{{DATE(2030-05-04T03:02:01Z, SHORT)}}" in shown
    assert "Approve" not in shown


@pytest.mark.parametrize(
    "block",
    [
        Code("\n".join(f"line {number} of a long log" for number in range(20_000))),
        Code("y" * 5_000_000),
        Paragraph("ü" * 5_000_000),
        Table(("a", "b"), tuple(("x" * 300, "y" * 300) for _ in range(5_000))),
        Facts(tuple(Fact("z" * 900, "z" * 900) for _ in range(500))),
    ],
    ids=["lines", "one_line", "not_ascii", "table", "facts"],
)
async def test_a_post_too_large_for_teams_keeps_its_beginning(
    server: TeamsStandin, block: Code | Paragraph | Table | Facts
) -> None:
    connector = teams(server.url, server)
    message = Message(
        "s", (Heading("the beginning"), Paragraph("why"), block, Paragraph("the end"), block, block)
    )
    await connector.apply(post(message=message), NoLease())
    await connector.close()
    assert server.lost == []
    shown = orjson.dumps(server.posts[0]).decode()
    assert len(shown) < MAX_MESSAGE_BYTES
    assert "the beginning" in shown
    assert "the rest is left out" in shown


async def test_a_202_says_nothing_of_a_post(server: TeamsStandin) -> None:
    """The caveat that the documentation tells: nobody learns here that the flow is broken."""
    server.orphaned = True
    connector = teams(server.url, server)
    assert isinstance(await connector.apply(post(), NoLease()), Done)
    await connector.close()
    assert (len(server.posts), server.lost) == (0, ["the flow has no owner"])


async def test_teams_own_limit_is_waited_for(server: TeamsStandin) -> None:
    now = [0.0]
    server.per_window, server.window_s, server._clock = 2, 60.0, lambda: now[0]
    connector = teams(server.url, server)
    outcomes = [await connector.apply(post(key=str(number) * 32), NoLease()) for number in range(3)]
    assert [type(one) for one in outcomes] == [Done, Done, Retry]
    assert isinstance(outcomes[2], Retry)
    now[0] += outcomes[2].after_s
    assert isinstance(await connector.apply(post(key="2" * 32), NoLease()), Done)
    await connector.close()
    assert len(server.posts) == 3


async def test_what_may_have_been_posted_is_not_posted_again(server: TeamsStandin) -> None:
    server.fail(InjectedFault("/workflows", "lose_answer"))
    connector, successor = teams(server.url, server), teams(server.url, server)
    first = await connector.apply(post(), NoLease())
    again = await connector.apply(post(), NoLease())
    found = await successor.lookup(post())
    await connector.close()
    await successor.close()
    assert [type(one) for one in (first, again, found)] == [Unknown, AlreadyDone, AlreadyDone]
    assert again.result == found.result == {"unclear": True}  # type: ignore[union-attr]
    assert len(server.posts) == 1


async def test_where_a_copy_is_preferred_it_is_posted_again(server: TeamsStandin) -> None:
    server.fail(InjectedFault("/workflows", "lose_request"))
    connector = teams(server.url, server, repeat_unclear=True)
    assert isinstance(await connector.apply(post(), NoLease()), Unknown)
    assert isinstance(await connector.lookup(post()), Absent)
    assert isinstance(await connector.apply(post(), NoLease()), Done)
    await connector.close()
    assert len(server.posts) == 1


async def test_the_url_is_in_no_error(server: TeamsStandin) -> None:
    connector = teams(server.url, server)
    server.sig = "another"
    outcome = await connector.apply(post(), NoLease())
    await connector.close()
    assert isinstance(outcome, Refused)
    assert "standin-sig" not in outcome.reason
    assert "workflows" not in outcome.reason


class TeamsCase(Case):
    """A post in a channel of its own, where a copy is preferred to a gap."""

    def __init__(self, proxy: FaultProxy, server: TeamsStandin) -> None:
        super().__init__(proxy)
        self.server = server

    def effect(self) -> Effect:
        return post()

    def connector(self) -> Teams:
        timeout_s = 0.4 if self.proxy.will_hang else 3.0
        return teams(self.proxy.url, self.server, timeout_s=timeout_s, repeat_unclear=True)

    async def changes(self) -> int:
        """Posts by id: Teams does not fold copies, so at least one and at most one a process and fault is what can hold."""
        return len(set(self.server.ids))

    async def snapshot(self) -> object:
        return list(self.server.posts)


class TestTeamsThatRepeats(BlindContract):
    """With `repeat_unclear` the suite holds but for what needs a Teams that can be asked, or folds copies."""

    @pytest.fixture
    async def case(self, server: TeamsStandin) -> AsyncIterator[Case]:
        async with FaultProxy(server.url) as proxy:
            yield TeamsCase(proxy, server)

    async def test_called_by_two_processes_it_changes_the_world_once(self, case: Case) -> None:
        """It does not: the copy that `repeat_unclear` accepts is one. Without it the second process posts nothing, see below."""
        assert isinstance(case, TeamsCase)
        async with fresh(case) as one, fresh(case) as other:
            await carry_out(case, one)
            await carry_out(case, other)
        assert len(case.server.posts) == 2


@pytest.mark.parametrize("fault", MAKES_IT_UNCLEAR)
async def test_without_repeats_nothing_is_ever_posted_twice(server: TeamsStandin, fault: Fault) -> None:
    async with FaultProxy(server.url) as proxy:
        proxy.on_writes(fault)
        crashed = teams(proxy.url, server, timeout_s=0.4 if proxy.will_hang else 3.0)
        assert isinstance(await when_sent(lambda: crashed.apply(post(), NoLease())), Unknown)
        for connector in (crashed, teams(proxy.url, server)):
            found = await connector.lookup(post())
            assert isinstance(found, AlreadyDone)
            assert found.result == {"unclear": True}
            await connector.close()
        assert len(server.posts) <= 1
        assert len(proxy.writes) == 1

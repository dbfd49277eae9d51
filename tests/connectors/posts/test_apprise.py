"""Posts through the real Apprise, to a receiver of its JSON on loopback: each service at most once, in bounded time."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from pydantic import SecretStr

from connectors.base import AlreadyDone, Done, NoLease, Refused, Unknown
from connectors.posts.apprise_post import ApprisePost
from sandbox.fake_services.server import InjectedFault, Standin
from streams.config.post_settings import AppriseSettings
from streams.model.errors import ConfigError, Fenced
from streams.model.message import Message, Paragraph
from tests.connectors.posts.effects import post
from tests.contract.case import LostLease

pytestmark = pytest.mark.embedded


class JsonReceiver(Standin):
    """What Apprise's `json://HOST/NAME` posts to: any body, 200."""

    def __init__(self, patience_s: float = 1.0) -> None:
        super().__init__()
        self.patience_s = patience_s
        self.app.router.add_post("/{name}", self._take)

    async def _take(self, request: web.Request) -> web.Response:
        return web.Response(status=200)

    def service(self, name: str) -> SecretStr:
        """Its URL as Apprise wants it; it gives up waiting for an answer after `patience_s`."""
        return SecretStr(f"{self.url.replace('http', 'json', 1)}/{name}?rto={self.patience_s}")


@pytest.fixture
async def server() -> AsyncIterator[JsonReceiver]:
    async with JsonReceiver() as receiver:
        yield receiver


def apprise(server: JsonReceiver, *names: str, timeout_s: float = 20.0) -> ApprisePost:
    return ApprisePost(AppriseSettings(urls=tuple(map(server.service, names)), timeout_s=timeout_s))


async def test_every_service_gets_a_post_once(server: JsonReceiver) -> None:
    connector = apprise(server, "one", "two")
    assert isinstance(await connector.apply(post(), NoLease()), Done)
    assert isinstance(await connector.apply(post(), NoLease()), AlreadyDone)
    assert isinstance(await connector.lookup(post()), AlreadyDone)
    assert isinstance(await connector.undo(post(), NoLease()), Refused)
    await connector.close()
    assert sorted(request.path for request in server.requests) == ["/one", "/two"]
    body = server.requests[0].body
    assert body["title"] == "GPU fell off the bus on gpu-17"
    assert "Node: gpu-17" in body["message"]


async def test_nobody_is_called_by_a_text(server: JsonReceiver) -> None:
    connector = apprise(server, "one")
    message = Message("s", (Paragraph("@everyone look at this\\nplease"),))
    await connector.apply(post(message=message, subject="@here"), NoLease())
    await connector.close()
    body = server.requests[0].body
    assert "@everyone" not in body["message"]
    assert "@here" not in body["title"]
    assert "\\n" in body["message"]


async def test_a_service_that_fails_is_named_and_not_tried_again(server: JsonReceiver) -> None:
    server.fail(InjectedFault("/two", "status", status=500))
    connector = apprise(server, "one", "two")
    outcome = await connector.apply(post(), NoLease())
    await connector.apply(post(), NoLease())
    await connector.close()
    assert isinstance(outcome, Done)
    assert outcome.result["missed"] == ("2 (json)",)
    assert len(server.requests) == 2


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "hang"])
async def test_what_may_have_been_posted_is_not_repeated(server: JsonReceiver, fault: str) -> None:
    server.fail(InjectedFault("/one", fault, times=9))  # type: ignore[arg-type]
    connector = apprise(server, "one")
    first = await connector.apply(post(), NoLease())
    tried = len(server.requests) + server.turned_away
    again = await connector.apply(post(), NoLease())
    await connector.close()
    assert isinstance(first, Unknown)
    assert isinstance(again, AlreadyDone)
    assert again.result == {"unclear": True}
    assert server.url not in first.reason
    successor = apprise(server, "one")
    assert await successor.lookup(post()) != again
    assert isinstance(await successor.lookup(post()), AlreadyDone)
    await successor.close()
    assert len(server.requests) + server.turned_away == tried


async def test_a_service_that_hangs_is_left_after_its_time(server: JsonReceiver) -> None:
    server.patience_s = 30.0
    server.fail(InjectedFault("/one", "hang"))
    connector = apprise(server, "one", "two", timeout_s=2.0)
    outcome = await connector.apply(post(), NoLease())
    await connector.close()
    assert isinstance(outcome, Done)
    assert outcome.result["missed"] == ("1 (json)",)


async def test_without_its_lease_nothing_is_posted(server: JsonReceiver) -> None:
    connector = apprise(server, "one")
    with pytest.raises(Fenced):
        await connector.apply(post(), LostLease())
    await connector.close()
    assert server.requests == []


def test_without_apprise_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigError, match=r"faultline\[apprise\]"):
        ApprisePost(AppriseSettings(urls=(SecretStr("json://127.0.0.1/x"),)))


def test_a_url_that_apprise_does_not_know_is_told_by_its_number() -> None:
    with pytest.raises(ConfigError, match="number 1") as raised:
        ApprisePost(AppriseSettings(urls=(SecretStr("nonsense://hush"),)))
    assert "hush" not in str(raised.value)

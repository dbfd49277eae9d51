"""What a receiver of events gets, and what is made of its answers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import orjson
import pytest
from pydantic import SecretStr, ValidationError

from connectors.base import AlreadyDone, Done, NoLease, Refused, Retry, Unknown
from connectors.posts.webhook import Webhook
from sandbox.fake_services.server import InjectedFault
from sandbox.fake_services.webhook import SECRET, WebhookStandin
from streams.config.post_settings import WebhookSettings
from streams.model.message import Code, Message
from tests.connectors.posts.effects import INCIDENT, post

pytestmark = pytest.mark.embedded

NEW_SECRET = "whsec_" + base64.b64encode(b"the secret that comes after the old one").decode()


@pytest.fixture
async def server() -> AsyncIterator[WebhookStandin]:
    async with WebhookStandin() as standin:
        yield standin


def webhook(
    server: WebhookStandin, path: str = "/hook", secret: str = SECRET, old: str | None = None
) -> Webhook:
    return Webhook(
        WebhookSettings(
            url=SecretStr(server.url + path),
            secret=SecretStr(secret),
            old_secret=SecretStr(old) if old else None,
            timeout_s=3.0,
        )
    )


async def test_an_event_has_the_blocks_the_text_and_the_ids(server: WebhookStandin) -> None:
    connector = webhook(server)
    outcome = await connector.apply(post(first=False), NoLease())
    await connector.close()
    assert isinstance(outcome, Done)
    (event,) = server.events.values()
    assert event["id"] == outcome.result["id"]
    assert (event["specversion"], event["type"]) == ("1.0", "io.faultline.post.v1")
    assert (event["source"], event["subject"]) == ("/faultline/c1", INCIDENT)
    data = event["data"]
    assert (data["incident"], data["thread"], data["first"]) == (INCIDENT, INCIDENT, False)
    kinds = [block["type"] for block in data["message"]["blocks"]]
    assert kinds == ["heading", "paragraph", "facts", "table", "code", "paragraph"]
    assert "Node: gpu-17 <https://console.example.test/n/gpu-17>" in data["text"]


async def test_copies_are_equal_byte_for_byte(server: WebhookStandin) -> None:
    for _ in range(2):
        connector = webhook(server)
        await connector.apply(post(), NoLease())
        await connector.close()
    assert len(server.events) == 1
    assert len(server.bodies) == 2
    assert len(set(server.bodies)) == 1


@pytest.mark.parametrize(
    ("theirs", "ours", "old"), [(SECRET, NEW_SECRET, SECRET), (NEW_SECRET, NEW_SECRET, SECRET)]
)
async def test_while_a_secret_is_replaced_both_are_signed_with(
    server: WebhookStandin, theirs: str, ours: str, old: str
) -> None:
    server.secret = theirs
    connector = webhook(server, secret=ours, old=old)
    assert isinstance(await connector.apply(post(), NoLease()), Done)
    await connector.close()


async def test_an_event_signed_with_another_secret_is_refused(server: WebhookStandin) -> None:
    connector = webhook(server, secret=NEW_SECRET)
    assert isinstance(await connector.apply(post(), NoLease()), Refused)
    await connector.close()
    assert server.events == {}


async def test_a_redirect_is_not_followed(server: WebhookStandin) -> None:
    connector = webhook(server, path="/moved")
    outcome = await connector.apply(post(), NoLease())
    await connector.close()
    assert isinstance(outcome, Refused)
    assert "redirect" in outcome.reason
    assert server.calls("/hook") == []


@pytest.mark.parametrize(
    ("status", "retry_after", "kind"),
    [
        (400, None, Refused),
        (401, None, Refused),
        (404, None, Refused),
        (410, None, Refused),
        (408, None, Retry),
        (425, None, Retry),
        (429, "7", Retry),
        (503, "7", Retry),
        (500, None, Unknown),
        (502, None, Unknown),
        (503, None, Unknown),
    ],
)
async def test_what_an_answer_means(
    server: WebhookStandin, status: int, retry_after: str | None, kind: type[object]
) -> None:
    server.fail(InjectedFault("/hook", "status", status=status, retry_after=retry_after))
    connector = webhook(server)
    outcome = await connector.apply(post(), NoLease())
    await connector.close()
    assert isinstance(outcome, kind)
    if retry_after is not None:
        assert isinstance(outcome, Retry)
        assert outcome.after_s == 7


async def test_a_receiver_that_is_not_there_is_tried_again(server: WebhookStandin) -> None:
    connector = webhook(server)
    await server.stop()
    assert isinstance(await connector.apply(post(), NoLease()), Retry)
    await connector.close()


async def test_hundreds_at_once_are_sent_few_at_a_time(server: WebhookStandin) -> None:
    connector = webhook(server)
    outcomes = await asyncio.gather(*(connector.apply(post(key=str(n)), NoLease()) for n in range(300)))
    await connector.close()
    assert {type(one) for one in outcomes} == {Done}
    assert len(server.events) == 300
    assert server.most_at_once <= 8


async def test_no_error_tells_the_address(server: WebhookStandin) -> None:
    server.fail(InjectedFault("/hook", "status", status=400))
    connector = webhook(server, path="/hook?token=hush")
    outcome = await connector.apply(post(), NoLease())
    await connector.close()
    assert isinstance(outcome, Refused)
    assert "hush" not in outcome.reason


async def test_a_message_of_megabytes_is_cut_and_says_so(server: WebhookStandin) -> None:
    connector = webhook(server)
    message = Message("much", tuple(Code("x" * 5_000_000) for _ in range(40)))
    assert isinstance(await connector.apply(post(message=message), NoLease()), Done)
    await connector.close()
    (event,) = server.events.values()
    assert event["data"]["message"]["cut"] is True
    assert len(orjson.dumps(event)) < 400_000


async def test_what_this_process_knows_is_not_sent_again(server: WebhookStandin) -> None:
    connector = webhook(server)
    await connector.apply(post(), NoLease())
    assert isinstance(await connector.lookup(post()), AlreadyDone)
    assert isinstance(await connector.apply(post(), NoLease()), AlreadyDone)
    assert isinstance(await connector.undo(post(), NoLease()), Refused)
    await connector.close()
    assert server.deliveries == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.test/x",
        "https://user:word@hooks.example.test/x",
        "ftp://hooks.example.test/x",
        "https://hooks.example.test/x#y",
        "https://hooks.example.test/x y",
        "https://",
        "//hooks.example.test",
    ],
)
def test_an_address_that_would_give_events_away_is_no_setting(url: str) -> None:
    with pytest.raises(ValidationError):
        WebhookSettings(url=SecretStr(url), secret=SecretStr(SECRET))


@pytest.mark.parametrize("secret", ["short", "whsec_c2hvcnQ=", "whsec_***"])
def test_a_weak_secret_is_no_setting_and_is_not_told(secret: str) -> None:
    with pytest.raises(ValidationError) as raised:
        WebhookSettings(url=SecretStr("https://hooks.example.test"), secret=SecretStr(secret))
    assert secret not in str(raised.value)


def test_a_receiver_needs_a_secret() -> None:
    with pytest.raises(ValidationError, match="secret"):
        WebhookSettings(url=SecretStr("https://hooks.example.test"))

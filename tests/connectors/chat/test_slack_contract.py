"""A root message and a reply under the suite that every connector passes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from connectors.base import Done, Effect, NoLease
from connectors.chat.rate_limits import Limits
from connectors.chat.slack import Slack
from sandbox.fake_services.slack import Posting, SlackStandin
from streams.config.connector_settings import SlackSettings
from streams.model.clock import boot_seconds
from streams.model.codec import encode
from streams.model.message import Heading, Message, Paragraph, Tone
from streams.model.run import Target
from tests.contract.case import Case
from tests.contract.faults import Answer, FaultProxy
from tests.contract.suite import EffectContract

pytestmark = pytest.mark.embedded

CHANNEL = "C0INCIDENTS"
MESSAGE = Message("GPU fell off the bus", (Heading("GPU fell off the bus"), Paragraph("XID 79")), Tone.BAD)


def slack(url: str, limits: Limits | None = None, **settings: object) -> Slack:
    wishes = {"timeout_s": 5.0, "history_lag_s": 0.05, "channel": CHANNEL, "token": SecretStr("xoxb-standin")}
    return Slack(SlackSettings(base_url=url, **(wishes | settings)), limits=limits)


def effect(
    action: str, target: Target, key: str = "a" * 32, message: Message = MESSAGE, **params: str
) -> Effect:
    return Effect(
        key=key,
        action=action,
        target=target,
        cluster="c1",
        incident="inc-0123456789abcdef",
        run="",
        step=action,
        params={"message": encode(message).decode(), **params},
    )


ROOT = effect("open_thread", Target("Channel", CHANNEL))


class PatientProxy(FaultProxy):
    """Healing takes two minutes here: the connector keeps to a pause that Slack asked for, whatever the caller does."""

    later_s = 0.0

    def heal(self) -> None:
        super().heal()
        self.later_s += 120

    def clock(self) -> float:
        return boot_seconds() + self.later_s


class PostCase(Case):
    """A message with a key in a Slack of its own."""

    def __init__(self, proxy: PatientProxy, server: SlackStandin, posted: Effect) -> None:
        super().__init__(proxy)
        self.limits = Limits(clock=proxy.clock)
        self.server = server
        self.posted = posted

    def effect(self) -> Effect:
        return self.posted

    def connector(self) -> Slack:
        timeout_s = 0.4 if self.proxy.will_hang else 3.0
        return slack(f"{self.proxy.url}/api", self.limits, timeout_s=timeout_s)

    def _all(self) -> list[Posting]:
        return [message for message in self.server.channels[CHANNEL] if not message.deleted]

    async def changes(self) -> int:
        return sum(message.key == self.posted.key for message in self._all())

    async def snapshot(self) -> object:
        return [(message.ts, message.text, message.edits) for message in self._all()]

    def refusal(self) -> Answer:
        return Answer(200, '{"ok":false,"error":"msg_too_long"}')


@pytest.fixture
async def server() -> AsyncIterator[SlackStandin]:
    async with SlackStandin() as standin:
        yield standin


@pytest.fixture
async def proxy(server: SlackStandin) -> AsyncIterator[PatientProxy]:
    async with PatientProxy(server.url, lambda method, path: "/chat." in path) as standing_between:
        yield standing_between


class TestOpenThread(EffectContract):
    @pytest.fixture
    async def case(self, proxy: PatientProxy, server: SlackStandin) -> Case:
        return PostCase(proxy, server, ROOT)


class TestReply(EffectContract):
    @pytest.fixture
    async def case(self, proxy: PatientProxy, server: SlackStandin) -> Case:
        connector = slack(server.base_url)
        root = await connector.apply(ROOT, NoLease())
        await connector.close()
        assert isinstance(root, Done)
        thread = Target("Thread", str(root.result["ts"]), namespace=CHANNEL)
        return PostCase(proxy, server, effect("reply", thread, key="b" * 32))

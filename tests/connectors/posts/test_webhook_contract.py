"""The webhook under the suite that every connector passes, where a receiver that cannot be asked lets it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from connectors.base import Done, Effect
from connectors.posts.webhook import Webhook
from sandbox.fake_services.webhook import SECRET, WebhookStandin
from streams.config.post_settings import WebhookSettings
from tests.connectors.posts.blind import BlindContract
from tests.connectors.posts.effects import post
from tests.contract.case import Case, carry_out
from tests.contract.faults import FaultProxy
from tests.contract.suite import fresh

pytestmark = pytest.mark.embedded


class WebhookCase(Case):
    """An event for a receiver of its own. What counts is how many events the receiver has, not how often one came."""

    def __init__(self, proxy: FaultProxy, server: WebhookStandin) -> None:
        super().__init__(proxy)
        self.server = server

    def effect(self) -> Effect:
        return post()

    def connector(self) -> Webhook:
        timeout_s = 0.4 if self.proxy.will_hang else 3.0
        url, secret = SecretStr(f"{self.proxy.url}/hook"), SecretStr(SECRET)
        return Webhook(WebhookSettings(url=url, secret=secret, timeout_s=timeout_s))

    async def changes(self) -> int:
        return len(self.server.events)

    async def snapshot(self) -> object:
        return dict(self.server.events), self.server.deliveries


class TestWebhook(BlindContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[Case]:
        async with WebhookStandin(tells_copies=True) as server, FaultProxy(server.url) as proxy:
            yield WebhookCase(proxy, server)

    async def test_a_receiver_that_does_not_tell_copies_apart_has_one_event_all_the_same(
        self, case: Case
    ) -> None:
        assert isinstance(case, WebhookCase)
        case.server.tells_copies = False
        async with fresh(case) as one, fresh(case) as other:
            assert isinstance((await carry_out(case, one))[-1], Done)
            assert isinstance((await carry_out(case, other))[-1], Done)
        assert (await case.changes(), case.server.deliveries) == (1, 2)

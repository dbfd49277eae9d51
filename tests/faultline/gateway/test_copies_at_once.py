"""Two copies of a signed delivery at the same time: one of them is the replay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from multidict import CIMultiDict

from faultline.gateway.hooks.events import EventsWebhook
from faultline.gateway.hooks.hook import Delivery
from faultline.gateway.parts import GatewayParts
from faultline.gateway.raw_records import RawRecords, RawValue
from faultline.live_view.decisions import Decisions
from faultline.live_view.view import LiveView
from streams.config.connector_settings import SlackSettings
from streams.config.gateway_settings import GatewaySettings
from streams.config.settings import KafkaSettings

SIGNED = Delivery(
    b'[{"alert": "x"}]', CIMultiDict({"webhook-id": "msg_1"}), "application/json", by_signature=True
)


class Kafka:
    """What takes records, a moment after they are handed to it."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    async def write(self, values: Sequence[RawValue]) -> None:
        """Take the values."""
        await asyncio.sleep(0)  # Kafka is asked
        self.taken += [one.value for one in values]


def hook_on(kafka: Kafka) -> EventsWebhook:
    settings, view = KafkaSettings(), LiveView()
    parts = GatewayParts(
        settings=GatewaySettings(), view=view, decisions=Decisions(settings, view), records=cast("RawRecords", kafka),
        cluster="c1", slack=SlackSettings(),
    )  # fmt: skip
    return EventsWebhook(parts)


async def test_of_two_copies_of_a_signed_delivery_at_once_one_is_taken() -> None:
    kafka = Kafka()
    hook = hook_on(kafka)
    told = await asyncio.gather(hook.take(SIGNED), hook.take(SIGNED))
    assert (list(told), len(kafka.taken)) == (["1 events", "taken before"], 1)

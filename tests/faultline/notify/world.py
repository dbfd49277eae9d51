"""A notifier's world: topics that the test writes as the other processes would, and a notifier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from faultline.notify.process import Notifier
from faultline.runtime.notice_sinks import open_sinks
from faultline.runtime.settings import Settings
from streams.config.settings import KafkaSettings
from streams.kafka.topics import CONTROLS, INCIDENTS, INVENTORY, RUNS, TIMELINE, Topic, partition_of
from streams.model.codec import encode
from streams.model.control import Control
from streams.model.conversation import TimelineEntry
from streams.model.crash_points import CrashHook, ignore
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import Incident
from streams.model.run import Run
from tests.testbed.waiting import eventually

Document = Incident | Run | TimelineEntry | NodeFact | Control


def place(document: Document) -> tuple[Topic, str, bytes]:
    """Topic, key and value of a document."""
    match document:
        case Incident():
            return INCIDENTS, document.id, encode(document)
        case Run():
            return RUNS, document.id, encode(document)
        case TimelineEntry():
            return TIMELINE, document.incident, encode(document)
        case NodeFact():
            return INVENTORY, document.key, encode(FactRecord(document))
        case Control():
            return CONTROLS, document.cluster, encode(document)


async def tell(producer: AIOKafkaProducer, kafka: KafkaSettings, *documents: Document) -> None:
    """Write documents, and wait until all of them are there."""
    sent = []
    for document in documents:
        topic, key, value = place(document)
        partition = partition_of(document.cluster, kafka.cluster_partitions)
        sent.append(
            await producer.send(kafka.topic_prefix + topic.name, value, key=key.encode(), partition=partition)
        )
    await asyncio.gather(*sent)


@asynccontextmanager
async def notifying(
    kafka: KafkaSettings, sinks: dict[str, Any], *, at: CrashHook = ignore, **more: Any
) -> AsyncIterator[None]:
    """A notifier at work in this process."""
    settings = Settings.model_validate({"notifier": {"sinks": sinks, "debounce_s": 0.05}, **more})
    async with AsyncExitStack() as stack:
        notifier = Notifier(
            kafka,
            settings.notifier,
            open_sinks(settings, stack),
            lease_s=30,
            approval_expiry_s=4 * 3600,
            at=at,
        )
        running = asyncio.create_task(notifier.run())
        try:
            yield
        finally:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


async def seen(condition: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    """Wait until it is so."""

    async def look() -> object:
        return condition()

    await eventually(look, what, timeout_s=timeout_s)

"""What others did is told once over the lives of responders, also what they did while none was there, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from runbooks.engine.process import Responder
from runbooks.language.loader import load_text
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.kafka.topics import INVENTORY, TIMELINE
from streams.model.clock import utc_now
from streams.model.codec import decode, encode
from streams.model.conversation import TimelineEntry
from streams.model.facts import FactRecord, NodeFact
from streams.model.run import Mode
from tests.runbooks.engine.responder_child import BOOK, FolderWorld
from tests.runbooks.herd import PARTITION, prepared, run_of
from tests.runbooks.scenes import CLUSTER
from tests.runbooks.topics import committed, write
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.kafka


@asynccontextmanager
async def life(settings: KafkaSettings, folder: Path) -> AsyncIterator[None]:
    """One life of a responder in shadow, from when the incident that was there has its run: then it has read everything."""
    policy = ResponderSettings(mode=Mode.SHADOW)
    responder = Responder(settings, policy, [FolderWorld(folder)], [load_text(BOOK, "book.yaml")])
    task = asyncio.create_task(responder.run())

    async def ready() -> bool:
        if task.done():
            task.result()
        return await run_of(settings) is not None

    try:
        await eventually(ready, "it has read everything")
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def acts(settings: KafkaSettings) -> list[tuple[str, str]]:
    said = await committed(settings, TIMELINE, PARTITION)
    entries = [decode(TimelineEntry, value) for _, value in said if value is not None]
    return [
        (e.event.removeprefix("observed."), str(e.attributes["name"]))
        for e in entries
        if e.event.startswith("observed.")
    ]


async def test_each_act_is_told_once_whoever_is_there_to_see_it(kafka: Kafka, tmp_path: Path) -> None:
    settings = await prepared(kafka)
    nodes = {
        name: NodeFact(CLUSTER, name, f"uid-{int(name[-2:])}", utc_now(), gpus=8)
        for name in ("node-08", "node-09")
    }

    async def close(name: str, *, closed: bool) -> None:
        nodes[name] = replace(nodes[name], unschedulable=closed, observed_at=utc_now())
        await write(settings, INVENTORY, PARTITION, (nodes[name].key, encode(FactRecord(nodes[name]))))

    async def told(expected: list[tuple[str, str]]) -> bool:
        return await acts(settings) == expected

    expected = [("node_cordoned", "node-08")]
    async with life(settings, tmp_path):
        await close("node-08", closed=True)
        await eventually(lambda: told(expected), "the first is told")
    await close("node-08", closed=False)
    await close("node-09", closed=True)
    expected += [("node_uncordoned", "node-08"), ("node_cordoned", "node-09")]
    async with life(settings, tmp_path):
        await eventually(lambda: told(expected), "what happened meanwhile is told")
    async with life(settings, tmp_path):
        await close("node-09", closed=False)
        expected += [("node_uncordoned", "node-09")]
        await eventually(lambda: told(expected), "the last is told, and nothing twice")

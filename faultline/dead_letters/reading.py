"""Reads `dead-letters` without holding it: forwards for counting, backwards for the newest, one by its coordinates.

Millions of letters of up to a MiB may lie there. What is in memory is one fetch, and backwards one window of each partition.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from faultline.dead_letters.letter import Letter, Retried, read
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.offsets_by_time import first_since
from streams.kafka.topics import DEAD_LETTERS
from streams.model.clock import to_millis
from streams.model.errors import BadInput, Unreachable

WINDOW = 200
"""Offsets read at a time, backwards; of each letter a few KiB are kept."""

FETCH_BYTES = 8 * 1024 * 1024
"""One fetch of all partitions: aiokafka's default of 52 MB lies in memory while another is on its way."""

STALLED_S = 60.0
"""How long a reader waits at one place. The broker ends a dead owner's transaction after half of that."""


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets `[begin, end)` of one partition of `dead-letters`."""

    place: TopicPartition
    begin: int
    end: int


@asynccontextmanager
async def reader(settings: KafkaSettings) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer that sees committed records only.

    Raises:
        Unreachable: when no broker answers.
    """
    client = clients.consumer(settings, group=None, fetch_max_wait_ms=100, fetch_max_bytes=FETCH_BYTES)
    try:
        yield await clients.started(client, settings)
    finally:
        await client.stop()


async def spans(
    client: AIOKafkaConsumer,
    settings: KafkaSettings,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Span]:
    """What lies in each partition now, from `since` on and before `until`. The ends count open transactions too.

    Raises:
        ConfigError: when there is no such topic.
    """
    name = clients.topic_name(settings, DEAD_LETTERS)
    places = [TopicPartition(name, number) for number in await clients.partitions_of(client, name)]
    begins = await client.beginning_offsets(places)
    # A reader of committed records is told the end of what it may see now. Behind an open transaction of another process there
    # may be committed marks of an earlier retry, so it has to be the end of the log.
    looker = clients.consumer(settings, group=None, read_committed=False)
    try:
        await clients.started(looker, settings)
        ends = await looker.end_offsets(places)
    finally:
        await looker.stop()
    if since:
        begins |= {place: first.offset for place, first in (await first_since(client, places, since)).items()}
    ends |= await _offsets_at(client, places, until, ends) if until else {}
    return [Span(place, begins[place], max(begins[place], ends[place])) for place in places]


async def _offsets_at(
    client: AIOKafkaConsumer, places: list[TopicPartition], at: datetime, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    found = await client.offsets_for_times({place: max(0, to_millis(at)) for place in places})
    return {place: hit.offset if (hit := found.get(place)) is not None else ends[place] for place in places}


async def forwards(client: AIOKafkaConsumer, within: list[Span]) -> AsyncIterator[Letter | Retried | None]:
    """Everything in the spans, each partition in its order; None for a record that is neither letter nor mark.

    Raises:
        Unreachable: when a place cannot be read on for a minute.
    """
    ends = {span.place: span.end for span in within if span.end > span.begin}
    if not ends:
        return
    client.assign(list(ends))
    for span in within:
        if span.place in ends:
            client.seek(span.place, span.begin)
    loop = asyncio.get_running_loop()
    moved_at = loop.time()
    while ends:
        for place, records in (await client.getmany(*ends, timeout_ms=500)).items():
            moved_at = loop.time()
            for record in records:
                if record.offset < ends[place]:
                    yield read(record)
            moved_at = loop.time()
        for place in list(ends):
            if await client.position(place) >= ends[place]:
                del ends[place]
        if ends and loop.time() - moved_at > STALLED_S:
            where = ", ".join(f"{place.topic}:{place.partition}" for place in ends)
            raise Unreachable(
                f"{where} cannot be read to its end: a transaction of another process stays open"
            )


async def backwards(client: AIOKafkaConsumer, within: list[Span]) -> AsyncIterator[Letter | Retried]:
    """Everything in the spans, newest first, letters without the rest of long values.

    A mark comes before its letter.
    """
    streams = [_backwards_of(client, span) for span in within]
    heads: list[tuple[float, int, Letter | Retried]] = []
    for number, stream in enumerate(streams):
        await _advance(heads, number, stream)
    while heads:
        _, number, found = heapq.heappop(heads)
        yield found
        await _advance(heads, number, streams[number])


async def _advance(heads: list[Any], number: int, stream: AsyncIterator[Letter | Retried]) -> None:
    found = await anext(stream, None)
    if found is not None:
        # One entry for each partition, so that two never compare beyond their number.
        heapq.heappush(heads, (-found.at.timestamp(), number, found))


async def _backwards_of(client: AIOKafkaConsumer, span: Span) -> AsyncIterator[Letter | Retried]:
    end = span.end
    while end > span.begin:
        begin = max(span.begin, end - WINDOW)
        window = [
            found.slim if isinstance(found, Letter) else found
            async for found in forwards(client, [Span(span.place, begin, end)])
            if found is not None
        ]
        for found in reversed(window):
            yield found
        end = begin


async def letter_at(client: AIOKafkaConsumer, settings: KafkaSettings, partition: int, offset: int) -> Letter:
    """The letter at these coordinates.

    Raises:
        BadInput: when there is none.
    """
    for span in await spans(client, settings):
        if span.place.partition == partition and span.begin <= offset < span.end:
            async for found in forwards(client, [Span(span.place, offset, offset + 1)]):
                if isinstance(found, Letter):
                    return found
                break
    raise BadInput(f"there is no dead letter at {partition}:{offset}; it may have been deleted after 14 days")

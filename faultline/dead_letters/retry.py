"""Writes dead letters back to their topics after a fix, each at most once, whoever does it and whatever crashes.

How that holds:

- The record and a mark on `dead-letters` are one transaction: both are there or neither. The mark lies behind its letter in the
  same partition, so it is never deleted before it.
- All who write back share one transactional id. Whoever starts fences who wrote before, whose open transaction is aborted, and
  only then reads the marks. The fenced one ends with an error; what it had committed is marked.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import IllegalOperation, KafkaError

from faultline.dead_letters.letter import Choice, Letter, Retried
from faultline.dead_letters.outlook import TodaysCode
from faultline.dead_letters.reading import Span, forwards, spans
from faultline.dead_letters.source_topics import SourceTopics, source_topics
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.dead_letters import RETRIED_HEADER
from streams.kafka.topics import DEAD_LETTERS, RAW, SIGNALS
from streams.kafka.transactions import FENCED, stop, write_together
from streams.model.clock import Clock, to_millis
from streams.model.codec import encode
from streams.model.errors import Fenced, Unreachable

TRANSACTIONAL_ID = "faultline-dead-letters"

MAX_TOGETHER = 100
"""Records of one transaction, at most a second's worth."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one letter. `outcome`: `retried` (`would retry` in a dry run), `dead`, `left`, `already`."""

    letter: Letter
    outcome: str
    why: str


class Memory:
    """Which original records were written back: 8 bytes each, as `Letter.source` numbers them."""

    def __init__(self) -> None:
        self._marks = array("Q")
        self._own: set[int] = set()
        self._sorted = True

    def add(self, source: int) -> None:
        """Remember one that a mark tells of."""
        self._marks.append(source)
        self._sorted = False

    def add_own(self, source: int) -> None:
        """Remember one of this run: the same record may have two letters, where a process died between writing and commit."""
        self._own.add(source)

    def __contains__(self, source: int) -> bool:
        if not self._sorted:
            self._marks = array("Q", sorted(self._marks))
            self._sorted = True
        index = bisect_left(self._marks, source)
        return source in self._own or (index < len(self._marks) and self._marks[index] == source)


class Retry:
    """One run of it. Create it with `opened`."""

    def __init__(
        self,
        settings: KafkaSettings,
        reader: AIOKafkaConsumer,
        code: TodaysCode,
        *,
        producer: AIOKafkaProducer | None,
        by: str,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._code = code
        self._producer = producer
        self._by = by
        self._clock = clock
        self._memory = Memory()

    async def run(self, choice: Choice, *, limit: int, per_s: float) -> AsyncIterator[Tried]:
        """Try the letters that are meant, oldest first, until `limit` have been written back.

        Without a producer nothing is written. At most `per_s` records a second are.

        Raises:
            Fenced: another person has begun to write back; what was yielded as `retried` is written.
            Unreachable: the broker failed; run it again, nothing is written twice.
        """
        within = await spans(self._reader, self._settings, since=choice.since, until=choice.until)
        await self._remember(within)
        topics = await source_topics(self._reader, self._settings, [topic.name for topic in (*RAW, SIGNALS)])
        waiting: list[Tried] = []
        chosen = 0
        together = max(1, min(MAX_TOGETHER, int(per_s)))
        async for found in forwards(self._reader, within):
            if not isinstance(found, Letter) or not choice.takes(found):
                continue
            tried = self._tried(found, topics)
            if tried.outcome != "would retry":
                yield tried
                continue
            self._memory.add_own(found.source)
            waiting.append(tried)
            chosen += 1
            if len(waiting) >= together or chosen >= limit:
                for one in await self._write(waiting, per_s):
                    yield one
                waiting = []
            if chosen >= limit:
                break
        for one in await self._write(waiting, per_s):
            yield one

    async def _remember(self, within: list[Span]) -> None:
        """Read the marks. They lie behind their letters, so from where the first chosen letter may be to the end of the log."""
        begins = {span.place: span.begin for span in within}
        whole = [
            replace(span, begin=begins[span.place]) for span in await spans(self._reader, self._settings)
        ]
        async for found in forwards(self._reader, whole):
            if isinstance(found, Retried):
                self._memory.add(found.source)

    def _tried(self, letter: Letter, topics: SourceTopics) -> Tried:
        if letter.source in self._memory:
            return Tried(letter, "already", "was written back before")
        outlook = topics.judged(letter, self._code.outlook(letter), self._clock())
        return Tried(letter, "would retry" if outlook.verdict == "retry" else outlook.verdict, outlook.why)

    async def _write(self, waiting: list[Tried], per_s: float) -> list[Tried]:
        if self._producer is None or not waiting:
            return waiting
        began = asyncio.get_running_loop().time()
        try:
            sends = [send for tried in waiting for send in self._sends(self._producer, tried.letter)]
            await write_together(self._producer, sends)
        except FENCED as error:
            raise Fenced(
                "another `dead-letters retry` has begun and goes on from here; this one has stopped"
            ) from error
        except (KafkaError, IllegalOperation) as error:
            raise Unreachable(
                f"Kafka at {self._settings.bootstrap} does not take what is written back: {error!r}"
            ) from error
        # A bound on the rate, not a wait for something: the detectors shall not fall behind because of old records.
        await asyncio.sleep(max(0.0, len(waiting) / per_s - (asyncio.get_running_loop().time() - began)))
        return [replace(tried, outcome="retried") for tried in waiting]

    def _sends(self, producer: AIOKafkaProducer, letter: Letter) -> list[Callable[[], Any]]:
        """The two records of one letter: it, and the mark."""
        record = letter.record
        mark = Retried(letter.coordinates, letter.source, letter.group, self._clock(), self._by)
        header = (RETRIED_HEADER, encode(mark))
        own = [(name, value) for name, value in record.headers if name != RETRIED_HEADER]
        return [
            partial(
                producer.send,
                self._settings.topic_prefix + record.topic,
                record.value,
                key=record.key,
                partition=record.partition,
                # The record's own time: a line that has none is judged by it, and must not look new.
                timestamp_ms=to_millis(record.timestamp),
                headers=[*own, header],
            ),
            partial(
                producer.send,
                clients.topic_name(self._settings, DEAD_LETTERS),
                None,
                key=record.topic.encode(),
                partition=letter.partition,
                headers=[header],
            ),
        ]


@asynccontextmanager
async def opened(
    settings: KafkaSettings,
    reader: AIOKafkaConsumer,
    code: TodaysCode,
    *,
    write: bool,
    by: str,
    clock: Callable[[], datetime],
) -> AsyncIterator[Retry]:
    """A run that writes, which fences every other one, or a dry run.

    Raises:
        Unreachable: when no broker answers.
    """
    if not write:
        yield Retry(settings, reader, code, producer=None, by=by, clock=clock)
        return
    producer = clients.producer(settings, transactional_id=TRANSACTIONAL_ID)
    try:
        await clients.started(producer, settings)
        yield Retry(settings, reader, code, producer=producer, by=by, clock=clock)
    finally:
        await stop(producer)

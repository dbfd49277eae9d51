"""A fenced journal of documents: what one owner knows about one partition, safely in Kafka before anyone acts on it.

One `Journal` holds one partition of a compacted document topic with one transactional producer. Opening it does two things in
this order: it starts the producer, which fences every earlier owner and ends what that owner left half done; then it reads
the partition back to its end. So nobody can add to what was read, and what was read is everything. What the owner says may
`rest` is not decoded then, only skimmed: see `shelf.py`.

A document that cannot be read stops whoever opens the journal, for it may tell of something under way. Only one whose record
bears the owner's own mark that nothing is, is left out and named in `lost`.

A commit is one transaction with all that is ready: documents, other records, and the input offsets they stand for. It costs
5 to 35 ms whatever is in it, so callers collect first. After a failure of any kind the journal is closed for good: only a
fresh read can tell what was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import (
    IllegalOperation,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)

from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.dead_letters import dead_letter
from streams.kafka.lazy_documents import Shelf
from streams.kafka.topics import DEAD_LETTERS, Topic
from streams.model.codec import decode, encode
from streams.model.errors import BadInput, Fenced, Permanent, Unreachable

D = TypeVar("D")

log = structlog.get_logger(__name__)

MAX_DOCUMENT_BYTES = 1024 * 1024
"""The largest document a journal takes: recovery reads all of them."""

AT_A_TIME = 100
"""Documents that are decoded or encoded without a break."""

TRANSACTION_TIMEOUT_MS = 30_000
"""How long a transaction of a dead owner may hold up readers before the broker ends it; a successor ends it at once."""

_FENCED = (
    ProducerFenced,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record that goes out in the same transaction as the documents. `value` None is a tombstone."""

    topic: Topic
    partition: int
    key: str
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def dead_letter(
        cls, record: ConsumerRecord[bytes, bytes], *, topic: str, stage: str, reason: str
    ) -> Outgoing:
        """A record that cannot be read, read from `topic` (without this installation's prefix), for `dead-letters`."""
        key, value, headers = dead_letter(clients.raw_record(record, topic), stage=stage, reasons=[reason])
        return cls(DEAD_LETTERS, 0, key.decode(), value, tuple(headers))


Headers = Sequence[tuple[str, bytes]]
"""The headers of a record."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A document that is there and cannot be read. `mark` is what its headers say of it, `place` is topic:partition:offset."""

    key: str
    place: str
    reason: str
    mark: Any


def unmarked(document: Any) -> Headers:
    """Documents go out without headers."""
    return ()


def nothing_is_left_out(headers: Headers) -> None:
    """Every document has to be read."""


def unwatched() -> None:
    """Nobody asks whether it moves on."""


def nothing_rests(key: str, raw: bytes) -> None:
    """Every document is decoded as soon as it is read."""


class Journal(Generic[D]):
    """The documents of one owned partition, by key. Build it with `open`."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: Topic,
        partition: int,
        producer: AIOKafkaProducer,
        documents: Shelf[D, Any],
        lost: Mapping[str, Lost],
        key: Callable[[D], str],
        mark: Callable[[D], Headers],
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._partition = partition
        self._producer = producer
        self._documents = documents
        self._lost = lost
        self._key = key
        self._mark = mark
        self._offsets: dict[TopicPartition, int] = {}
        self._turn = asyncio.Lock()
        self._closed_by: Exception | None = None

    @classmethod
    async def open(
        cls,
        settings: KafkaSettings,
        *,
        name: str,
        topic: Topic,
        partition: int,
        kind: type[D],
        key: Callable[[D], str],
        rest: Callable[[str, bytes], Any] = nothing_rests,
        mark: Callable[[D], Headers] = unmarked,
        left_out: Callable[[Headers], Any] = nothing_is_left_out,
        progress: Callable[[], None] = unwatched,
    ) -> Journal[D]:
        """Fence the predecessor, then read everything it wrote.

        Args:
            name: The process, e.g. `responder`; owners of the same name and partition fence one another.
            rest: The brief of the document under a key that need not be decoded before somebody asks for it, else None.
            mark: Headers that a document is written with.
            left_out: What the headers of a document that cannot be read tell of it, where it may be left out, else None.
            progress: Called again and again while documents are read.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a document cannot be read; acting without knowing it would not be safe.
        """
        producer = clients.producer(
            settings,
            transactional_id=f"faultline-{name}-{partition}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        try:
            await clients.started(producer, settings)
            latest = await clients.read_to_end(settings, topic, partition, progress)
            documents, lost = await _laid(
                latest, Shelf(lambda raw: decode(kind, raw)), key, rest, left_out, progress
            )
        except BaseException:
            await _stop(producer)
            raise
        log.info(
            "journal open",
            topic=topic.name,
            partition=partition,
            documents=len(documents),
            decoded=documents.decoded,
        )
        return cls(settings, topic, partition, producer, documents, lost, key, mark)

    @property
    def partition(self) -> int:
        """The partition number, the same for the documents and for every input of the owner."""
        return self._partition

    @property
    def documents(self) -> Shelf[D, Any]:
        """Every document as last committed, by key. Copy it to change it."""
        return self._documents

    @property
    def lost(self) -> Mapping[str, Lost]:
        """Documents that were left out because they cannot be read, by key."""
        return self._lost

    async def commit(
        self,
        documents: Sequence[D] = (),
        *,
        gone: Sequence[str] = (),
        records: Sequence[Outgoing] = (),
        offsets: Mapping[TopicPartition, int] | None = None,
        group: str | None = None,
    ) -> None:
        """Write everything in one transaction, then make it visible in `documents`.

        `gone` are keys to put a tombstone on. `offsets` are the next offsets to read, committed for the consumer group of the
        process `group`. Calls queue up; each is atomic.

        Raises:
            Fenced: another owner has this partition now. Nothing was written; stop acting.
            Permanent: a document is too large; nothing was written and the journal stays usable.
            Unreachable: the broker failed in a way that leaves the outcome open. Open a new journal and look.
        """
        if not (documents or gone or records or offsets):
            return
        async with self._turn:
            if self._closed_by is not None:
                raise self._closed_by
            own: list[Outgoing] = []
            for start in range(0, len(documents), AT_A_TIME):
                own += [self._outgoing(document) for document in documents[start : start + AT_A_TIME]]
                await asyncio.sleep(0)
            own += [Outgoing(self._topic, self._partition, key, None) for key in gone]
            try:
                await self._transaction([*own, *records], dict(offsets or {}), group)
            except asyncio.CancelledError:
                self._closed_by = Fenced("the journal was closed in the middle of a commit")
                raise
            except _FENCED as error:
                self._why_ended()
                self._closed_by = Fenced(f"another owner has {self._topic.name}[{self._partition}]: {error}")
                raise self._closed_by from error
            except (KafkaError, IllegalOperation) as error:
                self._why_ended()
                self._closed_by = Unreachable(
                    f"commit to {self._topic.name}[{self._partition}] at {self._settings.bootstrap}: {error}"
                )
                raise self._closed_by from error
            self._documents.update({self._key(d): d for d in documents})
            for key in gone:
                self._documents.discard(key)

    async def close(self) -> None:
        """Let go of the partition; a commit under way is not waited for."""
        self._closed_by = self._closed_by or Fenced("this owner has let go of the partition")
        await _stop(self._producer)

    def _outgoing(self, document: D) -> Outgoing:
        raw = encode(document)
        if len(raw) > MAX_DOCUMENT_BYTES:
            raise Permanent(
                f"{self._topic.name}: document {self._key(document)} has {len(raw)} bytes, at most {MAX_DOCUMENT_BYTES} fit"
            )
        return Outgoing(self._topic, self._partition, self._key(document), raw, tuple(self._mark(document)))

    async def _transaction(
        self, records: Iterable[Outgoing], offsets: dict[TopicPartition, int], group: str | None
    ) -> None:
        await self._producer.begin_transaction()
        sent: list[asyncio.Future[Any]] = []
        try:
            for record in records:
                sent.append(await self._send(record))
        except IllegalOperation as error:
            # The transaction was ended behind our back while it was being filled; why, only its own future knows.
            for future in sent:
                future.add_done_callback(_asked)
            if (why := self._why_ended()) is None:
                raise
            raise why from error
        # Every future is looked at, also after the first failure: aiokafka logs those that nobody asked.
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        # To say again what is committed already costs two of five round trips; nobody else can have moved it.
        moved = {place: offset for place, offset in offsets.items() if self._offsets.get(place) != offset}
        if moved and group:
            await self._producer.send_offsets_to_transaction(moved, clients.group_name(self._settings, group))
            self._offsets |= moved  # whoever fails before the commit writes nothing any more
        await self._producer.commit_transaction()

    async def _send(self, record: Outgoing) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = await self._producer.send(
            clients.topic_name(self._settings, record.topic),
            key=record.key.encode(),
            value=record.value,
            partition=record.partition,
            headers=list(record.headers),
        )
        return future

    def _why_ended(self) -> BaseException | None:
        """What the transaction failed with, if it did. Whoever meets an error has to ask, or asyncio logs that nobody did."""
        return _asked(self._producer._txn_manager.wait_for_transaction_end())


async def _laid(
    latest: Mapping[str, ConsumerRecord[bytes, bytes]],
    documents: Shelf[D, Any],
    key: Callable[[Any], str],
    rest: Callable[[str, bytes], Any],
    left_out: Callable[[Headers], Any],
    progress: Callable[[], None],
) -> tuple[Shelf[D, Any], dict[str, Lost]]:
    """The documents, and those that cannot be read and need not be.

    Raises:
        BadInput: with the place and key of the first one that cannot be read and may tell of something under way.
    """
    lost: dict[str, Lost] = {}
    for number, (name, record) in enumerate(latest.items(), start=1):
        if number % AT_A_TIME == 0:
            # Ten thousand of them take seconds, and the group has to hear from this member meanwhile.
            progress()
            await asyncio.sleep(0)
        try:
            documents.lay(name, record.value, brief := rest(name, record.value))
            if brief is None and (known := key(documents[name])) != name:
                raise BadInput(f"it is the document of {known}")
        except BadInput as error:
            documents.pop(name, None)
            place = clients.coordinates(record)
            if (mark := left_out(record.headers)) is None:
                raise BadInput(f"{place} with the key {name[:80]!r} cannot be read: {error}") from error
            lost[name] = Lost(name, place, str(error), mark)
            log.error(
                "a document is left out: it cannot be read, and nothing of it is under way",
                place=place,
                key=name,
                reason=str(error),
            )
    return documents, lost


def _asked(future: asyncio.Future[Any] | None) -> BaseException | None:
    """What a future failed with. Of one that was fenced aiokafka never asks, and asyncio logs what nobody asked for."""
    if future is None or not future.done() or future.cancelled():
        return None
    return future.exception()


async def _stop(producer: AIOKafkaProducer) -> None:
    """Stop a producer that may be fenced, in a transaction or without a broker; none of that may hold up a shutdown."""
    try:
        async with asyncio.timeout(2):
            await producer.stop()
    except (KafkaError, TimeoutError) as error:
        log.debug("producer did not stop in order", error=str(error))

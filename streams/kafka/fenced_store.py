"""A document store in Kafka that one owner at a time can write: what it knows of a partition, committed before anyone acts on it.

One `FencedStore` holds one partition of a compacted document topic with one transactional producer. Opening it does two things,
in this order: it starts the producer, which fences every earlier owner and aborts its open transaction; then it reads the
partition to its end. The other way round, an earlier owner could still commit behind the end that was read. Documents for which
the owner supplies a summary are not decoded until they are asked for: see `lazy_documents.py`.

An unreadable document stops `open`, because it may describe a call in flight. It is skipped, and listed in `unreadable`, only
where its record carries the owner's own header saying that it is finished.

A commit is one transaction: documents, other records, and the input offsets they account for. It costs 5 to 35 ms whatever its
size, so callers collect first. After any failure the store is closed for good: only a fresh read can tell what was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaError

from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.dead_letters import dead_letter
from streams.kafka.lazy_documents import LazyDocuments
from streams.kafka.topics import DEAD_LETTERS, Topic
from streams.kafka.transactions import FENCED, failure_of, stop, why_ended
from streams.model.codec import decode, encode
from streams.model.errors import BadInput, Fenced, Permanent, Unreachable

D = TypeVar("D")

log = structlog.get_logger(__name__)

MAX_DOCUMENT_BYTES = 1024 * 1024
"""Size limit of one document: recovery reads all of them."""

BATCH_BYTES = 1024 * 1024
"""Records of one request to a partition. aiokafka sends one such request after another, and its default is 16 KiB: a hundred
documents would take fifty round trips."""

AT_A_TIME = 100
"""Documents decoded or encoded before other tasks get to run."""

TRANSACTION_TIMEOUT_MS = 30_000
"""The broker aborts a dead owner's transaction after this time; until then readers wait. A successor aborts it at once."""


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
class UnreadableDocument:
    """A document that cannot be decoded. `header` is what its record headers say about it, `place` is topic:partition:offset."""

    key: str
    place: str
    reason: str
    header: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentType(Generic[D]):
    """What a process keeps in its store. The defaults write no headers, decode every document and skip none."""

    process: str
    """E.g. `responder`; owners of the same process and partition fence one another."""
    topic: Topic
    kind: type[D]
    key: Callable[[D], str]
    summarize: Callable[[str, bytes], Any] = lambda key, raw: None
    """A summary of the document under this key if it need not be decoded before it is asked for, else None."""
    headers: Callable[[D], Headers] = lambda document: ()
    """The headers to write a document with."""
    may_skip: Callable[[Headers], Any] = lambda headers: None
    """For an unreadable document: what its headers say about it if it may be skipped, else None."""


class FencedStore(Generic[D]):
    """The documents of one owned partition, by key. Create it with `open`."""

    def __init__(
        self,
        settings: KafkaSettings,
        about: DocumentType[D],
        partition: int,
        producer: AIOKafkaProducer,
        documents: LazyDocuments[D, Any],
        unreadable: Mapping[str, UnreadableDocument],
    ) -> None:
        self._settings = settings
        self._about = about
        self._topic = about.topic
        self._key = about.key
        self._partition = partition
        self._producer = producer
        self._documents = documents
        self._unreadable = unreadable
        self._offsets: dict[TopicPartition, int] = {}
        self._commit_lock = asyncio.Lock()
        self._closed_by: Exception | None = None

    @classmethod
    async def open(
        cls,
        settings: KafkaSettings,
        about: DocumentType[D],
        partition: int,
        *,
        progress: Callable[[], None] = lambda: None,
    ) -> FencedStore[D]:
        """Fence the predecessor, then read everything it wrote.

        `progress` is called repeatedly while documents are read, so that the caller can report that it is alive.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a document cannot be read; acting without knowing it would not be safe.
        """
        producer = clients.producer(
            settings,
            transactional_id=f"faultline-{about.process}-{partition}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            max_batch_size=BATCH_BYTES,
        )
        try:
            await clients.started(producer, settings)
            latest = await clients.read_to_end(settings, about.topic, partition, progress)
            documents, unreadable = await _decoded(latest, about, progress)
        except BaseException:
            await stop(producer)
            raise
        log.info(
            "document store open",
            topic=about.topic.name,
            partition=partition,
            documents=len(documents),
            decoded=documents.decoded,
        )
        return cls(settings, about, partition, producer, documents, unreadable)

    @property
    def partition(self) -> int:
        """The partition number, the same for the documents and for every input of the owner."""
        return self._partition

    @property
    def documents(self) -> LazyDocuments[D, Any]:
        """Every document as last committed, by key. Copy it to change it."""
        return self._documents

    @property
    def unreadable(self) -> Mapping[str, UnreadableDocument]:
        """Documents that were skipped because they cannot be decoded, by key."""
        return self._unreadable

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

        `gone` are keys to delete (tombstones). `offsets` are the next offsets to read, committed for the consumer group of the
        process `group`. Concurrent calls run one after the other; each is atomic.

        Raises:
            Fenced: another owner has this partition now. Nothing was written; stop acting.
            Permanent: a document is too large; nothing was written and the store stays usable.
            Unreachable: the broker failed and the outcome is unknown. Open a new store to find out.
        """
        if not (documents or gone or records or offsets):
            return
        async with self._commit_lock:
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
                self._closed_by = Fenced("the store was closed in the middle of a commit")
                raise
            except FENCED as error:
                why_ended(self._producer)
                self._closed_by = Fenced(f"another owner has {self._topic.name}[{self._partition}]: {error}")
                raise self._closed_by from error
            except (KafkaError, IllegalOperation) as error:
                why_ended(self._producer)
                self._closed_by = Unreachable(
                    f"commit to {self._topic.name}[{self._partition}] at {self._settings.bootstrap}: {error}"
                )
                raise self._closed_by from error
            self._documents.update({self._key(d): d for d in documents})
            for key in gone:
                self._documents.discard(key)

    async def close(self) -> None:
        """Give up the partition. A commit in progress is aborted, unless its end is already under way."""
        self._closed_by = self._closed_by or Fenced("this owner has released the partition")
        await stop(self._producer)

    def _outgoing(self, document: D) -> Outgoing:
        raw = encode(document)
        if len(raw) > MAX_DOCUMENT_BYTES:
            raise Permanent(
                f"{self._topic.name}: document {self._key(document)} has {len(raw)} bytes, at most {MAX_DOCUMENT_BYTES} fit"
            )
        return Outgoing(
            self._topic, self._partition, self._key(document), raw, tuple(self._about.headers(document))
        )

    async def _transaction(
        self, records: Iterable[Outgoing], offsets: dict[TopicPartition, int], group: str | None
    ) -> None:
        await self._producer.begin_transaction()
        sent: list[asyncio.Future[Any]] = []
        try:
            for record in records:
                sent.append(await self._send(record))
        except IllegalOperation as error:
            # aiokafka aborted the transaction while it was being filled; only its own future holds the reason.
            for future in sent:
                future.add_done_callback(failure_of)
            if (why := why_ended(self._producer)) is None:
                raise
            raise why from error
        # Committing unchanged offsets again would cost two of five round trips, and nobody else can have moved them.
        moved = {place: offset for place, offset in offsets.items() if self._offsets.get(place) != offset}
        pending: list[Awaitable[Any]] = [*sent]
        if moved and group:
            # Beside the records, not after them: the two go to different coordinators and end in one commit.
            name = clients.group_name(self._settings, group)
            pending.append(self._producer.send_offsets_to_transaction(moved, name))
            self._offsets |= moved  # safe before the commit: if that fails, this store never writes again
        # Await every future, also after the first failure: asyncio logs exceptions that were never retrieved.
        for outcome in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        if self._closed_by is not None:  # closed meanwhile, and the transaction is being aborted
            raise self._closed_by
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


async def _decoded(
    latest: Mapping[str, ConsumerRecord[bytes, bytes]], about: DocumentType[D], progress: Callable[[], None]
) -> tuple[LazyDocuments[D, Any], dict[str, UnreadableDocument]]:
    """The documents, and those that were skipped because they cannot be decoded.

    Raises:
        BadInput: names place and key of the first unreadable document that may have a call in flight.
    """
    documents: LazyDocuments[D, Any] = LazyDocuments(lambda raw: decode(about.kind, raw))
    unreadable: dict[str, UnreadableDocument] = {}
    for number, (name, record) in enumerate(latest.items(), start=1):
        if number % AT_A_TIME == 0:
            # Ten thousand of them take seconds; without a break this member would miss its group heartbeat.
            progress()
            await asyncio.sleep(0)
        try:
            documents.store(name, record.value, summary := about.summarize(name, record.value))
            if summary is None and (known := about.key(documents[name])) != name:
                raise BadInput(f"it is the document of {known}")
        except BadInput as error:
            documents.pop(name, None)
            place = clients.coordinates(record)
            if (header := about.may_skip(record.headers)) is None:
                raise BadInput(f"{place} with the key {name[:80]!r} cannot be read: {error}") from error
            unreadable[name] = UnreadableDocument(name, place, str(error), header)
            log.error(
                "skipping an unreadable document; nothing of it is in flight",
                place=place,
                key=name,
                reason=str(error),
            )
    return documents, unreadable

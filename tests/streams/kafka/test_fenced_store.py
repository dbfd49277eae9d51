"""The store on a real broker: atomic, fenced, and read back whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import TopicPartition

from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.fenced_store import MAX_DOCUMENT_BYTES, DocumentType, FencedStore, Outgoing
from streams.kafka.topics import COMMANDS, RUNS, TIMELINE
from streams.model.errors import BadInput, Fenced, Permanent
from tests.runbooks.topics import settled, with_topics, write
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.kafka


@dataclass(frozen=True, slots=True)
class Note:
    """A document small enough to read at a glance."""

    id: str
    text: str


async def opened(settings: KafkaSettings, partition: int = 0) -> FencedStore[Note]:
    return await FencedStore.open(
        settings,
        DocumentType(process="notes", topic=RUNS, kind=Note, key=lambda n: n.id),
        partition,
    )


async def test_what_was_committed_is_read_back_by_the_next_owner(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS, TIMELINE)
    first = await opened(settings)
    await first.commit([Note("a", "1"), Note("b", "1")], records=[Outgoing(TIMELINE, 0, "a", b"line")])
    await first.commit([Note("a", "2"), Note("c", "1")], gone=["b"])
    assert dict(first.documents) == {"a": Note("a", "2"), "c": Note("c", "1")}
    await first.close()

    second = await opened(settings)
    other = await opened(settings, partition=1)
    assert dict(second.documents) == {"a": Note("a", "2"), "c": Note("c", "1")}
    assert dict(other.documents) == {}
    assert await settled(settings, TIMELINE, 0) == [("a", b"line")]
    await second.close()
    await other.close()


async def test_a_replaced_owner_is_fenced_and_nothing_of_it_is_ever_seen(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS, TIMELINE)
    old = await opened(settings)
    await old.commit([Note("a", "old owner")])
    new = await opened(settings)
    assert new.documents["a"].text == "old owner"

    with pytest.raises(Fenced):
        await old.commit([Note("a", "zombie")], records=[Outgoing(TIMELINE, 0, "a", b"zombie")])
    with pytest.raises(Fenced):
        await old.commit([Note("a", "zombie again")])
    assert old.documents["a"].text == "old owner"

    await new.commit([Note("a", "new owner")])
    await old.close()
    await new.close()
    values = [value for _, value in await settled(settings, RUNS, 0)]
    assert values == [b'{"id":"a","text":"old owner"}', b'{"id":"a","text":"new owner"}']
    assert await settled(settings, TIMELINE, 0) == []


async def test_an_owner_that_is_replaced_while_it_fills_a_transaction_knows_by_whom(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS, TIMELINE)
    old = await opened(settings)
    new = await opened(settings)
    producer = old._producer

    async def until_it_is_ended(*args: Any, **options: Any) -> Any:
        sent = await send(*args, **options)
        await asyncio.wait([producer._txn_manager.wait_for_transaction_end()])
        return sent

    send = producer.send
    monkeypatch.setattr(producer, "send", until_it_is_ended)
    with pytest.raises(Fenced):
        await old.commit([Note("a", "zombie")], records=[Outgoing(TIMELINE, 0, "a", b"zombie")])
    await old.close()
    await new.close()
    assert await settled(settings, RUNS, 0) == []


async def test_a_transaction_left_open_by_a_dead_owner_is_ended_by_the_next(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS)
    dead = clients.producer(settings, transactional_id="faultline-notes-0")
    await clients.started(dead, settings)
    await dead.begin_transaction()
    await dead.send_and_wait(clients.topic_name(settings, RUNS), key=b"a", value=b"half done", partition=0)

    # The broker itself would end it after a minute.
    async with asyncio.timeout(40):
        heir = await opened(settings)
    assert dict(heir.documents) == {}
    await heir.commit([Note("a", "whole")])
    assert [value for _, value in await settled(settings, RUNS, 0)] == [b'{"id":"a","text":"whole"}']
    await heir.close()
    await dead.client.close()
    dead._closed = True


async def test_input_offsets_are_committed_with_the_documents(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS, COMMANDS)
    await write(settings, COMMANDS, 0, ("a", b"1"), ("a", b"2"))
    store = await opened(settings)
    place = TopicPartition(clients.topic_name(settings, COMMANDS), 0)
    await store.commit([Note("a", "1")], offsets={place: 2}, group="notes")
    await store.close()

    reader = clients.consumer(settings, group="notes")
    await clients.started(reader, settings)
    reader.assign([place])
    # The commit is answered before the group's offset can be read.
    found = await eventually(lambda: reader.committed(place), "an offset is committed", timeout_s=60)
    assert found == 2
    await reader.stop()


@contextmanager
def requests_of(store: FencedStore[Note], before: Callable[[str], Awaitable[object]]) -> Iterator[list[str]]:
    """The names of the requests that the store's producer sends; each waits for `before` first."""
    client, names = store._producer.client, list[str]()
    send = client.send

    async def counted(node: int, request: Any, **more: Any) -> Any:
        names.append(name := type(request).__name__)
        await before(name)
        return await send(node, request, **more)

    client.send = counted
    try:
        yield names
    finally:
        client.send = send


async def at_once(name: str) -> None:
    """Nothing to wait for."""


async def test_an_offset_that_has_not_moved_costs_no_request(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS, COMMANDS)
    store = await opened(settings)
    place = TopicPartition(clients.topic_name(settings, COMMANDS), 0)
    with requests_of(store, at_once) as sent:
        await store.commit([Note("a", "1")], offsets={place: 2}, group="notes")
        assert {"AddOffsetsToTxnRequest", "TxnOffsetCommitRequest"} <= set(sent)
        sent.clear()
        await store.commit([Note("a", "2")], offsets={place: 2}, group="notes")
        assert {"AddOffsetsToTxnRequest", "TxnOffsetCommitRequest"}.isdisjoint(sent)
        await store.commit([Note("a", "3")], offsets={place: 3}, group="notes")
        assert "TxnOffsetCommitRequest" in sent
    await store.close()


async def test_offsets_do_not_wait_for_the_records(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS, COMMANDS)
    store = await opened(settings)
    place = TopicPartition(clients.topic_name(settings, COMMANDS), 0)
    with_offsets = asyncio.Event()

    async def records_last(name: str) -> None:
        if name == "TxnOffsetCommitRequest":
            with_offsets.set()
        elif name == "ProduceRequest":
            async with asyncio.timeout(60):
                await with_offsets.wait()

    with requests_of(store, records_last):
        await store.commit([Note("a", "1")], offsets={place: 2}, group="notes")
    await store.close()
    assert await settled(settings, RUNS, 0) == [("a", b'{"id":"a","text":"1"}')]


async def test_many_documents_go_out_in_few_requests(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS)
    store = await opened(settings)
    with requests_of(store, at_once) as sent:
        await store.commit([Note(f"{number}", "x" * 7_000) for number in range(100)])
    # The first may leave with what was there when the partition had joined the transaction.
    assert sent.count("ProduceRequest") <= 2
    await store.close()
    assert len(await settled(settings, RUNS, 0)) == 100


async def test_a_document_too_large_is_refused_and_the_journal_goes_on(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS)
    store = await opened(settings)
    with pytest.raises(Permanent, match="at most"):
        await store.commit([Note("a", "x" * MAX_DOCUMENT_BYTES)])
    await store.commit([Note("a", "small")])
    assert store.documents["a"].text == "small"
    await store.close()


async def test_a_document_that_cannot_be_read_stops_the_owner_with_its_place(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS)
    await write(settings, RUNS, 0, ("a", b"not a note"))
    with pytest.raises(BadInput, match=r"runs:0:0"):
        await opened(settings)


@pytest.mark.parametrize("tombstones", ["still there", "gone"])
async def test_what_compaction_leaves_is_read_back_as_the_same(kafka: Kafka, tombstones: str) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS)
    store = await opened(settings)
    for number in range(4):
        await store.commit([Note("a", str(number)), Note(f"n{number}", "x")], gone=[f"n{number - 1}"])
    await store.commit([Note("n0", "back again")])
    await store.close()
    latest: dict[str, bytes | None] = {}
    for key, value in await settled(settings, RUNS, 0):
        latest.pop(key, None)
        if value is not None or tombstones == "still there":
            latest[key] = value
    assert len(latest) == {"still there": 6, "gone": 3}[tombstones]
    await write(settings, RUNS, 1, *latest.items())

    whole, compacted = await opened(settings), await opened(settings, partition=1)
    assert dict(compacted.documents) == dict(whole.documents) == dict(store.documents)
    assert set(whole.documents) == {"a", "n0", "n3"}
    await whole.close()
    await compacted.close()


async def test_what_may_rest_is_not_decoded_until_it_is_asked_for(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS)
    store = await opened(settings)
    await store.commit([Note("a", "over"), Note("b", "under way"), Note("c", "over")])
    await store.close()

    def rest(key: str, raw: bytes) -> str | None:
        return "in brief" if b"over" in raw else None

    heir = await FencedStore.open(
        settings,
        DocumentType(process="notes", topic=RUNS, kind=Note, key=lambda n: n.id, summarize=rest),
        0,
    )
    assert (heir.documents.decoded, set(heir.documents.summaries)) == (1, {"a", "c"})
    await heir.commit([Note("c", "begun again")])
    assert heir.documents["a"] == Note("a", "over")
    assert heir.documents["c"] == Note("c", "begun again")
    assert heir.documents.decoded == 2
    await heir.close()


async def test_commits_of_many_tasks_do_not_mix(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS)
    store = await opened(settings)
    await asyncio.gather(*(store.commit([Note(f"n{i}", "x")]) for i in range(20)))
    await store.close()
    assert {key for key, _ in await settled(settings, RUNS, 0)} == {f"n{i}" for i in range(20)}


@pytest.mark.parametrize("cancelled", [True, False], ids=["cancelled", "in progress"])
async def test_a_store_closed_in_the_middle_of_a_commit_keeps_nobody_waiting(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    # The broker would end the transaction only after this test has given up.
    monkeypatch.setattr("streams.kafka.fenced_store.TRANSACTION_TIMEOUT_MS", 600_000)
    settings = await with_topics(kafka.bootstrap, RUNS, COMMANDS)
    store = await opened(settings)
    place = TopicPartition(clients.topic_name(settings, COMMANDS), 0)
    under_way, closing = asyncio.Event(), asyncio.Event()

    async def wait_in_the_middle(request: str) -> None:
        if request.startswith("AddOffsetsToTxn"):
            under_way.set()
            await closing.wait()

    with requests_of(store, wait_in_the_middle):
        commit = asyncio.create_task(store.commit([Note("a", "half")], offsets={place: 2}, group="notes"))
        await under_way.wait()
        if cancelled:
            commit.cancel()
        closing.set()
        await store.close()
        with pytest.raises(asyncio.CancelledError if cancelled else Fenced):
            await asyncio.wait_for(commit, timeout=60)
    await write(settings, RUNS, 0, ("b", b"of another"))
    assert await settled(settings, RUNS, 0) == [("b", b"of another")]

"""What today's code says of a dead letter, for each topic that letters come from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from aiokafka import TopicPartition

from faultline.dead_letters.letter import Letter
from faultline.dead_letters.outlook import NOT_WRITTEN_BACK, Outlook, TodaysCode
from faultline.dead_letters.source_topics import SourceTopics
from streams.kafka.dead_letters import MAX_BYTES, dead_letter, original, why_buried
from streams.kafka.topics import partition_of
from streams.model.codec import encode
from streams.model.control import Control
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.entity import Entity
from streams.model.facts import FactRecord, NodeFact
from streams.model.kinds import SignalKind
from streams.model.record import RawRecord
from streams.model.signal import Severity, SignalBatch, signal

AT = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)
CODE = TodaysCode("west", "faultline-cluster", 8)
XID = b"<3>Mar  1 06:00:00 gpu-07 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


def letter(topic: str, value: bytes | None, *, partition: int = 0, key: bytes | None = None) -> Letter:
    record = RawRecord(topic, partition, 5, AT, key, value)
    _, kept, headers = dead_letter(record, stage="detector", reasons=["then"])
    return Letter(0, 1, AT, why_buried(headers), original(headers, kept))


def batch(cluster: str = "west") -> bytes:
    fault = signal(
        SignalKind.GPU_XID,
        Entity(cluster, node="n1"),
        severity=Severity.CRITICAL,
        occurred_at=AT,
        observed_at=AT,
    )
    return encode(SignalBatch(cluster, (fault,)))


def test_a_raw_record_that_can_be_read_now_may_be_written_back() -> None:
    outlook = CODE.outlook(letter("raw.node-logs", XID))
    assert outlook.verdict == "retry"
    assert "1 gpu.xid" in outlook.why


def test_a_raw_record_that_still_cannot_be_read_is_left_with_its_reason() -> None:
    outlook = CODE.outlook(letter("raw.node-logs", b"\x1f\x8b\x08\x00broken gzip of NVRM: Xid"))
    assert outlook.verdict == "dead"
    assert outlook.why


def test_a_letter_says_the_same_however_often_and_after_whatever_it_is_tried() -> None:
    first = CODE.outlook(letter("raw.node-logs", XID))
    CODE.outlook(letter("raw.node-logs", b"\x1f\x8b\x08\x00broken"))
    assert CODE.outlook(letter("raw.node-logs", XID)) == first


def test_signals_are_written_back_to_the_partition_of_their_cluster_only() -> None:
    home = partition_of("west", 8)
    assert CODE.outlook(letter("signals", batch(), partition=home)).verdict == "retry"
    assert CODE.outlook(letter("signals", batch(), partition=(home + 1) % 8)).verdict == "dead"
    assert CODE.outlook(letter("signals", b"{}", partition=home)).verdict == "dead"


NODE = NodeFact("west", "n1", "u", AT)


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        ("inventory", NODE.key.encode(), encode(FactRecord(NODE))),
        ("inventory", NODE.key.encode(), None),
        ("controls", b"west", encode(Control("west"))),
        ("commands", b"inc-1", encode(Command("cmd-1", "inc-1", "west", Verb.APPROVE, "ada", AT))),
        ("timeline", b"inc-1", encode(TimelineEntry("inc-1", "west", AT, "ada", "note", "text"))),
        ("ticks", None, b"2026-03-01T06:00:00Z"),
    ],
)
def test_state_decisions_and_what_is_over_are_never_written_back(
    topic: str, key: bytes | None, value: bytes | None
) -> None:
    outlook = CODE.outlook(letter(topic, value, key=key))
    assert outlook.verdict == "left"
    assert NOT_WRITTEN_BACK[topic] in outlook.why


@pytest.mark.parametrize("topic", sorted(NOT_WRITTEN_BACK))
def test_what_cannot_be_read_in_an_internal_topic_is_dead(topic: str) -> None:
    assert CODE.outlook(letter(topic, b"\xff")).verdict == "dead"


def test_a_topic_that_nobody_reads_any_more_is_dead() -> None:
    assert CODE.outlook(letter("raw.gone", b"x")).verdict == "dead"


def topics(begin: int = 0, end: int = 100, **config: str) -> SourceTopics:
    place = TopicPartition("p.raw.node-logs", 0)
    named = {name.replace("_", "."): value for name, value in config.items()}
    return SourceTopics("p.", {place: begin}, {place: end}, {"p.raw.node-logs": named})


NOW = AT + timedelta(days=3)
READABLE = Outlook("retry", "readable")


@pytest.mark.parametrize(
    ("where", "verdict"),
    [
        (topics(), "retry"),
        (topics(retention_ms=str(7 * 86_400_000)), "retry"),
        (topics(retention_ms=str(3 * 86_400_000)), "left"),
        (topics(message_timestamp_type="LogAppendTime"), "left"),
        (SourceTopics("p.", {}, {}, {}), "left"),
    ],
    ids=["safe", "kept long enough", "expires before it is read", "would look new", "partition is gone"],
)
def test_what_the_topic_does_with_a_late_record_counts(where: SourceTopics, verdict: str) -> None:
    assert where.judged(letter("raw.node-logs", XID), READABLE, NOW).verdict == verdict


def test_a_letter_that_was_cut_points_to_the_source_and_says_whether_it_is_still_there() -> None:
    cut = letter("raw.node-logs", b"x" * (MAX_BYTES + 1))
    outlook = CODE.outlook(cut)
    assert outlook.verdict == "left"
    assert "raw.node-logs:0:5 and is still there" in topics().judged(cut, outlook, NOW).why
    assert "raw.node-logs:0:5 and is gone from there" in topics(begin=6).judged(cut, outlook, NOW).why

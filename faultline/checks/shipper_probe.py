"""What shippers send: topics that went silent, and clocks of hosts that differ, by the newest record of each partition alone.

A cluster of ten thousand nodes writes gigabytes an hour into these topics, so nothing here reads more than the last records of
a partition, one for what the topic says and some for which nodes it hears. The time of a record is the shipper's clock, or the
broker's where the topic says LogAppendTime; the time within it is the clock of the machine that wrote the line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from faultline.checks.finding import CheckFinding
from faultline.checks.kafka_probe import MAX_SKEW_S
from faultline.checks.silent_nodes import NodePaces, Silence
from streams.config.settings import KafkaSettings
from streams.ingest.open_record import open_record
from streams.ingest.records import RecordContext
from streams.kafka import clients
from streams.kafka.offsets_by_time import first_since
from streams.kafka.plain_errors import plain
from streams.kafka.topics import RAW, RAW_JOB_LOGS, RAW_METRICS, RAW_NODE_LOGS, Topic
from streams.model.clock import from_millis, moment, span, utc_now
from streams.model.errors import Unreachable

SILENT_AFTER = {
    RAW_NODE_LOGS.name: timedelta(minutes=10),
    RAW_JOB_LOGS.name: timedelta(minutes=30),
    RAW_METRICS.name: timedelta(minutes=10),
}
"""Topics that are never quiet for so long while jobs run. Fabric logs, events and alerts may be, for a day."""

SPARSE = timedelta(days=1)

LATE = timedelta(minutes=10)
"""A line that was written so long before it reached Kafka: its shipper is behind, or the clock of its host is."""

FETCH_BYTES = 256 * 1024
"""The broker sends whole batches, and the last one of a partition may be larger than its last record."""


KEYED_BY_NODE = frozenset({RAW_NODE_LOGS.name, RAW_METRICS.name})
HEARD_SINCE = timedelta(minutes=30)
TAIL, TAIL_S = 2000, 2.0
"""Records of a partition, and seconds, that are spent on which nodes went silent."""
SPAN = timedelta(minutes=10)
SHOWN = 10


@dataclass(frozen=True, slots=True)
class NewestRecord:
    """The newest record of one partition; `written` is the newest time in it, None where it holds none."""

    place: TopicPartition
    at: datetime
    written: datetime | None
    node: str | None


async def probe_shippers(settings: KafkaSettings) -> list[CheckFinding]:
    """Every finding about the `raw.*` topics.

    Raises:
        Unreachable: when no broker answers.
    """
    reader = clients.consumer(
        settings, group=None, read_committed=False, fetch_max_wait_ms=100, max_partition_fetch_bytes=FETCH_BYTES
    )  # fmt: skip
    try:
        await clients.started(reader, settings)
        metadata = await reader._client.fetch_all_metadata()
        found: list[CheckFinding] = []
        never: list[str] = []
        for topic in RAW:
            name = clients.topic_name(settings, topic)
            places = [TopicPartition(name, n) for n in sorted(metadata.partitions_for_topic(name) or ())]
            if not places:
                continue
            begins, ends = await reader.beginning_offsets(places), await reader.end_offsets(places)
            if not any(ends.values()):
                never.append(name)
                continue
            newest = await _newest(
                reader, {place: ends[place] - 1 for place in places if begins[place] < ends[place]}
            )
            found += findings(topic, name, newest, utc_now())
            if topic.name in KEYED_BY_NODE and newest:
                paces = await _paces(reader, topic, places, utc_now())
                if paces is not None:
                    found += silent_findings(name, paces.silent(topic.name, utc_now()))
        if never:
            found.append(_never(never))
        return found
    except UnknownTopicOrPartitionError:
        return []
    except KafkaError as error:
        raise Unreachable(f"Kafka at {settings.bootstrap}: {plain(error)}") from error
    finally:
        await reader.stop()


async def _paces(
    reader: AIOKafkaConsumer, topic: Topic, places: list[TopicPartition], now: datetime
) -> NodePaces | None:
    """How often each node was heard lately, by the keys of the last records; None where these span too little time to tell, as on
    a topic of ten thousand nodes."""
    paces = NodePaces(now - HEARD_SINCE)
    since = await first_since(reader, places, now - HEARD_SINCE)
    ends = await reader.end_offsets(places)
    starts = {place: max(since[place].offset, ends[place] - TAIL) for place in places}
    left = {place: end for place, end in ends.items() if starts[place] < end}
    if not left:
        return None
    reader.assign(list(left))
    for place in left:
        reader.seek(place, starts[place])
    oldest: dict[TopicPartition, datetime] = {}
    deadline = asyncio.get_running_loop().time() + TAIL_S
    while left:
        if asyncio.get_running_loop().time() > deadline:
            return None
        for place, records in (await reader.getmany(*left, timeout_ms=200)).items():
            for record in records:
                at = from_millis(record.timestamp)
                oldest.setdefault(place, at)
                if record.key:
                    paces.heard(topic.name, record.key.decode(errors="replace"), at)
        left = {place: end for place, end in left.items() if await reader.position(place) < end}
    cut = [place for place in oldest if starts[place] > since[place].offset]
    return None if any(now - oldest[place] < SPAN for place in cut) else paces


def silent_findings(name: str, silence: Silence) -> Iterator[CheckFinding]:
    """One finding for all nodes whose shipper went silent while those of their neighbours go on. Pure."""
    if not silence.nodes:
        return
    named = ", ".join(one.node for one in silence.nodes[:SHOWN]) + (" …" if silence.nodes[SHOWN:] else "")
    last = silence.nodes[0].last
    what = f"{len(silence.nodes)} nodes went silent while {silence.talking} go on: {named}" + (
        f", the first since {moment(last)}" if last else ""
    )
    yield CheckFinding(
        "warning", f"shippers of {name}", what, "look at the shippers of these nodes, or whether the nodes are gone",
        f"faultline nodes list --all | grep {silence.nodes[0].node}",
    )  # fmt: skip


async def _newest(reader: AIOKafkaConsumer, last: dict[TopicPartition, int]) -> list[NewestRecord]:
    if not last:
        return []
    reader.assign(list(last))
    for place, offset in last.items():
        reader.seek(place, offset)
    found: dict[TopicPartition, NewestRecord] = {}
    deadline = asyncio.get_running_loop().time() + 2.0
    while len(found) < len(last) and asyncio.get_running_loop().time() < deadline:
        left = [place for place in last if place not in found]
        for place, records in (await reader.getmany(*left, timeout_ms=200, max_records=len(left))).items():
            for record in records[-1:]:
                at = from_millis(record.timestamp)
                node, written = _written(record.value, at)
                found[place] = NewestRecord(place, at, written, node)
    return list(found.values())


def _written(value: bytes | None, at: datetime) -> tuple[str | None, datetime | None]:
    """The newest time that a record holds, and the host it is of."""
    if value is None or len(value) > FETCH_BYTES:
        return None, None
    times = [
        (one.at, getattr(one, "node", None))
        for one in open_record(value, RecordContext(at)).observations
        if one.at is not None
    ]
    if not times:
        return None, None
    newest, node = max(times, key=lambda pair: pair[0])
    return node, newest


def findings(topic: Topic, name: str, newest: list[NewestRecord], now: datetime) -> Iterator[CheckFinding]:
    """What is wrong with one topic, by the newest records of its partitions. Pure."""
    where = f"shippers of {name}"
    look = f"kafka-console-consumer.sh --topic {name} --max-messages 1 --property print.timestamp=true"
    if not newest:
        yield CheckFinding(
            "warning", where, "all that was there has expired: nothing arrived for as long as records are kept",
            "start the shippers", look,
        )  # fmt: skip
        return
    last = max(one.at for one in newest)
    if now - last > SILENT_AFTER.get(topic.name, SPARSE):
        what = f"silent for {span(now - last)}: the newest record is of {moment(last)}"
        remedy = "look at the shippers: faults of this kind are not seen meanwhile"
        yield CheckFinding("fault" if topic.name in SILENT_AFTER else "note", where, what, remedy,
                           "kubectl -n faultline-shippers get pods -o wide")  # fmt: skip
    ahead = [one for one in newest if (one.at - now).total_seconds() > MAX_SKEW_S]
    if ahead:
        worst = max(ahead, key=lambda one: one.at)
        off_s = (worst.at - now).total_seconds()
        what = f"a record of partition {worst.place.partition} is {off_s:.0f} s ahead of this machine's clock"
        yield CheckFinding("fault", f"clock of {where}", what, "synchronise the shipper's host", look)
    early = [one for one in newest if one.written and (one.written - one.at).total_seconds() > MAX_SKEW_S]
    if early:
        worst = max(early, key=lambda one: (one.written or one.at) - one.at)
        off_s = ((worst.written or worst.at) - worst.at).total_seconds()
        what = f"{worst.node or 'a host'} wrote a line {off_s:.0f} s after the time at which it reached Kafka"
        yield CheckFinding(
            "fault", f"clock of {where}", what, "synchronise that host: its faults are ordered wrongly", look
        )
    late = [one for one in newest if one.written and one.at - one.written > LATE]
    if late:
        worst = max(late, key=lambda one: one.at - (one.written or one.at))
        took = span(worst.at - (worst.written or worst.at))
        what = f"the newest line of {worst.node or 'a host'} was written {took} before it reached Kafka"
        yield CheckFinding(
            "warning", where, what, "its shipper is behind, or the clock of that host is", look
        )


def _never(names: list[str]) -> CheckFinding:
    what = f"nothing has ever been written to {', '.join(names)}"
    return CheckFinding(
        "note", "shippers", what, "ship what is in use; the others may stay empty", "faultline topics diff"
    )

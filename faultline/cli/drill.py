"""Plays a drill: announces it, writes one log line, follows what becomes of it, and closes its incident again.

What makes it safe is not here but at the responder, which plans for a drill's host in shadow mode only. So nothing is written
before the responder that owns the cluster has answered that it does. Besides, the host is in no inventory: no step could be
carried out on it, and no job runs there.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from faultline.cli.drill_watch import CLOSED, RAW, RESPONDER, DrillWatch
from faultline.cli.read_topics import read_incidents, readable
from faultline.cli.send_command import CommandSession, answers_to, command_of, command_session, is_refusal
from faultline.cli.send_options import SendOptions
from runbooks.engine.node_release import SCOPE
from streams.config.settings import KafkaSettings
from streams.kafka.clients import consumer, partitions_of, producer, started, topic_name
from streams.kafka.plain_errors import plain
from streams.kafka.topics import INCIDENTS, RAW_NODE_LOGS, RUNS, SIGNALS, THREADS, Topic, partition_of
from streams.model.clock import rfc3339, utc_now
from streams.model.conversation import Verb
from streams.model.drill import PREFIX, is_drill
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import SignalBatch
from streams.model.thread import Thread

if TYPE_CHECKING:
    from faultline.runtime.settings import Settings

ANSWER_S = 15.0
"""How long the responder's answer is waited for: about as long as a rebalance takes."""
CLOSE_S = 30.0
"""How long the incident's end is waited for."""
OLD = timedelta(minutes=10)
"""An open incident of a drill that is older belongs to none that still runs."""


@dataclass(frozen=True, slots=True)
class Played:
    """How a drill ended. `left_over` are incidents of earlier drills that were closed."""

    watch: DrillWatch
    failed_at: str
    left_over: tuple[str, ...] = ()
    error: str = ""
    """What the broker said where it did not take the record."""

    @property
    def passed(self) -> bool:
        """Whether the fault went all the way, and its incident was closed again."""
        return not self.failed_at and not self.watch.unsafe


async def play(settings: Settings, wait_s: float, actor: str | None) -> Played:
    """Play one drill on the cluster of the settings.

    Raises:
        Unreachable: when no broker answers.
    """
    options = SendOptions("a drill: nothing was done, and nothing is to be done", actor, ANSWER_S, "table")
    with_thread = settings.slack.token is not None and bool(settings.slack.channel)
    watch = DrillWatch(f"{PREFIX}{uuid.uuid4().hex[:10]}", with_thread)
    async with (
        command_session(settings.kafka, settings.cluster) as session,
        _following(settings.kafka, settings.cluster, watch) as follower,
    ):
        if not await _announced(session, watch, options):
            return Played(watch, RESPONDER)
        left_over = await _close_old(settings.kafka, session, options)
        try:
            try:
                await _write_line(settings.kafka, watch)
            except KafkaError as error:
                return Played(watch, RAW, left_over, f"the record was not written: {plain(error)}")
            await follower.until(lambda: not watch.missing or bool(watch.unsafe), wait_s)
        finally:
            if watch.incident is not None:
                await _close(session, watch.incident, watch.unsafe, options)
        failed_at = watch.missing
        if watch.incident is not None:
            await follower.until(lambda: any(hop.name == CLOSED for hop in watch.hops), CLOSE_S)
            if not failed_at and all(hop.name != CLOSED for hop in watch.hops):
                failed_at = CLOSED
        return Played(watch, failed_at, left_over)


async def _announced(session: CommandSession, watch: DrillWatch, options: SendOptions) -> bool:
    """Whether the responder of this cluster says that it plans for the host in shadow mode only."""
    command = command_of(Verb.DRILL, session.cluster, options, scope=f"{SCOPE}{watch.host}")
    await session.send(command)
    answers = await session.answers(answers_to(command), options.wait_s)
    accepted = next((entry for entry in answers if not is_refusal(entry)), None)
    if accepted is None:
        return False
    watch.passed(RESPONDER, utc_now(), accepted.text)
    return True


async def _write_line(kafka: KafkaSettings, watch: DrillWatch) -> None:
    """Append what a node's kernel would log of a GPU that is gone, as a shipper would."""
    now = utc_now()
    message = (
        f"NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name={watch.host}, GPU has fallen off the bus."
    )
    record = {"host": watch.host, "time": rfc3339(now), "ident": "kernel", "message": message}
    client = await started(producer(kafka), kafka)
    try:
        name = topic_name(kafka, RAW_NODE_LOGS)
        sent = await client.send_and_wait(name, orjson.dumps(record), key=watch.host.encode())
    finally:
        await client.stop()
    watch.passed(RAW, utc_now(), f"{RAW_NODE_LOGS.name}:{sent.partition}:{sent.offset}")


async def _close(session: CommandSession, incident: Incident, unsafe: str, options: SendOptions) -> None:
    """End the incident. Should a run of it be anything but harmless, that is stopped first."""
    if unsafe:
        await session.send(command_of(Verb.STOP, session.cluster, options, incident=incident.id))
    await session.send(command_of(Verb.RESOLVE, session.cluster, options, incident=incident.id))


async def _close_old(kafka: KafkaSettings, session: CommandSession, options: SendOptions) -> tuple[str, ...]:
    """End what earlier drills left open: one that was broken off, or whose incident came too late."""
    known = await read_incidents(kafka)
    old = [
        incident
        for incident in known.values()
        if incident.cluster == session.cluster
        and is_drill(incident)
        and not incident.state.is_over
        and utc_now() - incident.opened_at > OLD
    ]
    for incident in old:
        await _close(session, incident, "", options)
    return tuple(incident.id for incident in old)


class _Follower:
    """Reads the cluster's partitions of the topics that a drill passes, from their ends on."""

    def __init__(self, client: AIOKafkaConsumer, topics: Mapping[str, Topic], watch: DrillWatch) -> None:
        self._client = client
        self._topics = topics
        self._watch = watch

    async def until(self, condition: Callable[[], bool], wait_s: float) -> None:
        """Read on until the condition holds, at most so many seconds."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while not condition() and (left_s := deadline - asyncio.get_running_loop().time()) > 0:
            batches = await self._client.getmany(timeout_ms=max(1, min(200, int(left_s * 1000))))
            for place, records in batches.items():
                for record in records:
                    self._take(self._topics[place.topic], record)

    def _take(self, topic: Topic, record: ConsumerRecord) -> None:
        watch, now, value = self._watch, utc_now(), record.value or b""
        # A busy cluster writes thousands of records meanwhile: only those that can be of the drill are decoded.
        is_ours = watch.host.encode() in value or (
            watch.incident is not None and watch.incident.id.encode() in value
        )
        if not is_ours:
            return
        if topic is SIGNALS:
            batch = readable(SignalBatch, record)
            for signal in batch.signals if batch is not None else ():
                watch.take_signal(signal, now)
        elif topic is INCIDENTS:
            if (incident := readable(Incident, record)) is not None:
                watch.take_incident(incident, now)
        elif topic is RUNS:
            if (run := readable(Run, record)) is not None:
                watch.take(run, now)
        elif (thread := readable(Thread, record)) is not None:
            watch.take(thread, now)


@asynccontextmanager
async def _following(kafka: KafkaSettings, cluster: str, watch: DrillWatch) -> AsyncIterator[_Follower]:
    client: AIOKafkaConsumer = consumer(kafka, group=None, fetch_max_wait_ms=100)
    try:
        await started(client, kafka)
        topics = {topic_name(kafka, topic): topic for topic in (SIGNALS, INCIDENTS, RUNS, THREADS)}
        where = [
            TopicPartition(name, partition_of(cluster, len(await partitions_of(client, name))))
            for name in topics
        ]
        client.assign(where)
        for place, end in (await client.end_offsets(where)).items():
            client.seek(place, end)
        yield _Follower(client, topics, watch)
    finally:
        await client.stop()

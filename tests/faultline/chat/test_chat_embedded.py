"""The chat process on the embedded broker, which stores no offsets of transactions: all is read again, nothing is said twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from faultline.chat.process import Chat
from sandbox.emulated import broker
from sandbox.fake_services.slack import SlackStandin
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import INCIDENTS, RUNS, TIMELINE, partition_of
from streams.model.clock import utc_now
from streams.model.codec import encode
from streams.model.conversation import TimelineEntry
from streams.model.crash_points import CrashHook, ignore
from streams.model.incident import IncidentState
from streams.model.pulse import Pulse
from streams.model.run import StepState
from tests.connectors.chat import thread_documents
from tests.connectors.chat.test_slack_contract import CHANNEL, slack
from tests.testbed.background import in_background
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.embedded


@asynccontextmanager
async def chatting(
    settings: KafkaSettings, server: SlackStandin, pulse: Pulse, at: CrashHook = ignore
) -> AsyncIterator[None]:
    connector = slack(server.base_url, posts_per_s=1000, calls_per_minute=60_000)
    chat = Chat(settings, connector, channel=CHANNEL, debounce_s=0.05, lease_s=30, pulse=pulse, at=at)
    async with running(chat):
        yield
    await connector.close()


def running(chat: Chat) -> AbstractAsyncContextManager[None]:
    """The process, until the block ends."""
    return in_background(chat.run())


async def seen(condition: Callable[[], object], what: str) -> None:
    async def look() -> object:
        return condition()

    await eventually(look, what)


async def test_a_thread_is_kept_over_a_restart_and_says_nothing_twice(tmp_path: Path) -> None:
    now = utc_now()
    incident = thread_documents.incident(fault_at=now, opened_at=now, updated_at=now)
    run = thread_documents.run(incident, cordon=StepState.DONE, ticket=StepState.RUNNING)
    entry = TimelineEntry(incident.id, "c1", now, "alice", "incident.acked", "looking into it")
    resolved = replace(incident, revision=2, state=IncidentState.RESOLVED, closed_at=now)
    async with broker.running(log=tmp_path / "broker.log") as embedded, SlackStandin() as server:
        producer = await clients.started(clients.producer(embedded.settings), embedded.settings)
        partition = partition_of("c1", embedded.settings.cluster_partitions)

        async def tell(topic: str, key: str, document: object) -> None:
            await producer.send_and_wait(topic, encode(document), key=key.encode(), partition=partition)

        await tell(INCIDENTS.name, incident.id, incident)
        await tell(RUNS.name, run.id, run)
        await tell(TIMELINE.name, incident.id, entry)
        pulse, passed = Pulse(), list[str]()
        async with chatting(embedded.settings, server, pulse, passed.append):
            # What is sent and not yet written down would be looked up after the restart, and edited.
            await seen(lambda: passed.count("reply:after_commit") == 3, "three replies are written down")
            assert pulse.is_ready
        await tell(INCIDENTS.name, incident.id, resolved)
        async with chatting(embedded.settings, server, Pulse()):
            await seen(lambda: "resolved" in server.roots()[0].text, "the end is told")
        await producer.stop()
    (root,) = server.roots()
    replies = server.thread(root.ts)
    assert len(replies) == 3
    assert sum(reply.edits for reply in replies) == 0
    (log,) = [reply for reply in replies if reply.text == "What happened"]
    assert str(log.attachments).count("looking into it") == 1

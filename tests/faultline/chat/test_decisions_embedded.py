"""What people decide anywhere shows in the thread: buttons go, a silence holds and ends, a question loses its buttons."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from pydantic import SecretStr

from faultline.chat.process import PROCESS, Chat
from faultline.chat.routes import Routes
from faultline.chat.thread_publisher import ThreadPublisher
from sandbox.emulated import broker
from sandbox.fake_services.slack import Posting, SlackStandin
from streams.config.settings import KafkaSettings
from streams.kafka.fenced_store import DocumentType, FencedStore
from streams.kafka.topics import THREADS, TIMELINE
from streams.model.clock import Clock, rfc3339, utc_now
from streams.model.conversation import TimelineEntry
from streams.model.incident import Incident
from streams.model.run import Approval, Mode, StepState
from streams.model.thread import Thread
from tests.connectors.chat import thread_documents
from tests.connectors.chat.test_slack_contract import CHANNEL, slack
from tests.faultline.chat.test_chat_embedded import running, seen
from tests.faultline.chat.test_storm_embedded import writing

pytestmark = pytest.mark.embedded


@asynccontextmanager
async def answered(
    settings: KafkaSettings, server: SlackStandin, *, clock: Clock = utc_now
) -> AsyncIterator[None]:
    """The chat where a gateway takes presses."""
    connector = slack(
        server.base_url, posts_per_s=1000, calls_per_minute=60_000, signing_secret=SecretStr("s")
    )
    chat = Chat(settings, connector, channel=CHANNEL, debounce_s=0.05, lease_s=30, buttons=True, clock=clock)
    async with running(chat):
        yield
    await connector.close()


def new() -> Incident:
    now = utc_now()
    return thread_documents.incident(fault_at=now, opened_at=now, updated_at=now)


def buttons(posting: Posting) -> list[str]:
    """The actions that a message offers."""
    blocks = [*posting.blocks, *(block for one in posting.attachments for block in one["blocks"])]
    return [
        element["action_id"].removeprefix("faultline.")
        for block in blocks
        if block["type"] == "actions"
        for element in block["elements"]
    ]


async def test_who_acknowledges_on_the_command_line_takes_the_button_from_the_thread(tmp_path: Path) -> None:
    incident = new()
    acked = TimelineEntry(incident.id, "c1", utc_now(), "alice", "person.ack", "acknowledged by alice")
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin() as server,
        writing(embedded.settings) as write,
    ):
        await write(incident)
        async with answered(embedded.settings, server):
            await seen(
                lambda: server.roots() and "ack" in buttons(server.roots()[0]), "it can be acknowledged"
            )
            await write(acked)
            await seen(lambda: "ack" not in buttons(server.roots()[0]), "it cannot be any more")
        assert "Acknowledged by alice" in server.roots()[0].lines
        async with answered(embedded.settings, server):
            await write(replace(incident, revision=2, reason="another reason"))
            await seen(lambda: "another reason" in server.roots()[0].lines, "it goes on after a restart")
        assert "ack" not in buttons(server.roots()[0])


async def test_an_entry_that_arrives_while_the_thread_is_planned_shows(tmp_path: Path) -> None:
    incident = replace(new(), proofs=())
    acked = TimelineEntry(incident.id, "c1", utc_now(), "alice", "person.ack", "acknowledged by alice")
    documents = DocumentType(process=PROCESS, topic=THREADS, kind=Thread, key=lambda thread: thread.incident)
    partition = 0
    timeline = TopicPartition(TIMELINE.name, partition)

    def arrive(point: str) -> None:
        # The next time that the publisher lets others run, it is planning what follows from the root's commit.
        if point == "open_thread:after_commit":
            asyncio.get_running_loop().call_soon(publisher.take_entry, acked, 0)

    async with broker.running(log=tmp_path / "broker.log") as embedded, SlackStandin() as server:
        store = await FencedStore.open(embedded.settings, documents, partition)
        connector = slack(server.base_url, posts_per_s=1000, calls_per_minute=60_000)
        publisher = ThreadPublisher(
            store,
            connector,
            routes=Routes(CHANNEL),
            timeline=timeline,
            group=PROCESS,
            debounce_s=0.05,
            lease_s=30,
            buttons=True,
            at=arrive,
        )
        publisher.take_incident(incident)
        publishing = asyncio.create_task(publisher.publish())
        shown = "Acknowledged by alice"
        await seen(lambda: server.roots() and shown in server.roots()[0].lines, "it is acknowledged")
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await store.close()
        await connector.close()


async def test_a_question_that_is_decided_elsewhere_has_no_buttons_any_more(tmp_path: Path) -> None:
    incident = new()
    asking = thread_documents.run(incident, Mode.APPROVE, cordon=StepState.AWAITING_APPROVAL)
    approval = Approval("cordon", True, "bob", utc_now(), asking.plan.digest, via="console")
    going = thread_documents.run(incident, Mode.APPROVE, cordon=StepState.RUNNING)
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin() as server,
        writing(embedded.settings) as write,
    ):
        await write(incident, asking)

        def question() -> Posting | None:
            replies = [reply for root in server.roots() for reply in server.thread(root.ts)]
            return next(
                (reply for reply in replies if "Cordon" in reply.text or "cordon" in reply.text), None
            )

        async with answered(embedded.settings, server):
            await seen(lambda: (one := question()) and buttons(one) == ["approve", "reject"], "it is asked")
            await write(replace(going, revision=2, approvals=(approval,)))
            await seen(lambda: (one := question()) and "approved by bob" in one.text, "it is decided")
        decided = question()
    assert decided is not None
    assert buttons(decided) == []


class HeldClock:
    """Stands still until it is let go, and runs from there."""

    def __init__(self) -> None:
        self._stood_at = utc_now()
        self._let_go_at: datetime | None = None

    def __call__(self) -> datetime:
        return self._stood_at + (utc_now() - self._let_go_at if self._let_go_at else timedelta())

    def let_go(self) -> None:
        self._let_go_at = utc_now()


async def test_a_silence_holds_back_the_run_until_its_end_and_then_it_is_told(tmp_path: Path) -> None:
    clock = HeldClock()
    incident = new()
    begun = thread_documents.run(incident, cordon=StepState.RUNNING)
    until = clock() + timedelta(seconds=1)
    silenced = TimelineEntry(
        incident.id, "c1", clock(), "alice", "person.silence", "silenced", {"until": rfc3339(until)}
    )
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin() as server,
        writing(embedded.settings) as write,
    ):
        await write(incident, silenced, begun)
        async with answered(embedded.settings, server, clock=clock):
            await seen(lambda: server.roots(), "the incident is told")
            await write(replace(incident, id="another", revision=1))
            await seen(lambda: len(server.roots()) == 2, "all that was written before has been read")
            assert "silence" not in buttons(server.roots()[0])
            assert not _told(server, "Runbook")
            clock.let_go()
            await seen(lambda: _told(server, "Runbook"), "the run is told")
            assert clock() >= until
            await seen(lambda: "silence" in buttons(server.roots()[0]), "it can be silenced again")


def _told(server: SlackStandin, words: str) -> bool:
    return any(words in reply.text for root in server.roots() for reply in server.thread(root.ts))

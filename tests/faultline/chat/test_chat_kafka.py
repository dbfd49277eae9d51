"""The chat process on a real broker: whatever crashes, one root message, one message for each step, and the latest state."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sandbox.fake_services.server import InjectedFault
from sandbox.fake_services.slack import Posting, SlackStandin
from streams.kafka.dead_letters import why_buried
from streams.kafka.topics import (
    DEAD_LETTERS,
    INCIDENTS,
    INVENTORY,
    RUNS,
    THREADS,
    TIMELINE,
    Topic,
    partition_of,
)
from streams.model.clock import utc_now
from streams.model.codec import encode
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import Incident, IncidentState, incident_id
from streams.model.run import EffectRecord, EffectState, Run, RunOutcome, RunState, StepState
from tests.connectors.chat import thread_documents
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually
from tests.tiers import sample

pytestmark = pytest.mark.kafka

PARTITIONS = 2
TOPICS = (INCIDENTS, RUNS, INVENTORY, TIMELINE, THREADS, DEAD_LETTERS)
Document = Incident | Run | TimelineEntry | FactRecord
CRASH_POINTS = ("before_intent", "after_intent", "after_call", "after_commit")


@dataclass
class World:
    """A broker with topics of its own, a Slack, and a producer that writes what the other processes would."""

    kafka: Kafka
    prefix: str
    slack: SlackStandin
    producer: AIOKafkaProducer
    folder: Path
    started: int = 0

    async def tell(self, document: Document) -> None:
        topic, key = _place(document)
        await self.producer.send_and_wait(
            self.prefix + topic.name,
            encode(document),
            key=key.encode(),
            partition=partition_of(
                document.fact.cluster if isinstance(document, FactRecord) else document.cluster, PARTITIONS
            ),
        )

    @contextmanager
    def chat(self, **wishes: object) -> Iterator[Child]:
        self.started += 1
        said = {
            "bootstrap": self.kafka.bootstrap,
            "prefix": self.prefix,
            "partitions": PARTITIONS,
            "slack": self.slack.base_url,
        }
        command = [sys.executable, "-m", "tests.faultline.chat.chat_process", json.dumps(said | wishes)]
        child = Child("chat", command, log=self.folder / f"chat-{self.started}.log")
        try:
            yield child
        finally:
            child.kill()

    async def see(self, condition: Callable[[], object], what: str, timeout_s: float = 120) -> None:
        async def look() -> object:
            return condition()

        try:
            await eventually(look, what, timeout_s=timeout_s)
        except TimeoutError as late:
            logs = "\n".join(p.read_text()[-3000:] for p in sorted(self.folder.glob("chat-*.log")))
            raise AssertionError(f"{late}; roots {self.slack.roots()}; {logs}") from late

    async def work(self, calls: int) -> None:
        """Wait until so many more calls were made, or until every thread has its two replies."""
        enough = len(self.slack.requests) + calls
        await self.see(
            lambda: len(self.slack.requests) >= enough or len(self.replies()) >= 24, "work was done"
        )

    async def dead_letters(self, count: int) -> list[Any]:
        consumer = AIOKafkaConsumer(
            self.prefix + DEAD_LETTERS.name,
            bootstrap_servers=self.kafka.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            return [await asyncio.wait_for(consumer.getone(), 60) for _ in range(count)]
        finally:
            await consumer.stop()

    def replies(self) -> list[Posting]:
        return [reply for root in self.slack.roots() for reply in self.slack.thread(root.ts)]


def _place(document: Document) -> tuple[Topic, str]:
    match document:
        case Incident():
            return INCIDENTS, document.id
        case Run():
            return RUNS, document.id
        case TimelineEntry():
            return TIMELINE, document.incident
        case FactRecord():
            return INVENTORY, document.fact.key


@pytest.fixture
async def world(kafka: Kafka, tmp_path: Path) -> AsyncIterator[World]:
    prefix = f"chat-{uuid.uuid4().hex[:8]}."
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    names = [prefix + topic.name for topic in TOPICS]
    await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])

    async def have_leaders() -> bool:
        return all(p["leader"] >= 0 for t in await admin.describe_topics(names) for p in t["partitions"])

    await eventually(have_leaders, "the topics have leaders")
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    async with SlackStandin() as slack:
        yield World(kafka, prefix, slack, producer, tmp_path)
    await producer.stop()


def new_incident(cluster: str = "c1") -> Incident:
    """One that just happened: what is long over gets no thread."""
    now = utc_now()
    return thread_documents.incident(cluster, fault_at=now, opened_at=now, updated_at=now)


@pytest.mark.parametrize(
    "label",
    sample(
        (f"{a}:{p}" for a in ("open_thread", "reply") for p in CRASH_POINTS),
        "open_thread:after_call",
        "reply:after_intent",
    ),
)
async def test_killed_at_any_point_it_leaves_each_message_exactly_once(world: World, label: str) -> None:
    incident = new_incident()
    await world.tell(incident)
    with world.chat(die_at=label) as dying:
        await world.see(lambda: dying.exit_code == -signal.SIGKILL, f"dies at {label}")
    resolved = replace(incident, revision=2, state=IncidentState.RESOLVED, closed_at=utc_now())
    await world.tell(resolved)
    with world.chat():
        await world.see(
            lambda: any("resolved" in root.text for root in world.slack.roots()), "resolved is shown"
        )
        await world.see(
            lambda: [r.text for r in world.replies() if "Evidence" in r.text], "evidence is there"
        )
    assert len(world.slack.roots()) == 1
    assert len(world.replies()) == 1


@pytest.mark.parametrize(
    "label",
    sample(
        (f"{a}:{p}" for a in ("open_thread", "reply") for p in CRASH_POINTS),
        "open_thread:after_call",
        "reply:after_call",
    ),
)
async def test_killed_within_a_summary_it_leaves_one_root_and_one_reply_for_each(
    world: World, label: str
) -> None:
    incidents = [_down(n) for n in range(6)]
    for incident in incidents:
        await world.tell(incident)
    with world.chat(die_at=label) as dying:
        await world.see(lambda: dying.exit_code == -signal.SIGKILL, f"dies at {label}")
    for incident in incidents:
        await world.tell(replace(incident, revision=2, state=IncidentState.RESOLVED, closed_at=utc_now()))
    await world.tell(_down(6))
    with world.chat():
        await world.see(lambda: len(world.replies()) == 7, "each has its reply")
        await world.see(lambda: sum("resolved" in reply.text for reply in world.replies()) == 6, "of its end")
    assert len(world.slack.roots()) == 1
    keys = [message.key for message in world.slack.channels["C0INCIDENTS"] if not message.deleted]
    assert len(keys) == len(set(keys)) == 8


def _down(number: int) -> Incident:
    now, root = utc_now(), Entity("c1", node=f"node-{number}")
    return thread_documents.incident(
        id=incident_id("c1", root, "node_down", 1), root=root, fault_at=now, opened_at=now, updated_at=now
    )


async def test_a_lost_answer_is_looked_up_and_not_sent_again(world: World) -> None:
    world.slack.fail(InjectedFault("chat.postMessage", "lose_answer", times=2))
    await world.tell(new_incident())
    with world.chat():
        await world.see(lambda: world.replies(), "the evidence is there")
    assert len(world.slack.roots()) == 1
    assert len(world.replies()) == 1


async def test_while_slack_is_down_nothing_is_lost_and_afterwards_nothing_is_doubled(world: World) -> None:
    world.slack.down = True
    incidents = [new_incident(f"c{n}") for n in range(6)]
    with world.chat():
        for incident in incidents:
            await world.tell(incident)
        await world.see(lambda: world.slack.turned_away > 3, "it has tried")
        for incident in incidents:
            await world.tell(
                replace(
                    incident,
                    revision=2,
                    state=IncidentState.RESOLVED,
                    closed_at=utc_now(),
                    updated_at=utc_now(),
                )
            )
        world.slack.down = False
        await world.see(
            lambda: len([r for r in world.slack.roots() if "resolved" in r.text]) == len(incidents),
            "every incident is told",
        )
        await world.see(lambda: len(world.replies()) == len(incidents), "with its evidence")
    keys = [message.key for message in world.slack.channels["C0INCIDENTS"]]
    assert len(keys) == len(set(keys))


async def test_a_burst_of_details_becomes_a_few_edits_that_end_with_the_latest(world: World) -> None:
    incident = new_incident()
    await world.tell(incident)
    with world.chat():
        await world.see(world.replies, "the thread is there")
        began = time.monotonic()
        for revision in range(2, 402):
            await world.tell(replace(incident, revision=revision, reason=f"{revision} signals"))
        await world.see(
            lambda: "401 signals" in str(world.slack.roots()[0].attachments), "the latest is shown"
        )
        took_s = time.monotonic() - began
    (root,) = world.slack.roots()
    assert root.edits <= took_s / 0.2 + 2  # the debounce of this process is 0.2 s


async def test_a_revision_that_is_told_once_more_does_not_bring_an_old_state_back(world: World) -> None:
    incident = new_incident()
    resolved = replace(incident, revision=2, state=IncidentState.RESOLVED, closed_at=utc_now())
    with world.chat():
        await world.tell(incident)
        await world.tell(resolved)
        await world.see(
            lambda: any("resolved" in root.text for root in world.slack.roots()), "it is resolved"
        )
        await world.tell(incident)
        await world.tell(replace(new_incident(), id="inc-marker"))  # lies behind it, so it is read later
        await world.see(lambda: len(world.slack.roots()) == 2, "what lies behind it has a thread")
        now = utc_now()
        await world.tell(TimelineEntry(incident.id, incident.cluster, now, "alice", "incident.acked", "seen"))
        await world.see(lambda: "seen" in str([r.attachments for r in world.replies()]), "its thread went on")
    assert sorted("resolved" in root.text for root in world.slack.roots()) == [False, True]


async def test_a_run_is_one_reply_edited_as_its_steps_go(world: World) -> None:
    incident = new_incident()
    await world.tell(incident)
    with world.chat():
        await world.tell(thread_documents.run(incident, cordon=StepState.RUNNING))
        await world.see(lambda: _runs(world) and "step 1 of 2" in _runs(world)[0].text, "it is at its first")
        done = thread_documents.run(incident, cordon=StepState.DONE, ticket=StepState.RUNNING)
        await world.tell(replace(done, revision=2))
        await world.see(lambda: "step 2 of 2" in _runs(world)[0].text, "it is at its second")
    (shown,) = _runs(world)
    assert shown.edits >= 1
    plan = shown.blocks[1]
    assert [task["status"] for task in plan["tasks"]] == ["complete", "in_progress"]


def _runs(world: World) -> list[Posting]:
    return [reply for reply in world.replies() if "Runbook" in reply.text]


async def test_the_timeline_is_told_once_however_often_it_is_read(world: World) -> None:
    incident = new_incident()
    await world.tell(incident)

    def log() -> str:
        return json.dumps([r.attachments for r in world.replies() if r.text == "What happened"])

    for words in ("looking into it", "found it"):
        await world.tell(
            TimelineEntry(incident.id, incident.cluster, utc_now(), "alice", "incident.acked", words)
        )
        with world.chat():
            await world.see(lambda: words in log(), f"the log says: {words}")  # noqa: B023
    assert [log().count(words) for words in ("looking into it", "found it")] == [1, 1]


async def test_an_unreadable_timeline_record_goes_to_the_dead_letters_and_the_rest_goes_on(
    world: World,
) -> None:
    incident = new_incident()
    partition = partition_of(incident.cluster, PARTITIONS)
    await world.producer.send_and_wait(world.prefix + TIMELINE.name, b'{"incident": 5', partition=partition)
    await world.tell(incident)
    with world.chat():
        await world.see(lambda: world.slack.roots(), "the incident is told")
        letters = await world.dead_letters(1)
    assert [letter.value for letter in letters] == [b'{"incident": 5']
    assert why_buried(letters[0].headers).topic == TIMELINE.name


async def test_a_process_frozen_before_its_call_makes_no_call_when_it_wakes(world: World) -> None:
    """Its intent was committed, so a successor waits the lease out and then sends; the woken one must not."""
    await world.tell(new_incident())
    with world.chat(freeze_at="open_thread:after_intent") as frozen:
        await world.see(lambda: frozen.is_stopped, "the first owner froze")
        with world.chat():
            await world.see(world.replies, "the successor has told it")
            frozen.signal(signal.SIGCONT)
            await world.see(
                lambda: b"call skipped: lease expired" in frozen.log.read_bytes(), "its lease is gone"
            )
            # Whether the journal or the group tells it first that it lost the partition, nobody can say.
            await world.see(
                lambda: frozen.log.read_bytes().count(b"document store open") > PARTITIONS, "it joins anew"
            )
    posts = [call for call in world.slack.calls("chat.postMessage") if "thread_ts" not in call.body]
    assert len(posts) == 1
    assert len(world.slack.roots()) == 1


async def test_a_process_that_slept_through_changes_does_not_bring_an_old_state_back(world: World) -> None:
    incident = new_incident()
    await world.tell(incident)
    with world.chat() as frozen:
        await world.see(lambda: world.replies(), "the first owner told it")
        frozen.signal(signal.SIGSTOP)
        await world.tell(replace(incident, revision=2, state=IncidentState.MITIGATING))
        with world.chat():
            await world.see(
                lambda: any("mitigated" in r.text for r in world.slack.roots()), "the second goes on"
            )
            frozen.signal(signal.SIGCONT)
            resolved = replace(incident, revision=3, state=IncidentState.RESOLVED, closed_at=utc_now())
            await world.tell(resolved)
            await world.see(lambda: any("resolved" in r.text for r in world.slack.roots()), "and ends it")
    shown = [
        call.body["text"].split(": ")[0]
        for call in world.slack.calls("chat.update")
        if "GPU" in call.body["text"]
    ]
    assert [text for n, text in enumerate(shown) if n == 0 or shown[n - 1] != text] == [
        "🟠 being mitigated",
        "🟢 resolved",
    ]
    assert len(world.slack.roots()) == 1
    assert len(world.replies()) == 1


async def test_a_root_that_a_person_deletes_is_posted_anew_with_all_its_replies(world: World) -> None:
    incident = new_incident()
    await world.tell(incident)
    with world.chat():
        await world.see(lambda: world.replies(), "the thread is there")
        (old,) = world.slack.roots()
        world.slack.delete(old.ts)
        await world.tell(replace(incident, revision=2, state=IncidentState.MITIGATING))
        await world.see(
            lambda: world.replies() and ["mitigated" in root.text for root in world.slack.roots()] == [True],
            "a new thread is there",
        )
    (new,) = world.slack.roots()
    assert new.ts != old.ts


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1])
async def test_under_kills_and_lost_answers_every_message_is_there_once(world: World, seed: int) -> None:
    """Two owners at a time, killed wherever they happen to be, while every third answer is lost."""
    chance = random.Random(seed)
    incidents = [new_incident(f"c{n}") for n in range(12)]
    world.slack.fail(InjectedFault("chat.", "lose_answer", times=25))
    for incident in incidents:
        await world.tell(incident)
        await world.tell(thread_documents.run(incident, cordon=StepState.RUNNING))
    for _ in range(3):
        with world.chat():
            with world.chat():
                await world.work(chance.randint(5, 30))
            await world.work(chance.randint(5, 30))
    for incident in incidents:
        await world.tell(replace(incident, revision=2, state=IncidentState.RESOLVED, closed_at=utc_now()))
        done = thread_documents.run(incident, cordon=StepState.DONE, ticket=StepState.DONE)
        await world.tell(replace(done, revision=2))
    with world.chat():
        await world.see(
            lambda: sum("resolved" in r.text for r in world.slack.roots()) == len(incidents), "all roots"
        )
        await world.see(
            lambda: sum("all steps complete" in r.text for r in world.replies()) == 12, "all runs"
        )
        await world.see(lambda: sum("Evidence" in r.text for r in world.replies()) == 12, "all evidence")
    keys = Counter(message.key for message in world.slack.channels["C0INCIDENTS"] if not message.deleted)
    assert set(keys.values()) == {1}
    assert len(keys) == len(incidents) * 3


async def test_a_thread_is_not_green_while_the_node_stays_closed_and_is_when_it_is_given_back(
    world: World,
) -> None:
    now = utc_now()
    about = thread_documents.incident(fault_at=now, opened_at=now, updated_at=now)
    made = thread_documents.run(about, cordon=StepState.DONE, ticket=StepState.DONE)
    cordon, ticket = made.steps
    closed = EffectRecord(
        "k", "cordon_node", thread_documents.NODE, EffectState.CONFIRMED, now, now, confirmed_at=now
    )
    steps = (replace(cordon, effect=closed), ticket)
    run = replace(made, steps=steps, state=RunState.SUCCEEDED, outcome=RunOutcome.SUCCEEDED)
    node = NodeFact("c1", "node-07", "u-7", now, gpus=8, unschedulable=True, owner_incident=about.id)
    for document in (about, run, FactRecord(node)):
        await world.tell(document)
    await world.tell(replace(about, revision=2, state=IncidentState.RESOLVED, closed_at=now))

    def says(word: str) -> bool:
        return any(word in root.text for root in world.slack.roots())

    with world.chat():
        await world.see(lambda: says("🔧 contained"), "the node is owed")
        (root,) = world.slack.roots()
        assert root.lines[-1].startswith("🔧 node-07 stays cordoned")
    # Given back a while later, with no word in incidents or runs: a person has opened the node.
    later = now + timedelta(minutes=1)
    await world.tell(FactRecord(replace(node, unschedulable=False, owner_incident=None, observed_at=later)))
    with world.chat():
        await world.see(lambda: says("🟢 resolved"), "the node is back")
    assert len(world.slack.roots()) == 1

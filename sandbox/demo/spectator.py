"""What the pipeline publishes while it works: signals, incidents, steps and threads, as moments for a screen.

It reads the topics without a group and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Literal

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from sandbox.demo import people
from sandbox.fake_services.slack import SlackStandin
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.dead_letters import why_buried
from streams.kafka.topics import DEAD_LETTERS, INCIDENTS, RUNS, SIGNALS, Topic
from streams.model.clock import from_millis, utc_now
from streams.model.codec import decode
from streams.model.incident import Incident
from streams.model.kinds import SignalKind
from streams.model.run import Run, StepState
from streams.model.signal import Signal, SignalBatch

Channel = Literal["story", "signal", "incident", "step", "thread", "person", "job"]


@dataclass(frozen=True, slots=True)
class DemoMoment:
    """One thing that happened. `text` is plain and may hold log text: escape it where markup counts."""

    at: datetime
    channel: Channel
    text: str
    incident: str | None = None


@dataclass(slots=True)
class Seen:
    """The latest of everything, and how many signals of which kind there were."""

    incidents: dict[str, Incident] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    signals: Counter[str] = field(default_factory=Counter)
    dead_letters: int = 0

    def of_family(self, family: str) -> list[Incident]:
        """Incidents of a family that were not merged into another."""
        return [i for i in self.incidents.values() if i.family == family and i.merged_into is None]

    def runs_of(self, incident: str) -> list[Run]:
        """The runs of an incident."""
        return [run for run in self.runs.values() if run.incident == incident]


class Spectator:
    """Follows the topics and the Slack stand-in; `show` gets every moment as it comes."""

    def __init__(
        self, settings: KafkaSettings, slack: SlackStandin, show: Callable[[DemoMoment], None]
    ) -> None:
        self.seen = Seen()
        self._settings = settings
        self._slack = slack
        self._show = show
        self._steps: dict[tuple[str, str], StepState] = {}
        self._posted: dict[str, tuple[str, int]] = {}
        self._asking: set[str] = set()
        self._seen_on: Counter[tuple[str, str]] = Counter()
        self._dead: set[tuple[str, int, int]] = set()

    async def run(self) -> None:
        """Follow until cancelled."""
        topics = (SIGNALS, INCIDENTS, RUNS, DEAD_LETTERS)
        async with following(self._settings, topics) as client:
            while True:
                batches = await client.getmany(timeout_ms=100)
                for tp, records in batches.items():
                    for record in records:
                        for moment in self._moments(tp.topic, record):
                            self._show(moment)
                for moment in self._of_threads():
                    self._show(moment)

    def _moments(self, topic: str, record: ConsumerRecord) -> Iterator[DemoMoment]:
        at = from_millis(record.timestamp)
        if record.value is None:
            return
        name = topic.removeprefix(self._settings.topic_prefix)
        if name == SIGNALS.name:
            yield from self._of_signals(decode(SignalBatch, record.value), at)
        elif name == INCIDENTS.name:
            yield from self._of_incident(decode(Incident, record.value), at)
        elif name == RUNS.name:
            yield from self._of_run(decode(Run, record.value), at)
        else:
            # By coordinates: a detector that resumes after a pause dead-letters the same record again.
            letter = why_buried(record.headers)
            self._dead.add((letter.topic, letter.partition, letter.offset))
            self.seen.dead_letters = len(self._dead)

    def _of_signals(self, batch: SignalBatch, at: datetime) -> Iterator[DemoMoment]:
        for signal in batch.signals:
            self.seen.signals[signal.kind] += 1
            if signal.kind == SignalKind.JOB_PROGRESS or signal.kind.startswith("run."):
                continue
            # Ranks of a job report the same a hundred times: the first of each node is shown, all are counted.
            place = (signal.kind, f"{signal.entity.node}/{signal.attributes.get('xid', '')}")
            self._seen_on[place] += 1
            if self._seen_on[place] == 1:
                yield DemoMoment(at, "signal", words(signal))

    def _of_incident(self, incident: Incident, at: datetime) -> Iterator[DemoMoment]:
        known = self.seen.incidents.get(incident.id)
        if known is not None and known.revision > incident.revision:
            return
        self.seen.incidents[incident.id] = incident
        if known is None:
            yield DemoMoment(at, "incident", f"{incident.title}: {incident.reason}", incident.id)
        elif (known.state, known.family, known.title) != (incident.state, incident.family, incident.title):
            yield DemoMoment(at, "incident", f"{incident.title}: now {incident.state.value}", incident.id)

    def _of_run(self, run: Run, at: datetime) -> Iterator[DemoMoment]:
        known = self.seen.runs.get(run.id)
        if known is not None and known.revision > run.revision:
            return
        self.seen.runs[run.id] = run
        planned = {step.id: step for step in run.plan.steps}
        for record in run.steps:
            before = self._steps.get((run.id, record.id))
            if record.state == before or record.state == StepState.PENDING:
                continue
            self._steps[run.id, record.id] = record.state
            step = planned[record.id]
            target = f" {step.target}" if step.target else ""
            reason = f": {record.reason}" if record.reason else ""
            yield DemoMoment(
                at, "step", f"{record.state.value:<8} {step.action}{target}{reason}", run.incident
            )

    def _of_threads(self) -> Iterator[DemoMoment]:
        for root in chain.from_iterable(map(self._slack.roots, self._slack.channels)):
            for posting in (root, *self._slack.thread(root.ts, root.channel)):
                now = (posting.text, posting.edits)
                if self._posted.get(posting.ts) == now:
                    continue
                mark = "#" if posting is root else "  └"
                first = posting.ts not in self._posted
                self._posted[posting.ts] = now
                asks = people.approve_value(posting) is not None
                decided = not asks and posting.ts in self._asking
                (self._asking.add if asks else self._asking.discard)(posting.ts)
                if first or decided or posting is root:
                    text = f"{mark} {' '.join(posting.text.split())}"
                    changed = " (the question has changed, its buttons are gone)" if decided else ""
                    yield DemoMoment(utc_now(), "thread", f"{text}{changed}")


def words(signal: Signal) -> str:
    """A signal in a line."""
    get = signal.attributes.get
    texts: dict[str, str] = {
        SignalKind.GPU_XID: f"XID {get('xid')} {get('mnemonic', '')}".rstrip(),
        SignalKind.NCCL_TIMEOUT: f"rank {get('rank')} waits in collective {get('seq')} ({get('op', 'summary')})",
        SignalKind.NCCL_ERROR: f"NCCL error {get('subtype', '')}",
        SignalKind.FABRIC_PFC_STORM: f"PFC storm, {get('direction', '')}".rstrip(", "),
        SignalKind.NODE_NOT_READY: f"node {get('reason', 'NotReady')}",
    }
    what = texts.get(signal.kind, "")
    return f"{signal.kind:<17} {signal.entity}{f'  {what}' if what else ''}"


@asynccontextmanager
async def following(settings: KafkaSettings, topics: tuple[Topic, ...]) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer of every partition of these topics, from the beginning, without a group."""
    client = clients.consumer(settings, group=None, read_committed=False, fetch_max_wait_ms=50)
    await clients.started(client, settings)
    try:
        client.assign(
            [
                TopicPartition(clients.topic_name(settings, topic), number)
                for topic in topics
                for number in range(
                    settings.raw_partitions if topic.partitions == "raw" else settings.cluster_partitions
                )
            ]
        )
        await client.seek_to_beginning()
        yield client
    finally:
        await asyncio.shield(client.stop())

"""The process that acts: incidents, commands and inventory in; runs, timeline and `run.*` signals out; calls in between.

For each owned partition a worker takes turns: let the board advance, commit everything it says in one transaction, then start
the calls that transaction covers. A call's outcome is only another event for the board. Calls of different runs are in the air
at the same time; the machine sees to their order inside a run, and `slots.py` to how many there are at once. However much comes
at once, a turn takes on a share of it, the most urgent first.

When something is switched off, the calls that it stops are called back before that is written down: who reads that the kill
switch is thrown can rely on it.

When a partition goes, its leases are revoked at once, so that no call starts any more; what is in the air may land and be
written down for a moment, and what does not is looked up by the successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import structlog
from aiokafka import ConsumerRecord, TopicPartition

from connectors.base import Connector, Outcome, Unknown
from runbooks.engine.call_slots import CallLimits
from runbooks.engine.crash_points import names_of, names_written
from runbooks.engine.partition_state import PER_ITERATION, PROCESS, PartitionState
from runbooks.engine.run.transition import LOOKUPS, Call
from runbooks.engine.run_index import UnreadableRun
from runbooks.engine.run_summaries import (
    IncidentSummary,
    finished_header,
    read_finished_header,
    summary_if_finished,
)
from runbooks.language.schema import Runbook
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.kafka.clients import coordinates
from streams.kafka.fenced_store import Outgoing
from streams.kafka.lease import Lease
from streams.kafka.partition_owner import PARTITION_LOST, OwnedPartition, OwnedRecord, PartitionOwner
from streams.kafka.topics import COMMANDS, CONTROLS, INCIDENTS, INVENTORY, RUNS, SIGNALS, TIMELINE
from streams.model.clock import Clock, MonotonicClock, boot_seconds, from_millis, utc_now
from streams.model.codec import decode, encode
from streams.model.control import Control
from streams.model.conversation import Command
from streams.model.crash_points import TAKEN_UP, CrashHook, ignore
from streams.model.errors import BadInput, Fenced
from streams.model.facts import FactRecord
from streams.model.incident import Incident
from streams.model.pulse import Pulse
from streams.model.run import Run

log = structlog.get_logger(__name__)

LANDING_S = 3.0
"""How long calls in the air may still land when their partition goes; far below a session timeout."""

TICK_S = 1.0
"""How often a worker looks without news: due times are not finer than that."""


SLOW_S = 10.0
"""A server may still carry out for so long what was given up here: only then is it asked what became of it."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A call under way."""

    call: Call
    task: asyncio.Task[None]
    lease: Lease


@dataclass(eq=False, slots=True)
class _Work:
    """What a partition's worker holds while the partition is ours."""

    owned: OwnedPartition[Run]
    board: PartitionState
    news: asyncio.Event = field(default_factory=asyncio.Event)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    dead: list[Outgoing] = field(default_factory=list)
    unreadable: dict[str, tuple[ConsumerRecord[bytes, bytes], str]] = field(default_factory=dict)
    """By cluster the latest record of `controls`, where it cannot be read, and why."""
    inventory: tuple[TopicPartition, int] | None = None
    """How far the inventory has been taken in; the board has said all that follows from it once it has advanced."""
    air: dict[tuple[str, str, str], _Flight] = field(default_factory=dict)
    landed: list[str] = field(default_factory=list)
    worker: asyncio.Task[None] | None = None
    leaving: bool = False


class Responder:
    """The process. `run` it until it is cancelled.

    Args:
        kafka_settings: The broker.
        settings: Mode, limits and lease.
        connectors: Those that are configured; an action that none of them knows is skipped or fails its step.
        runbooks: All runbooks, shipped and own.
        cluster: The cluster that the connectors act on; incidents of another one are left alone. None takes all.
        clock: The wall clock.
        boot: Seconds that count on while the process is frozen.
        pulse: Beaten on every poll; ready when every owned partition has been read.
        at: Called with the name of each point that matters in a crash: `streams.model.crash_points` says which.
    """

    def __init__(
        self,
        kafka_settings: KafkaSettings,
        settings: ResponderSettings,
        connectors: Sequence[Connector],
        runbooks: Sequence[Runbook],
        *,
        cluster: str | None = None,
        clock: Clock = utc_now,
        boot: MonotonicClock = boot_seconds,
        pulse: Pulse | None = None,
        at: CrashHook = ignore,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._by_action = {action: connector for connector in connectors for action in connector.actions}
        self._runbooks = runbooks
        self._clock = clock
        self._boot = boot
        self._pulse = pulse or Pulse()
        self._at = at
        self._works: dict[OwnedPartition[Run], _Work] = {}
        self._failure: Exception | None = None
        self._owner: PartitionOwner[Run] = PartitionOwner(
            kafka_settings,
            name=PROCESS,
            topic=RUNS,
            kind=Run,
            key=lambda run: run.id,
            summarize=summary_if_finished,
            headers=finished_header,
            may_skip=read_finished_header,
            replayed=(INVENTORY, INCIDENTS, CONTROLS),
            followed=(COMMANDS,),
            on_revoked=self._let_go,
            progress=self._pulse.beat,
        )

    async def run(self) -> NoReturn:
        """Own partitions and act on their incidents.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a run cannot be read back.
        """
        self._pulse.lag = self._owner.lag
        try:
            while True:
                for arrival in await self._owner.poll():
                    self._pulse.count("records")
                    self._take(arrival)
                for owned in list(self._owner.owned.values()):
                    await self._begin(owned)
                self._see_to_workers()
                self._pulse.ready(all(owned.caught_up for owned in self._owner.owned.values()))
        finally:
            await self._owner.stop()

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self, owned: OwnedPartition[Run]) -> _Work:
        if owned not in self._works:
            store = owned.store
            unreadable = [
                UnreadableRun(run.key, run.header.incident, run.header.cluster, f"{run.place}: {run.reason}")
                for run in store.unreadable.values()
            ]
            board = PartitionState(
                self._runbooks,
                self._settings,
                frozenset(self._by_action),
                store.documents,
                unreadable,
                limits=CallLimits.of(self._settings),
                share=PER_ITERATION,
                taken_up=True,
            )
            self._works[owned] = _Work(owned, board)
        return self._works[owned]

    def _take(self, arrival: OwnedRecord[Run]) -> None:
        work, record = self._work(arrival.owned), arrival.record
        try:
            self._read(work, arrival.topic, record)
        except BadInput as error:
            if arrival.topic == CONTROLS.name:
                self._keep_unreadable(work, record, error)
            log.error("unreadable record", topic=record.topic, offset=record.offset, reason=str(error))
            # Incidents and inventory stay in their compacted topics and are read again at every start.
            if arrival.topic == COMMANDS.name:
                work.dead.append(
                    Outgoing.dead_letter(record, topic=arrival.topic, stage=PROCESS, reason=str(error))
                )
        if arrival.topic == COMMANDS.name:
            work.offsets[self._owner.place(COMMANDS, record.partition)] = record.offset + 1
        work.news.set()

    def _keep_unreadable(self, work: _Work, record: ConsumerRecord[bytes, bytes], error: BadInput) -> None:
        """A control that cannot be read: it is a kill switch for its cluster, unless a later one takes its place.

        Raises:
            BadInput: the key does not say that it is of the cluster that is acted on, so nobody knows what it holds up.
        """
        cluster = (record.key or b"").decode(errors="backslashreplace")
        if not cluster or cluster != (self._cluster or cluster):
            place = coordinates(record)
            raise BadInput(f"{place} with the key {cluster[:80]!r} cannot be read: {error}") from error
        work.unreadable[cluster] = (record, str(error))

    def _read(self, work: _Work, topic: str, record: ConsumerRecord[bytes, bytes]) -> None:
        key = (record.key or b"").decode(errors="replace")
        if topic == INVENTORY.name:
            fact = decode(FactRecord, record.value).fact if record.value is not None else None
            if fact is None and key.count("/") < 2:
                raise BadInput(f"a tombstone for {key!r}, which is no cluster/kind/name")
            place = self._owner.place(INVENTORY, record.partition)
            is_news = record.offset >= work.owned.known.get(place, 0)
            work.board.take_fact(key, fact, from_millis(record.timestamp) if is_news else None)
            work.inventory = (place, record.offset + 1)
        elif record.value is None:
            if topic == CONTROLS.name:
                work.unreadable.pop(key, None)
        elif topic == INCIDENTS.name:
            summary = decode(IncidentSummary, record.value)
            if self._cluster not in (None, summary.cluster):
                # Another cluster may well have a node of the same name: acting on it here would close a healthy one.
                log.error(
                    "an incident of another cluster is left alone; give each cluster a kafka.topic_prefix of its own",
                    incident=summary.id,
                    cluster=summary.cluster,
                    acts_on=self._cluster,
                )
            elif work.owned.caught_up or not work.board.put_away(summary, record.value):
                work.board.take_incident(decode(Incident, record.value))
        elif topic == CONTROLS.name:
            control = decode(Control, record.value)
            if control.cluster != key:
                raise BadInput(f"it is the control of {control.cluster[:80]!r}")
            work.unreadable.pop(control.cluster, None)
            work.board.take_control(control)
        else:
            command = decode(Command, record.value)
            if self._cluster in (None, command.cluster):
                work.board.take_command(command)
            else:
                # Who throws the kill switch of another cluster must not be told that it is thrown.
                why = f"the responder here acts on {self._cluster}, not on {command.cluster}"
                work.board.turn_down(command, why)

    # ── turns ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _begin(self, owned: OwnedPartition[Run]) -> None:
        """Start working a partition once everything that was there has been read."""
        if not owned.caught_up or self._owner.owned.get(owned.partition) is not owned:
            return
        work = self._work(owned)
        if work.worker is not None or work.leaving:
            return
        for _ in work.board.inheriting(self._clock()):
            self._pulse.beat()
            await asyncio.sleep(0)
            if work.leaving or self._owner.owned.get(owned.partition) is not owned:
                return
        log.info(
            "partition ready",
            partition=owned.partition,
            runs=len(work.board.runs),
            decoded=work.board.runs.decoded,
            live=len(work.board.runs.live),
        )
        self._at(TAKEN_UP)
        work.worker = asyncio.create_task(self._turns(work), name=f"runs of partition {owned.partition}")

    async def _turns(self, work: _Work) -> None:
        with self._pulse.part(f"runs of partition {work.owned.partition}") as moves_on:
            while not work.leaving:
                moves_on()
                await self._turn(work)

    async def _turn(self, work: _Work) -> None:
        work.news.clear()
        # The lease is counted from before the commit: however long that takes has been paid for.
        lease = Lease.begin(self._settings.lease_s, clock=self._clock, boot=self._boot)
        self._stop_where_unreadable(work)
        work.board.advance(self._clock())
        await self._commit(work, lease)
        if work.board.is_behind(self._clock()):
            # Whoever polls, answers or calls has its turn in between, also where there was nothing to commit.
            await asyncio.sleep(0)
            return
        try:
            await asyncio.wait_for(work.news.wait(), self._pause_s(work))
        except TimeoutError:
            return

    def _stop_where_unreadable(self, work: _Work) -> None:
        """Throw the kill switch of clusters of which nobody can read whether it is thrown."""
        for cluster, (record, why) in work.unreadable.items():
            place = coordinates(record)
            log.error(
                "kill switch thrown: a control cannot be read", cluster=cluster, place=place, reason=why
            )
            work.board.lose_control(cluster, f"{place}: {why}", self._clock())
            work.dead.append(Outgoing.dead_letter(record, topic=CONTROLS.name, stage=PROCESS, reason=why))
        work.unreadable.clear()

    def _pause_s(self, work: _Work) -> float:
        due = work.board.due_at()
        left = TICK_S if due is None else (due - self._clock()).total_seconds()
        return min(TICK_S, max(0.02, left))

    async def _commit(self, work: _Work, lease: Lease | None) -> None:
        """Write down everything there is, then start the calls it covers. Without a lease no call is started."""
        changes = work.board.collect()
        offsets, work.offsets = work.offsets, {}
        inventory = work.inventory if lease is not None else None
        landed, work.landed = work.landed, []
        dead, work.dead = work.dead, []
        partition = work.owned.partition
        records = [
            *(Outgoing(CONTROLS, partition, c.cluster, encode(c)) for c in changes.controls),
            *(Outgoing(TIMELINE, partition, e.incident or e.cluster, encode(e)) for e in changes.timeline),
            *(Outgoing(SIGNALS, partition, b.cluster, encode(b)) for b in changes.signals),
            *dead,
        ]
        landed += names_written(work.owned.store.documents, changes.runs, commands=bool(offsets))
        if inventory is not None and (changes.runs or records or offsets):
            # What others did is told once: how far it has been looked for goes with what was found.
            offsets = offsets | dict([inventory])
        if changes.controls and lease is not None:
            await self._call_back(work)
        for name in names_of(changes.calls):
            self._at(f"{name}:before_intent")
        for name in landed:
            self._at(f"{name}:before_commit")
        await work.owned.store.commit(
            changes.runs,
            gone=changes.gone,
            records=records,
            offsets=offsets,
            group=PROCESS,
        )
        for name in landed:
            self._at(f"{name}:after_commit")
        if lease is not None:
            for call in changes.calls:
                self._start(work, call, lease)

    async def _call_back(self, work: _Work) -> None:
        """Something was switched off: see that no call which that stops leaves any more once the switch is written down.

        What has passed its last check may be on its way out: it is waited for, and given up when it takes too long.
        """
        stopped = []
        for flight in list(work.air.values()):
            if why := work.board.switched_off(flight.call, self._clock()):
                flight.lease.revoke(f"called back: {why}")
                stopped.append(flight)
        if not stopped:
            return
        _, late = await asyncio.wait([flight.task for flight in stopped], timeout=LANDING_S)
        for flight in stopped:
            if flight.task in late:
                flight.task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for flight in stopped:
            if flight.task in late and flight.task.cancelled():
                reason = f"given up after {LANDING_S:.0f} s, as something was switched off"
                given_up = Unknown(reason, after_s=SLOW_S, withheld=True)
                work.board.take_outcome(flight.call, given_up, self._clock())

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, work: _Work, call: Call, lease: Lease) -> None:
        slot = call.slot
        if work.leaving or slot in work.air:
            return
        lease = lease.another()

        def over(task: asyncio.Task[None]) -> None:
            del work.air[slot]
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                self._failure = error

        task = asyncio.create_task(self._call(work, call, lease), name=f"{call.kind} {call.effect.action}")
        work.air[slot] = _Flight(call, task, lease)
        task.add_done_callback(over)

    async def _call(self, work: _Work, call: Call, lease: Lease) -> None:
        names = names_of((call,))
        for name in names:
            self._at(f"{name}:after_intent")
        outcome = await self._outcome(call, lease)
        for name in names:
            self._at(f"{name}:after_call")
        log.info(
            "call",
            kind=call.kind,
            action=call.effect.action,
            target=str(call.effect.target),
            incident=call.effect.incident,
            outcome=type(outcome).__name__,
        )
        work.board.take_outcome(call, outcome, self._clock())
        work.landed += names
        work.news.set()

    async def _outcome(self, call: Call, lease: Lease) -> Outcome:
        connector = self._by_action.get(call.effect.action)
        if connector is None:
            return Unknown(f"nothing here knows {call.effect.action} any more", after_s=30.0)
        try:
            if call.kind in LOOKUPS:
                return await connector.lookup(call.effect)
            lease.check()
            act = connector.undo if call.kind == "undo" else connector.apply
            return await act(call.effect, lease)
        except Fenced as error:
            return Unknown(str(error), withheld=True)
        except Exception as error:
            # A fault in one connector must not stop the runs of others; what it did is not known, so it is looked up.
            log.exception("connector failed", action=call.effect.action, target=str(call.effect.target))
            return Unknown(f"{type(error).__name__} in the connector", after_s=30.0)

    # ── letting go ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _see_to_workers(self) -> None:
        """A partition that was lost is dropped; any other end of a worker ends the process."""
        if self._failure is not None:
            raise self._failure
        for owned, work in list(self._works.items()):
            if work.worker is None or not work.worker.done() or work.leaving:
                continue
            error = work.worker.exception()
            if not isinstance(error, PARTITION_LOST):
                raise error or RuntimeError("a worker ended by itself")
            self._revoke(work, str(error))
            self._owner.drop_partition(owned, error)

    async def _let_go(self, partitions: Sequence[int]) -> None:
        """Start nothing more; give what is in the air a moment to land and be written down."""
        going = [work for owned, work in self._works.items() if owned.partition in partitions]
        for work in going:
            self._revoke(work, f"partition {work.owned.partition} went to another owner")
        await asyncio.gather(*(self._land(work) for work in going))
        for work in going:
            del self._works[work.owned]

    def _revoke(self, work: _Work, reason: str) -> None:
        work.leaving = True
        work.news.set()
        for flight in work.air.values():
            flight.lease.revoke(reason)

    async def _land(self, work: _Work) -> None:
        tasks = [flight.task for flight in work.air.values()] + ([work.worker] if work.worker else [])
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LANDING_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        # Commands read since the last turn have not been heard: the successor reads them again.
        work.offsets.clear()
        work.dead.clear()
        try:
            await self._commit(work, None)
        except PARTITION_LOST as error:
            log.info("not written down any more", partition=work.owned.partition, reason=str(error))
        if work.worker is not None and not work.worker.cancelled():
            ended = work.worker.exception()
            if isinstance(ended, PARTITION_LOST):
                log.info("not written down any more", partition=work.owned.partition, reason=str(ended))
            elif isinstance(ended, Exception):
                self._failure = ended

"""What the responder does for one partition: advance its state, commit what changed, start the calls that the commit covers.

The outcome of a call is only another event for the state. Calls of different runs are in flight at the same time; the state
machine orders those of one run, `call_slots.py` limits how many there are at once. Each iteration handles a bounded share of
what is there, most urgent first.

When a switch is engaged, the calls that it stops are called back before it is committed: whoever reads that the kill switch is
engaged can rely on it.

When the partition is revoked, its leases are revoked at once, so that no further call starts. Calls in flight get a moment to
finish and be committed; the others are looked up by the successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from aiokafka import ConsumerRecord, TopicPartition
from structlog.contextvars import bind_contextvars

from connectors.base import Connector, Outcome, Unknown
from runbooks.engine import run_spans
from runbooks.engine.commit_batch import PROCESS
from runbooks.engine.crash_points import name_of, names_written
from runbooks.engine.figures import ResponderFigures, pairs
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.transition import LOOKUPS, Call
from runbooks.language.schema import Runbook
from streams.config.settings import ResponderSettings
from streams.kafka.clients import coordinates
from streams.kafka.fenced_store import Outgoing
from streams.kafka.lease import Lease
from streams.kafka.partition_owner import PARTITION_LOST, OwnedPartition
from streams.kafka.topics import CONTROLS, SIGNALS, TIMELINE
from streams.model.clock import Clock, MonotonicClock
from streams.model.codec import encode
from streams.model.crash_points import CrashHook
from streams.model.errors import BadInput, Fenced
from streams.model.incident import Incident
from streams.model.pulse import Pulse
from streams.model.run import Run
from streams.telemetry import tracing
from streams.telemetry.call_figures import CallFigures, system_of
from streams.telemetry.redaction import clean_outcome

log = structlog.get_logger(__name__)

FINISH_S = 3.0
"""How long calls in flight may take to finish when their partition is revoked; far below a session timeout."""

TICK_S = 1.0
"""The longest pause between two iterations: due times are not finer than that."""

SLOW_S = 10.0
"""A server may still carry out a cancelled request for this long: only then is its outcome looked up."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What all workers of a process share. `at` is called with the name of each crash point."""

    settings: ResponderSettings
    connectors: Mapping[str, Connector]
    """By action."""
    clock: Clock
    boot: MonotonicClock
    pulse: Pulse
    at: CrashHook
    figures: ResponderFigures
    calls: CallFigures
    failures: list[Exception] = field(default_factory=list)
    """Failures outside of a connector; each has to end the process."""


@dataclass(frozen=True, slots=True)
class DecidingBy:
    """What runs are planned and judged by, loaded together and of one version."""

    runbooks: Sequence[Runbook]
    policy: ResponderSettings
    config: str


@dataclass(frozen=True, slots=True)
class _InFlight:
    call: Call
    task: asyncio.Task[None]
    lease: Lease


class PartitionWorker:
    """The worker of one partition, from its assignment to its revocation."""

    def __init__(self, owned: OwnedPartition[Run], state: PartitionState, around: WorkerContext) -> None:
        self.owned = owned
        self.state = state
        self.news = asyncio.Event()
        """Set to start an iteration at once."""
        self.offsets: dict[TopicPartition, int] = {}
        self.command_places: dict[str, tuple[TopicPartition, int]] = {}
        """Where the commands since the last commit were read, by id."""
        self.dead_letters: list[Outgoing] = []
        self.unreadable_controls: dict[str, tuple[ConsumerRecord[bytes, bytes], str]] = {}
        """By cluster: the latest record of `controls` where it cannot be decoded, and why."""
        self.inventory: tuple[TopicPartition, int] | None = None
        """How far the inventory was read; the state has reported all that follows from it once it has advanced."""
        self.adopting: DecidingBy | None = None
        """What is decided by from the next iteration on; None where nothing was loaded since the last one."""
        self.task: asyncio.Task[None] | None = None
        self.leaving = False
        self._around = around
        self._in_flight: dict[tuple[str, str, str], _InFlight] = {}
        self._finished: list[str] = []
        """Crash-point names of calls whose outcome is not committed yet."""

    async def run(self) -> None:
        """Iterate until the partition is revoked."""
        bind_contextvars(partition=self.owned.partition)
        if tracing.is_on():
            live = [self.owned.store.documents[name] for name in self.state.runs.live]
            run_spans.emit(run_spans.taken_over(live), self._around.clock())
        with self._around.pulse.part(f"runs of partition {self.owned.partition}") as beat:
            while not self.leaving:
                beat()
                await self._iterate()

    async def _iterate(self) -> None:
        self.news.clear()
        began = self._around.boot()
        # The lease starts before the commit, so that the time the commit takes is already deducted.
        lease = Lease.begin(self._around.settings.lease_s, clock=self._around.clock, boot=self._around.boot)
        self._engage_where_unreadable()
        if (new := self.adopting) is not None:
            self.adopting = None
            self.state.adopt(new.runbooks, new.policy, new.config, self._around.clock())
        self.state.advance(self._around.clock())
        await self._commit(lease)
        self._around.figures.iterated(self._around.boot() - began)
        if self.state.is_behind(self._around.clock()):
            # Let polling, probes and calls run in between, also where there was nothing to commit.
            await asyncio.sleep(0)
            return
        try:
            await asyncio.wait_for(self.news.wait(), self._pause_s())
        except TimeoutError:
            return

    def _engage_where_unreadable(self) -> None:
        """Engage the kill switch of clusters whose control record cannot be decoded: the record may have held it."""
        for cluster, (record, why) in self.unreadable_controls.items():
            place = coordinates(record)
            message = "kill switch engaged: control record unreadable (fail-safe)"
            log.error(message, cluster=cluster, place=place, reason=why)
            self.state.take_unreadable_control(cluster, f"{place}: {why}", self._around.clock())
            letter = Outgoing.dead_letter(record, topic=CONTROLS.name, stage=PROCESS, reason=why)
            self.dead_letters.append(letter)
        self.unreadable_controls.clear()

    def _pause_s(self) -> float:
        due = self.state.due_at()
        left = TICK_S if due is None else (due - self._around.clock()).total_seconds()
        return min(TICK_S, max(0.02, left))

    async def _commit(self, lease: Lease | None) -> None:
        """Commit everything that has changed, then start the calls it covers. Without a lease no call is started."""
        changes = self.state.collect()
        offsets = self._handled_offsets()
        inventory = self.inventory if lease is not None else None
        finished, self._finished = self._finished, []
        dead_letters, self.dead_letters = self.dead_letters, []
        partition = self.owned.partition
        records = [
            *(Outgoing(CONTROLS, partition, c.cluster, encode(c)) for c in changes.controls),
            *(Outgoing(TIMELINE, partition, e.incident or e.cluster, encode(e)) for e in changes.timeline),
            *(Outgoing(SIGNALS, partition, b.cluster, encode(b)) for b in changes.signals),
            *dead_letters,
        ]
        finished += names_written(self.owned.store.documents, changes.runs, commands=bool(offsets))
        if inventory is not None and (changes.runs or records or offsets):
            # External changes are reported once: the inventory offset is committed with what was found up to it.
            offsets = offsets | dict([inventory])
        if changes.controls and lease is not None:
            await self._call_back()
        for call in changes.calls:
            self._around.at(f"{name_of(call)}:before_intent")
        for name in finished:
            self._around.at(f"{name}:before_commit")
        store = self.owned.store
        begun = run_spans.turns(changes.runs, store.documents)
        changed = pairs(store.documents, changes)
        await store.commit(
            changes.runs, gone=changes.deleted, records=records, offsets=offsets, group=PROCESS
        )
        self._around.figures.committed(changed, changes.timeline, self._incident)
        for name in finished:
            self._around.at(f"{name}:after_commit")
        run_spans.emit(begun, self._around.clock())
        if lease is not None:
            for call in changes.calls:
                self._start(call, lease)

    def _incident(self, name: str) -> Incident | None:
        """An incident for the metrics; None where it is not known or cannot be read."""
        try:
            return self.state.incidents.get(name)
        except BadInput as error:
            log.debug("an incident is left out of the metrics", incident=name, reason=str(error))
            return None

    def took_command(self, place: TopicPartition, offset: int) -> None:
        """A record of `commands` was read: its offset is committed once what it says is handled."""
        self.offsets[place] = offset + 1
        if (command := self.state.last_command) is not None:
            self.command_places.setdefault(command, (place, offset))

    @property
    def first_waiting(self) -> int | None:
        """The offset of the first command that was read and is not handled yet; None while there is none."""
        waiting = self.state.next_command
        place = self.command_places.get(waiting) if waiting is not None else None
        return place[1] if place is not None else None

    def _handled_offsets(self) -> dict[TopicPartition, int]:
        """The offsets of the commands up to the first that is not handled yet: a successor reads that one again."""
        waiting = self.state.next_command
        if waiting is not None and waiting in self.command_places:
            return dict([self.command_places[waiting]])
        offsets, self.offsets = self.offsets, {}
        self.command_places.clear()
        return offsets

    async def _call_back(self) -> None:
        """A switch changed: make sure that no call it stops leaves the process once the switch is committed.

        A call that has passed its last lease check may be on its way out: wait for it, and cancel it when it takes too long.
        """
        stopped = []
        for one in list(self._in_flight.values()):
            if why := self.state.switched_off(one.call, self._around.clock()):
                one.lease.revoke(f"called back: {why}")
                stopped.append(one)
        if not stopped:
            return
        _, late = await asyncio.wait([one.task for one in stopped], timeout=FINISH_S)
        for one in stopped:
            if one.task in late:
                one.task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for one in stopped:
            if one.task in late and one.task.cancelled():
                reason = f"cancelled after {FINISH_S:.0f} s because a switch was engaged"
                given_up = Unknown(reason, after_s=SLOW_S, withheld=True)
                self.state.take_outcome(one.call, given_up, self._around.clock())

    def _start(self, call: Call, lease: Lease) -> None:
        slot = call.slot
        if self.leaving or slot in self._in_flight:
            return
        lease = lease.another()

        def over(task: asyncio.Task[None]) -> None:
            del self._in_flight[slot]
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                self._around.failures.append(error)

        task = asyncio.create_task(self._call(call, lease), name=f"{call.kind} {call.effect.action}")
        self._in_flight[slot] = _InFlight(call, task, lease)
        task.add_done_callback(over)

    async def _call(self, call: Call, lease: Lease) -> None:
        name = name_of(call)
        self._around.at(f"{name}:after_intent")
        effect = call.effect
        # A task of its own: what is bound stays in it, so every line of the connector names the incident.
        bind_contextvars(incident=effect.incident, run=effect.run, step=effect.step)
        with run_spans.call(call) as span:
            outcome = clean_outcome(await self._outcome(call, lease))
            run_spans.say(span, outcome)
        self._around.at(f"{name}:after_call")
        log.info(
            "call",
            kind=call.kind,
            action=effect.action,
            target=str(effect.target),
            outcome=type(outcome).__name__,
        )
        self.state.take_outcome(call, outcome, self._around.clock())
        self._finished.append(name)
        self.news.set()

    async def _outcome(self, call: Call, lease: Lease) -> Outcome:
        connector = self._around.connectors.get(call.effect.action)
        if connector is None:
            return Unknown(f"no connector for {call.effect.action} any more", after_s=30.0)
        try:
            with self._around.calls.measured(system_of(connector)) as measured:
                outcome = await self._made(connector, call, lease)
                measured.returned(outcome)
            return outcome
        except Fenced as error:
            return Unknown(str(error), withheld=True)
        except Exception as error:
            # A bug in one connector must not stop the runs of others. What it did is unknown, so it is looked up.
            log.exception("connector failed", action=call.effect.action, target=str(call.effect.target))
            return Unknown(f"{type(error).__name__} in the connector", after_s=30.0)

    async def _made(self, connector: Connector, call: Call, lease: Lease) -> Outcome:
        if call.kind in LOOKUPS:
            return await connector.lookup(call.effect)
        lease.check()
        act = connector.undo if call.kind == "undo" else connector.apply
        return await act(call.effect, lease)

    def revoke(self, reason: str) -> None:
        """Start nothing any more; calls that have not left the process are stopped."""
        self.leaving = True
        self.news.set()
        for one in self._in_flight.values():
            one.lease.revoke(reason)

    async def finish_calls(self) -> None:
        """Give the calls in flight a moment to finish, and commit what they did."""
        tasks = [one.task for one in self._in_flight.values()] + ([self.task] if self.task else [])
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=FINISH_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        # Commands read since the last iteration were not handled: the successor reads them again.
        self.offsets.clear()
        self.dead_letters.clear()
        try:
            await self._commit(None)
        except PARTITION_LOST as error:
            self._log_dropped(error)
        if self.task is not None and not self.task.cancelled():
            ended = self.task.exception()
            if isinstance(ended, PARTITION_LOST):
                self._log_dropped(ended)
            elif isinstance(ended, Exception):
                self._around.failures.append(ended)

    def _log_dropped(self, error: BaseException) -> None:
        log.info(
            "partition lost before commit; changes dropped", partition=self.owned.partition, reason=str(error)
        )

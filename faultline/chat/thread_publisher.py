"""Keeps the threads of one owned partition: reads what is to be shown, and makes it so, each message exactly once.

Creating a message goes intended, commit, call, commit. What a crash or a lost answer leaves open is looked up by key before
anything is sent again. An edit may be repeated without harm, but it is preceded by a commit too: that proves that the
partition is still ours, so a process that was frozen cannot bring back an old picture.

When the chat system is away, work of that kind is held back, longer each time, and nothing is lost: what should be shown is
computed from the latest documents whenever the next try comes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NoReturn

import structlog
from aiokafka import TopicPartition

from connectors.base import Absent, AlreadyDone, Connector, Done, Effect, Outcome, Refused, Retry, Unknown
from faultline.chat.thread_plan import (
    CHECK_AFTER_S,
    MAX_LOG,
    Doing,
    Slot,
    Task,
    Urgency,
    has_acted,
    is_worth_a_thread,
    next_task,
    still_told,
    tasks_of,
    wanted,
    weight,
)
from runbooks.engine.containment import owed
from streams.kafka.fenced_store import FencedStore, Outgoing
from streams.kafka.lease import Lease
from streams.model.clock import Clock, to_millis, utc_now
from streams.model.codec import encode
from streams.model.conversation import TimelineEntry
from streams.model.crash_points import CrashHook, ignore
from streams.model.errors import Fenced
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.message import plain
from streams.model.run import EffectRecord, EffectState, Run, Target
from streams.model.signal import Attribute
from streams.model.thread import ROOT, Post, Thread, post_key

log = structlog.get_logger(__name__)

MAX_PAUSE_S = 60.0
"""The longest a kind of work is held back while the chat system does not answer."""
MAX_PARKED_S = 600.0
"""The longest a refused message waits for its next try: somebody may invite the app to its channel meanwhile."""
MAX_GENERATIONS = 3
"""How often a root that was deleted is posted anew before it is left deleted."""
SKEW = timedelta(minutes=5)
"""How much earlier than our own clock a message of ours may seem to be."""
LOG_TEXT = 300
AT_A_TIME = 50
"""Threads whose messages are worked out without a break."""
MAX_LINES = 500
"""Lines of the timeline that are written down in one transaction."""


@dataclass(frozen=True, slots=True)
class _Errand:
    """A task without its message: there may be thousands that wait, and each is worked out anew when its turn has come."""

    doing: Doing
    name: str
    urgency: Urgency
    weight: tuple[bool, bool, int]
    due_at: datetime


class ThreadKeeper:
    """The threads of one partition. `take` documents in as they arrive, then let `keep` run for as long as it is owned."""

    def __init__(
        self,
        journal: FencedStore[Thread],
        connector: Connector,
        *,
        channel: str,
        timeline: TopicPartition,
        group: str,
        debounce_s: float,
        lease_s: float,
        clock: Clock = utc_now,
        at: CrashHook = ignore,
    ) -> None:
        self._journal = journal
        self._connector = connector
        self._channel = channel
        self._timeline = timeline
        self._group = group
        self._debounce_s = debounce_s
        self._lease_s = lease_s
        self._clock = clock
        self._at = at
        self._incidents: dict[str, Incident] = {}
        self._runs: dict[str, dict[str, Run]] = {}
        self._nodes: dict[str, dict[str, NodeFact]] = {}
        self._marked: defaultdict[str, dict[str, NodeFact]] = defaultdict(dict)
        """Nodes by the incident whose marks they bear, and name."""
        self._closers: dict[tuple[str, str], set[str]] = {}
        """Incidents whose runs close a node, by its cluster and name."""
        self._entries: list[tuple[int, TimelineEntry]] = []
        self._records: list[Outgoing] = []
        self._next_offset = 0
        self._stale: dict[str, None] = {}
        """Incidents of which it has to be worked out what is to be done."""
        self._errands: dict[str, tuple[_Errand, ...]] = {}
        """What is to be done, by incident; those of which everything is shown are left out."""
        self._held: dict[Doing, datetime] = {}
        self._failures: dict[Doing, int] = {}
        self._news = asyncio.Event()

    def take_incident(self, incident: Incident) -> None:
        """A revision of an incident. A correlator that takes over may say an older one once more: that is no news."""
        known = self._incidents.get(incident.id)
        if known is not None and incident.revision < known.revision:
            return
        self._incidents[incident.id] = incident
        self._changed(incident.id)

    def take_run(self, run: Run) -> None:
        """The latest revision of a run."""
        self._runs.setdefault(run.incident, {})[run.id] = run
        for planned in run.plan.steps:
            if planned.action == "cordon_node" and planned.target is not None:
                self._closers.setdefault((run.cluster, planned.target.name), set()).add(run.incident)
        self._changed(run.incident)

    def take_node(self, cluster: str, name: str, fact: NodeFact | None) -> None:
        """A node as inventory shows it, or None when it is gone: whether it stays closed is told to whom it is closed for."""
        nodes = self._nodes.setdefault(cluster, {})
        before = nodes.pop(name, None)
        if before is not None:
            for owner in before.owners:
                self._marked[owner].pop(name, None)
                self._changed(owner)
        if fact is not None:
            nodes[name] = fact
            for owner in fact.owners:
                self._marked[owner][name] = fact
                self._changed(owner)
        for incident in self._closers.get((cluster, name), ()):
            self._changed(incident)

    def take_entry(self, entry: TimelineEntry, offset: int) -> None:
        """A line of the timeline and where it lies. What befell the whole cluster has no thread."""
        self._took(offset)
        if not entry.incident:
            return
        self._entries.append((offset, entry))
        self._changed(entry.incident)

    def take_dead_letter(self, letter: Outgoing, offset: int) -> None:
        """A timeline record that nobody can read: it goes to the dead letters with the offset that passes over it."""
        self._records.append(letter)
        self._took(offset)
        self._news.set()

    async def keep(self) -> NoReturn:
        """Work until cancelled.

        Raises:
            Fenced: another owner has the partition.
            Unreachable: a commit's outcome is open; the partition has to be taken up anew.
        """
        while True:
            await self._write_log()
            due = await self._next()
            wait_s = None if due is None else (due[1].due_at - self._clock()).total_seconds()
            if due is not None and wait_s is not None and wait_s <= 0:
                await self._do(*due)
            else:
                await self._wait(wait_s)

    def _changed(self, incident: str) -> None:
        self._stale[incident] = None
        self._news.set()

    def _took(self, offset: int) -> None:
        self._next_offset = max(self._next_offset, offset + 1)

    async def _wait(self, seconds: float | None) -> None:
        """Until something arrives or the time has come. Due times are in the documents: nothing hangs on this sleep."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return
        self._news.clear()

    async def _write_log(self) -> None:
        """Take the timeline into the thread documents and commit how far it was read, in one transaction."""
        while self._entries or self._records:
            entries, self._entries = self._entries[:MAX_LINES], self._entries[MAX_LINES:]
            records: list[Outgoing] = []
            if not self._entries:
                records, self._records = self._records, []
            changed: dict[str, Thread] = {}
            for offset, entry in entries:
                thread = changed.get(entry.incident) or self._thread(entry.incident, entry.cluster)
                if offset > thread.log_offset:
                    bounded = replace(entry, text=plain(entry.text, LOG_TEXT), attributes={})
                    lines = (*thread.log, bounded)[-MAX_LOG:]
                    changed[entry.incident] = replace(thread, log=lines, log_offset=offset)
            now = self._clock()
            read_to = self._entries[0][0] if self._entries else self._next_offset
            await self._journal.commit(
                [replace(t, revision=t.revision + 1, updated_at=now) for t in changed.values()],
                records=records,
                offsets={self._timeline: read_to},
                group=self._group,
            )

    async def _next(self) -> tuple[str, Task] | None:
        """The task to do or to wait for, over all incidents of which not everything is shown."""
        now = self._clock()
        await self._work_out(now)
        while (name := self._first(now)) is not None:
            task = self._next_of(name, now)
            if task is not None and (task.due_at <= now or self._chosen_due_at(name, now) > now):
                return name, task
            # Time has passed since it was worked out, and what was to be done is not any more, or not yet.
            self._see(name, now)
        return None

    async def _work_out(self, now: datetime) -> None:
        """Work out what is to be done for every incident that there is news of, a few at a time."""
        count = 0
        while self._stale:
            name = next(iter(self._stale))
            del self._stale[name]
            self._see(name, now)
            count += 1
            if count % AT_A_TIME == 0:
                await asyncio.sleep(0)

    def _see(self, name: str, now: datetime) -> None:
        incident = self._incidents.get(name)
        tasks = self._tasks_of(incident, now) if incident is not None else ()
        if incident is None or not tasks:
            self._errands.pop(name, None)
            return
        heavy = weight(incident)
        self._errands[name] = tuple(
            _Errand(task.doing, task.slot.name, task.slot.urgency, heavy, task.due_at) for task in tasks
        )

    def _first(self, now: datetime) -> str | None:
        """The incident whose turn it is: with the most urgent errand that is due, else with the one that is due first."""
        best: tuple[object, ...] | None = None
        chosen = None
        for name, errands in self._errands.items():
            for errand in errands:
                due = self._due_at(errand)
                place = (
                    (False, errand.urgency, errand.weight, due, errand.name)
                    if due <= now
                    else (True, due, errand.urgency, errand.weight, errand.name)
                )
                if best is None or place < best:
                    best, chosen = place, name
        return chosen

    def _due_at(self, errand: _Errand) -> datetime:
        return max(errand.due_at, self._held.get(errand.doing, errand.due_at))

    def _chosen_due_at(self, name: str, now: datetime) -> datetime:
        """When the first errand of an incident is due."""
        return min((self._due_at(errand) for errand in self._errands.get(name, ())), default=now)

    def _next_of(self, incident_id: str, now: datetime) -> Task | None:
        incident = self._incidents[incident_id]
        thread = self._thread(incident.id, incident.cluster)
        slots = self._slots_of(incident, thread, now)
        return next_task(thread, slots, now, debounce_s=self._debounce_s, held=self._held)

    def _tasks_of(self, incident: Incident, now: datetime) -> tuple[Task, ...]:
        thread = self._thread(incident.id, incident.cluster)
        return tuple(tasks_of(thread, self._slots_of(incident, thread, now), now, self._debounce_s))

    def _slots_of(self, incident: Incident, thread: Thread, now: datetime) -> tuple[Slot, ...]:
        runs = list(self._runs.get(incident.id, {}).values())
        if thread.post(ROOT) is None and not is_worth_a_thread(incident, now, acted=has_acted(runs)):
            return ()
        standing = frozenset(post.slot for post in thread.posts if post.stands)
        marked = self._marked[incident.id].values() if incident.id in self._marked else ()
        owing = owed(incident.id, runs, self._nodes.get(incident.cluster, {}), marked)
        slots = wanted(incident, runs, thread.log, standing, owing)
        return slots if is_worth_a_thread(incident, now) else still_told(thread, slots)

    async def _do(self, incident_id: str, task: Task) -> None:
        incident = self._incidents[incident_id]
        thread = self._thread(incident_id, incident.cluster)
        match task.doing:
            case Doing.CREATE:
                await self._create(incident, thread, task.slot)
            case Doing.LOOK_UP:
                await self._look_up(incident, thread, task.slot)
            case Doing.EDIT:
                await self._edit(incident, thread, task.slot)
            case Doing.CHECK:
                await self._check(incident, thread, task.slot)

    async def _create(self, incident: Incident, thread: Thread, slot: Slot) -> None:
        action = "open_thread" if slot.name == ROOT else "reply"
        self._at(f"{action}:before_intent")
        lease = self._lease()
        old = thread.post(slot.name)
        intent = EffectRecord(
            key=post_key(incident.id, incident.incarnation, thread.generation, slot.name),
            action=action,
            target=self._target(thread, slot),
            state=EffectState.INTENDED,
            intended_at=self._clock(),
            lease_until=lease.until,
            attempts=old.create.attempts + 1 if old else 1,
        )
        post = replace(old, create=intent, due_at=None) if old else Post(slot.name, intent)
        thread = await self._commit(thread.with_post(post))
        self._at(f"{action}:after_intent")
        effect = self._effect(thread, post, slot)
        if intent.attempts == 1:
            # The journal is ours alone, and it knows of no earlier try: there is nothing to look for.
            effect = replace(effect, params={**effect.params, "fresh": True})
        outcome = await self._apply(effect, lease)
        self._at(f"{action}:after_call")
        if outcome is None:
            return
        await self._commit(thread.with_post(self._created(post, slot, outcome)))
        self._at(f"{action}:after_commit")
        if isinstance(outcome, Refused) and slot.name != ROOT:
            await self._see_about_root(incident, slot)

    def _created(self, post: Post, slot: Slot, outcome: Outcome) -> Post:
        """What the document says after a call that should have created the message."""
        now, intent = self._clock(), post.create
        match outcome:
            case Done() | AlreadyDone():
                self._went_well(Doing.CREATE)
                again = intent.attempts > 1
                return replace(
                    post,
                    create=replace(
                        intent, state=EffectState.CONFIRMED, result=outcome.result, confirmed_at=now
                    ),
                    # A message that was found may show an earlier state: an edit will settle that.
                    shown=slot.message.digest if isinstance(outcome, Done) else "",
                    mark=slot.mark if isinstance(outcome, Done) else "",
                    changed_at=now,
                    due_at=None,
                    failures=0,
                    check_at=now + timedelta(seconds=CHECK_AFTER_S) if again else None,
                )
            case Unknown():
                # Others would hang as this one did: until this one is found out, nothing new is sent.
                self._hold(Doing.CREATE, outcome.after_s)
                until = self._hold(Doing.LOOK_UP, outcome.after_s)
                return replace(post, create=replace(intent, state=EffectState.UNKNOWN), due_at=until)
            case Retry():
                until = self._hold(Doing.CREATE, outcome.after_s)
                return replace(
                    post,
                    create=replace(intent, state=EffectState.REFUSED, reason=outcome.reason),
                    due_at=until,
                )
            case Refused():
                log.error("message refused", slot=slot.name, key=intent.key, reason=outcome.reason)
                refused = replace(intent, state=EffectState.REFUSED, reason=outcome.reason)
                return self._parked(replace(post, create=refused))
            case _:
                raise TypeError(f"a chat connector answers {outcome!r} to {intent.action}")

    async def _look_up(self, incident: Incident, thread: Thread, slot: Slot) -> None:
        post = _known(thread, slot)
        outcome = await self._connector.lookup(self._effect(thread, post, slot))
        match outcome:
            case AlreadyDone():
                self._went_well(Doing.LOOK_UP)
                await self._commit(thread.with_post(self._created(post, slot, outcome)))
            case Absent():
                self._went_well(Doing.LOOK_UP)
                await self._create(incident, thread, slot)
            case Unknown() | Retry():
                until = self._hold(Doing.LOOK_UP, outcome.after_s)
                unknown = replace(post.create, state=EffectState.UNKNOWN)
                await self._commit(thread.with_post(replace(post, create=unknown, due_at=until)))
            case Refused():
                log.error("message cannot be looked up", slot=slot.name, reason=outcome.reason)
                unknown = replace(post.create, state=EffectState.UNKNOWN, reason=outcome.reason)
                await self._commit(thread.with_post(self._parked(replace(post, create=unknown))))
            case _:
                raise TypeError(f"a chat connector answers {outcome!r} to a lookup")

    async def _edit(self, incident: Incident, thread: Thread, slot: Slot) -> None:
        lease = self._lease()
        post = replace(_known(thread, slot), shown="", due_at=None)
        thread = await self._commit(thread.with_post(post))
        outcome = await self._apply(self._edit_effect(thread, post, slot), lease)
        match outcome:
            case None:
                return
            case Done() | AlreadyDone():
                self._went_well(Doing.EDIT)
                shown = replace(
                    post, shown=slot.message.digest, mark=slot.mark, changed_at=self._clock(), failures=0
                )
                await self._commit(thread.with_post(shown))
            case Unknown() | Retry():
                until = self._hold(Doing.EDIT, outcome.after_s)
                await self._commit(thread.with_post(replace(post, due_at=until)))
            case Refused():
                if not await self._is_deleted(incident, slot):
                    log.error("edit refused", slot=slot.name, incident=incident.id, reason=outcome.reason)
                    await self._commit(thread.with_post(self._parked(post)))
            case _:
                raise TypeError(f"a chat connector answers {outcome!r} to an edit")

    async def _check(self, incident: Incident, thread: Thread, slot: Slot) -> None:
        """Look once more for a message that had to be sent again; the connector removes copies that came to light."""
        lease = self._lease()
        post = _known(thread, slot)
        thread = await self._commit(thread)
        outcome = await self._apply(self._effect(thread, post, slot), lease)
        match outcome:
            case None:
                return
            case Done() | AlreadyDone():
                same = outcome.result.get("ts") == post.ts
                kept = replace(post.create, result=outcome.result)
                post = replace(post, create=kept, check_at=None, shown=post.shown if same else "")
            case Unknown() | Retry():
                post = replace(post, check_at=self._hold(Doing.CHECK, outcome.after_s))
            case _:
                log.warning(
                    "cannot look for copies", slot=slot.name, incident=incident.id, outcome=str(outcome)
                )
                post = replace(post, check_at=None)
        await self._commit(thread.with_post(post))

    async def _see_about_root(self, incident: Incident, slot: Slot) -> None:
        """A reply was refused: perhaps because a person deleted what it replies to."""
        root = Slot(ROOT, slot.message, "", slot.urgency)
        await self._is_deleted(incident, root)

    async def _is_deleted(self, incident: Incident, slot: Slot) -> bool:
        """Ask whether a message is gone. A reply stays gone; a root is posted anew, with everything under it."""
        thread = self._thread(incident.id, incident.cluster)
        post = _known(thread, slot)
        outcome = await self._connector.lookup(self._edit_effect(thread, post, slot))
        if not isinstance(outcome, Refused):
            return False
        log.warning("message deleted", slot=slot.name, incident=incident.id, generation=thread.generation)
        if slot.name == ROOT and thread.generation < MAX_GENERATIONS:
            await self._commit(replace(thread, generation=thread.generation + 1, posts=()))
        else:
            await self._commit(thread.with_post(replace(post, gone=True)))
        return True

    async def _apply(self, effect: Effect, lease: Lease) -> Outcome | None:
        """The call, or None when the lease ran out before it left: then the next look at the document decides."""
        try:
            return await self._connector.apply(effect, lease)
        except Fenced as error:
            log.warning("call not made", action=effect.action, incident=effect.incident, reason=str(error))
            return None

    async def _commit(self, thread: Thread) -> Thread:
        thread = replace(thread, revision=thread.revision + 1, updated_at=self._clock())
        await self._journal.commit([thread])
        self._stale[thread.incident] = None
        return thread

    def _lease(self) -> Lease:
        return Lease.begin(self._lease_s, clock=self._clock)

    def _thread(self, incident: str, cluster: str) -> Thread:
        now = self._clock()
        new = Thread(incident, cluster, self._channel, created_at=now, updated_at=now, revision=0)
        return self._journal.documents.get(incident) or new

    def _target(self, thread: Thread, slot: Slot) -> Target:
        root = thread.post(ROOT)
        if slot.name == ROOT or root is None:
            return Target("Channel", thread.channel)
        return Target("Thread", root.ts, namespace=thread.channel)

    def _effect(self, thread: Thread, post: Post, slot: Slot) -> Effect:
        since = to_millis(thread.created_at - SKEW) / 1000
        params: dict[str, Attribute] = {
            "message": encode(slot.message).decode(),
            "since": f"{since:.6f}",
        }
        return _effect(thread, post, slot, post.create.action, post.create.target, params)

    def _edit_effect(self, thread: Thread, post: Post, slot: Slot) -> Effect:
        params: dict[str, Attribute] = {"message": encode(slot.message).decode()}
        root = thread.post(ROOT)
        if slot.name != ROOT and root is not None:
            params["thread_ts"] = root.ts
        target = Target("Message", post.ts, namespace=thread.channel)
        return _effect(thread, post, slot, "edit", target, params)

    def _hold(self, doing: Doing, after_s: float) -> datetime:
        """Hold back this kind of work: as long as the other side asked, and longer each time it fails in a row."""
        failures = self._failures.get(doing, 0)
        self._failures[doing] = failures + 1
        pause = max(after_s, min(MAX_PAUSE_S, 0.5 * 2 ** min(failures, 10)))
        self._held[doing] = self._clock() + timedelta(seconds=pause)
        return self._held[doing]

    def _went_well(self, doing: Doing) -> None:
        self._failures.pop(doing, None)
        self._held.pop(doing, None)

    def _parked(self, post: Post) -> Post:
        """Refused, but worth another try later: twice as late each time."""
        pause = min(MAX_PARKED_S, 15.0 * 2 ** min(post.failures, 10))
        return replace(post, due_at=self._clock() + timedelta(seconds=pause), failures=post.failures + 1)


def _known(thread: Thread, slot: Slot) -> Post:
    post = thread.post(slot.name)
    if post is None:
        raise LookupError(f"thread {thread.incident} has no message {slot.name}")
    return post


def _effect(
    thread: Thread, post: Post, slot: Slot, action: str, target: Target, params: Mapping[str, Attribute]
) -> Effect:
    return Effect(
        key=post.create.key,
        action=action,
        target=target,
        cluster=thread.cluster,
        incident=thread.incident,
        run="",
        step=slot.name,
        params=params,
    )

"""Posts the messages of threads, each exactly once.

Creating a message is: commit the intent, call, commit the result. What a crash or a lost answer leaves open is looked up by key
before anything is sent again. An edit is idempotent, but a commit precedes it too: the commit fails if another process owns the
partition by now, so a process that was frozen cannot overwrite a newer text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog
from structlog.contextvars import bound_contextvars

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Connector,
    Done,
    Effect,
    Outcome,
    Refused,
    Retry,
    Unknown,
)
from faultline.chat import post_spans
from faultline.chat.channel_health import EVERY_CHANNEL, ChannelHealth
from faultline.chat.post_backoff import PostBackoff
from faultline.chat.thread_plan import CHECK_AFTER_S, Doing, Slot, Subject, Task, home_of
from streams.kafka.fenced_store import FencedStore
from streams.kafka.lease import Lease
from streams.model.clock import Clock, to_millis, utc_now
from streams.model.codec import encode
from streams.model.crash_points import CrashHook, ignore
from streams.model.errors import Fenced
from streams.model.run import EffectRecord, EffectState, Target
from streams.model.signal import Attribute
from streams.model.thread import ROOT, Post, Thread, post_key
from streams.telemetry.call_figures import CallFigures
from streams.telemetry.redaction import clean_outcome
from streams.telemetry.registry import Metrics

log = structlog.get_logger(__name__)

READING = "reading"
"""What blocks a call where the app may post and not read: nothing else waits for it."""
MAX_GENERATIONS = 3
"""How often a deleted root message is posted again before it stays deleted."""
MAX_MISSED = 5
"""How often what was taken and never came to be is sent again."""
CLOCK_SKEW = timedelta(minutes=5)
"""How far the chat system's clock may lag behind ours: copies of a message are searched from this much before its thread."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """The owner of a thread: a summary."""

    id: str
    cluster: str
    incarnation: int = 1


class MessagePoster:
    """Does the tasks of threads: create, look up, edit, check for copies. `on_commit` gets each changed incident, `channel_of`
    tells the channel in which a thread begins, `calls` counts calls to `system`."""

    def __init__(
        self,
        store: FencedStore[Thread],
        connector: Connector,
        *,
        channel_of: Callable[[str], str],
        lease_s: float,
        backoff: PostBackoff,
        health: ChannelHealth,
        on_commit: Callable[[str], None],
        generations: int = MAX_GENERATIONS,
        clock: Clock = utc_now,
        at: CrashHook = ignore,
        calls: CallFigures | None = None,
        system: str = "",
    ) -> None:
        self._calls = calls or CallFigures(Metrics(""))
        self._system = system
        self._store = store
        self._connector = connector
        self._channel_of = channel_of
        self._lease_s = lease_s
        self._backoff = backoff
        self._health = health
        self._on_commit = on_commit
        self._generations = generations
        self._clock = clock
        self._at = at

    async def do(self, subject: Subject, task: Task) -> None:
        """Do one task. Raises Fenced when another process owns the partition, Unreachable when a commit's outcome is unknown."""
        thread = self.thread(subject.id, subject.cluster)
        with bound_contextvars(incident=str(task.slot.params.get("incident", subject.id))):
            match task.doing:
                case Doing.CREATE:
                    await self._create(subject, thread, task.slot)
                case Doing.LOOK_UP:
                    await self._look_up(subject, thread, task.slot)
                case Doing.EDIT:
                    await self._edit(subject, thread, task.slot)
                case Doing.CHECK:
                    await self._check(subject, thread, task.slot)

    def thread(self, incident: str, cluster: str) -> Thread:
        """The thread document of an incident, or a new one. Until anything of it is posted, its channel is the one it would
        begin in now."""
        known = self._store.documents.get(incident)
        if known is not None and (known.posts or known.parent or known.generation > 1):
            return known
        channel = self._channel_of(incident)
        if known is not None:
            return known if known.channel == channel else replace(known, channel=channel)
        now = self._clock()
        return Thread(incident, cluster, channel, created_at=now, updated_at=now, revision=0)

    async def _create(self, subject: Subject, thread: Thread, slot: Slot) -> None:
        action = slot.actions[0] if slot.actions else "open_thread" if slot.name == ROOT else "reply"
        self._at(f"{action}:before_intent")
        lease = self._lease()
        old = thread.post(slot.name)
        intent = EffectRecord(
            key=post_key(subject.id, subject.incarnation, thread.generation, slot.name),
            action=action,
            target=self._target(thread, slot),
            state=EffectState.INTENDED,
            intended_at=self._clock(),
            lease_until=lease.until,
            attempts=old.create.attempts + 1 if old else 1,
            failures=old.create.failures if old else 0,
        )
        post = replace(old, create=intent, due_at=None) if old else Post(slot.name, intent)
        thread = await self._commit(thread.with_post(post))
        self._at(f"{action}:after_intent")
        effect = _create_effect(thread, post, slot)
        if intent.failures == intent.attempts - 1:
            # Of all earlier attempts it is known that they failed: no copy can exist, and the connector need not search for one.
            effect = replace(effect, params={**effect.params, "fresh": True})
        outcome = await self._apply(effect, lease)
        self._at(f"{action}:after_call")
        if outcome is None:
            return
        self._judge(thread, outcome)
        await self._commit(thread.with_post(self._created(post, slot, outcome)))
        self._at(f"{action}:after_commit")
        home = self._home(thread, slot)
        if isinstance(outcome, Refused) and home is not None:
            # A reply is also refused when the root message was deleted.
            owner = subject if home is thread else _Owner(home.incident, home.cluster)
            await self._is_deleted(owner, Slot(ROOT, slot.message, "", slot.urgency))

    def _created(self, post: Post, slot: Slot, outcome: Outcome) -> Post:
        """The post after the call that should have created its message."""
        now, intent = self._clock(), post.create
        match outcome:
            case Done() | AlreadyDone():
                self._backoff.succeeded(Doing.CREATE)
                check_at = self._copies_at(intent, slot)
                if isinstance(outcome, Done) and check_at is None:
                    check_at = self._check_at(outcome, post)
                return replace(
                    post,
                    create=replace(
                        intent, state=EffectState.CONFIRMED, result=outcome.result, confirmed_at=now
                    ),
                    # A message that was found may show an older text: an empty digest makes an edit follow.
                    shown=slot.digest if isinstance(outcome, Done) else "",
                    mark=slot.mark if isinstance(outcome, Done) else "",
                    changed_at=now,
                    due_at=None,
                    failures=0,
                    check_at=check_at,
                )
            case Unknown():
                # Other calls would time out too: create nothing until this message has been looked up.
                self._backoff.pause(Doing.CREATE, outcome.after_s)
                until = self._backoff.pause(Doing.LOOK_UP, outcome.after_s)
                return replace(post, create=replace(intent, state=EffectState.UNKNOWN), due_at=until)
            case Retry():
                until = self._backoff.pause(Doing.CREATE, outcome.after_s)
                return replace(post, create=_failed(intent, outcome.reason), due_at=until)
            case Blocked():
                # Where the channel is broken, all that belongs there waits for it; else this message alone waits.
                failed = replace(post, create=_failed(intent, outcome.reason))
                return self._backoff.parked(failed) if outcome.by == READING else failed
            case Refused():
                log.error(
                    "chat system rejected the message", slot=slot.name, key=intent.key, reason=outcome.reason
                )
                return self._backoff.parked(replace(post, create=_failed(intent, outcome.reason)))
            case _:
                raise TypeError(f"a chat connector answers {outcome!r} to {intent.action}")

    async def _look_up(self, subject: Subject, thread: Thread, slot: Slot) -> None:
        post = _known(thread, slot)
        outcome = await self._look(_create_effect(thread, post, slot))
        match outcome:
            case AlreadyDone():
                self._backoff.succeeded(Doing.LOOK_UP)
                await self._commit(thread.with_post(self._created(post, slot, outcome)))
            case Absent():
                self._backoff.succeeded(Doing.LOOK_UP)
                if slot.moot:
                    await self._commit(thread.with_post(replace(post, gone=True)))
                elif slot.actions:
                    # The look-up took its time: whether it is to be sent at all is asked anew.
                    absent = replace(post.create, state=EffectState.REFUSED, reason=outcome.detail)
                    await self._commit(thread.with_post(replace(post, create=absent, due_at=None)))
                else:
                    await self._create(subject, thread, slot)
            case Unknown() | Retry():
                until = self._backoff.pause(Doing.LOOK_UP, outcome.after_s)
                unknown = replace(post.create, state=EffectState.UNKNOWN)
                await self._commit(thread.with_post(replace(post, create=unknown, due_at=until)))
            case Refused() | Blocked():
                log.error("chat system rejected the message lookup", slot=slot.name, reason=outcome.reason)
                unknown = replace(post.create, state=EffectState.UNKNOWN, reason=outcome.reason)
                await self._commit(thread.with_post(self._backoff.parked(replace(post, create=unknown))))
            case _:
                raise TypeError(f"a chat connector answers {outcome!r} to a lookup")

    async def _edit(self, subject: Subject, thread: Thread, slot: Slot) -> None:
        lease = self._lease()
        post = replace(_known(thread, slot), shown="", due_at=None)
        thread = await self._commit(thread.with_post(post))
        outcome = await self._apply(_edit_effect(thread, post, slot), lease)
        self._judge(thread, outcome)
        match outcome:
            case None | Blocked():
                return
            case Done() | AlreadyDone():
                self._backoff.succeeded(Doing.EDIT)
                shown = replace(post, shown=slot.digest, mark=slot.mark, changed_at=self._clock(), failures=0)
                if post.mark != slot.mark:
                    shown = replace(shown, missed=0)
                if isinstance(outcome, Done) and outcome.check_after_s:
                    shown = replace(shown, check_at=self._check_at(outcome, shown))
                await self._commit(thread.with_post(shown))
            case Unknown() | Retry():
                until = self._backoff.pause(Doing.EDIT, outcome.after_s)
                await self._commit(thread.with_post(replace(post, due_at=until)))
            case Refused():
                if not await self._is_deleted(subject, slot):
                    about = {"slot": slot.name, "incident": subject.id, "reason": outcome.reason}
                    log.error("chat system rejected the edit", **about)
                    await self._commit(thread.with_post(self._backoff.parked(post)))
            case _:
                raise TypeError(f"a chat connector answers {outcome!r} to an edit")

    def _copies_at(self, intent: EffectRecord, slot: Slot) -> datetime | None:
        """When to search for copies of a message that was sent; None where there can be none."""
        if intent.attempts < 2 or not slot.checked:
            return None
        return self._clock() + timedelta(seconds=CHECK_AFTER_S)

    def _check_at(self, done: Done, post: Post) -> datetime | None:
        """When to ask whether it came to be: later each time that it did not."""
        if not done.check_after_s:
            return None
        return self._clock() + timedelta(seconds=done.check_after_s * 2**post.missed)

    async def _check(self, subject: Subject, thread: Thread, slot: Slot) -> None:
        """Search once more for copies of a message that was sent again; the connector deletes them."""
        if not slot.checked:
            await self._confirm(subject, thread, slot)
            return
        lease = self._lease()
        post = _known(thread, slot)
        thread = await self._commit(thread)
        outcome = await self._apply(_create_effect(thread, post, slot), lease)
        match outcome:
            case None:
                return
            case Done() | AlreadyDone():
                same = outcome.result.get("ts", "") == post.ts
                kept = replace(post.create, result=outcome.result)
                post = replace(post, create=kept, check_at=None, shown=post.shown if same else "")
            case Unknown() | Retry():
                post = replace(post, check_at=self._backoff.pause(Doing.CHECK, outcome.after_s))
            case _:
                about = {"slot": slot.name, "incident": subject.id, "outcome": str(outcome)}
                log.warning("duplicate-message check failed", **about)
                post = replace(post, check_at=None)
        await self._commit(thread.with_post(post))

    async def _confirm(self, subject: Subject, thread: Thread, slot: Slot) -> None:
        """Ask whether what the other side took came to be: the message, or of a moot one its end. If not, send it again."""
        post = _known(thread, slot)
        effect = (_edit_effect if slot.moot else _create_effect)(thread, post, slot)
        outcome = await self._look(effect)
        about = {"notice": subject.id, "action": effect.action, "key": effect.key, "sent_again": post.missed}
        settled = replace(post, check_at=None)
        match outcome:
            case Absent() if post.missed < MAX_MISSED:
                self._backoff.succeeded(Doing.CHECK)
                log.warning("taken and never made: sent again", **about, reason=outcome.detail)
                again = thread.with_post(replace(settled, missed=post.missed + 1))
                if slot.moot:
                    await self._commit(again)
                    await self._edit(subject, self.thread(subject.id, subject.cluster), slot)
                else:
                    await self._create(subject, again, slot)
                return
            case Absent():
                log.error("taken and never made, given up", **about, reason=outcome.detail)
            case AlreadyDone() | Done():
                self._backoff.succeeded(Doing.CHECK)
            case Unknown() | Retry():
                settled = replace(post, check_at=self._backoff.pause(Doing.CHECK, outcome.after_s))
            case Refused() if outcome.moot:
                pass  # a person has ended it meanwhile
            case _:
                log.error("cannot be checked whether it was made", **about, outcome=str(outcome))
        await self._commit(thread.with_post(settled))

    def _judge(self, thread: Thread, outcome: Outcome | None) -> None:
        """What a post or an edit says of its channel. Reading is left out: an app may post where it may not read."""
        match outcome:
            case Done() | AlreadyDone():
                self._health.worked(thread.channel, self._clock())
            case Blocked() if outcome.by != READING:
                channel = EVERY_CHANNEL if outcome.by == "token" else thread.channel
                self._health.failed(channel, outcome.reason, self._clock())

    async def _is_deleted(self, subject: Subject, slot: Slot) -> bool:
        """Check whether a message was deleted. A deleted reply stays deleted; a root is posted again with all its replies."""
        thread = self.thread(subject.id, subject.cluster)
        post = _known(thread, slot)
        outcome = await self._look(_edit_effect(thread, post, slot))
        if not isinstance(outcome, Refused):
            return False
        log.warning("message deleted", slot=slot.name, incident=subject.id, generation=thread.generation)
        if slot.name == ROOT and thread.generation < self._generations:
            await self._commit(replace(thread, generation=thread.generation + 1, posts=()))
        else:
            await self._commit(thread.with_post(replace(post, gone=True)))
        return True

    def _home(self, thread: Thread, slot: Slot) -> Thread | None:
        """The thread whose root a message replies to; None for a root, and where its summary has none yet."""
        if slot.name == ROOT or slot.actions is not None:
            return None
        return home_of(thread, slot.name, self._store.documents.get(thread.parent))

    def _target(self, thread: Thread, slot: Slot) -> Target:
        home = self._home(thread, slot)
        root = home.post(ROOT) if home is not None else None
        if home is None or root is None:
            return Target("Channel", thread.channel)
        return Target("Thread", root.ts, namespace=home.channel)

    async def _apply(self, effect: Effect, lease: Lease) -> Outcome | None:
        """Make the call. None when the lease expired before it started: the task is then planned again from the document."""
        try:
            with self._calls.measured(self._system) as measured, post_spans.call("apply", effect) as span:
                outcome = clean_outcome(await self._connector.apply(effect, lease))
                measured.returned(outcome)
                post_spans.say(span, outcome)
                return outcome
        except Fenced as error:
            about = {"action": effect.action, "incident": effect.incident, "reason": str(error)}
            log.warning("call skipped: lease expired", **about)
            return None

    async def _look(self, effect: Effect) -> Outcome:
        """Ask the connector whether a message is there."""
        with self._calls.measured(self._system) as measured, post_spans.call("lookup", effect) as span:
            outcome = clean_outcome(await self._connector.lookup(effect))
            measured.returned(outcome)
            post_spans.say(span, outcome)
            return outcome

    async def _commit(self, thread: Thread) -> Thread:
        thread = replace(thread, revision=thread.revision + 1, updated_at=self._clock())
        await self._store.commit([thread])
        self._on_commit(thread.incident)
        return thread

    def _lease(self) -> Lease:
        return Lease.begin(self._lease_s, clock=self._clock)


def _failed(intent: EffectRecord, reason: str) -> EffectRecord:
    """The record of a call that certainly had no effect."""
    return replace(intent, state=EffectState.REFUSED, reason=reason, failures=intent.failures + 1)


def _known(thread: Thread, slot: Slot) -> Post:
    post = thread.post(slot.name)
    if post is None:
        raise LookupError(f"thread {thread.incident} has no message {slot.name}")
    return post


def _create_effect(thread: Thread, post: Post, slot: Slot) -> Effect:
    since = to_millis(thread.created_at - CLOCK_SKEW) / 1000
    return _effect(thread, post, slot, post.create.action, post.create.target, since=f"{since:.6f}")


def _edit_effect(thread: Thread, post: Post, slot: Slot) -> Effect:
    of_thread = {"thread_ts": post.create.target.name} if post.create.action == "reply" else {}
    action = slot.actions[1] if slot.actions else "edit"
    return _effect(
        thread, post, slot, action, Target("Message", post.ts, namespace=thread.channel), **of_thread
    )


def _effect(thread: Thread, post: Post, slot: Slot, action: str, target: Target, **more: Attribute) -> Effect:
    return Effect(
        key=post.create.key,
        action=action,
        target=target,
        cluster=thread.cluster,
        incident=str(slot.params.get("incident", thread.incident)),
        run="",
        step=slot.name,
        params={"message": encode(slot.message).decode(), **slot.params, **more},
        prior=post.create.result,
    )

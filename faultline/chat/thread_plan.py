"""The messages that an incident's thread should hold, and the next task to get there. Pure: documents and the time in, tasks out.

The root message shows the current state and is edited in place; a run is one reply with all its steps, edited as it progresses;
an approval is a reply of its own whose buttons are removed once it is decided. A state change is posted at once, changes of
detail are debounced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from faultline.chat.root_buttons import NOTHING_SAID, Handling
from faultline.chat.run_messages import plan_message, run_message, step_message
from faultline.chat.thread_messages import (
    approval_message,
    evidence_message,
    log_message,
    root_message,
)
from runbooks.engine.containment import PendingRepair
from runbooks.language.schema import TICKETS
from streams.kafka.lease import inherited_wait_s
from streams.model.codec import encode
from streams.model.conversation import TimelineEntry
from streams.model.digest import digest
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.message import Button, Message
from streams.model.node_notice import opens_in
from streams.model.run import EffectState, Mode, Run, StepRecord, StepState
from streams.model.signal import Attribute
from streams.model.thread import MEMBER, ROOT, Post, Thread

MAX_LOG = 30
"""Lines of the timeline that a thread document keeps."""

CHECK_AFTER_S = 30.0
"""When to search for a second copy of a message that was sent again."""

UNTOUCHED_AFTER = timedelta(minutes=1)
"""An incident without actions that ended longer ago than this gets no thread."""


class Urgency(StrEnum):
    """Order of messages under a rate limit, most urgent first."""

    APPROVAL = "0-approval"
    ROOT = "1-root"
    OWNER = "1-to-the-owner"
    STEP = "2-step"
    EVIDENCE = "3-evidence"
    LOG = "4-log"


@dataclass(frozen=True, slots=True)
class Slot:
    """One message that the thread should hold. `mark` changes with its state; a change of detail alone may wait `patience_s`."""

    name: str
    message: Message
    mark: str
    urgency: Urgency
    patience_s: float = 0.0
    params: Mapping[str, Attribute] = field(default_factory=dict)
    """What the sink needs besides the message."""
    actions: tuple[str, str] | None = None
    """The actions that create and edit it, where they are not a thread's. Then it replies to nothing."""
    checked: bool = True
    """Whether copies are searched for when it had to be sent again. Where not, a check asks whether what was taken came to be."""
    moot: bool = False
    """Not sent any more. What was sent, or may have been, is still settled."""
    shows: str = ""
    """What decides on an edit, where not every detail does."""

    @property
    def digest(self) -> str:
        """Equal for two slots that show the same."""
        if self.shows:
            return digest(self.shows, size=8)
        if not self.params:
            return self.message.digest
        return digest(self.message.digest, encode(self.params).decode(), size=8)


class Subject(Protocol):
    """Whose thread it is: an incident, or the summary of several."""

    @property
    def id(self) -> str:
        """The id of its thread document."""

    @property
    def cluster(self) -> str:
        """Its cluster, which decides on the partition."""

    @property
    def incarnation(self) -> int:
        """Part of the keys of its messages."""


class Doing(StrEnum):
    """The kinds of work on one message. Each is paused separately when the chat system rate-limits it."""

    CREATE = "create"
    LOOK_UP = "look_up"
    EDIT = "edit"
    CHECK = "check"


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do for a thread, not before `due_at`."""

    doing: Doing
    slot: Slot
    due_at: datetime


def wanted(
    incident: Incident,
    runs: Sequence[Run],
    log: Sequence[TimelineEntry],
    posted: frozenset[str] = frozenset(),
    repairs: Sequence[PendingRepair] = (),
    handling: Handling = NOTHING_SAID,
    buttons: Sequence[Button] = (),
) -> tuple[Slot, ...]:
    """Every message the thread should hold now, the root first.

    `posted` are the slots that are or may be in the thread, `repairs` the nodes that stay cordoned for the incident, `buttons`
    what can be decided on the root now.
    """
    runs = sorted(runs, key=lambda run: (run.created_at, run.id))
    root = root_message(incident, runs, repairs, handling, buttons)
    return (
        Slot(ROOT, root, root_mark(incident, runs, repairs, buttons), Urgency.ROOT),
        *_evidence(incident),
        *(slot for run in runs for slot in _of_run(incident, run, posted)),
        *_log(log),
    )


def next_task(
    thread: Thread,
    slots: Sequence[Slot],
    now: datetime,
    *,
    debounce_s: float,
    paused: Mapping[Doing, datetime] | None = None,
    parent: Thread | None = None,
) -> Task | None:
    """The most urgent task that is due, else the one due first, else None. `paused`: until when, by kind of work."""
    paused = paused or {}
    tasks = [
        Task(task.doing, task.slot, max(task.due_at, paused.get(task.doing, task.due_at)))
        for task in tasks_of(thread, slots, now, debounce_s, parent)
    ]
    return first(tasks, now)


def first(tasks: Sequence[Task], now: datetime) -> Task | None:
    """The most urgent of the tasks that are due, else the earliest."""
    due = [task for task in tasks if task.due_at <= now]
    if due:
        # `min` keeps the first of equals: slots come in reading order.
        return min(due, key=lambda task: (task.slot.urgency, task.due_at))
    return min(tasks, key=lambda task: task.due_at, default=None)


def is_worth_a_thread(
    incident: Incident, now: datetime, *, acted: bool = True, stale_after: timedelta = timedelta(hours=24)
) -> bool:
    """Whether to open a thread that does not exist yet: not for an incident that ended more than `stale_after` ago, nor for what
    a cloud announced for a time that is far away.

    Without actions (`acted`) the limit is `UNTOUCHED_AFTER`: after a storm, a thread per node that was away for a moment would
    fill the rate limit of one post a second for hours.
    """
    ended = incident.closed_at or incident.updated_at
    opens = opens_in(incident.facts)
    if opens is not None and incident.state.is_over and ended < opens:
        return False
    if opens is not None and incident.state is IncidentState.SUPPRESSED and now < opens:
        return False
    return not (incident.state.is_over and now - ended > (stale_after if acted else UNTOUCHED_AFTER))


def still_updated(thread: Thread, slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """The slots still updated in the thread of an incident that ended long ago: those whose state changed or whose post is
    unfinished. New wording after an upgrade must not edit every old thread."""
    return tuple(
        slot
        for slot in slots
        if (post := thread.post(slot.name)) is not None and (post.mark != slot.mark or not _is_settled(post))
    )


def _is_settled(post: Post) -> bool:
    return post.create.state is EffectState.CONFIRMED and bool(post.shown) and post.check_at is None


def has_acted(runs: Iterable[Run]) -> bool:
    """Whether any action was done or tried, tickets aside."""
    return any(
        record.effect is not None and planned.action not in TICKETS
        for run in runs
        for planned, record in zip(run.plan.steps, run.steps, strict=True)
    )


def weight(incident: Incident) -> tuple[bool, bool, int]:
    """Sort key: open before over, decisive before uncertain, then by severity."""
    return (
        incident.state.is_over,
        incident.certainty is not Certainty.DECISIVE,
        -incident.severity.rank,
    )


def home_of(thread: Thread, slot: str, parent: Thread | None) -> Thread | None:
    """The thread whose root a message replies to: the incident's own, or that of its summary while it has none."""
    in_summary = slot.startswith(MEMBER) or (bool(thread.parent) and thread.post(ROOT) is None)
    return parent if in_summary else thread


def tasks_of(
    thread: Thread, slots: Sequence[Slot], now: datetime, debounce_s: float, parent: Thread | None = None
) -> Iterator[Task]:
    """All tasks of a thread, due now or later. A silence holds back what is neither a question nor a new state of the root.

    `parent` is the thread of its summary, where it has one.
    """
    for task in _tasks_of(thread, slots, now, debounce_s, parent):
        until = thread.silenced_until
        if until is None or until <= now or _breaks_silence(thread, task):
            yield task
        else:
            yield replace(task, due_at=max(task.due_at, until))


def _breaks_silence(thread: Thread, task: Task) -> bool:
    """What was sent already and is not known to be there is looked up all the same: nobody hears of that."""
    if task.doing in (Doing.LOOK_UP, Doing.CHECK) or task.slot.urgency is Urgency.APPROVAL:
        return True
    post = thread.post(task.slot.name)
    is_root = task.slot.name == ROOT or task.slot.name.startswith(MEMBER)
    return is_root and (post is None or post.mark != task.slot.mark)


def _tasks_of(
    thread: Thread, slots: Sequence[Slot], now: datetime, debounce_s: float, parent: Thread | None
) -> Iterator[Task]:
    own_root = any(slot.name == ROOT for slot in slots)
    for slot in slots:
        home = home_of(thread, slot.name, parent)
        if home is parent and own_root and not slot.name.startswith(MEMBER):
            home = thread  # its own root comes first, and is not there yet
        root = home.post(ROOT) if home is not None else None
        if slot.name != ROOT and slot.actions is None and not (root and root.stands):
            continue
        post = thread.post(slot.name)
        if post is None:
            if not slot.moot:
                yield Task(Doing.CREATE, slot, now)
        elif not post.gone:
            yield from _of_post(post, slot, now, debounce_s)


def _of_post(post: Post, slot: Slot, now: datetime, debounce_s: float) -> Iterator[Task]:
    not_before = post.due_at or now
    match post.create.state:
        case EffectState.INTENDED:
            # A frozen process may still send it: wait until its lease has expired before looking it up.
            wait = timedelta(seconds=inherited_wait_s(post.create.lease_until, now))
            yield Task(Doing.LOOK_UP, slot, now + wait)
        case EffectState.UNKNOWN:
            yield Task(Doing.LOOK_UP, slot, not_before)
        case EffectState.REFUSED:
            if not slot.moot:
                yield Task(Doing.CREATE, slot, not_before)
        case _:
            if post.shown != slot.digest:
                yield Task(Doing.EDIT, slot, max(not_before, _edit_due(post, slot, now, debounce_s)))
            if post.check_at is not None:
                yield Task(Doing.CHECK, slot, post.check_at)


def _edit_due(post: Post, slot: Slot, now: datetime, debounce_s: float) -> datetime:
    if post.mark != slot.mark or post.changed_at is None:
        return now
    return max(now, post.changed_at + timedelta(seconds=max(debounce_s, slot.patience_s)))


def root_mark(
    incident: Incident, runs: Sequence[Run], repairs: Sequence[PendingRepair], buttons: Sequence[Button]
) -> str:
    """What is edited in at once when it changes."""
    closed = [f"closed:{one.node}" for one in repairs] if incident.state.is_over else []
    # What can no longer be decided goes at once. Of what is over, only the state counts: see `still_updated`.
    offered = [button.action for button in buttons] if not incident.state.is_over else []
    return " ".join([incident.state, incident.severity, *(run.state for run in runs), *closed, *offered])


def _evidence(incident: Incident) -> Iterator[Slot]:
    if incident.proofs:
        yield Slot("evidence", evidence_message(incident), "", Urgency.EVIDENCE, patience_s=5.0)


def _log(log: Sequence[TimelineEntry]) -> Iterator[Slot]:
    if log:
        yield Slot("log", log_message(log), "", Urgency.LOG, patience_s=5.0)


def _of_run(incident: Incident, run: Run, posted: frozenset[str]) -> Iterator[Slot]:
    if run.plan.mode is Mode.SHADOW:
        # One message for the whole plan: a reply for each step that was not taken would be noise.
        yield Slot(f"plan/{run.id}", plan_message(run), run.state, Urgency.STEP)
        return
    # A thread that an older version began has a reply per step, and goes on as it began.
    by_step = any(name.startswith(f"step/{run.id}/") for name in posted)
    begun = [step for step in run.steps if _has_begun(step)]
    if begun and not by_step:
        states = digest(run.state, *(step.state for step in run.steps), size=4)
        yield Slot(f"run/{run.id}", run_message(run), states, Urgency.STEP)
    for number, planned in enumerate(run.plan.steps, start=1):
        step = run.step(planned.id)
        asked = f"approval/{run.id}/{planned.id}"
        decided = any(approval.step == planned.id for approval in run.approvals)
        if step.state is StepState.AWAITING_APPROVAL or decided or asked in posted:
            message = approval_message(incident, run, planned)
            yield Slot(asked, message, message.tone, Urgency.APPROVAL)
        if by_step and _has_begun(step):
            message = step_message(run, planned, number)
            yield Slot(f"step/{run.id}/{planned.id}", message, step.state, Urgency.STEP)


def _has_begun(step: StepRecord) -> bool:
    return step.started_at is not None and step.state is not StepState.AWAITING_APPROVAL

"""What the owner of a job is told, in words for somebody who trains models and keeps no machines. Pure.

One message a state of the job: it will be stopped, it stopped, it is being moved, it runs again, it needs its owner. Figures are
only those that the incident has: the last step counts as the one it stopped at while nothing was reported since, and when the
last checkpoint was saved is said only where the job reported one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import orjson

from faultline.chat.job_owners import JobOwners
from faultline.chat.root_buttons import may_be_snoozed
from runbooks.engine.wait_reasons import ending_reason
from streams.model.conversation import Verb
from streams.model.digest import digest
from streams.model.entity import Entity, JobRef
from streams.model.facts import JobFact
from streams.model.incident import Certainty, Incident, Progress
from streams.model.message import Block, Button, Buttons, Message, Moment, Notice, Tone
from streams.model.run import Mode, PlannedStep, Run, StepRecord, StepState

OWNER = "owner/"
"""How the slots of these messages begin: `owner/<job>/<state>`."""

_EVICTING = ("drain_node", "reset_gpu", "reboot_node", "power_cycle_node")
_NOT_BEGUN = (StepState.PENDING, StepState.BLOCKED, StepState.AWAITING_APPROVAL)


class JobState(StrEnum):
    """What an incident means for a job."""

    WARNED = "warned"
    """It goes on, and will be stopped."""
    STOPPED = "stopped"
    MOVING = "moving"
    """It was suspended and is being started again elsewhere."""
    RUNNING = "running"
    """It runs again."""
    LEFT = "left"
    """Nothing more is done for it: its owner has to."""


@dataclass(frozen=True, slots=True)
class OwnersMessage:
    """A message for a job's owner, with the slot it is kept under."""

    slot: str
    state: JobState
    message: Message


_Part = str | Moment


def owner_messages(
    incident: Incident,
    affected: Sequence[JobRef],
    runs: Sequence[Run],
    jobs: Mapping[str, JobFact],
    owners: JobOwners,
    posted: frozenset[str],
    now: datetime,
    *,
    buttons: bool = False,
) -> Iterator[OwnersMessage]:
    """What the owners of jobs are told now. `affected` are those of the incident's jobs that it speaks for, `jobs` are the
    cluster's by key, `posted` the slots that were told."""
    for job in affected:
        fact = jobs.get(job.key)
        who = owners.slack_id(job, fact)
        if who is None:
            continue
        run = runs[-1] if runs else None
        state = state_of(incident, run, job, fact)
        base = f"{OWNER}{digest(job.key, size=6)}/"
        warned = base + JobState.WARNED
        if state is not None:
            told_before = any(name.startswith(base) and name != base + state for name in posted)
            # Whoever was mentioned once follows the thread; only what needs them now mentions them again.
            mention = not told_before or state in (JobState.WARNED, JobState.LEFT)
            parts = (f"Your job {job} ", *_words(incident, run, job, state, now))
            yield OwnersMessage(
                base + state, state, _message(who if mention else "", parts, state, incident, run, now, buttons=buttons)
            )  # fmt: skip
        if warned in posted and state is not JobState.WARNED:
            # The button has nothing to put off any more.
            parts = (f"Your job {job} ", "is no longer waiting to be stopped; see below.")
            yield OwnersMessage(warned, JobState.WARNED, _plain_message(who, parts, Tone.QUIET))


def state_of(incident: Incident, run: Run | None, job: JobRef, fact: JobFact | None) -> JobState | None:
    """What the incident means for the job now; None where its owner need not know."""
    acting = run if run is not None and run.plan.mode is not Mode.SHADOW else None
    suspended = _step(acting, job, "suspend_job")
    resumed = _step(acting, job, "resume_job")
    proven = _step(acting, job, "await_progress") or _step(acting, job, "verify_job")
    if suspended is not None and suspended[1].state is StepState.DONE:
        if proven is not None and proven[1].state is StepState.DONE:
            return JobState.RUNNING
        if acting is None or not acting.state.is_over:
            return JobState.MOVING
        only_resumed = proven is None and resumed is not None and resumed[1].state is StepState.DONE
        by_itself = acting.finished_at is not None and _moved_after(incident, job, acting.finished_at)
        return JobState.RUNNING if only_resumed or by_itself else JobState.LEFT
    moved_on = _moved_after(incident, job, incident.fault_at)
    if fact is not None and fact.failed:
        return JobState.LEFT
    if incident.state.is_over:
        return JobState.RUNNING if _was_stopped(incident) and moved_on else None
    alive = fact is not None and not (fact.suspended or fact.finished)
    if acting is not None and not acting.state.is_over and alive and _to_come(acting, job):
        if moved_on or not _was_stopped(incident):
            return JobState.WARNED
        return JobState.STOPPED
    return JobState.STOPPED if alive and _was_stopped(incident) and not moved_on else None


def _words(
    incident: Incident, run: Run | None, job: JobRef, state: JobState, now: datetime
) -> Iterator[_Part]:
    match state:
        case JobState.WARNED if run is not None:
            yield from _warning(incident, run, job, now)
        case JobState.STOPPED:
            yield from _stopped(incident, job)
            yield from _next_for(run)
        case JobState.MOVING:
            yield from _stopped(incident, job)
            yield ". It is being started again on other nodes, from its last checkpoint"
            yield from _saved(incident, job)
            yield ". Nothing for you to do."
        case JobState.RUNNING:
            yield f"stopped {_because(incident)}; "
            yield from _again(incident, run, job)
            yield ". Nothing for you to do."
        case _:
            yield from _stopped(incident, job)
            why = f" ({ending})" if run is not None and (ending := ending_reason(run)) else ""
            resumed = _step(run, job, "resume_job")
            if resumed is not None and resumed[1].state is StepState.DONE:
                yield f"; it was started again, but was not seen to run{why}. Please look after it."
            else:
                yield f", and nothing starts it again by itself{why}. Please start it again from its last checkpoint"
                yield from _saved(incident, job)
                yield "."


def _warning(incident: Incident, run: Run, job: JobRef, now: datetime) -> Iterator[_Part]:
    planned, record = _to_come(run, job)[0]
    how = "will be stopped and started again on other nodes" if planned.action == "suspend_job" else (
        f"will lose its pods on {planned.target.name if planned.target else incident.root.node}"
    )  # fmt: skip
    yield f"{how}, {_because(incident)}. "
    if run.snooze is not None and run.snooze.until > now:
        yield f"{run.snooze.actor} put it off until "
        yield Moment(run.snooze.until)
        yield ". "
    elif record.state is StepState.AWAITING_APPROVAL and record.deadline_at is not None:
        yield "It waits for an approval, which may come at any moment until "
        yield Moment(record.deadline_at)
        yield ". "
    elif record.due_at is not None and record.due_at > now:
        yield "Not before "
        yield Moment(record.due_at)
        yield ". "
    else:
        yield "This may happen at any moment. "
    last = _progress(incident, job)
    yield "What it did since its last checkpoint"
    yield from _saved(incident, job)
    yield " will be lost"
    if last is not None and last.step is not None:
        yield f"; it was last seen at step {last.step:,}, at "
        yield Moment(last.at)
    yield ". If you can, save a checkpoint now."


def _saved(incident: Incident, job: JobRef) -> Iterator[_Part]:
    """When its last checkpoint was saved, where it reported one."""
    one = next((one for one in incident.checkpoints if one.job.key == job.key), None)
    if one is not None:
        yield f" ({f'step {one.step:,}, ' if one.step is not None else ''}saved "
        yield Moment(one.at)
        yield ")"


def _stopped(incident: Incident, job: JobRef) -> Iterator[_Part]:
    last = _progress(incident, job)
    yield "stopped"
    if last is not None and last.step is not None:
        yield f" at step {last.step:,} (last seen "
        yield Moment(last.at)
        yield ")"
    yield f" {_because(incident)}"


def _next_for(run: Run | None) -> Iterator[_Part]:
    if run is None or run.plan.mode is Mode.SHADOW:
        yield ". Nothing is done automatically; the people who look after the cluster see the same."
    elif any(record.state is StepState.AWAITING_APPROVAL for record in run.steps):
        yield ". Moving it to other nodes waits for an approval. Nothing for you to do."
    elif run.state.is_over:
        yield ". A person looks after it."
    else:
        yield ". It is being looked after. Nothing for you to do."


def _because(incident: Incident) -> str:
    sure = "because of" if incident.certainty is Certainty.DECISIVE else "probably because of"
    return f"{sure} {culprit(incident.root)} ({incident.title})"


def culprit(root: Entity) -> str:
    """The root cause as somebody names it who never saw a PCI address."""
    if root.kind == "gpu" and root.gpu is not None and root.gpu.index is not None:
        return f"GPU {root.gpu.index} of {root.node}"
    return str(root)


def _again(incident: Incident, run: Run | None, job: JobRef) -> Iterator[_Part]:
    """Since when it runs again: since its pods were seen, or it was started again, else since it made progress."""
    for action in ("verify_job", "resume_job"):
        found = _step(run, job, action)
        if found is not None and found[1].state is StepState.DONE and found[1].finished_at is not None:
            yield "it runs again since "
            yield Moment(found[1].finished_at)
            yield ", from its last checkpoint"
            yield from _saved(incident, job)
            return
    last = _progress(incident, job)
    yield "it makes progress again"
    if last is not None:
        yield f", last seen {f'at step {last.step:,} ' if last.step is not None else ''}at "
        yield Moment(last.at)


def _to_come(run: Run, job: JobRef) -> list[tuple[PlannedStep, StepRecord]]:
    """The steps that will stop the job and have not begun; its own suspension first."""
    found = [
        (planned, record)
        for planned, record in zip(run.plan.steps, run.steps, strict=True)
        if record.state in _NOT_BEGUN
        and record.effect is None
        and (planned.action in _EVICTING or (planned.action == "suspend_job" and _is(planned, job)))
    ]
    return sorted(found, key=lambda one: one[0].action != "suspend_job")


def _step(run: Run | None, job: JobRef, action: str) -> tuple[PlannedStep, StepRecord] | None:
    if run is None:
        return None
    steps = zip(run.plan.steps, run.steps, strict=True)
    return next(((p, r) for p, r in steps if p.action == action and _is(p, job)), None)


def _is(planned: PlannedStep, job: JobRef) -> bool:
    target = planned.target
    return target is not None and (target.kind, target.namespace, target.name) == (job.kind, job.namespace, job.name)  # fmt: skip


def _progress(incident: Incident, job: JobRef) -> Progress | None:
    return next((one for one in incident.progress if one.job.key == job.key), None)


def _moved_after(incident: Incident, job: JobRef, at: datetime) -> bool:
    last = _progress(incident, job)
    return last is not None and last.at > at


def _was_stopped(incident: Incident) -> bool:
    """Whether the incident stopped its jobs: only then does their hardware idle."""
    return incident.impact.gpus > 0 or incident.impact.ranks > 0


_TONES = {
    JobState.WARNED: Tone.ASKING,
    JobState.STOPPED: Tone.BAD,
    JobState.MOVING: Tone.ACTIVE,
    JobState.RUNNING: Tone.GOOD,
    JobState.LEFT: Tone.BAD,
}


def _message(
    who: str,
    parts: Sequence[_Part],
    state: JobState,
    incident: Incident,
    run: Run | None,
    now: datetime,
    *,
    buttons: bool,
) -> Message:
    message = _plain_message(who, parts, _TONES[state])
    if buttons and state is JobState.WARNED and run is not None and may_be_snoozed(run, now):
        value = orjson.dumps({"i": incident.id, "c": incident.cluster}).decode()
        offer: Block = Buttons((Button(Verb.SNOOZE, "Not now, 10 min", value),))
        return Message(message.summary, (*message.blocks, offer), message.tone)
    return message


def _plain_message(who: str, parts: Sequence[_Part], tone: Tone) -> Message:
    notice = Notice((who,) if who else (), tuple(parts))
    return Message(notice.text, (notice,), tone)

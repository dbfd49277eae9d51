"""What the rows of a timeline show: steps with their spans, jobs with their gaps, people with their acts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from faultline.drawings.shapes import Ink
from faultline.drawings.words import clock, span
from streams.model.conversation import TimelineEntry
from streams.model.incident import Incident
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepRecord, StepState

MAX_STEPS = 14
"""Rows of steps; where there are more, steps of one action share a row."""
MAX_RUNS = 3
MAX_JOBS = 3
MAX_PEOPLE = 6

STATES: dict[StepState, tuple[str, Ink]] = {
    StepState.PENDING: ("not started", "quiet"),
    StepState.AWAITING_APPROVAL: ("waits for approval", "asking"),
    StepState.BLOCKED: ("held", "active"),
    StepState.RUNNING: ("in progress", "active"),
    StepState.DONE: ("done", "good"),
    StepState.SKIPPED: ("skipped", "quiet"),
    StepState.WOULD: ("would", "quiet"),
    StepState.FAILED: ("failed", "bad"),
    StepState.CANCELLED: ("cancelled", "quiet"),
}
_WORST = (
    StepState.FAILED, StepState.AWAITING_APPROVAL, StepState.BLOCKED, StepState.RUNNING, StepState.PENDING,
    StepState.CANCELLED, StepState.WOULD, StepState.SKIPPED, StepState.DONE,
)  # fmt: skip
"""Of steps that share a row, the first of these is its colour."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step, or several of one action. `begin` is None for one that was never started."""

    label: str
    said: str
    ink: Ink
    begin: datetime | None
    end: datetime | None
    is_open: bool = False
    is_moment: bool = False
    """A decision of shadow mode: it took no time, since nothing was done."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job: it moved until `stopped`, and again from `back`. None where that is not known."""

    label: str
    said: str
    last_seen: datetime | None
    stopped: datetime | None
    back: datetime | None


@dataclass(frozen=True, slots=True)
class PersonRow:
    """What somebody did, or was seen to have been done to a node or a job by others."""

    at: datetime
    said: str
    ink: Ink


def step_rows(runs: Sequence[Run], now: datetime) -> tuple[list[StepRow], int]:
    """A row for each step of the latest runs, and how many steps have none."""
    shown = runs[-MAX_RUNS:]
    total = sum(len(run.plan.steps) for run in runs)
    rows: list[StepRow] = []
    covered = 0
    alone = sum(len(run.plan.steps) for run in shown) <= MAX_STEPS
    for run in shown:
        for group in _groups(run, alone=alone):
            if len(rows) == MAX_STEPS:
                return rows, total - covered
            rows.append(_one(run, *group[0], now) if len(group) == 1 else _several(run, group, now))
            covered += len(group)
    return rows, total - covered


def _groups(run: Run, *, alone: bool) -> Iterator[list[tuple[PlannedStep, StepRecord]]]:
    pairs = [(planned, run.step(planned.id)) for planned in run.plan.steps]
    if alone:
        yield from ([pair] for pair in pairs)
        return
    by_action: dict[str, list[tuple[PlannedStep, StepRecord]]] = {}
    for pair in pairs:
        by_action.setdefault(pair[0].action, []).append(pair)
    yield from by_action.values()


def _one(run: Run, planned: PlannedStep, record: StepRecord, now: datetime) -> StepRow:
    word, ink = STATES[record.state]
    label = _label(planned)
    begin, end = _span(record, now)
    if run.plan.mode is Mode.SHADOW:
        said = _VERDICTS.get(record.verdict, word)
        return StepRow(label, said, ink, run.created_at, run.created_at, is_moment=True)
    took = f" · {span(end - begin)}" if begin and end else ""
    undone = record.undo is not None and record.undo.state is EffectState.UNDONE
    return StepRow(
        label,
        f"{word}{took}" + (", undone" if undone else ""),
        "quiet" if undone else ink,
        begin,
        end,
        is_open=not record.state.is_over and begin is not None,
    )


_VERDICTS = {"would": "would", "needs_approval": "would ask", "refused": "would be refused"}


def _label(planned: PlannedStep) -> str:
    """The action and what it is done to. A ticket's target is the incident itself, whose name says nothing here."""
    action, target = planned.action.replace("_", " "), planned.target
    if planned.action == "ask":
        return "ask a person"
    return action if target is None or target.kind == "Incident" else f"{action} {target.name}"


def _several(run: Run, group: Sequence[tuple[PlannedStep, StepRecord]], now: datetime) -> StepRow:
    states = [record.state for _, record in group]
    worst = next(state for state in _WORST if state in states)
    counts = [f"{states.count(s)} {STATES[s][0]}" for s in _WORST if s in states]
    label = f"{group[0][0].action.replace('_', ' ')} × {len(group)}"
    if run.plan.mode is Mode.SHADOW:
        return StepRow(
            label, ", ".join(counts), STATES[worst][1], run.created_at, run.created_at, is_moment=True
        )
    spans = [found for _, record in group if (found := _span(record, now))[0] is not None]
    begin = min((b for b, _ in spans if b), default=None)
    end = max((e for _, e in spans if e), default=None)
    took = f" · {span(end - begin)}" if begin and end else ""
    still = any(not state.is_over for state in states) and begin is not None
    return StepRow(label, ", ".join(counts) + took, STATES[worst][1], begin, end, is_open=still)


def _span(record: StepRecord, now: datetime) -> tuple[datetime | None, datetime | None]:
    begin = record.started_at or (record.effect.intended_at if record.effect else None)
    if begin is None:
        return None, None
    if record.finished_at is not None:
        return begin, max(begin, record.finished_at)
    return begin, max(begin, now)


def job_rows(incident: Incident, runs: Sequence[Run], now: datetime) -> tuple[list[JobRow], int]:
    """A row for each of the first jobs, and how many have none."""
    seen = {one.job.key: one.at for one in incident.progress}
    rows = []
    for job in incident.jobs[:MAX_JOBS]:
        last = seen.get(job.key)
        running = _done(runs, job.key, "verify_job")
        moving = _done(runs, job.key, "await_progress") if last is not None else None
        back = moving or running
        # A sign of progress after the fault, without a restart, means that the job was slowed at most.
        stopped = (
            (incident.fault_at if back or last is None or last <= incident.fault_at else None)
            if incident.impact.gpus or back
            else None
        )
        rows.append(
            JobRow(str(job), _job_said(incident, stopped, back, moving, last, now), last, stopped, back)
        )
    return rows, len(incident.jobs) - len(rows)


def _job_said(
    incident: Incident,
    stopped: datetime | None,
    back: datetime | None,
    moving: datetime | None,
    last: datetime | None,
    now: datetime,
) -> str:
    if stopped is None:
        return f"last progress {clock(last)}" if last is not None else "not stopped, as far as is known"
    if back is not None:
        return f"{'moves' if moving else 'runs'} again after {span(back - stopped)}"
    if incident.state.is_over:
        return "stopped, its return was not seen"
    return f"stopped for {span(now - stopped)}"


def _done(runs: Iterable[Run], job: str, action: str) -> datetime | None:
    found = None
    for run in runs:
        for planned in run.plan.steps:
            if planned.action == action and planned.target is not None and planned.target.key == job:
                record = run.step(planned.id)
                if record.state is StepState.DONE and record.finished_at is not None:
                    found = record.finished_at
    return found


def person_rows(timeline: Iterable[TimelineEntry]) -> list[PersonRow]:
    """What people did, oldest first: their commands, and what was observed of others."""
    return [
        PersonRow(entry.at, entry.text, _person_ink(entry.event, own=own))
        for entry in timeline
        if (own := entry.event.startswith("person.")) or entry.event.startswith("observed.")
    ]


def _person_ink(event: str, *, own: bool) -> Ink:
    if not own:
        return "quiet"
    if event.endswith("refused"):
        return "bad"
    return "good" if event in ("person.approved", "person.resolved") else "asking"

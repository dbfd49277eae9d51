"""The clocks of an incident: fault → noticed → decided → closed → running → first step. Pure; what is not known stays None.

They are those that a report publishes, and that a timeline marks. `decided` is the plan, not the approval: what a person was
waited for lies between `decided` and `closed`, and is told on its own (`waits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.model.conversation import TimelineEntry
from streams.model.incident import Incident
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepRecord, StepState

ASKED = ("step.awaiting_approval", "step.needs_approval")
"""Events of the timeline that begin a wait for a person."""


@dataclass(frozen=True, slots=True)
class Milestones:
    """When each was reached; None where it was not, or where nothing says so."""

    fault: datetime
    noticed: datetime
    decided: datetime | None = None
    closed: datetime | None = None
    """The first node was closed to new work by a run's cordon."""
    running: datetime | None = None
    """The pods of every job that was restarted run again."""
    first_step: datetime | None = None
    """Every such job was seen to make progress again; None where one never reports any."""

    def known(self) -> Iterator[tuple[str, datetime]]:
        """Those that are known, by name, in the order of an incident's life."""
        for name in NAMES:
            if (at := getattr(self, name)) is not None:
                yield name, at


NAMES = ("fault", "noticed", "decided", "closed", "running", "first_step")
WORDS = {
    "fault": "fault",
    "noticed": "noticed",
    "decided": "decided",
    "closed": "node closed",
    "running": "job running",
    "first_step": "first step",
}
"""As people read them."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A step that waited for a person. `until` is None while it still does; `by` is empty where nobody answered."""

    run: str
    step: str
    since: datetime
    until: datetime | None
    by: str = ""
    approved: bool | None = None
    """None where it ended without an answer: it expired, or was no longer needed."""

    def length(self, now: datetime) -> timedelta:
        """How long it took, or takes until now."""
        return max((self.until or now) - self.since, timedelta())


def milestones(incident: Incident, runs: Iterable[Run]) -> Milestones:
    """The clocks of an incident, from its document and its runs."""
    ordered = sorted(runs, key=lambda run: (run.created_at, run.id))
    acting = [run for run in ordered if run.plan.mode is not Mode.SHADOW]
    steps = [(planned, run.step(planned.id)) for run in acting for planned in run.plan.steps]
    return Milestones(
        fault=incident.fault_at,
        noticed=max(incident.opened_at, incident.fault_at),
        decided=ordered[0].created_at if ordered else None,
        closed=_closed(steps),
        running=_all_done([entry for entry in steps if entry[0].action == "verify_job"]),
        first_step=_first_step(incident, steps),
    )


def waits(runs: Iterable[Run], timeline: Iterable[TimelineEntry]) -> tuple[Wait, ...]:
    """Every wait of a step for a person's approval, oldest first. Those of shadow-mode runs are none: nobody was asked."""
    acting = {run.id: run for run in runs if run.plan.mode is not Mode.SHADOW}
    since: dict[tuple[str, str], datetime] = {}
    for entry in timeline:
        run, step = str(entry.attributes.get("run", "")), str(entry.attributes.get("step", ""))
        if entry.event in ASKED and run in acting:
            since.setdefault((run, step), entry.at)
    found = [
        wait
        for (run, step), at in since.items()
        if any(record.id == step for record in acting[run].steps)
        and (wait := _wait(acting[run], step, at)) is not None
    ]
    return tuple(sorted(found, key=lambda wait: (wait.since, wait.run, wait.step)))


def _wait(run: Run, step: str, since: datetime) -> Wait | None:
    record = run.step(step)
    answers = [one for one in run.approvals if one.at >= since and _covers(run, one.step, step)]
    if record.state is StepState.AWAITING_APPROVAL:
        return Wait(run.id, step, since, None)
    if answers:
        # A quorum is reached with the last of the approvals; a rejection ends the wait at once.
        last = next((one for one in answers if not one.approved), answers[-1])
        names = dict.fromkeys(one.actor for one in answers if one.approved is last.approved)
        return Wait(run.id, step, since, last.at, ", ".join(names), last.approved)
    ended = record.finished_at or record.started_at or run.finished_at
    return Wait(run.id, step, since, max(ended, since)) if ended else None


def _covers(run: Run, answered: str, step: str) -> bool:
    """Whether an answer about one step was about another, too: a decision is on everything that was asked of a plan."""
    return answered == step or run.planned(step).action != "ask"


def _closed(steps: Sequence[tuple[PlannedStep, StepRecord]]) -> datetime | None:
    times = [
        record.effect.confirmed_at
        for planned, record in steps
        if planned.action == "cordon_node"
        and record.effect is not None
        and record.effect.confirmed_at is not None
        and record.effect.state in (EffectState.CONFIRMED, EffectState.UNDONE)
    ]
    return min(times, default=None)


def _all_done(steps: Sequence[tuple[PlannedStep, StepRecord]]) -> datetime | None:
    """When the last of the steps was done; None while one is not. Of several runs' steps for one job the last counts."""
    latest: dict[str, StepRecord] = {}
    for planned, record in steps:
        latest[planned.target.key if planned.target else planned.id] = record
    times = [record.finished_at for record in latest.values() if record.state is StepState.DONE]
    if not latest or len(times) < len(latest) or None in times:
        return None
    return max((at for at in times if at is not None), default=None)


def _first_step(incident: Incident, steps: Sequence[tuple[PlannedStep, StepRecord]]) -> datetime | None:
    """When every job was seen to move again. A job that never reported progress counts as recovered, but no step was seen."""
    watched = [entry for entry in steps if entry[0].action == "await_progress"]
    seen = {one.job.key: one.at for one in incident.progress}
    for planned, record in watched:
        at = seen.get(planned.target.key) if planned.target else None
        if at is None or record.started_at is None or at < incident.fault_at:
            return None
    return _all_done(watched)

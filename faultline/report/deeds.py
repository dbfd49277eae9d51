"""What was done about an incident, by whom and with what result, in the order of time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from runbooks.engine.containment import Ticket
from streams.model.conversation import TimelineEntry
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepRecord, StepState

AUTOMATION = "automation"
OTHERS = "not Faultline"
"""Who did what was observed on a node or a job: the cluster does not say."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that was done, tried, asked or decided. `by` is `automation`, a person, or `not Faultline`."""

    at: datetime
    by: str
    what: str
    result: str
    took_s: float | None = None
    reason: str = ""
    ticket: str = ""
    url: str = ""
    destructive: bool = False


_NOT_DONE = (StepState.PENDING, StepState.SKIPPED)


def deeds_of(runs: Sequence[Run], timeline: Iterable[TimelineEntry]) -> tuple[Deed, ...]:
    """Every step that was taken, and what people did, oldest first. Of shadow-mode runs, what they would have done."""
    found = [*_steps(runs), *_people(timeline)]
    return tuple(sorted(found, key=lambda deed: deed.at))


def _steps(runs: Iterable[Run]) -> Iterator[Deed]:
    for run in runs:
        shadow = run.plan.mode is Mode.SHADOW
        for planned in run.plan.steps:
            record = run.step(planned.id)
            if shadow and record.verdict:
                yield Deed(
                    run.created_at, AUTOMATION, what_of(planned), f"{_VERDICTS[record.verdict]} (shadow)",
                    reason="" if record.reason == planned.describe else record.reason,
                    destructive=planned.destructive,
                )  # fmt: skip
            elif not shadow and record.state not in _NOT_DONE:
                yield from _step(run, planned, record)


_VERDICTS = {"would": "would be done", "needs_approval": "would need approval", "refused": "would be refused"}


def _step(run: Run, planned: PlannedStep, record: StepRecord) -> Iterator[Deed]:
    effect = record.effect
    begin = record.started_at or (effect.intended_at if effect else None) or record.finished_at
    ticket = _ticket(record)
    # What was refused or waits has not begun: it stands where its run was decided.
    yield Deed(
        at=begin or run.created_at,
        by=AUTOMATION,
        what=what_of(planned),
        result=record.state.value.replace("_", " "),
        took_s=(record.finished_at - begin).total_seconds() if begin and record.finished_at else None,
        reason=record.reason,
        ticket=ticket.key if ticket else "",
        url=ticket.url if ticket else "",
        destructive=planned.destructive,
    )
    undo = record.undo
    if undo is not None and undo.state in (EffectState.UNDONE, EffectState.REFUSED):
        yield Deed(
            undo.confirmed_at or undo.intended_at, AUTOMATION, f"undo: {what_of(planned)}", undo.state.value,
            reason=undo.reason,
        )  # fmt: skip


def _ticket(record: StepRecord) -> Ticket | None:
    if record.effect is None or not (key := record.effect.result.get("ticket")):
        return None
    return Ticket(str(key), str(record.effect.result.get("url", "")))


def _people(timeline: Iterable[TimelineEntry]) -> Iterator[Deed]:
    for entry in timeline:
        if entry.event.startswith("person."):
            via = str(entry.attributes.get("via", ""))
            refused = entry.event.endswith("refused")
            yield Deed(
                entry.at, f"{entry.actor} via {via}" if via else entry.actor, entry.text,
                "not accepted" if refused else "accepted",
            )  # fmt: skip
        elif entry.event.startswith("observed.") and entry.event != "observed.more":
            yield Deed(entry.at, OTHERS, entry.text, "observed")


def what_of(planned: PlannedStep) -> str:
    """The step in a few words: action, target, and what it is for."""
    action, target = planned.action.replace("_", " "), planned.target
    named = action if target is None or target.kind == "Incident" else f"{action} {target.name}"
    return f"{named}: {planned.describe}" if planned.describe else named

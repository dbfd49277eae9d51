"""The buttons of a thread's root message: what a person can decide now, from the state of the incident and its run. Pure.

A button that does nothing is worse than none. So each is there only while its command would be accepted, and it goes with the
decision, wherever that was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import orjson

from runbooks.language.schema import AFTER_CORDON
from streams.model.conversation import Verb
from streams.model.incident import Incident
from streams.model.message import Button
from streams.model.run import Mode, Run, StepState

EVIDENCE = "evidence"
EXPLAIN = "explain"
"""Buttons that show something to whoever presses them and decide nothing."""

_Style = Literal["plain", "primary", "danger"]
_NOT_BEGUN = (StepState.PENDING, StepState.BLOCKED, StepState.AWAITING_APPROVAL)


@dataclass(frozen=True, slots=True)
class Handling:
    """What people have said about an incident, and whether any of its jobs is alive."""

    acked_by: str = ""
    silenced_until: datetime | None = None
    has_living_job: bool = False


NOTHING_SAID = Handling()


def root_buttons(
    incident: Incident, runs: Sequence[Run], handling: Handling, now: datetime
) -> tuple[Button, ...]:
    """The buttons that do something now, the most likely first."""
    value = orjson.dumps({"i": incident.id, "c": incident.cluster}).decode()
    return tuple(
        Button(action, label, value, style)
        for action, label, style in (*_decisions(incident, runs, handling, now), *_views(incident))
    )


def next_change(runs: Sequence[Run], handling: Handling, now: datetime) -> datetime | None:
    """When buttons change although nothing is reported: a silence or a snooze ends."""
    ends = [run.snooze.until for run in runs if run.snooze is not None and not run.state.is_over]
    if handling.silenced_until is not None:
        ends.append(handling.silenced_until)
    return min((end for end in ends if end > now), default=None)


def _decisions(
    incident: Incident, runs: Sequence[Run], handling: Handling, now: datetime
) -> Iterator[tuple[str, str, _Style]]:
    if incident.state.is_over:
        return
    active = [run for run in runs if not run.state.is_over and run.plan.mode is not Mode.SHADOW]
    if not handling.acked_by:
        yield Verb.ACK, "Acknowledge", "primary"
    if handling.has_living_job and any(may_be_snoozed(run, now) for run in active):
        yield Verb.SNOOZE, "Not now, 10 min", "plain"
    if active:
        yield Verb.HAND_OVER, "Hand over to me", "plain"
        yield Verb.STOP, "Stop", "danger"
    if handling.silenced_until is None or handling.silenced_until <= now:
        yield Verb.SILENCE, "Silence 1 h", "plain"
    yield Verb.RESOLVE, "Resolve", "plain"


def _views(incident: Incident) -> Iterator[tuple[str, str, _Style]]:
    if incident.proofs:
        yield EVIDENCE, "Evidence", "plain"
    yield EXPLAIN, "Explain", "plain"


def may_be_snoozed(run: Run, now: datetime) -> bool:
    """Whether something that stops a job's pods is still to come, and nobody has put it off already."""
    snoozed = run.snooze is not None and run.snooze.until > now
    return (
        not snoozed
        and not run.state.is_over
        and not run.undoing
        and any(
            planned.action in AFTER_CORDON and record.state in _NOT_BEGUN and record.effect is None
            for planned, record in zip(run.plan.steps, run.steps, strict=True)
        )
    )

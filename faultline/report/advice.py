"""What to change, only as far as an incident's own documents show it: no advice without a fact beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from faultline.drawings.milestones import Milestones, Wait
from faultline.drawings.words import span
from runbooks.engine.wait_reasons import ending_reason
from streams.model.conversation import TimelineEntry
from streams.model.facts import NodeFact
from streams.model.incident import Certainty, Incident
from streams.model.run import Mode, Run, RunOutcome, StepState

SLOW = timedelta(minutes=10)
"""A wait for a person from here on is worth a line."""
LATE = timedelta(minutes=5)
"""Evidence that was this old when it arrived came late."""
MAX_EACH = 3


class Topic(StrEnum):
    """What a piece of advice is about."""

    REPEAT_OFFENDER = "repeat offender"
    MISSING_RUNBOOK = "missing runbook"
    MISSING_CONNECTOR = "missing connector"
    SLOW_APPROVAL = "slow approval"
    MISSING_EVIDENCE = "missing evidence"
    LATE_EVIDENCE = "late evidence"
    MISSING_INVENTORY = "missing inventory"
    FAILED_STEP = "failed step"
    RUN_ENDED_EARLY = "run ended early"
    FLAPPING = "flapping"
    SHADOW_MODE = "shadow mode"


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to change, and the fact that says so."""

    topic: Topic
    text: str


def advice_of(
    incident: Incident, runs: Sequence[Run], timeline: Sequence[TimelineEntry], clocks: Milestones,
    waited: Sequence[Wait], nodes: Mapping[str, NodeFact], now: datetime,
) -> tuple[Advice, ...]:  # fmt: skip
    """Everything that the documents give reason for, in the order of `Topic`."""
    return (
        *_repeats(incident),
        *_runbooks(incident, runs, timeline),
        *_waits(waited, clocks, now),
        *_evidence(incident),
        *_inventory(incident, nodes),
        *_failures(runs),
        *_flaps(incident),
        *_shadow(runs),
    )


def _repeats(incident: Incident) -> Iterator[Advice]:
    facts = incident.facts
    if isinstance(repeats := facts.get("repeats"), int) and repeats > 0:
        days = facts.get("repeats_days")
        when = f" ({', '.join(map(str, days))})" if isinstance(days, tuple) and days else ""
        yield Advice(
            Topic.REPEAT_OFFENDER,
            f"{incident.root} had {repeats} earlier incident{'s' * (repeats > 1)} of this kind{when}: "
            "have it replaced rather than reset again",
        )
    if isinstance(others := facts.get("node_repeats"), int) and others > 0:
        yield Advice(
            Topic.REPEAT_OFFENDER,
            f"{incident.root.node} had {others} earlier incident{'s' * (others > 1)} of other parts: have the whole node checked",
        )


def _runbooks(incident: Incident, runs: Sequence[Run], timeline: Sequence[TimelineEntry]) -> Iterator[Advice]:
    if not runs:
        why = next((entry.text for entry in reversed(timeline) if entry.event == "run.none"), "")
        said = f": {why}" if why else ", and nothing on its timeline says why"
        yield Advice(Topic.MISSING_RUNBOOK, f"no runbook was run for {incident.family}{said}")
    # What was left out because it needs such a step is no further reason.
    left = dict.fromkeys(text for run in runs for text in run.plan.left_out if ": it needs " not in text)
    for text in list(left)[:MAX_EACH]:
        yield Advice(Topic.MISSING_CONNECTOR, f"a step was left to people, {text}")


def _waits(waited: Sequence[Wait], clocks: Milestones, now: datetime) -> Iterator[Advice]:
    for wait in sorted(waited, key=lambda one: -one.length(now).total_seconds())[:MAX_EACH]:
        length = wait.length(now)
        if length < SLOW:
            continue
        end = f"until {wait.by} answered" if wait.by else "and nobody answered" if wait.until else "so far"
        first = clocks.first_step or clocks.running
        meanwhile = (
            "the jobs were running meanwhile"
            if first is not None and first <= wait.since
            else "the jobs had not recovered when it began"
        )
        yield Advice(
            Topic.SLOW_APPROVAL, f"step {wait.step} waited {span(length)} for approval {end}; {meanwhile}"
        )


def _evidence(incident: Incident) -> Iterator[Advice]:
    causes = [proof for proof in incident.proofs if proof.role == "cause"]
    if not causes:
        yield Advice(
            Topic.MISSING_EVIDENCE,
            "no line of the cause itself was seen, only what followed from it: check that the culprit's kernel log, metrics and "
            "scheduler events are shipped",
        )
    elif incident.certainty is not Certainty.DECISIVE:
        yield Advice(
            Topic.MISSING_EVIDENCE,
            f"the evidence was {incident.certainty.value}, so nothing could be done to a node without approval; what would "
            "have settled it was not seen",
        )
    if incident.impact.timeout_s >= 60:
        waited = span(timedelta(seconds=incident.impact.timeout_s))
        yield Advice(
            Topic.MISSING_EVIDENCE,
            f"for {waited} only a collective's own timeout could show it: a shorter one, or NCCL's RAS and flight recorder, "
            "would have shown it earlier",
        )
    read = incident.evident_read_at or incident.opened_at
    if incident.evident_at is not None and (age := read - incident.evident_at) > LATE:
        yield Advice(
            Topic.LATE_EVIDENCE,
            f"its newest evidence was {span(age)} old when Kafka received it: check the shipper and the clock",
        )


def _inventory(incident: Incident, nodes: Mapping[str, NodeFact]) -> Iterator[Advice]:
    known = [nodes[name] for name in incident.nodes if name in nodes]
    if incident.nodes and not known:
        yield Advice(Topic.MISSING_INVENTORY, "the inventory knows none of its nodes now")
    elif known and not any(fact.leaf or fact.rack for fact in known):
        yield Advice(
            Topic.MISSING_INVENTORY,
            "none of its nodes has a leaf or a rack in the inventory: faults that share one cannot be told from single ones",
        )


def _failures(runs: Sequence[Run]) -> Iterator[Advice]:
    failed = [
        (planned, record)
        for run in runs
        if run.plan.mode is not Mode.SHADOW
        for planned in run.plan.steps
        if (record := run.step(planned.id)).state is StepState.FAILED
    ]
    for planned, record in failed[:MAX_EACH]:
        yield Advice(
            Topic.FAILED_STEP,
            f"{planned.action} {planned.target or ''} failed".replace("  ", " ")
            + (f": {record.reason}" if record.reason else ""),
        )
    early = (
        RunOutcome.CANCELLED,
        RunOutcome.EXPIRED,
        RunOutcome.REJECTED,
        RunOutcome.ESCALATED,
        RunOutcome.FAILED,
    )
    for run in [one for one in runs if one.outcome in early][:MAX_EACH]:
        why = ending_reason(run)
        yield Advice(
            Topic.RUN_ENDED_EARLY,
            f"runbook {run.plan.runbook} {run.outcome.value}" + (f": {why}" if why else ""),
        )


def _flaps(incident: Incident) -> Iterator[Advice]:
    if incident.flaps > 1:
        yield Advice(
            Topic.FLAPPING, f"it recovered by itself and failed again {incident.flaps} times before it ended"
        )


def _shadow(runs: Sequence[Run]) -> Iterator[Advice]:
    books = dict.fromkeys(run.plan.runbook for run in runs if run.plan.mode is Mode.SHADOW)
    if books and all(run.plan.mode is Mode.SHADOW for run in runs):
        yield Advice(
            Topic.SHADOW_MODE,
            f"{', '.join(books)} ran in shadow mode and changed nothing; `faultline shadow report` compares what it would have "
            "done with what people did",
        )

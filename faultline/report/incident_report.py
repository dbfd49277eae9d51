"""The report of one incident as data: what `--format json` prints, and what the page is written from. Pure.

Field names are stable; a change of meaning raises `schema`. Times are RFC 3339 in UTC, spans are seconds (`_s`), and what is not
known is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson

from faultline.drawings.milestones import NAMES, Milestones, milestones, waits
from faultline.report.advice import Advice, advice_of
from faultline.report.cost import Cost, cost_of
from faultline.report.deeds import Deed, deeds_of
from streams.correlate.policy.rules import meaning
from streams.model.conversation import TimelineEntry
from streams.model.digest import digest
from streams.model.facts import NodeFact
from streams.model.incident import Certainty, Impact, Incident, OtherWorkloads, Proof
from streams.model.message import plain, without_priority
from streams.model.run import Mode, Run, StepState

SCHEMA = 1
MAX_LINE = 1024
"""Characters of a raw line."""

CERTAINTIES = {
    Certainty.DECISIVE: "nothing else explains the evidence",
    Certainty.LIKELY: "the best explanation of the evidence, but not the only one",
    Certainty.WEAK: "the evidence is inconclusive",
}


@dataclass(frozen=True, slots=True)
class Noticed:
    """When it was noticed and by what: the earliest line of the cause, or of what followed where the cause is silent."""

    at: datetime
    after_s: float
    by: str
    where: str
    source: str
    """`topic:partition:offset` of that line; empty where none is stored."""
    timeout_s: float
    """Seconds in which only a waiting collective could have shown it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation that was considered: the chosen one, or one that was ruled out."""

    place: str
    family: str
    chosen: bool
    rule: str
    meaning: str
    reason: str


@dataclass(frozen=True, slots=True)
class Clock:
    """One of the recovery clocks. `unknown` says why it has no time."""

    name: str
    at: datetime | None
    after_fault_s: float | None
    after_previous_s: float | None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Waited:
    """A step that waited for a person's approval."""

    step: str
    since: datetime
    until: datetime | None
    waited_s: float
    by: str
    approved: bool | None


@dataclass(frozen=True, slots=True)
class RawLine:
    """A raw line and where it is in Kafka."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class EvidenceOf:
    """One observation, or the first of `count` alike."""

    at: datetime
    role: str
    kind: str
    where: str
    summary: str
    count: int
    lines: tuple[RawLine, ...]


@dataclass(frozen=True, slots=True)
class PlanOf:
    """A run and the plan that it carried out."""

    run: str
    runbook: str
    revision: int
    mode: str
    state: str
    outcome: str
    reason: str
    digest: str


@dataclass(frozen=True, slots=True)
class IncidentReport:
    """Everything that is reported of an incident, as of a time."""

    schema: int
    incident: str
    cluster: str
    as_of: datetime
    revision: int
    decision_hash: str
    """Equal for equal decisions: over root cause, family, certainty, reasons, jobs, nodes and plans."""
    title: str
    family: str
    severity: str
    certainty: str
    state: str
    merged_into: str | None
    flaps: int
    reason: str
    root: str
    root_key: str
    jobs: tuple[str, ...]
    nodes: tuple[str, ...]
    other_workloads: OtherWorkloads | None
    """What else it keeps from starting, that is no training job; null where nothing is known of that."""
    impact: Impact
    noticed: Noticed
    explanations: tuple[Explanation, ...]
    clocks: tuple[Clock, ...]
    deeds: tuple[Deed, ...]
    waits: tuple[Waited, ...]
    cost: Cost
    advice: tuple[Advice, ...]
    plans: tuple[PlanOf, ...]
    evidence: tuple[EvidenceOf, ...]


def report_of(
    incident: Incident,
    runs: Sequence[Run],
    timeline: Sequence[TimelineEntry],
    nodes: Mapping[str, NodeFact],
    now: datetime,
) -> IncidentReport:
    """The report of one incident. The same documents and time give the same report, in whatever order they come.

    Args:
        incident: Its latest revision.
        runs: Its runs.
        timeline: Its entries.
        nodes: The nodes of its cluster by name, as the inventory shows them.
        now: What counts as the present while something is still going on.
    """
    runs = in_order(runs)
    timeline = in_time(timeline)
    clocks = milestones(incident, runs)
    waited = waits(runs, timeline)
    return IncidentReport(
        schema=SCHEMA,
        incident=incident.id,
        cluster=incident.cluster,
        as_of=now,
        revision=incident.revision,
        decision_hash=decision_hash(incident, runs),
        title=incident.title,
        family=incident.family,
        severity=incident.severity.value,
        certainty=incident.certainty.value,
        state=incident.state.value,
        merged_into=incident.merged_into,
        flaps=incident.flaps,
        reason=incident.reason,
        root=str(incident.root),
        root_key=incident.root.key,
        jobs=tuple(map(str, incident.jobs)),
        nodes=incident.nodes,
        other_workloads=incident.other_workloads,
        impact=incident.impact,
        noticed=_noticed(incident),
        explanations=tuple(_explanations(incident)),
        clocks=tuple(_clocks(incident, runs, clocks)),
        deeds=deeds_of(runs, timeline),
        waits=tuple(
            Waited(
                wait.step, wait.since, wait.until, wait.length(now).total_seconds(), wait.by, wait.approved
            )
            for wait in waited
        ),
        cost=cost_of(incident, runs, clocks, nodes, now),
        advice=advice_of(incident, runs, timeline, clocks, waited, nodes, now),
        plans=tuple(map(_plan, runs)),
        evidence=tuple(
            map(_evidence, (*sorted(incident.proofs, key=_by_role), *(incident.unknown_errors or ())))
        ),
    )


def json_of(report: object) -> str:
    """A report as indented JSON with a newline at its end; null is what is not known."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(report, option=options).decode()


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Runs, oldest first."""
    return sorted(runs, key=lambda run: (run.created_at, run.id))


def in_time(timeline: Sequence[TimelineEntry]) -> list[TimelineEntry]:
    """Entries in time order. Of one moment, the correlator's come first: what the responder does is an answer to them."""
    return sorted(timeline, key=lambda entry: (entry.at, entry.actor != "correlator"))


def decision_hash(incident: Incident, runs: Sequence[Run]) -> str:
    """A hash over what was decided about an incident, and by which plans."""
    chosen = [candidate.rule for candidate in incident.candidates if candidate.chosen]
    what = (
        incident.id,
        incident.root.key,
        incident.family,
        incident.certainty.value,
        incident.reason,
        *chosen,
    )
    hit = (*(job.key for job in incident.jobs), *incident.nodes)
    return digest(*what, *hit, *(run.plan.digest for run in in_order(runs)))


def _noticed(incident: Incident) -> Noticed:
    proofs = sorted(incident.proofs, key=_by_role)
    first = proofs[0] if proofs else None
    source = first.evidence[0].coordinates if first is not None and first.evidence else ""
    return Noticed(
        at=incident.opened_at,
        after_s=incident.detection_delay.total_seconds(),
        by=first.summary if first else "",
        where=str(first.entity) if first else "",
        source=source,
        timeout_s=incident.impact.timeout_s,
    )


def _by_role(proof: Proof) -> tuple[int, datetime, str]:
    return {"cause": 0, "symptom": 1}.get(proof.role, 2), proof.occurred_at, proof.signal_id


def _explanations(incident: Incident) -> Iterator[Explanation]:
    for one in sorted(incident.candidates, key=lambda candidate: not candidate.chosen):
        yield Explanation(str(one.entity), one.family, one.chosen, one.rule, meaning(one.rule), one.reason)


def _clocks(incident: Incident, runs: Sequence[Run], clocks: Milestones) -> Iterator[Clock]:
    previous = incident.fault_at
    for name in NAMES:
        at: datetime | None = getattr(clocks, name)
        if at is None:
            yield Clock(name, None, None, None, _unknown(name, incident, runs))
            continue
        yield Clock(
            name, at, (at - incident.fault_at).total_seconds(), max((at - previous).total_seconds(), 0.0)
        )
        previous = max(previous, at)


def _unknown(name: str, incident: Incident, runs: Sequence[Run]) -> str:
    """Why a clock has no time, in a few words."""
    if not runs:
        return "no runbook was run"
    acting = [run for run in runs if run.plan.mode is not Mode.SHADOW]
    if not acting:
        return "shadow mode: nothing was done, so nothing was followed"
    action = {"closed": "cordon_node", "running": "verify_job", "first_step": "await_progress"}.get(name, "")
    steps = [run.step(step.id) for run in acting for step in run.plan.steps if step.action == action]
    if not steps:
        return {
            "closed": "no node had to be closed",
            "running": "no job was restarted by a run",
            "first_step": "no run waited for progress",
        }[name]
    if any(not step.state.is_over for step in steps):
        return "not yet"
    if name == "first_step" and all(step.state is StepState.DONE for step in steps):
        return "its job reports no progress"
    worst = next(step for step in steps if step.state is not StepState.DONE or name != "closed")
    return f"step {worst.state.value}" + (f": {worst.reason}" if worst.reason else "")


def _plan(run: Run) -> PlanOf:
    return PlanOf(
        run.id, run.plan.runbook, run.plan.runbook_revision, run.plan.mode.value, run.state.value,
        run.outcome.value, run.reason if run.outcome.is_early else "", run.plan.digest,
    )  # fmt: skip


def _evidence(proof: Proof) -> EvidenceOf:
    lines = tuple(
        RawLine(one.coordinates, plain(without_priority(one.text), MAX_LINE)) for one in proof.evidence
    )
    return EvidenceOf(
        proof.occurred_at, proof.role, proof.kind, str(proof.entity), proof.summary, proof.count, lines
    )

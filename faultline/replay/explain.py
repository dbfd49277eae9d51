"""Explains a decision as plain text: the root cause first, then the evidence, then the candidates that were ruled out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta

from runbooks.engine.containment import PendingRepair, shown_state
from runbooks.engine.wait_reasons import ending_reason, waits_for
from streams.correlate.policy.rules import meaning
from streams.model.checkpoint import checkpoint_lines
from streams.model.clock import moment
from streams.model.incident import Candidate, Certainty, Impact, Incident, Proof
from streams.model.message import without_priority
from streams.model.run import PlannedStep, Run, StepRecord, StepState


def explain(incident: Incident, runs: Sequence[Run] = (), repairs: Sequence[PendingRepair] = ()) -> str:
    """Plain text; the same input always gives the same text. Control characters in log text are escaped."""
    return "\n".join(_lines(incident, runs, repairs))


def _lines(incident: Incident, runs: Sequence[Run], repairs: Sequence[PendingRepair]) -> Iterable[str]:
    state = shown_state(incident, repairs)
    yield f"{incident.title}"
    yield f"  {incident.id}  {incident.family}  {incident.severity.value}  {state}  revision {incident.revision}"
    yield f"  root cause {incident.root}  ({incident.certainty.value})"
    yield f"  cause      {incident.reason}"
    yield f"  fault at   {moment(incident.fault_at)}, opened {moment(incident.opened_at)}, updated {moment(incident.updated_at)}"
    yield f"  detected   {_detected(incident)}"
    if incident.jobs:
        yield f"  jobs       {', '.join(map(str, incident.jobs))}"
        yield from _saved(incident)
    if not incident.state.is_over:
        if incident.facts.get("lives") is not True or incident.impact.gpus:
            yield f"  impact     {_impact(incident.impact)}"
        if waits := waits_for(incident, runs):
            yield f"  waits for  {waits}"
    elif repairs:
        yield f"  cordoned   {', '.join(f'{one.node} ({one.gpus} GPUs)' for one in repairs)}"
    yield from _history(incident)
    if incident.merged_into:
        yield f"  merged     into {incident.merged_into}"
    for title, role in (("Evidence", "cause"), ("Symptoms it explains", "symptom"), ("Context", "context")):
        proofs = [proof for proof in incident.proofs if proof.role == role]
        if proofs:
            yield f"\n{title}:"
            yield from (line for proof in proofs for line in _proof(proof))
    rejected = [c for c in incident.candidates if not c.chosen]
    chosen = [c for c in incident.candidates if c.chosen]
    if chosen:
        yield "\nRule:"
        yield from (line for candidate in chosen for line in _rule(candidate, incident.reason))
        yield f"  {incident.certainty.value}: {_CERTAINTIES[incident.certainty]}"
    if rejected:
        yield "\nRuled out:"
        yield from map(_candidate, rejected)
    for run in runs:
        yield from _run(run)


_OLD = timedelta(minutes=5)
"""Evidence older than this when it was read is mentioned: it explains a late detection."""

_CERTAINTIES = {
    Certainty.DECISIVE: "nothing else explains the evidence; a runbook may act on it without approval",
    Certainty.LIKELY: "the best explanation of the evidence, but not the only one; no node is cordoned without approval",
    Certainty.WEAK: "the evidence is inconclusive; manual investigation needed",
}


def _detected(incident: Incident) -> str:
    delay, timeout = incident.detection_delay.total_seconds(), incident.impact.timeout_s
    text = f"{delay:.0f} s after the fault"
    if timeout >= 1:
        text += f"; {timeout:.0f} s of that was the collective's own timeout (no earlier signal existed)"
    read_at = incident.evident_read_at or incident.opened_at
    if incident.evident_at is not None and (age := read_at - incident.evident_at) > _OLD:
        text += f"; its newest evidence was already {age.total_seconds():.0f} s old when read"
    return text


def _impact(impact: Impact) -> str:
    counts = (
        f"{number} {name}{'' if number == 1 else 's'}"
        for number, name in (
            (impact.jobs, "job"),
            (impact.ranks, "rank"),
            (impact.nodes, "node"),
            (impact.gpus, "GPU"),
        )
    )
    return f"{', '.join(counts)}, {impact.gpu_hours_per_hour:g} GPU-hours per hour"


_MAX_JOBS = 6


def _saved(incident: Incident) -> Iterable[str]:
    """The last checkpoint of each job: what it did since is lost when it starts again."""
    lines = list(checkpoint_lines(incident.jobs, incident.checkpoints, incident.fault_at))
    yield from (f"  checkpoint {line}" for line in lines[:_MAX_JOBS])
    if (more := len(lines) - _MAX_JOBS) > 0:
        yield f"  checkpoint and of {more} more jobs"


def _history(incident: Incident) -> Iterable[str]:
    """Recurrence, flapping, and other faults of the node."""
    facts = incident.facts
    if repeats := facts.get("repeats"):
        days = facts.get("repeats_days")
        when = f" ({', '.join(map(str, days))})" if isinstance(days, tuple) and days else ""
        yield f"  recurrence {repeats} earlier incident(s) of the same component{when}"
    if repeats := facts.get("node_repeats"):
        yield f"  node       had {repeats} earlier incident(s)"
    if bursts := facts.get("bursts"):
        yield f"  bursts     {bursts}, with gaps in between"
    if incident.flaps:
        yield f"  flaps      recovered and failed again {incident.flaps} time(s)"
    if isinstance(later := facts.get("later_faults"), tuple):
        yield f"  meanwhile  {', '.join(map(str, later))} on the same node"


def _rule(candidate: Candidate, cause: str) -> Iterable[str]:
    if candidate.reason == cause:  # already printed above
        yield f"  {candidate.rule}: {candidate.entity} as {candidate.family}"
    else:
        yield _candidate(candidate)
    if text := meaning(candidate.rule):
        yield f"      {text}"


def _proof(proof: Proof) -> Iterable[str]:
    times = f" (x{proof.count})" if proof.count > 1 else ""
    yield f"  {moment(proof.occurred_at)}  {proof.summary}{times}"
    for evidence in proof.evidence[:1]:
        yield f"      {evidence.coordinates}  {printable(without_priority(evidence.text))}"


def _candidate(candidate: Candidate) -> str:
    return f"  {candidate.rule}: {candidate.entity} as {candidate.family}: {candidate.reason}"


def _run(run: Run) -> Iterable[str]:
    plan = run.plan
    yield f"\nRunbook {plan.runbook} revision {plan.runbook_revision}, mode {plan.mode.value}: {run.outcome or run.state.value}"
    if plan.why:
        yield f"  purpose: {_first_sentence(plan.why)}"
    if why := ending_reason(run):
        yield f"  {why}"
    records = {record.id: record for record in run.steps}
    for step in plan.steps:
        yield _step(step, records.get(step.id))


_VERDICTS = {"needs_approval": "would ask", "refused": "would be refused"}


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]


def _step(step: PlannedStep, record: StepRecord | None) -> str:
    what = f"{step.action} {step.target}" if step.target else step.action
    state = record.state.value if record else "pending"
    if record is not None and record.state is StepState.WOULD:
        state = _VERDICTS.get(record.verdict, state)
    reason = f": {printable(record.reason)}" if record and record.reason else ""
    return f"  {state:<18} {step.id}: {what}{reason}"


def printable(text: str, limit: int = 160) -> str:
    """Log text made safe for a terminal: control characters escaped, cut at `limit` characters."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"

"""One incident as a tree: root cause, evidence, victims, rejected candidates, runs with their guardrails, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from faultline.drawings.ties import tie_of_job, tie_of_node
from faultline.why.missing import missing
from faultline.why.silence import SilentSource
from faultline.why.steps import run_branch
from faultline.why.tree import Branch, branch, lines, printable
from runbooks.engine.containment import PendingRepair, shown_state
from runbooks.engine.guardrails.review import ReviewLog
from runbooks.engine.wait_reasons import waits_for
from streams.correlate.policy.rules import meaning
from streams.model.checkpoint import checkpoint_lines
from streams.model.clock import moment
from streams.model.codec import encode_plain
from streams.model.counted import many
from streams.model.facts import NodeFact
from streams.model.incident import Candidate, Certainty, Impact, Incident, Proof
from streams.model.message import without_priority
from streams.model.run import Run

SCHEMA = "faultline.explanation/1"
"""The shape of the JSON: rises when a branch's kind or a value changes its meaning."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known besides an incident's document and its runs."""

    nodes: Mapping[str, NodeFact] = field(default_factory=dict)
    jobs: frozenset[str] = frozenset()
    """Keys of the jobs in the inventory."""
    lines: Mapping[str, str] | None = None
    """Raw lines by the coordinates of their records, of those that are still there; None where nobody looked."""
    reviews: ReviewLog | None = None
    silent: Sequence[SilentSource] = ()
    has_inventory: bool = True
    """Whether there is an inventory to ask."""


def explain(incident: Incident, runs: Sequence[Run] = (), repairs: Sequence[PendingRepair] = ()) -> str:
    """An explanation as plain text, whole; the same input always gives the same text."""
    return "\n".join(lines(explanation(incident, runs, repairs)))


def document(
    incident: Incident, runs: Sequence[Run], repairs: Sequence[PendingRepair], known: Known
) -> dict[str, Any]:
    """An explanation for programs: the tree, and the documents that it was made of."""
    return {
        "schema": SCHEMA,
        "tree": explanation(incident, runs, repairs, known).plain(),
        "incident": encode_plain(incident),
        "runs": [encode_plain(run) for run in runs],
    }


def explanation(
    incident: Incident,
    runs: Sequence[Run] = (),
    repairs: Sequence[PendingRepair] = (),
    known: Known | None = None,
) -> Branch:
    """The tree. Without `known` it says less of victims, raw lines and guardrails, and does not guess what is missing."""
    rejected = [c for c in incident.candidates if not c.chosen]
    proofs = [p for p in incident.proofs if p.role in ("cause", "context")]
    symptoms = [p for p in incident.proofs if p.role == "symptom"]
    found = known or Known()
    return branch(
        "incident",
        incident.title,
        (
            _root(incident, runs, repairs),
            _section("evidence", "evidence", (_proof(p, found) for p in proofs)),
            _section(
                "unknown",
                "nearby, in words that no rule knows (nothing was decided by it)",
                (_proof(p, found) for p in incident.unknown_errors or ()),
            ),
            _victims(incident, symptoms, found),
            _others(incident),
            _section("rejected", "weighed and rejected", map(_candidate, rejected)),
            *(run_branch(run, found.reviews) for run in runs),
            _section("missing", "missing", missing(incident, found) if known is not None else ()),
        ),
        id=incident.id,
    )


_OLD = timedelta(minutes=5)
"""Evidence older than this when it was read is mentioned: it explains a late detection."""

_CERTAINTIES = {
    Certainty.DECISIVE: "nothing else explains the evidence; a runbook may act on it without approval",
    Certainty.LIKELY: "the best explanation of the evidence, but not the only one; no node is cordoned without approval",
    Certainty.WEAK: "the evidence is inconclusive; manual investigation needed",
}


def _section(kind: str, name: str, below: Iterable[Branch]) -> Branch | None:
    found = tuple(below)
    return branch(kind, f"{name}: {len(found)}", found, count=len(found)) if found else None


def _root(incident: Incident, runs: Sequence[Run], repairs: Sequence[PendingRepair]) -> Branch:
    chosen = next((c for c in incident.candidates if c.chosen), None)
    state = shown_state(incident, repairs)
    facts = [
        (
            "what",
            f"{incident.id}  {incident.family}  {incident.severity.value}  {state}  revision {incident.revision}",
        ),
        ("cause", f"cause: {incident.reason}"),
        ("certainty", f"{incident.certainty.value}: {_CERTAINTIES[incident.certainty]}"),
        (
            "times",
            f"fault at {moment(incident.fault_at)}, opened {moment(incident.opened_at)}, updated {moment(incident.updated_at)}",
        ),
        ("detected", f"detected {_detected(incident)}"),
        *(("checkpoint", f"checkpoint {line}") for line in _saved(incident)),
        *_state_of(incident, runs, repairs),
        *(("history", text) for text in _history(incident)),
    ]
    below = [branch(kind, text) for kind, text in facts]
    if chosen is not None:
        text = f"rule: {chosen.rule}"
        says = meaning(chosen.rule)
        below.insert(2, branch("rule", f"{text}: {says}" if says else text, rule=chosen.rule))
    return branch(
        "root",
        f"root cause: {incident.root}  ({incident.certainty.value})",
        below,
        entity=encode_plain(incident.root),
        family=incident.family,
        certainty=incident.certainty.value,
    )


def _state_of(
    incident: Incident, runs: Sequence[Run], repairs: Sequence[PendingRepair]
) -> Iterator[tuple[str, str]]:
    if not incident.state.is_over:
        if incident.facts.get("lives") is not True or incident.impact.gpus:
            yield "impact", f"impact: {_impact(incident.impact)}"
        if waits := waits_for(incident, runs):
            yield "waits", f"waits for {waits}"
    elif repairs:
        yield "cordoned", f"cordoned: {', '.join(f'{one.node} ({one.gpus} GPUs)' for one in repairs)}"
    if incident.merged_into:
        yield "merged", f"merged into {incident.merged_into}"


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


def _saved(incident: Incident) -> Iterator[str]:
    """The last checkpoint of each job: what it did since is lost when it starts again."""
    if not incident.jobs:
        return
    told = list(checkpoint_lines(incident.jobs, incident.checkpoints, incident.fault_at))
    yield from told[:_MAX_JOBS]
    if (more := len(told) - _MAX_JOBS) > 0:
        yield f"and of {more} more jobs"


def _history(incident: Incident) -> Iterator[str]:
    """Recurrence, flapping, and other faults of the node."""
    facts = incident.facts
    if repeats := facts.get("repeats"):
        days = facts.get("repeats_days")
        when = f" ({', '.join(map(str, days))})" if isinstance(days, tuple) and days else ""
        yield f"recurrence: {repeats} earlier incident(s) of the same component{when}"
    if repeats := facts.get("node_repeats"):
        yield f"the node had {repeats} earlier incident(s)"
    if bursts := facts.get("bursts"):
        yield f"bursts: {bursts}, with gaps in between"
    if incident.flaps:
        yield f"flaps: recovered and failed again {incident.flaps} time(s)"
    if isinstance(later := facts.get("later_faults"), tuple):
        yield f"meanwhile on the same node: {', '.join(map(str, later))}"


def _proof(proof: Proof, known: Known) -> Branch:
    times = f" (x{proof.count})" if proof.count > 1 else ""
    beside = "" if proof.role == "cause" else f"  ({proof.role})" if proof.role == "context" else ""
    return branch(
        "proof",
        f"{moment(proof.occurred_at)}  {proof.summary}{times}{beside}",
        (_raw(evidence.coordinates, evidence.text, known) for evidence in proof.evidence[:1]),
        at=moment(proof.occurred_at),
        signal=proof.kind,
        role=proof.role,
        count=proof.count,
        entity=encode_plain(proof.entity),
    )


def _raw(coordinates: str, kept: str, known: Known) -> Branch:
    """The raw line of a record: from its source where that still has it, else what the signal kept of it."""
    whole = known.lines.get(coordinates) if known.lines is not None else None
    gone = known.lines is not None and whole is None
    text = printable(
        without_priority(whole if whole is not None else kept), None if whole is not None else 160
    )
    note = "  (the record is gone; this was kept of it)" if gone else ""
    return branch(
        "line",
        f"{coordinates}  {text}{note}",
        coordinates=coordinates,
        line=whole if whole is not None else kept,
        source="record" if whole is not None else "signal",
        gone=True if gone else None,
    )


def _victims(incident: Incident, symptoms: Sequence[Proof], known: Known) -> Branch | None:
    """Jobs and nodes, each with what joins it to the root, and the symptoms that the root explains."""
    jobs = []
    for job in incident.jobs:
        tie = tie_of_job(job, incident)
        if tie.kind == "itself":
            continue
        jobs.append(branch("job", f"{job}  {tie.text}", key=job.key, tie=tie.kind))
    nodes = []
    for node in (n for n in incident.nodes if n != incident.root.node):
        tie = tie_of_node(node, incident, known.nodes)
        nodes.append(branch("node", f"{node}  {tie.text}", name=node, tie=tie.kind))
    below = (
        _section("jobs", "jobs", jobs),
        _section("nodes", "nodes", nodes),
        _section("symptoms", "symptoms it explains", (_proof(p, known) for p in symptoms)),
    )
    if not any(below):
        return None
    return branch("victims", f"victims: {many(len(jobs), 'job')}, {many(len(nodes), 'node')}", below)


def _others(incident: Incident) -> Branch | None:
    """Workloads that are no training jobs and that it keeps from starting, of which the incident names the first."""
    others = incident.other_workloads
    if others is None:
        return None
    shown = [
        branch("workload", name, key=job.key) for name, job in zip(others.names, others.first, strict=True)
    ]
    more = [branch("more", f"and {others.more} more")] if others.more else []
    text = f"also kept from starting, by their own words (no plan has them): {others.count}"
    return branch("others", text, (*shown, *more), count=others.count)


def _candidate(candidate: Candidate) -> Branch:
    says = meaning(candidate.rule)
    return branch(
        "candidate",
        f"{candidate.entity} as {candidate.family}",
        (
            branch("refused", f"refused by {candidate.rule}: {candidate.reason}"),
            branch("rule", f"the rule: {says}") if says else None,
            branch("needs", f"would have convinced: {candidate.needs}") if candidate.needs else None,
        ),
        entity=encode_plain(candidate.entity),
        family=candidate.family,
        rule=candidate.rule,
        reason=candidate.reason,
        needs=candidate.needs,
    )

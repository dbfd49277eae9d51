"""The page of one incident, from what the view holds about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from faultline.console.board import taken_by
from faultline.console.incident_values import (
    IncidentPage,
    Link,
    Question,
    RawLine,
    ShownJob,
    ShownNode,
    ShownProof,
    ShownRun,
    ShownStep,
)
from faultline.live_view.overview import Overview
from runbooks.engine.approvals import wanted, who
from runbooks.engine.containment import ticket_of
from runbooks.engine.wait_reasons import who_started
from streams.model.conversation import TimelineEntry, Verb
from streams.model.digest import digest
from streams.model.facts import JobFact, NodeFact
from streams.model.incident import Incident
from streams.model.message import is_web_address, plain, without_priority
from streams.model.run import Mode, PlannedStep, Run, StepRecord, StepState

MAX_PROOFS = 60
MAX_LINES = 5
"""Raw lines of one proof."""
MAX_CANDIDATES = 20
MAX_JOBS = 40
MAX_NODES = 60
MAX_STEPS = 60
MAX_QUESTIONS = 6
MAX_LINE = 600

_VERDICTS = {
    "": "",
    "would": "would be allowed",
    "refused": "refused by a guardrail",
    "needs_approval": "a guardrail asks a person",
}
_MODES = {Mode.SHADOW: "shadow: changes nothing", Mode.APPROVE: "asks first", Mode.AUTO: "automatic"}


def incident_page(
    one: Overview,
    timeline: Sequence[TimelineEntry],
    nodes: Mapping[str, NodeFact],
    jobs: Mapping[str, JobFact],
) -> IncidentPage:
    """The page of an incident, from what the view holds about it."""
    incident, runs = one.incident, one.runs
    workloads = incident.other_workloads
    proofs = sorted(incident.shown, key=lambda proof: proof.occurred_at)
    chosen = tuple(c for c in incident.candidates if c.chosen)
    others = [c for c in incident.candidates if not c.chosen]
    questions = tuple(_questions(runs))[:MAX_QUESTIONS]
    verbs = tuple(_verbs(incident, runs))
    return IncidentPage(
        incident=incident,
        state=one.standing,
        waits_for=one.waits_for,
        taken=taken_by(timeline),
        is_over=incident.state.is_over,
        chosen=chosen[:MAX_CANDIDATES],
        others=tuple(others[:MAX_CANDIDATES]),
        more_candidates=max(0, len(others) - MAX_CANDIDATES),
        proofs=tuple(
            ShownProof(
                proof.occurred_at,
                proof.role,
                plain(proof.summary, MAX_LINE),
                plain(str(proof.entity), MAX_LINE),
                proof.count,
                tuple(
                    RawLine(plain(without_priority(line.text[: 4 * MAX_LINE]), MAX_LINE), line.coordinates)
                    for line in proof.evidence[:MAX_LINES]
                    if line.text
                ),
            )
            for proof in proofs[:MAX_PROOFS]
        ),
        more_proofs=max(0, len(proofs) - MAX_PROOFS),
        runs=tuple(_run(run) for run in reversed(runs)),
        questions=questions,
        verbs=verbs,
        jobs=tuple(_jobs(incident, jobs)),
        more_jobs=max(0, len(incident.jobs) - MAX_JOBS),
        other_workloads=tuple(plain(name, 300) for name in workloads.names) if workloads else (),
        more_workloads=workloads.more if workloads else 0,
        nodes=tuple(_nodes(incident, nodes)),
        more_nodes=max(0, len(_names(incident)) - MAX_NODES),
        repairs=one.repairs,
        links=tuple(_links(runs, timeline)),
        timeline=tuple(reversed(timeline)),
        version=digest(*(f"{q.digest} {q.step} {q.missing}" for q in questions), *verbs, size=8),
    )


def _run(run: Run) -> ShownRun:
    return ShownRun(
        id=run.id,
        runbook=run.plan.runbook,
        revision=run.plan.runbook_revision,
        mode="; ".join(filter(None, (_MODES[run.plan.mode], plain(who_started(run), MAX_LINE)))),
        state=(run.outcome or run.state).value,
        why=run.plan.why,
        reason=run.reason if run.outcome.is_early else run.undoing,
        digest=run.plan.digest[:12],
        is_over=run.state.is_over,
        steps=tuple(
            _step(number, planned, run.step(planned.id))
            for number, planned in enumerate(run.plan.steps[:MAX_STEPS], start=1)
        ),
        left_out=run.plan.left_out,
        would_evict=run.plan.would_evict,
        approvals=tuple(_decision(run, index) for index in range(len(run.approvals))),
    )


def _decision(run: Run, index: int) -> str:
    made = run.approvals[index]
    word = "approved" if made.approved else "rejected"
    via = f", by {made.via}" if made.via else ""
    why = f": {plain(made.reason, MAX_LINE)}" if made.reason else ""
    old = "" if made.digest == run.plan.digest else " (an earlier plan)"
    return f"{plain(made.actor, 200)} {word}{old}{via}{why}"


def _step(number: int, planned: PlannedStep, record: StepRecord) -> ShownStep:
    result = record.effect.result if record.effect is not None else {}
    undo = record.undo
    return ShownStep(
        number=number,
        id=planned.id,
        what=what(planned),
        target=str(planned.target or ""),
        state=record.state,
        destructive=planned.destructive,
        verdict=_VERDICTS.get(record.verdict, record.verdict),
        reason=plain(record.reason, MAX_LINE),
        started_at=record.started_at,
        finished_at=record.finished_at,
        due_at=record.due_at if not record.state.is_over else None,
        undo=f"undo {undo.state.value} {plain(undo.reason, MAX_LINE)}".strip() if undo is not None else "",
        ticket=str(result.get("ticket") or ""),
        url=_web(result.get("url")),
    )


def what(planned: PlannedStep) -> str:
    """What a step does, in words."""
    return plain(planned.describe or planned.action.replace("_", " "), MAX_LINE)


def _questions(runs: Sequence[Run]) -> Iterator[Question]:
    for run in reversed(runs):
        if run.state.is_over:
            continue
        former = [one for one in run.approvals if one.approved and one.digest != run.plan.digest]
        for planned in run.plan.steps:
            record = run.step(planned.id)
            if record.state is not StepState.AWAITING_APPROVAL:
                continue
            yield Question(
                step=planned.id,
                digest=run.plan.digest,
                runbook=run.plan.runbook,
                what=what(planned),
                target=str(planned.target or ""),
                takes_over=planned.action == "ask",
                why=plain(record.reason, MAX_LINE),
                may=tuple(dict.fromkeys(who(demand) for demand in record.demands)),
                missing=wanted(record.demands),
                until=record.deadline_at,
                covers=tuple(_to_come(run)) if planned.action != "ask" else (),
                changed_after=former[-1].actor if former else "",
            )


def _to_come(run: Run) -> Iterator[str]:
    for planned in run.plan.steps:
        if planned.destructive and not run.step(planned.id).state.is_over:
            yield f"{what(planned)} ({planned.target})" if planned.target is not None else what(planned)


def _verbs(incident: Incident, runs: Sequence[Run]) -> Iterator[Verb]:
    """What can be decided besides the questions. The responder has the last word on each."""
    acting = any(not run.state.is_over and run.plan.mode is not Mode.SHADOW for run in runs)
    if not incident.state.is_over:
        yield Verb.ACK
        if acting:
            yield from (Verb.HAND_OVER, Verb.SNOOZE, Verb.STOP)
        yield from (Verb.SILENCE, Verb.RESOLVE)
    yield Verb.NOTE


def _jobs(incident: Incident, jobs: Mapping[str, JobFact]) -> Iterator[ShownJob]:
    for job in incident.jobs[:MAX_JOBS]:
        fact = jobs.get(job.key)
        states = (
            [("suspended", fact.suspended), ("failed", fact.failed), ("finished", fact.finished)]
            if fact
            else []
        )
        state = next((word for word, holds in states if holds), "")
        yield ShownJob(plain(str(job), 300), job.kind, plain(fact.owner or "", 200) if fact else "", state)


def _nodes(incident: Incident, nodes: Mapping[str, NodeFact]) -> Iterator[ShownNode]:
    root = incident.root.node
    for name in _names(incident)[:MAX_NODES]:
        fact = nodes.get(name)
        if fact is None:
            yield ShownNode(plain(name, 253), name == root, "", "", "", "not in the inventory")
            continue
        yield ShownNode(
            name=plain(name, 253),
            root=name == root,
            gpus=f"{fact.gpus_allocatable} of {fact.gpus}" if fact.gpus else "",
            rack=plain(fact.rack or "", 100),
            leaf=plain(fact.leaf or "", 100),
            state=node_state(fact),
        )


def _names(incident: Incident) -> list[str]:
    """The nodes, the one at fault first."""
    root = incident.root.node
    return list(dict.fromkeys([*([root] if root else []), *incident.nodes]))


def node_state(fact: NodeFact) -> str:
    """The state of a node in words: what keeps work off it, or `in service`."""
    if not fact.ready:
        return "joining" if fact.joining else "not ready"
    if fact.unschedulable:
        return "cordoned"
    if fact.gpus_allocatable < fact.gpus:
        return "GPUs out"
    return "in service"


def _links(runs: Sequence[Run], timeline: Sequence[TimelineEntry]) -> Iterator[Link]:
    """The ticket, and whatever else the steps and the timeline lead to."""
    seen: set[str] = set()
    ticket = ticket_of(runs)
    if ticket is not None:
        seen.add(ticket.url)
        yield Link("Ticket", plain(ticket.key, 60), _web(ticket.url))
    told = [
        (planned.action.replace("_", " "), record.effect.result)
        for run in runs
        for planned, record in ((p, run.step(p.id)) for p in run.plan.steps)
        if record.effect is not None
    ]
    told += [(entry.event.replace(".", " "), entry.attributes) for entry in timeline]
    for name, attributes in told:
        url = _web(attributes.get("url") or attributes.get("permalink"))
        if url and url not in seen:
            seen.add(url)
            yield Link(plain(name, 60), plain(url.partition("//")[2], 60), url)


def _web(url: object) -> str:
    text = str(url or "")
    return text if is_web_address(text) else ""

"""Texts of a thread: each function turns documents into one `Message`. Pure, and independent of any chat system.

The first two lines say what broke, where, what the impact is and what happens next: on a phone nothing else is visible.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import orjson

from faultline.chat.root_buttons import NOTHING_SAID, Handling
from faultline.chat.run_messages import plan_table, progress_line, took, what_of, would_evict
from runbooks.engine.approvals import wanted, who
from runbooks.engine.containment import CONTAINED, PendingRepair, is_contained, ticket_of
from runbooks.engine.wait_reasons import waits_for
from streams.model.checkpoint import UNKNOWN, checkpoint_lines, gpu_hours_since
from streams.model.conversation import TimelineEntry, Verb
from streams.model.incident import Incident, IncidentState, Proof
from streams.model.message import (
    Block,
    Button,
    Buttons,
    Code,
    Fact,
    Facts,
    Heading,
    Message,
    Paragraph,
    Table,
    Tone,
    plain,
    some,
    without_priority,
)
from streams.model.run import Mode, PlannedStep, Run, StepRecord, StepState

MAX_PROOFS = 10
MAX_LINES = 4
MAX_LOG_LINES = 12
MAX_NAMES = 6

INCIDENT_LOOK = {
    IncidentState.OPEN: ("🔴", "open", Tone.BAD),
    IncidentState.MITIGATING: ("🟠", "being mitigated", Tone.ACTIVE),
    IncidentState.VERIFYING: ("🟡", "verifying", Tone.ACTIVE),
    IncidentState.AWAITING_HUMAN: ("🟣", "awaiting human action", Tone.ASKING),
    IncidentState.RESOLVED: ("🟢", "resolved", Tone.GOOD),
    IncidentState.SUPPRESSED: ("⚪", "suppressed", Tone.QUIET),
    IncidentState.MERGED: ("⚪", "merged", Tone.QUIET),
}
_CONTAINED = ("🔧", CONTAINED, Tone.QUIET)
_TAKE_ON = (
    "Approve to take ownership: the runbook ends and you handle it from here. Reject if nobody takes it: the runbook ends, the "
    "jobs it suspended are resumed, and the incident is left for manual handling."
)


def root_message(
    incident: Incident,
    runs: Sequence[Run],
    repairs: Sequence[PendingRepair] = (),
    handling: Handling = NOTHING_SAID,
    buttons: Sequence[Button] = (),
) -> Message:
    """The current state: what, where, impact, what is being done, what can be decided now, and pending repairs last."""
    contained = is_contained(incident, repairs)
    glyph, word, tone = _CONTAINED if contained else INCIDENT_LOOK[incident.state]
    over = "Contained" if contained else "Resolved"
    ticket = ticket_of(runs)
    others = incident.other_workloads
    facts = [
        Fact("State", f"{word} · {incident.severity} · {incident.certainty}"),
        Fact("Where", f"{incident.root} · {incident.cluster}"),
        Fact("Jobs", some(map(str, incident.jobs), MAX_NAMES)),
        Fact("Also kept from starting", others.shortened(MAX_NAMES) if others is not None else ""),
        Fact("Nodes", some(_root_node_first(incident), MAX_NAMES)),
        _cost(incident, repairs),
        _since_checkpoint(incident),
        Fact("Ticket", ticket.key, url=ticket.url or None) if ticket else Fact(""),
        Fact("Started", at=incident.fault_at),
        Fact(over, at=incident.closed_at) if incident.closed_at else Fact(""),
        Fact("Duration", took(incident.closed_at - incident.fault_at)) if incident.closed_at else Fact(""),
        Fact("Acknowledged by", handling.acked_by),
        Fact("Silenced until", at=None if incident.state.is_over else handling.silenced_until),
        Fact("Flapping", f"{incident.flaps} times") if incident.flaps > 1 else Fact(""),
    ]
    blocks: list[Block] = [
        Heading(f"{glyph} {incident.title}"),
        Paragraph(incident.reason),
        Facts(tuple(fact for fact in facts if fact.text or fact.at)),
    ]
    if incident.merged_into:
        blocks.append(Paragraph(f"Merged into {incident.merged_into}: continue there."))
    waits = "" if incident.state.is_over else waits_for(incident, runs)
    if runs:
        blocks.append(Paragraph(progress_line(runs[-1], with_reason=not waits)))
    if waits:
        blocks.append(Paragraph(f"Waiting for {waits}"))
        blocks += [Paragraph(why) for why in _whys(runs)]
    if buttons:
        blocks.append(Buttons(tuple(buttons)))
    blocks.append(Paragraph(incident.id, quiet=True))
    blocks += [Paragraph(f"🔧 {one.text}; once repaired, run: {one.way_out}") for one in repairs[:MAX_NAMES]]
    end = f": {some((one.text for one in repairs), 2)}" if contained else ""
    return Message(f"{glyph} {word}: {incident.title} · {incident.cluster}{end}", tuple(blocks), tone)


def _root_node_first(incident: Incident) -> list[str]:
    """The nodes, the one at the root of the incident before those that are only affected."""
    root = [incident.root.node] if incident.root.node in incident.nodes else []
    return [*root, *(node for node in incident.nodes if node not in root)]


def _cost(incident: Incident, repairs: Sequence[PendingRepair]) -> Fact:
    """The impact: idle GPUs of its jobs while it is open, then GPUs of the nodes that stay cordoned."""
    if incident.state.is_over:
        return Fact("Out of service", f"{gpus} GPUs" if (gpus := sum(one.gpus for one in repairs)) else "")
    impact = incident.impact
    idle = f"{impact.gpus} GPUs idle, {impact.gpu_hours_per_hour:.0f} GPU-hours/h" if impact.gpus else ""
    return Fact("Impact", idle)


def _since_checkpoint(incident: Incident) -> Fact:
    """What its jobs had done since their last checkpoints: they start again from there."""
    if not incident.jobs:
        return Fact("")
    total = gpu_hours_since(incident.jobs, incident.checkpoints, incident.fault_at)
    if total is not None and len(incident.jobs) > 1:
        return Fact("Since checkpoints", f"{total:,.1f} GPU-hours")
    lines = checkpoint_lines(incident.jobs, incident.checkpoints, incident.fault_at)
    return Fact("Last checkpoint", some(lines if len(incident.jobs) > 1 else _without_names(lines), 2))


def _without_names(lines: Iterable[str]) -> list[str]:
    """The lines of a single job, which stands above."""
    return [line.rpartition(": ")[2] if line != UNKNOWN else line for line in lines]


def evidence_message(incident: Incident) -> Message:
    """The evidence of the incident, causes first, with the raw lines of the causes."""
    order = {"cause": 0, "symptom": 1}
    proofs = sorted(incident.proofs, key=lambda proof: (order.get(proof.role, 2), proof.occurred_at))
    rows = tuple(
        (
            clock_time(proof.occurred_at),
            proof.role,
            proof.summary if proof.count == 1 else f"{proof.summary} (x{proof.count})",
            str(proof.entity),
        )
        for proof in proofs[:MAX_PROOFS]
    )
    lines = [evidence.text for proof in proofs for evidence in proof.evidence[:1] if evidence.text]
    blocks: list[Block] = [Heading("Evidence"), Table(("UTC", "role", "what", "where"), rows)]
    if lines:
        blocks.append(Code("\n".join(plain(without_priority(line), 400) for line in lines[:MAX_LINES])))
    if len(proofs) > MAX_PROOFS:
        blocks.append(Paragraph(f"and {len(proofs) - MAX_PROOFS} more", quiet=True))
    blocks += _unknown(incident.unknown_errors or ())
    many = "1 observation" if len(proofs) == 1 else f"{len(proofs)} observations"
    return Message(f"Evidence: {many}", tuple(blocks))


def _unknown(errors: Sequence[Proof]) -> Iterator[Block]:
    """Errors in words that no rule knows, each with its line: what it says is for people to judge."""
    if not errors:
        return
    yield Paragraph("Seen nearby, in words that no rule knows. Nothing was decided by it:")
    lines = []
    for one in errors:
        times = f" (x{one.count})" if one.count > 1 else ""
        lines.append(f"{clock_time(one.occurred_at)}  {plain(one.summary, 160)}{times}")
        lines += [f"  {plain(without_priority(found.text), 200)}" for found in one.evidence[:1] if found.text]
    yield Code("\n".join(lines))


def approval_message(incident: Incident, run: Run, planned: PlannedStep) -> Message:
    """The request to approve a step, or who decided it and how."""
    step = run.step(planned.id)
    what = what_of(planned)
    if step.state is StepState.AWAITING_APPROVAL:
        return _question(incident, run, planned)
    decisions = [one for one in run.approvals if one.step == planned.id]
    if not decisions:
        heading = f"⌛ {what}: approval no longer needed"
        return Message(heading, (Heading(heading), *_reason(step.reason)), Tone.QUIET)
    last = decisions[-1]
    same = [one for one in decisions if one.approved is last.approved and one.digest == last.digest]
    glyph, word = ("✅", "approved") if last.approved else ("⛔", "rejected")
    if planned.action == "ask" and last.approved:
        word = "taken over"
    heading = f"{glyph} {what}: {word} by {some(dict.fromkeys(one.actor for one in same), MAX_NAMES)}"
    tone = Tone.GOOD if last.approved else Tone.QUIET
    reasons = "; ".join(dict.fromkeys(one.reason for one in same if one.reason))
    return Message(
        heading, (Heading(heading), Facts((Fact("Decided", at=last.at),)), *_reason(reasons)), tone
    )


def _question(incident: Incident, run: Run, planned: PlannedStep) -> Message:
    """Who may approve, whose approval is missing, until when, and the commands that answer it without the chat."""
    step = run.step(planned.id)
    what = what_of(planned)
    asks = planned.action == "ask"
    heading = (
        f"🟣 {what[:1].upper()}{what[1:]}" if asks else f"🟣 Approval needed: {what[:1].lower()}{what[1:]}"
    )
    expires = [Fact("Expires", at=step.deadline_at)] if step.deadline_at else []
    facts = (
        Fact("Incident", incident.title),
        Fact("Runbook", run.plan.runbook),
        *(Fact("May approve", who(demand)) for demand in step.demands),
        *([Fact("Approvals missing", missing)] if (missing := wanted(step.demands)) else []),
        *expires,
    )
    value = orjson.dumps(
        {"i": incident.id, "c": incident.cluster, "s": planned.id, "d": run.plan.digest}
    ).decode()
    buttons = (
        Button(Verb.APPROVE, "Approve", value, "primary"),
        Button(Verb.REJECT, "Reject", value, "danger"),
    )
    former = [one for one in run.approvals if one.approved and one.digest != run.plan.digest]
    changed = (
        [Paragraph(f"The plan changed after {former[-1].actor} approved it; approval is required again.")]
        if former
        else []
    )
    small = Paragraph(f"plan {run.plan.digest[:12]}", quiet=True)
    blocks: tuple[Block, ...] = (
        Heading(heading), *_reason(_TAKE_ON if asks else _why(step)), Facts(facts), Paragraph("To answer, run:"),
        Code(_answer_lines(run, planned)), *changed, plan_table(run), *would_evict(run), Buttons(buttons), small,
    )  # fmt: skip
    return Message(heading, blocks, Tone.ASKING)


def _why(step: StepRecord) -> str:
    """The full reason why the step requires approval."""
    return f"Approval reason: {step.reason}" if step.reason else ""


def _whys(runs: Sequence[Run]) -> list[str]:
    """Why steps of the latest run require approval. `ask` steps are left out: their own text says why."""
    if not runs or runs[-1].plan.mode is Mode.SHADOW:
        return []
    latest = runs[-1]
    asking = [
        latest.step(planned.id)
        for planned in latest.plan.steps
        if planned.action != "ask" and latest.step(planned.id).state is StepState.AWAITING_APPROVAL
    ]
    return [why for why in dict.fromkeys(map(_why, asking)) if why][:MAX_LINES]


def approve_line(run: Run, planned: PlannedStep) -> str:
    """The command that approves the step."""
    return f"faultline incidents approve {run.incident} --step {shlex.quote(planned.id)}"


def _answer_lines(run: Run, planned: PlannedStep) -> str:
    approve = approve_line(run, planned)
    return f"{approve}\n{approve.replace(' approve ', ' reject ', 1)}"


def log_message(log: Sequence[TimelineEntry]) -> Message:
    """The latest lines of the timeline, oldest first."""
    lines = [
        f"{clock_time(entry.at)} {plain(entry.actor, 40)}: {plain(entry.text.replace(chr(10), ' '), 180)}"
        for entry in log[-MAX_LOG_LINES:]
    ]
    return Message("What happened", (Heading("What happened (UTC)"), Code("\n".join(lines))))


def clock_time(at: datetime) -> str:
    """Hours, minutes and seconds in UTC."""
    return at.astimezone(UTC).strftime("%H:%M:%S")


def _reason(text: str) -> tuple[Paragraph, ...]:
    return (Paragraph(text),) if text else ()

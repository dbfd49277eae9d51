"""Texts of a summary: its root, which counts its incidents by state, and the one reply that each of them gets. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from faultline.chat.root_buttons import NOTHING_SAID, Handling
from faultline.chat.run_messages import progress_line, took
from faultline.chat.summaries import WORK, Summary
from faultline.chat.thread_messages import INCIDENT_LOOK, root_message
from runbooks.engine.containment import PendingRepair
from runbooks.engine.wait_reasons import waits_for
from streams.model.incident import Incident, IncidentState
from streams.model.message import (
    Block,
    Button,
    Buttons,
    Fact,
    Facts,
    Heading,
    Message,
    Paragraph,
    Table,
    Tone,
    some,
)
from streams.model.planned_work import work_of
from streams.model.run import Run, StepState

MAX_NAMED = 6
"""Incidents that a row of the summary names; the others are counted."""
_ORDER = (
    IncidentState.AWAITING_HUMAN,
    IncidentState.OPEN,
    IncidentState.MITIGATING,
    IncidentState.VERIFYING,
    IncidentState.SUPPRESSED,
    IncidentState.RESOLVED,
    IncidentState.MERGED,
)


def summary_message(summary: Summary, incidents: Sequence[Incident], own: Mapping[str, bool]) -> Message:
    """How many incidents there are in which state, and which. `own`: those that have a thread of their own."""
    by_state: defaultdict[IncidentState, list[Incident]] = defaultdict(list)
    for incident in incidents:
        by_state[incident.state].append(incident)
    states = [state for state in _ORDER if by_state[state]]
    glyph, _, tone = INCIDENT_LOOK[states[0]] if states else ("⚪", "", Tone.QUIET)
    counts = " · ".join(f"{len(by_state[state])} {INCIDENT_LOOK[state][1]}" for state in states)
    began = min(one.fault_at for one in incidents)
    opened = [one.opened_at for one in incidents]
    where = (
        _work(incidents[0])
        if summary.part.startswith(WORK)
        else summary.part.removeprefix("part/").replace("/", " ")
    ) or f"opened within {took(max(opened) - min(opened))}"
    heading = f"{glyph} {len(incidents)} incidents in {summary.cluster}, {where}"
    jobs = dict.fromkeys(str(job) for one in incidents for job in one.jobs)
    nodes = dict.fromkeys(node for one in incidents for node in one.nodes)
    facts = [
        Fact("States", counts),
        Fact("Nodes", f"{len(nodes)}: {some(nodes, MAX_NAMED)}" if nodes else ""),
        Fact("Jobs", f"{len(jobs)}: {some(jobs, MAX_NAMED)}" if jobs else ""),
        Fact("Started", at=began),
    ]
    rows = tuple(
        (INCIDENT_LOOK[state][1], str(len(by_state[state])), some(map(_named, by_state[state]), MAX_NAMED))
        for state in states
    )
    blocks: list[Block] = [
        Heading(heading),
        Facts(tuple(fact for fact in facts if fact.text or fact.at)),
        Table(("state", "count", "which"), rows),
    ]
    if apart := [one.title for one in incidents if own.get(one.id)]:
        blocks.append(Paragraph(f"With a thread of their own: {some(apart, MAX_NAMED)}"))
    blocks.append(Paragraph(summary.id, quiet=True))
    return Message(f"{heading}: {counts}", tuple(blocks), tone)


def summary_mark(incidents: Iterable[Incident]) -> str:
    """What is told at once: whether anything is open, and whether a person has to decide. Counts may wait a moment."""
    states = {incident.state for incident in incidents}
    if IncidentState.AWAITING_HUMAN in states:
        return "asking"
    return "over" if all(state.is_over for state in states) else "open"


def member_message(
    incident: Incident,
    runs: Sequence[Run],
    repairs: Sequence[PendingRepair] = (),
    handling: Handling = NOTHING_SAID,
    buttons: Sequence[Button] = (),
) -> Message:
    """One incident as a reply of its summary: its state, where, why, and what is being done."""
    full = root_message(incident, runs, repairs, handling)
    word = INCIDENT_LOOK[incident.state][1]
    blocks: list[Block] = [
        full.blocks[0],
        Paragraph(f"{word} · {incident.severity} · {incident.root}: {incident.reason}"),
    ]
    if runs:
        blocks.append(Paragraph(progress_line(runs[-1], with_reason=True)))
    if not incident.state.is_over and (waits := waits_for(incident, runs)):
        blocks.append(Paragraph(f"Waiting for {waits}"))
    if buttons:
        blocks.append(Buttons(tuple(buttons)))
    blocks.append(Paragraph(incident.id, quiet=True))
    blocks += [Paragraph(f"🔧 {one.text}; once repaired, run: {one.way_out}") for one in repairs[:MAX_NAMED]]
    return Message(full.summary, tuple(blocks), full.tone)


def moved_message(incident: Incident) -> Message:
    """The reply of an incident that has got a thread of its own."""
    glyph, word, tone = INCIDENT_LOOK[incident.state]
    heading = f"{glyph} {incident.title}: {word}, goes on in a thread of its own"
    return Message(heading, (Heading(heading), Paragraph(incident.id, quiet=True)), tone)


def asks_a_person(runs: Iterable[Run]) -> bool:
    """Whether somebody has to decide, and so has to find it in the channel."""
    return any(step.state is StepState.AWAITING_APPROVAL for run in runs for step in run.steps)


def _named(incident: Incident) -> str:
    return str(incident.root)


def _work(incident: Incident) -> str:
    """Whose planned work it is, and why."""
    work = work_of(incident.facts)
    if work is None:
        return "planned work"
    return f"planned work by {work.by}" + (f": {work.reason}" if work.reason else "")

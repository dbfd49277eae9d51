"""Commands for planned work on nodes: what is asked for, what of it is accepted, and the signals that tell of it. Pure.

The responder decides who may, and records it as a signal for each node; the correlator opens an incident of it, and a runbook
does the rest, by the same limits and approvals as for a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from runbooks.engine.approvals import may_relax_controls, stale
from streams.config.settings import ResponderSettings
from streams.model.clock import rfc3339, to_the_second
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.message import some
from streams.model.planned_work import APPROVED, BY, OVER, OVER_BY, REQUEST, UNTIL, WHY, PlannedWork, work_of
from streams.model.run import Mode, Run
from streams.model.signal import Attribute, Severity, Signal, signal

MAX_REASON = 300
LONGEST = timedelta(days=14)
NAMED = 6


@dataclass(frozen=True, slots=True)
class WorkAnswer:
    """The answer to a command: signals for the nodes that it is accepted for, and why the others are left out."""

    signals: tuple[Signal, ...] = ()
    text: str = ""
    refusal: str = ""
    calls_off: tuple[str, ...] = ()
    """Incidents whose nodes were not touched yet: they are simply over."""


def works(incidents: Iterable[Incident]) -> dict[str, Incident]:
    """The incidents of planned work that are not over, by node; of several the latest."""
    found = [i for i in incidents if i.family == IncidentFamily.PLANNED_WORK and not i.state.is_over]
    return {i.root.node: i for i in sorted(found, key=lambda i: (i.opened_at, i.id)) if i.root.node}


def started(
    command: Command,
    nodes: Mapping[str, NodeFact],
    known: Mapping[str, Incident],
    policy: ResponderSettings,
    now: datetime,
) -> WorkAnswer:
    """Begin planned work on the nodes of a command, or extend it. `known` is what is under way, by node."""
    if why := _refusal(command, nodes, now):
        return WorkAnswer(refusal=why)
    assert command.until is not None
    wanted = tuple(dict.fromkeys(command.nodes))
    there = [name for name in wanted if name in nodes]
    missing = [name for name in wanted if name not in nodes]
    if not there:
        return WorkAnswer(refusal=f"no such node in the inventory: {some(missing, NAMED)}")
    approved = may_relax_controls(command, policy) and not stale(command, policy, now)
    made, extended, ended, theirs = [], [], [], []
    for name in there:
        before = work_of(known[name].facts) if name in known else None
        if before is not None and before.over and command.at <= _last_word(known[name]):
            ended.append(name)  # an old command that is read again after the work was ended
            continue
        if _is_of_others(before, command, policy):
            theirs.append(name)
            continue
        request = before.request if before is not None and not before.over else command.id
        if before is not None and not before.over:
            extended.append(name)
        work = PlannedWork(
            request, command.actor, command.reason[:MAX_REASON], command.until,
            approved or (before is not None and before.approved),
        )  # fmt: skip
        made.append(_signal(command, name, work, known.get(name), now))
    if not made and theirs:
        return WorkAnswer(refusal=_others_asked(command, theirs))
    if not made:
        return WorkAnswer(refusal=f"the work was ended since: {some(ended, NAMED)}")
    what = f"planned work on {_count(there)} until {to_the_second(command.until)} by {command.actor}"
    text = f"{what}: {command.reason[:MAX_REASON]}" if command.reason else what
    if extended:
        text += f"; {_count(extended)} already under work: the new end counts"
    if theirs:
        text += f"; left out, others asked for it: {some(theirs, NAMED)}"
    if missing:
        text += f"; left out, for the inventory has no such node: {some(missing, NAMED)}"
    if not approved:
        text += f"; {command.actor} may not approve it, so an approver is asked"
    return WorkAnswer(tuple(made), text)


def stopped(
    command: Command,
    known: Mapping[str, Incident],
    untouched: frozenset[str],
    policy: ResponderSettings,
    now: datetime,
) -> WorkAnswer:
    """End planned work: nodes that were closed for it are validated and given back.

    `untouched` are incidents for which nothing was done yet: those are over at once.
    """
    wanted = tuple(dict.fromkeys(command.nodes))
    mine = [name for name in wanted if name in known]
    none = [name for name in wanted if name not in known]
    if not mine:
        return WorkAnswer(refusal=f"no planned work on {some(list(wanted), NAMED)}")
    made: list[Signal] = []
    theirs, off, back = list[str](), dict[str, str](), list[str]()
    for name in mine:
        work = work_of(known[name].facts)
        if work is None:
            continue
        if _is_of_others(work, command, policy):
            theirs.append(name)
        elif known[name].id in untouched:
            off[name] = known[name].id
        else:
            back.append(name)
            ended = replace(work, over=True, over_by=command.actor)
            made.append(_signal(command, name, ended, known[name], now))
    if theirs and not made and not off:
        return WorkAnswer(refusal=_others_asked(command, theirs))
    text = f"planned work on {_count([*back, *off])} ended by {command.actor}"
    text += f": {command.reason[:MAX_REASON]}" if command.reason else ""
    if made:
        text += f"; {_count(back)} to be validated and given back"
    if off:
        text += f"; {_count(off)} not touched yet"
    for why, left in (("others asked for it", theirs), ("no planned work there", none)):
        text += f"; left out, {why}: {some(left, NAMED)}" if left else ""
    return WorkAnswer(tuple(made), text, calls_off=tuple(off.values()))


def has_acted(run: Run) -> bool:
    """Whether a run has changed anything on its nodes, or may have."""
    return run.plan.mode is not Mode.SHADOW and any(
        planned.destructive and run.step(planned.id).effect is not None for planned in run.plan.steps
    )


def _is_of_others(work: PlannedWork | None, command: Command, policy: ResponderSettings) -> bool:
    """Whether only an approver may change it: it goes on, and somebody else asked for it."""
    if work is None or work.over or work.by == command.actor:
        return False
    return not may_relax_controls(command, policy)


def _others_asked(command: Command, nodes: list[str]) -> str:
    return f"{command.actor} is not an approver, and others asked for it: {some(nodes, NAMED)}"


def _refusal(command: Command, nodes: Mapping[str, NodeFact], now: datetime) -> str:
    if command.until is None:
        return "it has no end"
    if command.until <= now:
        return f"it would have ended at {to_the_second(command.until)}"
    if command.until - now > LONGEST:
        return f"it would last until {to_the_second(command.until)}; at most {LONGEST.days} days are taken"
    if not command.reason.strip():
        return "it gives no reason"
    if not command.nodes:
        return "it names no node"
    if not nodes:
        return "the inventory has no nodes of this cluster yet"
    return ""


def _last_word(incident: Incident) -> datetime:
    return incident.evident_at or incident.fault_at


def _signal(command: Command, node: str, work: PlannedWork, known: Incident | None, now: datetime) -> Signal:
    # Commands come from machines whose clocks differ: the later word counts, as the responder read them.
    at = min(command.at, now)
    if known is not None:
        at = max(at, _last_word(known) + timedelta(milliseconds=1))
    attributes: dict[str, Attribute] = {
        REQUEST: work.request,
        BY: work.by,
        WHY: work.reason,
        UNTIL: rfc3339(work.until),
        APPROVED: work.approved,
        "command": command.id,
        "via": command.via,
    }
    if command.verb is Verb.MAINTENANCE_STOP:
        attributes |= {OVER: True, OVER_BY: work.over_by}
    return signal(
        SignalKind.NODE_PLANNED_WORK,
        Entity(command.cluster, node=node),
        severity=Severity.INFO,
        occurred_at=at,
        observed_at=now,
        attributes=attributes,
    )


def _count(nodes: Iterable[str]) -> str:
    names = list(nodes)
    return names[0] if len(names) == 1 else f"{len(names)} nodes"

"""Kill switch, freezes and breaker of a cluster: command + control → control and timeline entries. Pure.

Anyone who can write a command may stop the cluster. Relaxing it (unkill, thaw, reset) is for approvers, and only by a command not
older than `freshness_s`: whoever wrote an older one was looking at another state of the cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from runbooks.engine.approvals import may_relax_controls, stale
from runbooks.engine.run.transition import TimelineNote
from streams.config.settings import ResponderSettings
from streams.model.clock import rfc3339, to_the_second
from streams.model.control import ConfigInForce, Control, ControlChange, Freeze, RolledBack, Switch, Trip
from streams.model.conversation import Command, Verb

MAX_COMMANDS = 200
"""Ids of commands that a control remembers."""

MAX_CHANGES = 50
"""Changes that it keeps to be shown."""

MAX_FREEZES = 100

MAX_TEXT = 300
"""Characters kept of an operator's reason."""

RELAXING = frozenset({Verb.UNKILL, Verb.THAW, Verb.RESET, Verb.LIFT})

STOPPING = frozenset({Verb.KILL, Verb.FREEZE, Verb.OBSERVE})

_SCOPE = re.compile(r"(?:(?:pool|namespace):[A-Za-z0-9][A-Za-z0-9._-]{0,252})?")


@dataclass(frozen=True, slots=True)
class ControlUpdate:
    """A control after an event, and the timeline entries."""

    control: Control
    notes: tuple[TimelineNote, ...] = ()


def commanded(
    control: Control,
    command: Command,
    policy: ResponderSettings,
    now: datetime,
    *,
    in_flight_until: datetime | None = None,
) -> ControlUpdate:
    """Apply a command to the cluster; where it is not accepted, the timeline says why. Each counts once.

    `in_flight_until` is until when a call of a former owner may still start. It cannot be called back, so the answer to whoever
    stops the cluster says so.
    """
    if command.id in control.commands:
        return ControlUpdate(control)
    applied = replace(control, commands=(*control.commands, command.id)[-MAX_COMMANDS:])
    refusal = _refusal(control, command, policy, now)
    if refusal:
        text = f"{command.verb} by {command.actor} not accepted: {refusal}"
        return _update(applied, "control.refused", text, command.actor, now, command)
    why = command.reason[:MAX_TEXT]
    because = f": {why}" if why else ""
    match command.verb:
        case Verb.KILL:
            applied = replace(applied, kill_switch=Switch(command.actor, command.at, why))
            text = f"{command.actor} engaged the kill switch{because}"
        case Verb.UNKILL:
            applied = replace(applied, kill_switch=None)
            text = f"{command.actor} released the kill switch{because}"
        case Verb.FREEZE:
            freeze = Freeze(command.scope, command.actor, command.at, why, command.until)
            others = tuple(f for f in control.freezes if f.scope != command.scope)
            applied = replace(applied, freezes=(*others, freeze))
            until = f" until {to_the_second(command.until)}" if command.until else ""
            text = f"{command.actor} froze {_scope_text(control, command.scope)}{until}{because}"
        case Verb.THAW:
            applied = replace(applied, freezes=tuple(f for f in control.freezes if f.scope != command.scope))
            text = f"{command.actor} thawed {_scope_text(control, command.scope)}{because}"
        case Verb.RESET:
            applied = replace(applied, breaker=None, reset_at=now)
            text = f"{command.actor} reset the breaker{because}"
        case Verb.OBSERVE:
            row = RolledBack(_pool(command), command.actor, command.at, why)
            kept = tuple(one for one in control.rolled_back if one.pool != row.pool)
            applied = replace(applied, rolled_back=(*kept, row))
            text = f"{command.actor} put pool {row.pool} back to stage observe{because}"
        case Verb.LIFT:
            kept = tuple(one for one in control.rolled_back if one.pool != _pool(command))
            applied = replace(applied, rolled_back=kept)
            text = f"{command.actor} lifted the rollback of pool {_pool(command)}{because}"
        case _:
            raise ValueError(f"{command.verb} is no decision about a cluster")
    if in_flight_until is not None and command.verb in STOPPING:
        text += (
            f"; calls started by the previous responder may still be sent until {rfc3339(in_flight_until)}"
        )
    return _update(applied, f"control.{command.verb}", text, command.actor, now, command)


def tripped(control: Control, trip: Trip) -> ControlUpdate:
    """The breaker trips; it stays so until an approver resets it."""
    text = f"the breaker tripped by {trip.rule}: {trip.reason}; no destructive step starts until an approver resets it"
    made = replace(control, breaker=trip)
    return _update(made, "control.trip", text, None, trip.at)


def configured(control: Control, version: str, now: datetime) -> ControlUpdate:
    """The owner of the cluster decides by this version of runbooks and settings from now on; nothing where it did before."""
    if control.config is not None and control.config.version == version:
        return ControlUpdate(control)
    before = f", before it was {control.config.version}" if control.config is not None else ""
    text = f"runbooks and settings of version {version} are in force{before}; runs keep the plan they have"
    made = replace(control, config=ConfigInForce(version, now))
    return _update(made, "control.config", text, None, now)


def unreadable_control(control: Control, why: str, now: datetime) -> ControlUpdate:
    """The control of a cluster whose latest record is unreadable: the last known one with the kill switch engaged.

    Freezes and a tripped breaker that only that record had are lost; the kill switch stops everything that they would.
    """
    text = (
        "kill switch engaged (fail-safe): the control record of this cluster is unreadable and may have held one; check freezes "
        f"and the breaker before you release it: {why[:MAX_TEXT]}"
    )
    switch = Switch("responder", now, f"the control record is unreadable: {why}"[:MAX_TEXT])
    made = replace(control, kill_switch=switch)
    return _update(made, "control.unreadable", text, None, now)


def thawed(control: Control, now: datetime) -> ControlUpdate:
    """Remove freezes that have ended."""
    ended = [f for f in control.freezes if f.has_ended(now)]
    if not ended:
        return ControlUpdate(control)
    left = tuple(f for f in control.freezes if f not in ended)
    text = "the freeze of " + ", ".join(_scope_text(control, f.scope) for f in ended) + " is over"
    return _update(replace(control, freezes=left), "control.thaw", text, None, now)


def _refusal(control: Control, command: Command, policy: ResponderSettings, now: datetime) -> str:
    if command.verb in RELAXING:
        if not may_relax_controls(command, policy):
            return f"{command.actor} is neither among responder.approvers nor in an approval group"
        if why := stale(command, policy, now):
            return why
    match command.verb:
        case Verb.UNKILL if control.kill_switch is None:
            return "the kill switch is not engaged by a command" + (
                ", it is on in the settings" if policy.kill_switch else ""
            )
        case Verb.RESET if control.breaker is None:
            return "the breaker has not tripped"
        case Verb.FREEZE | Verb.THAW if not _SCOPE.fullmatch(command.scope):
            return f"{command.scope[:80]!r} is no scope: pool:NAME, namespace:NAME or nothing for the cluster"
        case Verb.OBSERVE | Verb.LIFT if not _SCOPE.fullmatch(command.scope) or not _pool(command):
            return f"{command.scope[:80]!r} is no pool: pool:NAME"
        case Verb.OBSERVE if len(control.rolled_back) >= MAX_FREEZES:
            return f"{MAX_FREEZES} pools are rolled back already"
        case Verb.LIFT if all(one.pool != _pool(command) for one in control.rolled_back):
            pools = ", ".join(one.pool for one in control.rolled_back) or "none"
            return f"pool {_pool(command)} is not rolled back by a command, {pools} is"
        case Verb.FREEZE if command.until is not None and command.until <= now:
            return f"it would have ended at {to_the_second(command.until)}"
        case Verb.FREEZE if len(control.freezes) >= MAX_FREEZES:
            return f"{MAX_FREEZES} freezes are active already"
        case Verb.THAW if all(f.scope != command.scope for f in control.freezes):
            scopes = ", ".join(_scope_text(control, f.scope) for f in control.freezes) or "nothing"
            return f"{_scope_text(control, command.scope)} is not frozen, {scopes} is"
    return ""


def _pool(command: Command) -> str:
    kind, _, name = command.scope.partition(":")
    return name if kind == "pool" else ""


def _scope_text(control: Control, scope: str) -> str:
    return scope.replace(":", " ", 1) if scope else f"cluster {control.cluster}"


def _update(
    control: Control, event: str, text: str, actor: str | None, at: datetime, command: Command | None = None
) -> ControlUpdate:
    """Add a change to the control, as its next revision, and to the timeline with the command that it answers."""
    change = ControlChange(at, actor or "responder", event, text)
    about = {"command": command.id, "via": command.via} if command is not None else {}
    return ControlUpdate(
        replace(control, changes=(*control.changes, change)[-MAX_CHANGES:], revision=control.revision + 1),
        (TimelineNote(event, text, actor, about),),
    )

"""What people and the breaker change for a whole cluster: command + control → control and what is said of it. Pure.

To stop is open to everybody who can write a command. To let go on (unkill, thaw, reset) is for approvers, and a word that
has lain about for longer than `freshness_s` does not do it: who said it was looking at another cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from runbooks.engine.approvals import may_relax_controls
from runbooks.engine.run.transition import TimelineNote
from streams.config.settings import ResponderSettings
from streams.model.clock import rfc3339, to_the_second
from streams.model.control import Change, Control, Freeze, Switch, Trip
from streams.model.conversation import Command, Verb

MAX_COMMANDS = 200
"""Ids of decisions that a control remembers."""

MAX_CHANGES = 50
"""CommitBatch that it shows."""

MAX_FREEZES = 100

MAX_TEXT = 300
"""Characters of a person's reason that are kept."""

LETTING_GO = frozenset({Verb.UNKILL, Verb.THAW, Verb.RESET})

STOPPING = frozenset({Verb.KILL, Verb.FREEZE})

_SCOPE = re.compile(r"(?:(?:pool|namespace):[A-Za-z0-9][A-Za-z0-9._-]{0,252})?")


@dataclass(frozen=True, slots=True)
class ControlUpdate:
    """A control after an event, and the lines for the timeline."""

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
    """Take in a person's decision about the cluster; what it may not do is said on the timeline. Each counts once.

    `in_flight_until` is when the last call of a former owner can start no more. Nobody can call it back before, so whoever
    stops the cluster is told of it.
    """
    if command.id in control.commands:
        return ControlUpdate(control)
    heard = replace(
        control, commands=(*control.commands, command.id)[-MAX_COMMANDS:], revision=control.revision + 1
    )
    refusal = _refusal(control, command, policy, now)
    if refusal:
        said = f"{command.verb} of {command.actor} does not count: {refusal}"
        return _said(heard, "control.refused", said, command.actor, now, command)
    why = command.reason[:MAX_TEXT]
    because = f": {why}" if why else ""
    match command.verb:
        case Verb.KILL:
            heard = replace(heard, kill_switch=Switch(command.actor, command.at, why))
            text = f"{command.actor} threw the kill switch{because}"
        case Verb.UNKILL:
            heard = replace(heard, kill_switch=None)
            text = f"{command.actor} took the kill switch back{because}"
        case Verb.FREEZE:
            freeze = Freeze(command.scope, command.actor, command.at, why, command.until)
            others = tuple(f for f in control.freezes if f.scope != command.scope)
            heard = replace(heard, freezes=(*others, freeze))
            until = f" until {to_the_second(command.until)}" if command.until else ""
            text = f"{command.actor} froze {_called(control, command.scope)}{until}{because}"
        case Verb.THAW:
            heard = replace(heard, freezes=tuple(f for f in control.freezes if f.scope != command.scope))
            text = f"{command.actor} thawed {_called(control, command.scope)}{because}"
        case Verb.RESET:
            heard = replace(heard, breaker=None, reset_at=now)
            text = f"{command.actor} reset the breaker{because}"
        case _:
            raise ValueError(f"{command.verb} is no decision about a cluster")
    if in_flight_until is not None and command.verb in STOPPING:
        text += f"; what a responder before this one has begun may still leave it until {rfc3339(in_flight_until)}"
    return _said(heard, f"control.{command.verb}", text, command.actor, now, command)


def tripped(control: Control, trip: Trip) -> ControlUpdate:
    """The breaker opens; it stays open until a person resets it."""
    text = f"the breaker tripped by {trip.rule}: {trip.reason}; nothing destructive is begun until a person resets it"
    made = replace(control, breaker=trip, revision=control.revision + 1)
    return _said(made, "control.trip", text, None, trip.at)


def unreadable_control(control: Control, why: str, now: datetime) -> ControlUpdate:
    """The control of a cluster whose latest record cannot be read: what is known before that, and the kill switch on.

    Freezes and a tripped breaker that only that record knew of are gone; the switch holds everything that they would.
    """
    text = (
        "the kill switch is on: what was switched off here cannot be read back, and it may have been in it; see to freezes and "
        f"the breaker before it is taken back: {why[:MAX_TEXT]}"
    )
    switch = Switch("responder", now, f"the record of what is switched off cannot be read: {why}"[:MAX_TEXT])
    made = replace(control, kill_switch=switch, revision=control.revision + 1)
    return _said(made, "control.unreadable", text, None, now)


def thawed(control: Control, now: datetime) -> ControlUpdate:
    """Freezes that have run out are taken away."""
    over = [f for f in control.freezes if f.until is not None and f.until <= now]
    if not over:
        return ControlUpdate(control)
    left = tuple(f for f in control.freezes if f not in over)
    text = "the freeze of " + ", ".join(_called(control, f.scope) for f in over) + " is over"
    return _said(
        replace(control, freezes=left, revision=control.revision + 1), "control.thaw", text, None, now
    )


def _refusal(control: Control, command: Command, policy: ResponderSettings, now: datetime) -> str:
    age_s = (now - command.at).total_seconds()
    if command.verb in LETTING_GO:
        if not may_relax_controls(command.actor, policy):
            return f"{command.actor} is neither among responder.approvers nor in an approval group"
        if age_s > policy.freshness_s:
            return f"it was given {age_s:.0f} s ago, at most {policy.freshness_s:.0f} s count as fresh"
    match command.verb:
        case Verb.UNKILL if control.kill_switch is None:
            return "the kill switch is not thrown by a command" + (
                ", it is on in the settings" if policy.kill_switch else ""
            )
        case Verb.RESET if control.breaker is None:
            return "the breaker has not tripped"
        case Verb.FREEZE | Verb.THAW if not _SCOPE.fullmatch(command.scope):
            return f"{command.scope[:80]!r} is no scope: pool:NAME, namespace:NAME or nothing for the cluster"
        case Verb.FREEZE if command.until is not None and command.until <= now:
            return f"it would have ended at {to_the_second(command.until)}"
        case Verb.FREEZE if len(control.freezes) >= MAX_FREEZES:
            return f"{MAX_FREEZES} freezes are on already"
        case Verb.THAW if all(f.scope != command.scope for f in control.freezes):
            scopes = ", ".join(_called(control, f.scope) for f in control.freezes) or "nothing"
            return f"{_called(control, command.scope)} is not frozen, {scopes} is"
    return ""


def _called(control: Control, scope: str) -> str:
    return scope.replace(":", " ", 1) if scope else f"cluster {control.cluster}"


def _said(
    control: Control, event: str, text: str, actor: str | None, at: datetime, command: Command | None = None
) -> ControlUpdate:
    """What changed, in the control and for the timeline; there it names the command that it answers."""
    change = Change(at, actor or "responder", event, text)
    about = {"command": command.id, "via": command.via} if command is not None else {}
    return ControlUpdate(
        replace(control, changes=(*control.changes, change)[-MAX_CHANGES:]),
        (TimelineNote(event, text, actor, about),),
    )

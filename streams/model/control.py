"""What holds for all runs of a cluster until somebody changes it: the value of the `controls` topic.

The responder writes it in the transaction of the command or the runs that changed it and reads it back before it acts, so a
switch that was thrown stays thrown through restarts and rebalances.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import AwareDatetime


@dataclass(frozen=True, slots=True)
class Switch:
    """A kill switch that somebody has thrown."""

    actor: str
    at: AwareDatetime
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Freeze:
    """No destructive step in `scope` (`pool:NAME`, `namespace:NAME`, or empty for the whole cluster) until it is thawed."""

    scope: str
    actor: str
    at: AwareDatetime
    reason: str = ""
    until: AwareDatetime | None = None


@dataclass(frozen=True, slots=True)
class Trip:
    """A breaker that has opened: by which rule (`failures` or `mass faults`), on what numbers."""

    rule: str
    at: AwareDatetime
    reason: str


@dataclass(frozen=True, slots=True)
class ControlChange:
    """One change of a cluster's control: who, when, what, why."""

    at: AwareDatetime
    actor: str
    event: str
    text: str


@dataclass(frozen=True, slots=True)
class Control:
    """What a cluster's runs may do at all. The highest revision is the truth."""

    cluster: str
    revision: int = 0
    kill_switch: Switch | None = None
    freezes: tuple[Freeze, ...] = ()
    breaker: Trip | None = None
    reset_at: AwareDatetime | None = None
    """When a person last reset the breaker: what came before does not trip it again."""
    commands: tuple[str, ...] = ()
    """Ids of the decisions that have been taken in, latest last, bounded."""
    changes: tuple[ControlChange, ...] = ()
    """The latest changes, oldest first, bounded."""
    schema: int = 1

"""Controls of all runs of a cluster (kill switch, freezes, breaker): the value of the `controls` topic.

The responder writes it in the transaction of the command or the runs that changed it and reads it back before it acts, so an
engaged kill switch survives restarts and rebalances.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import AwareDatetime


@dataclass(frozen=True, slots=True)
class Switch:
    """An engaged kill switch."""

    actor: str
    at: AwareDatetime
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Freeze:
    """No destructive step in `scope` (`pool:NAME`, `namespace:NAME`, or empty for the whole cluster) until thawed or expired."""

    scope: str
    actor: str
    at: AwareDatetime
    reason: str = ""
    until: AwareDatetime | None = None

    def has_ended(self, now: datetime) -> bool:
        """Whether its end has passed. The record stays until a responder takes it out."""
        return self.until is not None and self.until <= now


@dataclass(frozen=True, slots=True)
class Trip:
    """A tripped breaker: by which rule (`failures` or `mass faults`), on what numbers."""

    rule: str
    at: AwareDatetime
    reason: str


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A pool that was put back to stage observe, whatever the settings say, until somebody lifts it."""

    pool: str
    actor: str
    at: AwareDatetime
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ControlChange:
    """One change of a cluster's controls: who, when, what, why."""

    at: AwareDatetime
    actor: str
    event: str
    text: str


@dataclass(frozen=True, slots=True)
class ConfigInForce:
    """The version of runbooks and settings by which the responder that owns the cluster decides, and since when."""

    version: str
    since: AwareDatetime


@dataclass(frozen=True, slots=True)
class Control:
    """The controls of a cluster. The highest revision counts."""

    cluster: str
    revision: int = 0
    kill_switch: Switch | None = None
    freezes: tuple[Freeze, ...] = ()
    breaker: Trip | None = None
    rolled_back: tuple[RolledBack, ...] = ()
    reset_at: AwareDatetime | None = None
    """When an operator last reset the breaker: earlier failures do not trip it again."""
    commands: tuple[str, ...] = ()
    """Ids of the commands that have been processed, latest last, bounded."""
    changes: tuple[ControlChange, ...] = ()
    """The latest changes, oldest first, bounded."""
    config: ConfigInForce | None = None
    """None where no responder has said, as before the first one of this release."""
    schema: int = 1

"""The contract every outward change fulfils.

An `Effect` is one change in the world outside, with a key that never changes however often it is tried. A connector carries
out effects and *returns* what became of them; it raises only for errors in its own code. The responder journals the intent
before `apply` and the outcome after it, so a crash in between leads to `lookup`, never to a second blind call.

    apply   make the change, or find that it is made
    lookup  look whether the change is there, without making it
    undo    take the change back, but only while the state is still the one that was made
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from streams.model.run import Target
from streams.model.signal import Attribute

Result = Mapping[str, Attribute]
"""What a connector reports of a change and what `undo` needs to take it back, e.g. the prior state. Small, no secrets."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One outward change.

    `key` is the idempotency key and is written on what is changed wherever the other side has room for it. `params` come
    from the runbook's step; `context` tells people and connectors about the incident (title, reason, link, runbook, run).
    `prior` is the `Result` of an earlier `apply` of the same effect, when there was one.
    """

    key: str
    action: str
    target: Target
    cluster: str
    incident: str
    run: str
    step: str
    params: Mapping[str, Attribute] = field(default_factory=dict)
    context: Mapping[str, Attribute] = field(default_factory=dict)
    prior: Result = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """The change was made by this call (for `undo`: was taken back)."""

    result: Result = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The change was there already, and it is ours (for `undo`: there is nothing left to take back)."""

    result: Result = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """Only from `lookup`: the change is surely not there."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A long change under way (a drain, a suspend): call `apply` again after `after_s`. `result` is kept as `prior`.

    Also from `lookup`, and from `undo`, which is then called again.
    """

    after_s: float
    detail: str
    result: Result = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Retry:
    """It surely did not happen, and the same call may succeed after `after_s` seconds."""

    after_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may or may not have happened (a timeout, a cut connection): look it up before anything else.

    `withheld` says that we stopped it ourselves: if it turns out that it was never made, that is no failure of the call.
    """

    reason: str
    after_s: float = 1.0
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """It did not happen and never will as it is: bad request, no permission, a guard that does not hold.

    `moot` says that there is nothing left to do it to: what it was about has ended well by itself, or is gone.
    """

    reason: str
    moot: bool = False


@dataclass(frozen=True, slots=True)
class Blocked:
    """It did not happen because something or somebody stands in the way (a PodDisruptionBudget, a foreign cordon)."""

    by: str
    reason: str
    after_s: float = 5.0
    result: Result = field(default_factory=dict)
    by_person: bool = False
    """A person has changed what Faultline acted on: their decision ends the run."""

    @classmethod
    def person(cls, reason: str) -> Blocked:
        """Blocked because a person has decided otherwise."""
        return cls("a person", reason, by_person=True)


Outcome = Done | AlreadyDone | Absent | Waiting | Retry | Unknown | Refused | Blocked


class LeaseHeld(Protocol):
    """Asked right before a call leaves the process: is this process still allowed to start it?"""

    def check(self) -> None:
        """Return when the call may start.

        Raises:
            Fenced: when the lease has run out, also for a process that was frozen in between.
        """


@runtime_checkable
class Connector(Protocol):
    """A room that carries out one or more actions on one outside system."""

    @property
    def actions(self) -> frozenset[str]:
        """The actions it knows, e.g. `cordon_node`."""

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Make the change or find it made. Calls `lease.check()` right before *every* request that changes something."""

    async def lookup(self, effect: Effect) -> Outcome:
        """Find out whether the change is there. Changes nothing, and needs no `prior`.

        Returns `AlreadyDone`, `Absent`, `Waiting` for a long change that was begun and is not over (go on with `apply`),
        or `Unknown`/`Retry` when it cannot be told now.
        """

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Take it back under guard: `Blocked` when the state is not the one `apply` made, and then nothing is touched."""

    async def close(self) -> None:
        """Let go of connections."""


class NoLease:
    """A lease that always holds, for command line use and tests where no second owner can exist."""

    def check(self) -> None:
        """Always returns."""

"""The contract of every outward change.

An `Effect` is one change in an external system, with a key that stays the same for every attempt. A connector executes
effects and *returns* the outcome; it raises only for errors in its own code. The responder commits the intent before
`apply` and the outcome after it, so a crash in between leads to `lookup`, never to a second blind call.

    apply   make the change, or find that it was made
    lookup  check whether the change was made, without making it
    undo    revert the change, but only while the state is still as `apply` left it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from streams.model.run import Target
from streams.model.signal import Attribute

Result = Mapping[str, Attribute]
"""What a connector reports of a change and what `undo` needs, e.g. the prior state. Small, no secrets."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One outward change.

    `key` is the idempotency key and is written on the changed object wherever that is possible. `params` come from the
    runbook's step; `context` describes the incident for messages and connectors (title, reason, link, runbook, run).
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
    """The change was made by this call (for `undo`: was reverted).

    `check_after_s`: the system has only taken it and makes it later. `lookup`, so many seconds from now and with this result as
    `prior`, says whether it came to be; 0 where that is not needed, or where nobody can say.
    """

    result: Result = field(default_factory=dict)
    detail: str = ""
    check_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The change was there already, and it is ours (for `undo`: there is nothing left to revert)."""

    result: Result = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """Only from `lookup`: the change was certainly not made."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A long change in progress (a drain, a suspend): call `apply` again after `after_s`. `result` is kept as `prior`.

    Also from `lookup`, and from `undo`, which is then called again.

    `queued`: it waits for its turn in a queue that others run, which may take hours and is no failure: the step's deadline counts
    from when that is over.
    """

    after_s: float
    detail: str
    result: Result = field(default_factory=dict)
    queued: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """The change was certainly not made, and the same call may succeed after `after_s` seconds.

    `asked`: the system asked for this pause, as by a 429. It is meant for every call, not for this one alone.
    """

    after_s: float
    reason: str
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may or may not have happened (a timeout, a cut connection): look it up before anything else.

    `withheld`: we stopped the call ourselves, so a change that was never made does not count as a failure.
    """

    reason: str
    after_s: float = 1.0
    withheld: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The change was not made, and a retry cannot help: bad request, no permission, a failed guard.

    `moot`: the target is gone or has completed, so nothing is left to do.
    """

    reason: str
    moot: bool = False


@dataclass(frozen=True, slots=True)
class Blocked:
    """The change was not made because something or someone prevents it (a PodDisruptionBudget, a cordon by someone else)."""

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
    """Checked right before a call leaves the process: may this process still start it?"""

    def check(self) -> None:
        """Return when the call may start.

        Raises:
            Fenced: when the lease has expired, also in a process that was frozen meanwhile.
        """


@runtime_checkable
class Connector(Protocol):
    """Adapter that executes one or more actions against one external system."""

    @property
    def actions(self) -> frozenset[str]:
        """The actions it knows, e.g. `cordon_node`."""

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Make the change, or find that it was made before.

        Calls `lease.check()` right before *every* request that changes something.
        """

    async def lookup(self, effect: Effect) -> Outcome:
        """Find out whether the change is there. Changes nothing, and needs no `prior`.

        Returns `AlreadyDone`, `Absent`, `Waiting` for a long change in progress (continue with
        `apply`), or `Unknown`/`Retry` when the state cannot be determined now.
        """

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Revert the change under guard: `Blocked`, without any change, when the state is not the one `apply` made."""

    async def close(self) -> None:
        """Close connections."""


class NoLease:
    """A lease that always holds, for command line use and tests where no second owner can exist."""

    def check(self) -> None:
        """Always returns."""

"""What every lever does, so that a run's steps are the same for every kind of job."""

from __future__ import annotations

from typing import Protocol

from connectors.base import Effect, LeaseHeld, Outcome
from streams.job_kinds.kind import JobKind


class JobLever(Protocol):
    """Stops a job and starts it again elsewhere. Contract and outcomes as of `connectors.base.Connector`.

    All take the effect and the kind of its target; the job has been found to have this lever just before, but may have changed.
    """

    async def stop(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """For `suspend_job`: `Waiting` until its pods are gone, then `Done`."""

    async def start(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """For `resume_job`: only what this incident stopped; `Blocked` after a manual change in between."""

    async def find(self, effect: Effect, kind: JobKind) -> Outcome:
        """For `lookup` of either. Changes nothing."""

    async def take_back(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """For `undo` of `suspend_job`: start again what this very effect stopped."""

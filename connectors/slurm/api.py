"""What Slurm is asked to do, by whichever way: the commands of a host (`commands`) or slurmrestd (`rest`).

Reads raise `Temporary` or `Rejected`; what changes something raises the errors of `connectors.http.change`: `Ambiguous` where it
may have happened. Slurm has no version by which a change could be made conditional, so each decision is made on a fresh read, and
what is known of the state afterwards is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from connectors.base import LeaseHeld
from connectors.http import Rejected
from streams.model.slurm import Record

LONG_PAST = datetime(2000, 1, 1, tzinfo=UTC)
"""Before any job was submitted, in every time zone: `scontrol` reads times in that of its host."""


class Missing(Rejected):
    """Slurm knows no such node or job."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=404, body={})


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """What of a job is changed in one call; None leaves it as it is."""

    admin_comment: str | None = None
    excluded: Sequence[str] | None = None
    start_now: bool = False
    """Drop the time before which it may not start: Slurm makes a job wait for two minutes when it is put back into the queue.

    Sent as a time long past, which the controller takes for its own now: the clock of this host may differ from it.
    """


class SlurmApi(Protocol):
    """One cluster of Slurm. Names and numbers are those of Slurm; records are its JSON."""

    @property
    def can_requeue(self) -> bool:
        """Whether it has a way to put a running job back into the queue."""

    async def nodes(self) -> list[Record]:
        """Every node, in one call."""

    async def node(self, name: str) -> Record:
        """One node. Raises `Missing`."""

    async def jobs(self) -> list[Record]:
        """Every job that the controller still knows: pending, running and those that ended a short while ago."""

    async def job(self, number: int) -> Record:
        """One job. Raises `Missing`."""

    async def drain(self, node: str, reason: str, comment: str, lease: LeaseHeld) -> None:
        """Take a node out of service, with its reason and comment set in the same call. Its jobs go on."""

    async def resume(self, node: str, comment: str, lease: LeaseHeld) -> None:
        """Return a drained node to service; Slurm deletes its reason."""

    async def requeue_hold(self, job: int, lease: LeaseHeld) -> None:
        """End a running job's processes, and put it back into the queue, held."""

    async def hold(self, job: int, lease: LeaseHeld) -> None:
        """Hold a pending job."""

    async def release(self, job: int, lease: LeaseHeld) -> None:
        """Release a held job."""

    async def update_job(self, job: int, update: JobUpdate, lease: LeaseHeld) -> None:
        """Change a job in one call."""

    async def close(self) -> None:
        """Close connections."""

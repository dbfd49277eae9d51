"""Reads Slurm for the inventory, every few seconds: it has no watch. One call for all nodes and one for all jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime

import structlog

from connectors.slurm.api import SlurmApi
from streams.model.clock import Clock, utc_now
from streams.model.errors import Permanent, Temporary
from streams.model.facts import Fact
from streams.model.slurm import Record
from streams.model.watch import Emit, FactsListed, Watches

log = structlog.get_logger()

KIND = "slurm"

FactsOf = Callable[[Iterable[Record], Iterable[Record], datetime], tuple[Fact, ...]]
"""What nodes and jobs as Slurm tells of them mean, as of a time."""


class SlurmWatch:
    """`Watches` on Slurm. While it does not answer, what it told last stays as it is."""

    def __init__(
        self,
        api: SlurmApi,
        facts: FactsOf,
        *,
        every_s: float,
        clock: Clock = utc_now,
    ) -> None:
        self._api = api
        self._every_s = every_s
        self._facts = facts
        self._clock = clock
        self._answers = True

    @property
    def kinds(self) -> frozenset[str]:
        """One: all of it is told at once."""
        return frozenset({KIND})

    async def run(self, emit: Emit) -> None:
        """Emit all nodes and jobs, again and again, until cancelled."""
        while True:
            # Before the call: what is asked for later cannot be older than this.
            at = self._clock()
            try:
                nodes, jobs = await self._api.nodes(), await self._api.jobs()
            except (Temporary, Permanent) as error:
                if self._answers:
                    log.warning("Slurm cannot be read; what it told last stays as it is", reason=str(error))
                self._answers = False
            else:
                if not self._answers:
                    log.info("Slurm is read again")
                self._answers = True
                await emit(FactsListed(at, KIND, self._facts(nodes, jobs, at)))
            await asyncio.sleep(self._every_s)


class Together:
    """Several `Watches` as one."""

    def __init__(self, *watches: Watches) -> None:
        self._watches = watches

    @property
    def kinds(self) -> frozenset[str]:
        """Those of all."""
        return frozenset[str]().union(*(watch.kinds for watch in self._watches))

    async def run(self, emit: Emit) -> None:
        """Run all until cancelled, or until one fails."""
        async with asyncio.TaskGroup() as group:
            for watch in self._watches:
                group.create_task(watch.run(emit))

"""A pause that a sink asks for holds for all of it: for every partition, and for every kind of work."""

from __future__ import annotations

from datetime import datetime, timedelta

from connectors.base import Connector, Effect, LeaseHeld, Outcome, Retry
from streams.model.clock import Clock


class SinkPause:
    """Until when a sink is left alone, because it said so. Its partitions share one. Kept in memory only."""

    def __init__(self) -> None:
        self.until: datetime | None = None

    def asked(self, until: datetime) -> None:
        """It asked not to be called before then."""
        self.until = until if self.until is None else max(self.until, until)


class ListeningConnector:
    """A connector whose requests for a pause are heard.

    Not those of a look-up: reading has limits of its own, and no page may wait for them.
    """

    def __init__(self, connector: Connector, pause: SinkPause, clock: Clock) -> None:
        self._connector = connector
        self._pause = pause
        self._clock = clock

    @property
    def actions(self) -> frozenset[str]:
        """The actions that the connector knows."""
        return self._connector.actions

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """As the connector does."""
        outcome = await self._connector.apply(effect, lease)
        if isinstance(outcome, Retry) and outcome.asked:
            self._pause.asked(self._clock() + timedelta(seconds=outcome.after_s))
        return outcome

    async def lookup(self, effect: Effect) -> Outcome:
        """As the connector does."""
        return await self._connector.lookup(effect)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """As the connector does."""
        return await self._connector.undo(effect, lease)

    async def close(self) -> None:
        """As the connector does."""
        await self._connector.close()

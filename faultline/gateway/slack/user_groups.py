"""Which user groups of Slack a person is in, from one list of all groups that is read at most once a minute.

It fails closed: while the list cannot be read and the last one is too old, nobody is in any group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from faultline.gateway.slack.web_api import WebApi
from streams.model.clock import MonotonicClock, boot_seconds
from streams.model.errors import FaultlineError

log = structlog.get_logger(__name__)

FRESH_S = 60.0
"""How long a list counts: somebody who leaves a group may approve for this long."""

RETRY_S = 10.0
"""After a failure the list is not asked for again sooner, however many people press."""

MAX_GROUPS = 100
"""Groups of one person that a command carries."""


class UserGroups:
    """The groups of people. Many may ask at once: the list is read once for all of them."""

    def __init__(self, api: WebApi, clock: MonotonicClock = boot_seconds) -> None:
        self._api = api
        self._clock = clock
        self._members: Mapping[str, frozenset[str]] = {}
        self._read_at = float("-inf")
        self._failed_at = float("-inf")
        self._lock = asyncio.Lock()

    async def of(self, user: str) -> tuple[str, ...] | None:
        """The person's groups as a command names them (`slack:S0123ABC`); None while that cannot be said."""
        async with self._lock:
            await self._refresh()
        if self._clock() - self._read_at > FRESH_S:
            return None
        found = sorted(group for group, users in self._members.items() if user in users)
        return tuple(f"slack:{group}" for group in found[:MAX_GROUPS])

    async def _refresh(self) -> None:
        now = self._clock()
        if now - self._read_at <= FRESH_S or now - self._failed_at < RETRY_S:
            return
        try:
            self._members = await self._api.user_groups()
            self._read_at = self._clock()
        except FaultlineError as error:
            self._failed_at = self._clock()
            log.warning("user groups cannot be read", reason=str(error))

"""Kinds of jobs that the API server does not serve: said aloud, since nobody would miss jobs that were never seen.

A kind that somebody has set is warned of again and again until its CRD is there, and stands in the answer of `/ready`. Of the
kinds that are watched by default some are missing on most clusters; that is told once.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from streams.model.pulse import Pulse
from streams.model.watch import KindListed

log = structlog.get_logger()

REMIND_S = 600.0
"""How often a kind that is still missing is warned of."""


class Unserved:
    """Keeps which kinds are not served. `asked_for` are those that the settings name."""

    def __init__(self, asked_for: Collection[str], pulse: Pulse) -> None:
        self._asked_for = frozenset(asked_for)
        self._pulse = pulse
        self._kinds: set[str] = set()
        self._told: set[str] = set()
        self._warned_at: float | None = None

    def heard(self, listed: KindListed) -> None:
        """Take in what the server says of a kind."""
        if listed.served and listed.kind in self._kinds:
            log.info("a kind of jobs is served now, and watched", kind=listed.kind)
        (self._kinds.discard if listed.served else self._kinds.add)(listed.kind)
        self._told &= self._kinds
        self._pulse.state("kinds_not_served", sorted(self._kinds))

    def remind(self, now: float) -> None:
        """Say what is missing, if it is time. `now` is in seconds of any clock."""
        fresh = self._kinds - self._told
        self._told |= fresh
        if others := sorted(fresh - self._asked_for):
            log.info(
                "kinds of jobs that are not installed here are looked for again every minute", kinds=others
            )
        missing = sorted(self._kinds & self._asked_for)
        due = self._warned_at is None or now - self._warned_at >= REMIND_S
        if missing and (due or fresh & self._asked_for):
            self._warned_at = now
            log.warning(
                "the API server does not serve kinds of inventory.job_kinds: jobs of them are not known and never moved; "
                "is their CRD installed, and are group, version and kind right?",
                kinds=missing,
            )

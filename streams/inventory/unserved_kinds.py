"""Job kinds that the API server does not serve: logged, because jobs that were never seen would not be missed.

A kind named in the settings is warned of repeatedly until its CRD is installed, and is listed by `/ready`. Of the kinds watched
by default some are missing on most clusters; that is logged once.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from streams.model.pulse import Pulse
from streams.model.watch import KindListed

log = structlog.get_logger()

REMIND_S = 600.0
"""How often a kind that is still missing is logged again."""


class Unserved:
    """The kinds that are not served now. `asked_for` are those that the settings name."""

    def __init__(self, asked_for: Collection[str], pulse: Pulse) -> None:
        self._asked_for = frozenset(asked_for)
        self._pulse = pulse
        self._kinds: set[str] = set()
        self._reported: set[str] = set()
        self._warned_at: float | None = None

    def update(self, listed: KindListed) -> None:
        """Note whether the server serves a kind."""
        if listed.served and listed.kind in self._kinds:
            log.info("job kind now available, watching it", kind=listed.kind)
        (self._kinds.discard if listed.served else self._kinds.add)(listed.kind)
        self._reported &= self._kinds
        self._pulse.state("kinds_not_served", sorted(self._kinds))

    def remind(self, now: float) -> None:
        """Log what is missing, if it is time. `now` is in seconds of any clock."""
        fresh = self._kinds - self._reported
        self._reported |= fresh
        if others := sorted(fresh - self._asked_for):
            log.info("job kinds not installed here, checked again every minute", kinds=others)
        missing = sorted(self._kinds & self._asked_for)
        due = self._warned_at is None or now - self._warned_at >= REMIND_S
        if missing and (due or fresh & self._asked_for):
            self._warned_at = now
            log.warning(
                "the API server does not serve job kinds of inventory.job_kinds; such jobs are not tracked or rescheduled: "
                "check CRD, group, version and kind",
                kinds=missing,
            )

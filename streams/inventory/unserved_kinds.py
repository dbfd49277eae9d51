"""Job kinds that cannot be watched: logged, because jobs that were never seen would not be missed.

Either the API server does not serve the kind (its CRD is not installed), or we may not list it. A kind named in the settings is
warned of repeatedly until that is mended, and is listed by `/ready`. Of the kinds watched by default most are missing on any
cluster; that is logged once.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from streams.job_kinds.rights import how_to_permit
from streams.model.pulse import Pulse
from streams.model.watch import KindListed

log = structlog.get_logger()

REMIND_S = 600.0
"""How often a kind that is still missing is logged again."""

NOT_INSTALLED = "job kinds not installed here, checked again every minute"
NOT_PERMITTED = "jobs of this kind are not watched: not permitted, checked again every minute"


class Unserved:
    """The kinds that cannot be watched now. `asked_for` are those that the settings name."""

    def __init__(self, asked_for: Collection[str], pulse: Pulse) -> None:
        self._asked_for = frozenset(asked_for)
        self._pulse = pulse
        self._missing: set[str] = set()
        self._forbidden: set[str] = set()
        self._reported: set[str] = set()
        self._warned_at: float | None = None

    def update(self, listed: KindListed) -> None:
        """Note whether the server serves a kind, and lets us list it."""
        kind = listed.kind
        fine = listed.served and listed.permitted
        if fine and kind in self._missing | self._forbidden:
            log.info("job kind now available, watching it", kind=kind)
        if (not listed.served and kind in self._forbidden) or (
            not listed.permitted and kind in self._missing
        ):
            self._reported.discard(kind)  # it is something else that is missing now
        (self._missing.discard if listed.served else self._missing.add)(kind)
        (self._forbidden.discard if listed.permitted else self._forbidden.add)(kind)
        self._reported &= self._missing | self._forbidden
        self._pulse.state("kinds_not_served", sorted(self._missing & self._asked_for))
        self._pulse.state("kinds_not_permitted", sorted(self._forbidden & self._asked_for))

    def remind(self, now: float) -> None:
        """Log what is missing, if it is time. `now` is in seconds of any clock."""
        fresh = (self._missing | self._forbidden) - self._reported
        self._reported |= fresh
        if others := sorted((fresh & self._missing) - self._asked_for):
            log.info(NOT_INSTALLED, kinds=others)
        for kind in sorted((fresh & self._forbidden) - self._asked_for):
            log.info(NOT_PERMITTED, kind=kind, remedy=how_to_permit(kind))
        asked = (self._missing | self._forbidden) & self._asked_for
        due = self._warned_at is None or now - self._warned_at >= REMIND_S
        if not asked or not (due or fresh & self._asked_for):
            return
        self._warned_at = now
        if missing := sorted(asked & self._missing):
            log.warning(
                "the API server does not serve job kinds of inventory.job_kinds; such jobs are not tracked or rescheduled: "
                "check CRD, group, version and kind",
                kinds=missing,
            )
        for kind in sorted(asked & self._forbidden):
            log.warning(NOT_PERMITTED, kind=kind, remedy=how_to_permit(kind))

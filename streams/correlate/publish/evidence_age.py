"""How new the evidence of an incident is, by the lines' own times, and whether that is news.

An incident that was opened on old lines (a shipper that reads a log again, a clock or time zone that is off) says so, and the
responder asks before it acts on it. What counts is when the newest line was written that makes the incident what it is: not when
the fault began, which a watchdog dates back, and not a later line that says less.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.policy.families import RECOVERY_ACTION, families, level
from streams.correlate.sightings import Sighting, order
from streams.model.incident import Incident

PROMPT = timedelta(minutes=1)
"""Evidence that is no older than this when its incident opens is prompt. Of what is not, newer evidence is news."""


def newest(h: Hypothesis) -> Sighting | None:
    """The newest line that an incident of this family and certainty rests on; None where it rests on silence."""
    return max(_bearing(h), key=order, default=None)


def _bearing(h: Hypothesis) -> list[Sighting]:
    firing = [s for s in h.causes or h.symptoms if s.firing]
    if h.facts.get("panic") is True:
        # A node that reboots is NotReady and reads its old panic again: how new the panic is counts.
        return [s for s in firing if s.text("subtype") == "kernel_panic"] or firing
    table = families()
    own = [s for s in firing if table.family_of(s) == h.family]
    sure = [s for s in own if level(table.certainty(s)) >= level(h.certainty)]
    # A 154 may be what makes it certain. Where a line is certain by itself, a later one about repairs alone says less.
    asked = [s for s in firing if s.code == RECOVERY_ACTION] if own else []
    return sure or [*own, *asked] or firing


def carry_forward(old: Incident, new: Incident) -> Incident:
    """The new revision with the newest evidence of both: evidence that was pruned since still counts."""
    if old.evident_at is None or (new.evident_at is not None and new.evident_at >= old.evident_at):
        return new
    return replace(new, evident_at=old.evident_at, evident_read_at=old.evident_read_at)


def renewed(old: Incident, new: Incident) -> bool:
    """Whether newer evidence came to an incident that was opened on old lines: it may be acted on now."""
    if old.evident_at is None or new.evident_at is None or old.opened_at - old.evident_at <= PROMPT:
        return False
    return new.evident_at - old.evident_at > PROMPT

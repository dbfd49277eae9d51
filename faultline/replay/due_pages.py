"""Which incidents would wake somebody by the paging policy, and which did. A replay has nobody who answers.

So a question of a guardrail stays open until the incident ends, and a person is paged when that lasts longer than the policy
waits: as many pages as there are when nobody approves in time, and never fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from faultline.notify.notice_documents import incident_of
from faultline.notify.paging import paging
from faultline.notify.situations import Situation, Standing
from streams.model.incident import Incident, IncidentState
from streams.model.node_notice import opens_in
from streams.model.run import Mode, Run
from streams.model.signal import Severity
from streams.model.thread import ROOT, Thread

_SWITCHES = ("kill switch", "breaker")


class Judged(Protocol):
    """What a step was told by the guardrails."""

    @property
    def verdict(self) -> str:
        """`would`, `needs_approval` or `refused`."""

    @property
    def guardrail(self) -> str:
        """The guardrail that stopped it or asks."""


@dataclass(frozen=True, slots=True)
class Page:
    """Somebody is woken about an incident. `why` is the row of the paging policy."""

    at: datetime
    situation: str
    why: str
    severity: Severity = Severity.INFO


def due_page(
    incident: Incident,
    runs: Sequence[Run],
    steps: Sequence[Judged],
    mode: Mode | None,
    until: datetime,
    *,
    page_shadow: bool,
) -> Page | None:
    """The page that an incident would raise by `until`, were its runbooks in `mode` and nobody there to approve."""
    if incident.state is IncidentState.SUPPRESSED:
        return None
    standing = _standing(incident, runs, steps, mode)
    alive = replace(incident, state=IncidentState.OPEN) if incident.state.is_over else incident
    due = paging().due(alive, standing, shadow=page_shadow)
    end = (incident.closed_at or incident.updated_at) if incident.state.is_over else until
    if due is None or due > end:
        return None
    why = paging().row(alive, standing.situation).why
    return Page(due, standing.situation.value, why, incident.severity)


def _standing(
    incident: Incident, runs: Sequence[Run], steps: Sequence[Judged], mode: Mode | None
) -> Standing:
    told_at = max(incident.opened_at, opens_in(incident.facts) or incident.opened_at)
    if not runs:
        return Standing(Situation.UNATTENDED, told_at)
    if mode is Mode.SHADOW:
        return Standing(Situation.SHADOW, told_at)
    since = runs[-1].created_at
    if any(step.verdict == "needs_approval" for step in steps):
        return Standing(Situation.APPROVAL, since)
    if any(step.guardrail in _SWITCHES for step in steps):
        return Standing(Situation.HELD, since)
    return Standing(Situation.HANDLED, since)


def recorded_pages(notices: Iterable[Thread]) -> dict[str, Page]:
    """The first page that was sent about each incident, from the documents of the notifier."""
    found: dict[str, Page] = {}
    for document in sorted(notices, key=lambda one: (one.created_at, one.incident)):
        post = document.post(ROOT)
        if post is None or post.create.action != "page" or not post.stands:
            continue
        for incident in document.members or (incident_of(document.incident),):
            found.setdefault(incident, Page(document.created_at, document.channel, ""))
    return found


def grouped(pages: Iterable[tuple[str, Page]], window: timedelta) -> int:
    """How many pages those of some incidents are: what needs a person for the same cause within a window is one page.

    Args:
        pages: Each with its cluster.
        window: `notifier.sinks.NAME.group_window_s`.
    """
    count = 0
    open_ones: dict[tuple[str, str], Page] = {}
    for cluster, page in sorted(pages, key=lambda one: (one[1].at, -one[1].severity.rank, one[0])):
        lead = open_ones.get((cluster, page.situation))
        joins = lead is not None and page.at - lead.at < window and lead.severity.rank >= page.severity.rank
        if not joins:
            open_ones[cluster, page.situation] = page
            count += 1
    return count

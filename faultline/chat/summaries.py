"""Which incidents hang together, so that a rack going down is one thread and not forty. Pure; keeps what it was told in memory.

Two rules: incidents with the same shared part at their root, and five or more of one cluster that opened within a minute. The
nodes of one request for planned work share that request, and hang together by nothing else: a fault that opens meanwhile is none
of it. A drill's incident always has a thread of its own, which whoever plays the drill waits for, and never makes a summary of
the real ones beside it. A member stays one: the membership is in its thread document, and so is the id of the summary, which is
made from the first member.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from streams.model.digest import digest
from streams.model.drill import is_drill
from streams.model.entity import Entity
from streams.model.incident import Incident
from streams.model.kinds import IncidentFamily
from streams.model.planned_work import REQUEST

PREFIX = "sum-"
"""How ids of summaries begin; those of incidents begin with `inc-`."""
WINDOW = timedelta(minutes=1)
"""Incidents that opened within this time of each other may hang together."""
MANY = 5
"""So many within the window are one summary; fewer of them are read faster one by one."""
MANY_AT_ONE_PART = 2
LONGEST = timedelta(minutes=10)
"""A summary takes no member that opened later than this after its first: what goes on for hours is not one event."""

WORK = "work/"
"""How the shared part of planned work begins: the rest is the request."""

Place = tuple[str, str]
"""Cluster and channel: a summary never straddles channels."""


@dataclass(slots=True)
class Summary:
    """Incidents that share a thread. `members` are in the order in which they joined."""

    id: str
    cluster: str
    channel: str
    part: str = ""
    """The shared part at their roots; empty where only the time is shared."""
    first_at: datetime | None = None
    last_at: datetime | None = None
    members: dict[str, None] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    """Members that are not over: a part that breaks again next week is another event."""
    incarnation: int = 1
    """A summary happens once; its id is made from its first member."""

    def take(self, incident: Incident) -> None:
        """Add a member, or what became of it."""
        if incident.state.is_over:
            self.open.discard(incident.id)
        else:
            self.open.add(incident.id)
        if incident.id in self.members:
            return
        part = shared_part(incident)
        self.part = part if not self.members else self.part if part == self.part else ""
        self.members[incident.id] = None
        self.first_at = min(self.first_at or incident.opened_at, incident.opened_at)
        self.last_at = max(self.last_at or incident.opened_at, incident.opened_at)

    def fits(self, incident: Incident) -> bool:
        """Whether an incident belongs to it by its part, or because it opened while the others did."""
        part = shared_part(incident)
        if self.part and self.open and part == self.part:
            return True
        if WORK in (self.part[: len(WORK)], part[: len(WORK)]):
            return False
        if self.first_at is None or self.last_at is None or len(self.members) < MANY:
            return False
        until = min(self.last_at + WINDOW, self.first_at + LONGEST)
        return self.first_at - WINDOW <= incident.opened_at <= until


def shared_part(incident: Incident) -> str:
    """The key of a root that several nodes share, whatever port of it, or of the request for planned work on them; empty for any
    other."""
    if incident.family == IncidentFamily.PLANNED_WORK and (request := incident.facts.get(REQUEST)):
        return f"{WORK}{request}"
    root: Entity = incident.root
    match root.kind:
        case "port" | "switch":
            return f"switch/{root.switch}"
        case "rack" | "storage" | "part":
            return root.key
        case _:
            return ""


class Summaries:
    """The summaries of one partition, and the open incidents that belong to none."""

    def __init__(self) -> None:
        self.by_id: dict[str, Summary] = {}
        self._of: dict[str, str] = {}
        self._alone: defaultdict[Place, dict[str, Incident]] = defaultdict(dict)
        self._latest: defaultdict[Place, list[Summary]] = defaultdict(list)

    def remember(self, incident: Incident, summary: str, channel: str) -> None:
        """A membership that is already stored, and what became of the member."""
        place = (incident.cluster, channel)
        self._alone[place].pop(incident.id, None)
        self._join(incident, self._summary(summary, place))

    def join(self, incident: Incident, channel: str, *, told: bool) -> dict[str, str]:
        """What an incident changes: the summary of each incident that joins one now.

        `told`: it has a thread of its own already. Such a one counts for others, but nobody is summed up for its sake.
        """
        place = (incident.cluster, channel)
        alone = self._alone[place]
        if incident.state.is_over:
            alone.pop(incident.id, None)
            return {}
        if incident.id in self._of or is_drill(incident):
            return {}
        alone[incident.id] = incident
        if told:
            return {}
        fitting = next((one for one in reversed(self._latest[place]) if one.fits(incident)), None)
        joining = [incident] if fitting is not None else self._together(incident, alone.values())
        if not joining:
            return {}
        summary = fitting or self._summary(
            PREFIX + digest(incident.cluster, channel, joining[0].id, size=8), place
        )
        for one in joining:
            alone.pop(one.id, None)
            self._join(one, summary)
        return {one.id: summary.id for one in joining}

    def _together(self, incident: Incident, others: Iterable[Incident]) -> list[Incident]:
        """The incidents that hang together with this one, the first to open first; empty when they are too few."""
        part = shared_part(incident)
        others = list(others)
        if part:
            same = sorted((one for one in others if shared_part(one) == part), key=_opened)
            if len(same) >= MANY_AT_ONE_PART:
                return same
        if part.startswith(WORK):
            return []
        near = sorted(
            (
                one
                for one in others
                if abs(one.opened_at - incident.opened_at) <= WINDOW and not shared_part(one).startswith(WORK)
            ),
            key=_opened,
        )
        best: list[Incident] = []
        for start in near:
            window = [one for one in near if start.opened_at <= one.opened_at <= start.opened_at + WINDOW]
            if incident in window and len(window) > len(best):
                best = window
        return best if len(best) >= MANY else []

    def _join(self, incident: Incident, summary: Summary) -> None:
        self._of[incident.id] = summary.id
        summary.take(incident)

    def _summary(self, name: str, place: Place) -> Summary:
        if name not in self.by_id:
            self.by_id[name] = Summary(name, *place)
            self._latest[place] = [*self._latest[place][-9:], self.by_id[name]]
        return self.by_id[name]


def _opened(incident: Incident) -> tuple[datetime, str]:
    return incident.opened_at, incident.id

"""The rows of the lists: one of each incident, made again only when something about it has changed.

With a thousand open incidents and two hundred readers a list is asked for far more often than its rows change. So a follower of
the view marks the ids that changed, and the next list makes those rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from faultline.live_view.overview import Overview
from faultline.live_view.view import LiveView
from runbooks.engine.containment import CONTAINED, ticket_of
from streams.model.conversation import TimelineEntry
from streams.model.incident import Incident
from streams.model.message import plain
from streams.model.run import Run, StepState

MAX_TEXT = 400
"""Characters of one text in a row."""
MAX_NAMES = 200
"""Names of jobs and of nodes by which one incident is found."""

STATES = ("waiting", "open", CONTAINED, "over", "all")
"""What a list can be narrowed to. `waiting`: a person is asked, or it is a person's to go on."""


@dataclass(frozen=True, slots=True)
class Row:
    """An incident in a list. `rank` is 0 for open, 1 for contained, 2 for over; `asks`: a person is needed."""

    id: str
    cluster: str
    family: str
    title: str
    culprit: str
    state: str
    severity: str
    certainty: str
    waits_for: str
    asks: bool
    jobs: tuple[str, ...]
    nodes: int
    gpus: int
    gpu_hours: float
    opened_at: datetime
    closed_at: datetime | None
    rank: int
    ticket: str
    taken: str
    """Who has acknowledged it or taken it over, and which of the two; empty while nobody has."""
    found_by: str
    """Everything it is found by, in lower case."""

    @property
    def order(self) -> tuple[int, bool, float, str]:
        """Open before contained before over; of the open ones those that ask a person first; each the newest first."""
        return self.rank, not self.asks, -self.opened_at.timestamp(), self.id


@dataclass(frozen=True, slots=True)
class Choice:
    """What a list is narrowed to. An empty text, and the state `open`, narrow nothing beyond what is over."""

    cluster: str = ""
    family: str = ""
    state: str = "open"
    words: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a list, and the numbers around it."""

    rows: tuple[Row, ...]
    total: int
    page: int
    pages: int
    counts: dict[str, int]
    """Of the whole list by state, before it was narrowed."""
    families: tuple[str, ...]
    clusters: tuple[str, ...]
    gpus: int
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class Places:
    """The incidents of each node that is at fault or held cordoned, and the names of nodes that are affected."""

    at_fault: Mapping[str, Sequence[Row]]
    affected: frozenset[str]


class Board:
    """Rows of all incidents. Run `follow` beside it; a row is at most as old as the view's last change."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._rows: dict[str, Row] = {}
        self._changed: set[str] = set()
        self._sorted: list[Row] | None = None
        self._is_followed = False

    async def follow(self) -> NoReturn:
        """Mark what changes, until cancelled."""
        with self._view.changes() as changes:
            self.reload()
            self._is_followed = True
            try:
                while True:
                    changed = await changes.wait()
                    # Not in one expression: that would look the set up before the wait, and `rows` puts another in its place.
                    self._changed.update(changed)
            finally:
                self._is_followed = False

    def reload(self) -> None:
        """Make every row again: what changed before anybody followed is not known."""
        self._rows = {one.incident.id: self._row(one) for one in self._view.overviews(everything=True)}
        self._sorted = None

    def rows(self) -> Sequence[Row]:
        """All rows, in the order of the list. While nobody follows, each is made anew."""
        if not self._is_followed:
            self.reload()
        changed, self._changed = self._changed, set()
        for name in changed:
            self._sorted = None
            one = self._view.overview(name)
            if one is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = self._row(one)
        if self._sorted is None:
            self._sorted = sorted(self._rows.values(), key=lambda row: row.order)
        return self._sorted

    def _row(self, one: Overview) -> Row:
        return _row(one, taken_by(self._view.timeline(one.incident.id)))

    def listing(self, choice: Choice, page_size: int) -> Listing:
        """The page of a list that a reader chose; the last page where they ask for a later one."""
        rows = self.rows()
        live = [row for row in rows if row.rank < 2]
        counts = {
            "waiting": sum(row.asks and row.rank == 0 for row in live),
            "open": sum(row.rank == 0 for row in live),
            CONTAINED: sum(row.rank == 1 for row in live),
            "over": len(rows) - len(live),
            "all": len(rows),
        }
        found = [row for row in rows if _is_chosen(row, choice)]
        pages = max(1, -(-len(found) // page_size))
        page = min(max(1, choice.page), pages)
        shown = found[(page - 1) * page_size : page * page_size]
        of_open = [row for row in live if row.rank == 0]
        return Listing(
            tuple(shown),
            len(found),
            page,
            pages,
            counts,
            tuple(sorted({row.family for row in rows})),
            tuple(sorted({row.cluster for row in rows})),
            sum(row.gpus for row in of_open),
            sum(row.gpu_hours for row in of_open),
        )

    def places(self, cluster: str) -> Places:
        """Where the open and contained incidents of a cluster are."""
        at_fault: dict[str, list[Row]] = {}
        affected: set[str] = set()
        for row in self.rows():
            if row.rank < 2 and row.cluster == cluster and (incident := self._view.incident(row.id)):
                affected.update(incident.nodes)
                if incident.root.node:
                    at_fault.setdefault(incident.root.node, []).append(row)
        for name, fact in self._view.nodes(cluster).items():
            for owner in fact.owners:
                row_of = self._rows.get(owner)
                if row_of is not None and row_of not in at_fault.get(name, ()):
                    at_fault.setdefault(name, []).append(row_of)
        return Places(at_fault, frozenset(affected))


def _is_chosen(row: Row, choice: Choice) -> bool:
    if choice.cluster and row.cluster != choice.cluster:
        return False
    if choice.family and row.family != choice.family:
        return False
    match choice.state:
        case "waiting":
            chosen = row.rank == 0 and row.asks
        case "open":
            chosen = row.rank < 2
        case "over":
            chosen = row.rank == 2
        case "all":
            chosen = True
        case other:
            chosen = row.state == other
    return chosen and all(word in row.found_by for word in choice.words.lower().split())


def _row(one: Overview, taken: str) -> Row:
    incident = one.incident
    impact = incident.impact
    ticket = ticket_of(one.runs)
    waits = plain(one.waits_for, MAX_TEXT)
    return Row(
        id=incident.id,
        cluster=incident.cluster,
        family=incident.family,
        title=plain(incident.title, MAX_TEXT),
        culprit=plain(str(incident.root), MAX_TEXT),
        state=one.standing,
        severity=incident.severity.value,
        certainty=incident.certainty.value,
        waits_for=waits,
        asks=not incident.state.is_over and (waits.startswith("manual action") or any(map(_asks, one.runs))),
        jobs=tuple(plain(str(job), MAX_TEXT) for job in incident.jobs[:MAX_NAMES]),
        nodes=len(incident.nodes),
        gpus=sum(repair.gpus for repair in one.repairs) if incident.state.is_over else impact.gpus,
        gpu_hours=0.0 if incident.state.is_over else impact.gpu_hours_per_hour,
        opened_at=incident.opened_at,
        closed_at=incident.closed_at,
        rank=one.rank,
        ticket=plain(ticket.key, 60) if ticket else "",
        taken=taken,
        found_by=" ".join(_words(incident, ticket.key if ticket else "")).lower(),
    )


def taken_by(timeline: Sequence[TimelineEntry]) -> str:
    """Who has acknowledged an incident or taken it over last, as its timeline tells; empty where nobody has."""
    words = {"person.ack": "acknowledged by", "person.hand_over": "taken over by"}
    last = next((entry for entry in reversed(timeline) if entry.event in words), None)
    return f"{words[last.event]} {plain(last.actor, 200)}" if last is not None else ""


def _asks(run: Run) -> bool:
    return not run.state.is_over and any(step.state is StepState.AWAITING_APPROVAL for step in run.steps)


def _words(incident: Incident, ticket: str) -> Iterator[str]:
    yield from (incident.id, incident.cluster, incident.family, incident.family.replace("_", " "), ticket)
    yield from (plain(incident.title, MAX_TEXT), plain(str(incident.root), MAX_TEXT))
    yield from (plain(str(job), 200) for job in incident.jobs[:MAX_NAMES])
    yield from list(_nodes(incident))[:MAX_NAMES]
    xid = incident.facts.get("xid")
    yield f"xid {xid} xid-{xid}" if xid is not None else ""


def _nodes(incident: Incident) -> Iterator[str]:
    if incident.root.node:
        yield plain(incident.root.node, 253)
    yield from (plain(node, 253) for node in incident.nodes)

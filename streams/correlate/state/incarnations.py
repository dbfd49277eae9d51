"""Incident lifecycle: splits the evidence of one root into incarnations (occurrences), and derives the state from runs.

Both depend on the evidence and its times only, never on the order in which it was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypedDict

from streams.correlate.policy.families import families
from streams.correlate.policy.policy import policy
from streams.correlate.same_observation import without_echoes
from streams.correlate.sightings import Sighting, latest_end
from streams.correlate.state.place import ADDRESS_POOL, PODS, RESOLVER
from streams.correlate.state.rows import BaseRow
from streams.correlate.state.store import State
from streams.model.entity import Entity, Part
from streams.model.incident import IncidentState, incident_id
from streams.model.kinds import IncidentFamily, SignalKind


class SessionTimes(TypedDict):
    """What a hypothesis takes from a session."""

    incarnation: int
    fault_at: datetime
    last_at: datetime
    cleared_at: datetime | None
    flaps: int


@dataclass(frozen=True, slots=True)
class Session:
    """The evidence of one incarnation. `cleared_at` is None while something in it is still wrong."""

    incarnation: int
    start: datetime
    last: datetime
    cleared_at: datetime | None
    flaps: int
    sightings: tuple[Sighting, ...]

    def times(self, *last: datetime) -> SessionTimes:
        """For a hypothesis; `last` are times of evidence besides its sightings."""
        return {
            "incarnation": self.incarnation,
            "fault_at": self.start,
            "last_at": max([self.last, *last]),
            "cleared_at": self.cleared_at,
            "flaps": self.flaps,
        }


@dataclass(frozen=True, slots=True)
class FiringInterval:
    """One interval of a fault in a stream of sightings: from when it began until it was cleared."""

    start: datetime
    last: datetime
    end: datetime | None
    sightings: tuple[Sighting, ...]


@dataclass(frozen=True, slots=True)
class RunView:
    """The state of an incident as its runs report it."""

    state: IncidentState | None = None
    closed_at: datetime | None = None
    reason: str = ""


_ORDER: dict[str, int] = {
    SignalKind.RUN_STARTED: 0,
    SignalKind.RUN_AWAITING_APPROVAL: 1,
    SignalKind.RUN_VERIFYING: 2,
    SignalKind.RUN_FINISHED: 3,
    SignalKind.RUN_RESOLVED: 4,
}
_STATES: dict[str, IncidentState] = {
    SignalKind.RUN_STARTED: IncidentState.MITIGATING,
    SignalKind.RUN_AWAITING_APPROVAL: IncidentState.AWAITING_HUMAN,
    SignalKind.RUN_VERIFYING: IncidentState.VERIFYING,
}


_AFTER = {"shadowed": None, "escalated": IncidentState.MITIGATING}
"""The state after a run without success where no operator is needed yet: the next escalation step continues."""

MISMATCHES_FROM = 1000
"""Incarnations of a mismatched collective begin here: they are counted with the hangs, and no two may share an id."""


def closes(event: Sighting) -> bool:
    """Whether an event of a run or an operator resolves its incident."""
    return event.kind == SignalKind.RUN_RESOLVED or (
        event.kind == SignalKind.RUN_FINISHED and event.text("outcome") == "succeeded"
    )


class Incarnations:
    """When incarnations were resolved, and how many there were, from the rows."""

    def __init__(self, state: State, linger: timedelta, flap_quiet: timedelta) -> None:
        self._state = state
        self._linger = linger
        self._flap_quiet = flap_quiet

    def runs(self, incident: str) -> RunView:
        """The state of an incident by its runs and operators. The first event that resolves it counts, none after it."""
        row = self._state.runs.get(incident)
        view = RunView()
        for event in sorted(row.events if row else (), key=lambda e: (e.at, _ORDER.get(e.kind, 9), e.id)):
            reason = event.text("reason")
            outcome = event.text("outcome")
            if closes(event):
                return RunView(IncidentState.RESOLVED, event.at, reason)
            if event.kind == SignalKind.RUN_FINISHED:
                view = RunView(_AFTER.get(outcome or "", IncidentState.AWAITING_HUMAN), None, reason)
            elif event.kind in _STATES:
                view = RunView(_STATES[event.kind], None, reason)
        return view

    def closed(self, incidents: Iterable[str]) -> dict[str, datetime]:
        """When runs or operators resolved these incidents, by id; unresolved ones are left out."""
        if not self._state.runs:
            return {}
        return {name: at for name in incidents if (at := self.runs(name).closed_at) is not None}

    def base(self, root: Entity, domain: str) -> BaseRow | None:
        """The incarnations of a root that are forgotten."""
        return self._state.bases.get(f"{root.key}|{domain}")

    def forgotten(self, root: Entity) -> dict[str, BaseRow]:
        """The incarnations of a root that are forgotten, by domain."""
        if not self._state.bases:
            return {}
        known = {domain: self.base(root, domain) for domain in families().domains}
        return {domain: base for domain, base in known.items() if base is not None}

    def forget(self, root: Entity, family: str, incarnation: int, until: datetime) -> None:
        """Record that incarnations up to this one are over and their evidence is dropped."""
        root, domain, incarnation = _counted(root, family, incarnation)
        before = self.base(root, domain)
        if before is not None:
            incarnation, until = max(before.count, incarnation), max(before.until, until)
        self._state.bases.put(f"{root.key}|{domain}", BaseRow(incarnation, until))

    @property
    def has_closings(self) -> bool:
        """Whether any run or operator reported on any incident."""
        return bool(self._state.runs)

    def closing(self, root: Entity, domain: str, incarnation: int) -> datetime | None:
        """When a run or an operator resolved this incarnation, under any family of the domain."""
        if not self._state.runs:
            return None
        ids = (incident_id(root.cluster, root, name, incarnation) for name in families().in_domain(domain))
        times = [view.closed_at for name in ids if (view := self.runs(name)).closed_at is not None]
        return min((t for t in times if t), default=None)

    def next_number(self, names: Sequence[Entity], domain: str, after: int, at: datetime) -> int:
        """The number of an incarnation that begins at that time: the next one that was not resolved before then.

        The evidence of a number that was resolved before is gone; new evidence does not continue it.
        """
        number = after + 1
        while any(
            (end := self.closing(name, domain, number)) is not None and at > end + self._linger
            for name in names
        ):
            number += 1
        return number

    def sessions(
        self,
        root: Entity,
        domain: str,
        firing_intervals: Iterable[FiringInterval],
        names: Sequence[Entity] = (),
        again: timedelta | None = None,
        meant: Callable[[datetime], bool] = lambda _: False,
        cuts: Sequence[datetime] = (),
        back: Callable[[Session, FiringInterval], timedelta | None] = lambda _session, _interval: None,
    ) -> list[Session]:
        """Intervals of one place put together into incarnations. `names` are the roots it may be published under, if not `root`.

        An interval that begins while the last incarnation is open, or within the linger after its end, is part of it (a flap, if
        it had ended; after a flap the linger is longer). Once a run or an operator has resolved it, anything later than the
        linger is a new one. A place that ends and begins again by itself a third time is flapping: it stays the same incarnation
        from then on. With `again` that holds from the second time on, if it begins so soon after the end. `meant` tells whether
        somebody meant what began at a time: that continues nothing that nobody meant, and the other way round. Nothing that
        begins after one of `cuts` continues what began before. `back` tells how long an incarnation may have been over where an
        interval is the same fault again.
        """
        base = self.base(root, domain)
        count = base.count if base else 0
        names = names or (root,)
        found: dict[bool, list[Session]] = {False: [], True: []}
        for interval, is_meant in sorted(
            ((m, meant(s.start)) for s in firing_intervals for m in _moments(s)),
            key=lambda pair: (pair[0].start, pair[0].last),
        ):
            if base and interval.last <= base.until + self._linger:
                continue
            sessions = found[is_meant]
            current = sessions[-1] if sessions else None
            is_cut = current is not None and any(current.start <= cut < interval.start for cut in cuts)
            if (
                is_cut
                or current is None
                or (
                    self._is_over(current, names, domain, interval.start, again)
                    and not self._flaps(sessions, names, domain, interval.start)
                    and self._is_over(
                        current, names, domain, interval.start, back(current, interval) or again
                    )
                )
            ):
                count = self.next_number(names, domain, count, interval.start)
                sessions.append(
                    Session(count, interval.start, interval.last, interval.end, 0, interval.sightings)
                )
            else:
                sessions[-1] = _joined(current, interval)
        return sorted((*found[False], *found[True]), key=lambda s: s.incarnation)

    def _is_over(
        self, session: Session, names: Sequence[Entity], domain: str, at: datetime, again: timedelta | None
    ) -> bool:
        quiet = again or (self._flap_quiet if session.flaps else self._linger)
        if session.cleared_at is not None and at > session.cleared_at + quiet:
            return True
        closed = (self.closing(name, domain, session.incarnation) for name in names)
        return any(end is not None and at > end + self._linger for end in closed)

    def _flaps(self, sessions: Sequence[Session], names: Sequence[Entity], domain: str, at: datetime) -> bool:
        if len(sessions) < 2:
            return False
        before, current = sessions[-2:]
        window = timedelta(seconds=policy().flapping_s)
        return (
            before.cleared_at is not None
            and current.cleared_at is not None
            and current.start - before.cleared_at <= window
            and at - current.cleared_at <= window
            and all(
                # What flapped before it was resolved is no new fault because of that.
                (end := self.closing(name, domain, current.incarnation)) is None or at <= end
                for name in names
            )
        )


_TARGET = re.compile(r"(?P<system>[\w.]{1,64})-(?:OST|MDT|MGT|MGS)[0-9a-fA-F]{0,4}\b")


def storage_root(name: str) -> str:
    """The file system that a target is part of (Lustre: `lfs1-OST0001` of `lfs1`, `osd3` of Ceph); of a server, itself."""
    if (part := _TARGET.match(name)) is not None:
        return part["system"]
    return "ceph" if re.fullmatch(r"(?:osd|mds|mon)\d{1,6}", name) else name


def _counted(root: Entity, family: str, incarnation: int) -> tuple[Entity, str, int]:
    """Under which root, domain and number an incident is counted, where that is not its own."""
    of_node = family in (IncidentFamily.PFC_STORM, IncidentFamily.SILENT_NODE)
    if root.node and (of_node or families()[family].found_on == "node"):
        root = Entity(root.cluster, node=root.node)
    if root.storage:
        root = Entity(root.cluster, storage=storage_root(root.storage))
    if family == IncidentFamily.NODES_NOT_READY and root.node:
        root = Entity(root.cluster)  # the node of the control plane that is why
    if root.part is not None and root.part.kind == RESOLVER:
        root = Entity(root.cluster)
    if root.part is not None and root.part.kind == ADDRESS_POOL:
        root = Entity(root.cluster, part=Part(ADDRESS_POOL, PODS))  # its name may be known later
    if incarnation >= MISMATCHES_FROM:
        return root, IncidentFamily.HANG, incarnation - MISMATCHES_FROM
    return root, families()[family].domain, incarnation


def _moments(interval: FiringInterval) -> Iterable[FiringInterval]:
    """An interval as one interval for each sighting: a run or an operator may resolve an incarnation in the middle of it."""
    return (FiringInterval(s.at, s.at, interval.end, (s,)) for s in interval.sightings)


def _joined(session: Session, interval: FiringInterval) -> Session:
    flapped = session.cleared_at is not None and interval.start > session.cleared_at
    return replace(
        session,
        last=max(session.last, interval.last),
        cleared_at=latest_end((session.cleared_at, interval.end)),
        flaps=session.flaps + flapped,
        sightings=(*session.sightings, *interval.sightings),
    )


def firing_intervals(stream: Iterable[Sighting]) -> list[FiringInterval]:
    """Cut one stream of firing and cleared sightings into intervals.

    A clear ends the interval before it; firing again while it lasts only prolongs it.
    """
    found: list[FiringInterval] = []
    for s in without_echoes(sorted(stream, key=lambda s: (s.at, not s.firing, s.id))):
        open_ = found[-1] if found and found[-1].end is None else None
        if s.firing and open_ is None:
            found.append(FiringInterval(s.at, s.at, None, (s,)))
        elif s.firing and open_ is not None:
            found[-1] = replace(open_, last=s.at, sightings=(*open_.sightings, s))
        elif open_ is not None:
            found[-1] = replace(open_, end=s.at)
    return found

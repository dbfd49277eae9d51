"""Compares hypotheses with the incidents published last, and publishes a new revision only of what changed.

A revision is the whole document; an incident that lost its evidence is merged into the one that explains it now, or withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import TypeVar

from streams.correlate.changes import Changes, timeline_entry
from streams.correlate.hypothesis import FELT_ONLY, Hypothesis
from streams.correlate.policy.config import Config
from streams.correlate.publish.affected_jobs import AffectedJobs
from streams.correlate.publish.evidence_age import carry_forward, renewed
from streams.correlate.publish.fate import Fate
from streams.correlate.publish.incident_document import (
    Documents,
    comparable,
    only_grows,
    says_more,
)
from streams.correlate.publish.incident_state import IncidentStates, settled
from streams.correlate.publish.known_for import is_old_news, known_for
from streams.correlate.publish.other_workloads import KeptFromStarting, beside
from streams.correlate.publish.spot_capacity import SpotCapacity
from streams.correlate.publish.unknown_errors import carried, unknown_errors
from streams.correlate.sightings import Sighting
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.place import Place, PlaceKind
from streams.correlate.state.placement import Placements
from streams.correlate.state.repeat_faults import (
    FIRST_GPU,
    FIRST_NODES,
    RepeatFaults,
    first_names,
    host_of_first,
    names_of,
    untold_fault,
)
from streams.correlate.state.rows import DocumentRow, PastFault
from streams.correlate.state.store import State
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.kinds import IncidentFamily, SignalKind

Successor = Callable[[DocumentRow], Hypothesis | None]
IsExpired = Callable[[DocumentRow, datetime], bool]
"""Whether everything that an incident is built from is forgotten, if all is that is older than a time."""
K = TypeVar("K")
Claims = Mapping[str, Mapping[str, Sequence[Sighting]]]
ClaimsOf = Callable[[Collection[str]], Claims]


class Publisher:
    """The published incidents, indexed by place, job and faulty entity."""

    def __init__(
        self,
        state: State,
        placements: Placements,
        incarnations: Incarnations,
        config: Config,
        candidates: Callable[[str, datetime], Sequence[str]],
        pods_failing_on: Callable[[str], set[str]],
    ) -> None:
        self.kept_from_starting: KeptFromStarting = lambda _, shown: shown
        """Whoever knows of workloads that are no training jobs sets it."""
        self._state = state
        self._placements = placements
        self._incarnations = incarnations
        self._config = config
        self._states = IncidentStates(state, incarnations, config, candidates)
        self._affected = AffectedJobs(state, placements, self._states, config, pods_failing_on)
        self._spot = SpotCapacity(state, placements)
        self._by_place: dict[Place, set[str]] = {}
        self._by_job: dict[str, set[str]] = {}
        self._by_entity: dict[str, set[str]] = {}
        self._written = Documents()
        self._repeats = RepeatFaults(state)
        self.first_hosts: set[str] = set()
        """Hosts whose history of jobs that failed first on them has changed; whoever reads it, empties it."""
        for name, row in state.documents.items():
            self._index(name, row)

    def open_jobs(self) -> set[str]:
        """Keys of jobs that any kept incident mentions."""
        return set(self._by_job)

    def places_that_mention(self, jobs: Iterable[str]) -> set[Place]:
        """The places of incidents that mention any of these jobs."""
        names = set[str]().union(*(self._by_job.get(job, ()) for job in jobs))
        return {self._state.documents[n].place for n in names if n in self._state.documents}

    def waiting_for_progress(self, jobs: Iterable[str]) -> set[str]:
        """Of the jobs that made progress, those with an incident of their own, which progress may end."""
        return {job for job in jobs if self._by_place.get(Place(PlaceKind.JOB, job))}

    def publish(
        self,
        by_place: Mapping[Place, list[Hypothesis]],
        claims_of: ClaimsOf,
        successor: Successor,
        now: datetime,
    ) -> tuple[Changes, list[tuple[datetime, Place]]]:
        """Update the incidents of these places. Returns what to publish, and when to evaluate which place again.

        `claims_of` returns the symptoms that roots explain, by the root's incident and by job.
        """
        claims = claims_of({h.id for found in by_place.values() for h in found})
        changes = Changes()
        wakes: list[tuple[datetime, Place]] = []
        self._recounted: set[str] = set()
        for place in sorted(by_place):
            for h in sorted(by_place[place], key=lambda h: h.id):
                if (fate := self.fate_of(place, h, claims.get(h.id, {}), now)) is not Fate.TOLD:
                    wakes += [
                        (at, place) for at in self._again_at(h, fate, claims.get(h.id, {}), now) if at > now
                    ]
                    continue
                amended, later = self._amend(place, h, claims.get(h.id, {}), now)
                changes += amended
                wakes += later
                wakes += [(at, place) for at in self._states.ends(h) if at > now]
        for place in sorted(by_place):
            untold = [h for h in by_place[place] if not _is_incident(h, claims.get(h.id, {}))]
            if place.kind is PlaceKind.JOB:
                firsts = _firsts(place.name, untold)
                self._changed(self._repeats.record_untold(place.name, firsts, now - self._config.retention))
            kept = {h.id for h in by_place[place]} - {h.id for h in untold}
            for name in sorted(self._by_place.get(place, set()) - kept):
                gone, wake = self._give_up(name, successor, claims_of, now)
                changes += gone
                wakes += wake
        changes = self._told_first(changes, now)
        return changes + self._recount(now), wakes

    def fate_of(
        self, place: Place, h: Hypothesis, claims: Mapping[str, Sequence[Sighting]], now: datetime
    ) -> Fate:
        """Whether a root of a place is an incident by now, else why not. `claims` are the symptoms it explains, by job."""
        if not _is_incident(h, claims):
            return Fate.UNFELT
        if h.id not in self._state.documents:
            if h.ready_at > now:
                return Fate.WAITS
            if is_old_news(h, chain.from_iterable(claims.values()), now, self._config):
                return Fate.OLD_NEWS
            if _may_be_brief(h, claims, now):
                return Fate.BRIEF
            if self._is_untold(place, h, claims, now):
                return Fate.EXPECTED
        return Fate.TOLD

    def expected_by(self, h: Hypothesis, now: datetime) -> str:
        """Whose work on its node or nodes explains a root of which nobody is told; empty where none does."""
        return self._states.expected_by(h, bool(self._affected.hit(h, now)), now)

    def _again_at(
        self, h: Hypothesis, fate: Fate, claims: Mapping[str, Sequence[Sighting]], now: datetime
    ) -> list[datetime]:
        """When a root that is no incident yet may become one by itself."""
        match fate:
            case Fate.WAITS:
                return [h.ready_at]
            case Fate.BRIEF:
                return [at for at in (h.brief_until, h.sure_at) if at is not None]
            case Fate.EXPECTED:
                until = self._spot.gathers_until(h, {*claims, *self._affected.hit(h, now)})
                return [*self._states.ends(h), *([until] if until is not None else [])]
        return []

    def _is_untold(
        self, place: Place, h: Hypothesis, claims: Mapping[str, Sequence[Sighting]], now: datetime
    ) -> bool:
        """Whether no incident is opened for what somebody's work on a node does to it, or a cloud that takes back a spot node.

        Where another incident of the place is known already, what it turns into is told.
        """
        known = (self._state.documents[name].incident.state for name in self._by_place.get(place, ()))
        if any(not state.is_over and state is not IncidentState.SUPPRESSED for state in known):
            return False
        jobs = self._affected.hit(h, now)
        return self._states.is_untold(h, bool(claims or jobs), now) or self._spot.needs_nobody(
            h, claims, jobs, now
        )

    def _told_first(self, changes: Changes, now: datetime) -> Changes:
        """The changes with each root opened when the first incident that it explains was: from then on it was known."""
        incidents = list(changes.incidents)
        for incident in changes.incidents:
            root = self._state.documents.get(incident.merged_into or "")
            if root is None or not root.incident.fault_at <= incident.opened_at < root.incident.opened_at:
                continue
            new = replace(root.incident, opened_at=incident.opened_at)
            if root.incident in incidents:
                incidents[incidents.index(root.incident)] = new
            else:
                new = replace(new, revision=new.revision + 1, updated_at=now)
                incidents.append(new)
            self._state.documents.put(new.id, replace(root, incident=new))
        return replace(changes, incidents=tuple(incidents))

    def prune(
        self, now: datetime, is_expired: IsExpired, beside: Mapping[str, set[Place]]
    ) -> list[DocumentRow]:
        """Forget incidents that are over for longer than the retention; their incarnations stay counted. Returns them.

        Those that share a place or a job are forgotten together: without one of them, what it explained would look like
        a fault of its own to the others. So are an incident and those of the other places that it is built from
        (`beside`, by incident), and of the jobs there: without that evidence, it would fall apart into its parts.
        """
        cut = now - self._config.retention
        documents = self._state.documents
        over = {
            name
            for name, row in documents.items()
            if row.incident.state.is_over
            and _last(row)
            < (
                since := now
                - known_for(row, self._incarnations.runs(name).closed_at is not None, self._config)
            )
            and is_expired(row, since)
        }
        ties = {name: _ties(row) | self._with_jobs(beside.get(name, ())) for name, row in documents.items()}
        held = set[Place]().union(*(places for name, places in ties.items() if name not in over))
        while kept := {name for name in over if not held.isdisjoint(ties[name])}:
            over -= kept
            held.update(*(ties[name] for name in kept))
        forgotten = [documents[name] for name in sorted(over)]
        self._repeats.prune(now)
        for row in forgotten:
            incident = row.incident
            if incident.state is IncidentState.RESOLVED:
                # Also what was withdrawn: the next fault there must not come under its id, with its revisions from the first.
                self._incarnations.forget(incident.root, incident.family, incident.incarnation, _last(row))
            documents.drop(incident.id)
            self._written.drop(incident.id)
            self._state.runs.drop(incident.id)
            self._unindex(incident.id, row)
        for name, runs in list(self._state.runs.items()):
            if name not in documents and runs.events and runs.events[-1].at < cut:
                self._state.runs.drop(name)
        return forgotten

    def _with_jobs(self, places: Iterable[Place]) -> set[Place]:
        """These places, and the jobs that ran on those that are nodes."""
        around = set(places)
        for node in [place.name for place in around if place.kind is PlaceKind.NODE]:
            around.update(Place(PlaceKind.JOB, job) for job in self._placements.jobs_near(node))
        return around

    def _amend(
        self, place: Place, h: Hypothesis, claims: Mapping[str, Sequence[Sighting]], now: datetime
    ) -> tuple[Changes, list[tuple[datetime, Place]]]:
        """The incident's new revision, if one is due, else when it will be."""
        h = settled(h, claims, now)
        before = self._state.documents.get(h.id)
        old = before.incident if before else None
        new = self._counted(self._written.of(h, self._affected.around(h, claims, now), now))
        if old is not None:
            new = self._carry_forward(old, new, h, now)
            news = comparable(new) != comparable(old) or renewed(old, new)
            if not _is_progress_due(old, new, self._config):
                if not news:
                    return Changes(), []
                due = old.updated_at + self._pause(old, new)
                if due > now:
                    return Changes(), [(due, place)]
        else:
            news = True
        if news:
            # Last, so that they are part of a revision and never the reason for one.
            found = unknown_errors(h, self._state, self._config)
            new = replace(
                new,
                unknown_errors=carried(old, new, found) if old else found or None,
                other_workloads=beside(old, new, h, self.kept_from_starting),
            )
        row = DocumentRow(new, str(place), _latest(h, claims))
        self._keep(row, old)
        # A run that waits for progress reads it in the document; to an operator each iteration of a job is no news.
        return Changes((new,), (timeline_entry(old, new, now),) if news else ()), []

    def _pause(self, old: Incident, new: Incident) -> timedelta:
        """How long after the last revision this one may be published."""
        if renewed(old, new):
            return timedelta()
        if not says_more(old, new):
            return self._config.detail_every
        return self._config.growth_every if only_grows(old, new) else timedelta()

    def _keep(self, row: DocumentRow, old: Incident | None) -> None:
        if (before := self._state.documents.get(row.incident.id)) is not None:
            self._unindex(row.incident.id, before)
        self._state.documents.put(row.incident.id, row)
        self._index(row.incident.id, row)
        self._changed(self._repeats.record(old, row.incident, withdrawn=row.withdrawn))

    def _changed(self, histories: set[str]) -> None:
        """Histories have changed: incidents are counted again, and jobs on hosts of first failures judged again."""
        self._recounted |= histories
        self.first_hosts |= {host for name in histories if (host := host_of_first(name)) is not None}

    def _counted(self, incident: Incident) -> Incident:
        """The incident with the facts about earlier ones of the same faulty entity."""
        facts = {
            k: v
            for k, v in incident.facts.items()
            if k not in ("repeats", "repeats_days", "node_repeats", "same_before")
        }
        return replace(incident, facts=dict(sorted({**facts, **self._repeats.facts(incident)}.items())))

    def _recount(self, now: datetime) -> Changes:
        """New revisions of incidents whose count of earlier ones was changed by another incident."""
        changes = Changes()
        names = {name for entity in self._recounted for name in self._by_entity.get(entity, ())}
        for name in sorted(names):
            row = self._state.documents[name]
            old = row.incident
            new = self._counted(old)
            if new.facts != old.facts and not (old.state is IncidentState.MERGED or row.withdrawn):
                new = replace(new, revision=old.revision + 1, updated_at=now)
                self._state.documents.put(name, replace(row, incident=new))
                changes += Changes((new,), (timeline_entry(old, new, now),))
        return changes

    def _carry_forward(self, old: Incident, new: Incident, h: Hypothesis, now: datetime) -> Incident:
        # What is reported of a job's saves is kept for a while only; what was known of them stays.
        saved = {one.job.key: one for one in (*old.checkpoints, *new.checkpoints)}
        checkpoints = tuple(saved[job.key] for job in new.jobs if job.key in saved)
        # Those who were called once follow it to its end.
        audience = new.audience if old.for_owner else old.audience
        new = replace(
            new,
            revision=old.revision + 1,
            opened_at=old.opened_at,
            checkpoints=checkpoints,
            audience=audience,
            unknown_errors=old.unknown_errors,
            other_workloads=old.other_workloads,
        )
        if now - h.last_at > self._config.retention - self._config.before:
            # What it was built from may be forgotten by now; what was found stays found.
            grown = {p.signal_id for p in old.proofs} <= {p.signal_id for p in new.proofs}
            jobs = {j.key: j for j in (*old.jobs, *new.jobs)}
            new = replace(
                carry_forward(old, new),
                jobs=tuple(jobs[k] for k in sorted(jobs)),
                nodes=tuple(sorted({*old.nodes, *new.nodes})),
                impact=max(old.impact, new.impact, key=lambda i: i.gpus),
                proofs=new.proofs if grown else old.proofs,
                candidates=new.candidates if grown else old.candidates,
            )
        return new

    def _give_up(
        self, name: str, successor: Successor, claims_of: ClaimsOf, now: datetime
    ) -> tuple[Changes, list[tuple[datetime, Place]]]:
        row = self._state.documents[name]
        self._written.drop(name)
        old, place = row.incident, row.place
        if old.state is IncidentState.MERGED or row.withdrawn:
            return Changes(), []
        new_root = successor(row)
        if new_root is not None and new_root.id not in self._state.documents and new_root.rule != FELT_ONLY:
            # What jobs suffer of a switch is all that opens an incident there: it will be one as soon as it is ready.
            felt = claims_of({new_root.id}).get(new_root.id, {})
            if not _is_incident(new_root, felt):
                new_root = None  # that root opens no incident by itself, and explains nothing else
        closed_at = self._incarnations.runs(name).closed_at
        if new_root is None and closed_at is not None:
            # An operator or a run has resolved it: there is nothing left to withdraw.
            return self._close(row, closed_at, now), []
        late = new_root is None or new_root.fault_at > old.fault_at + self._config.before
        if late and self._state.is_crowded(place):
            # Where sightings are dropped for their number, missing evidence proves nothing.
            return Changes(), []
        if new_root is not None and new_root.id not in self._state.documents:
            at = max(new_root.ready_at, now)
            return Changes(), [(at, new_root.place), (at, place)]
        if new_root is not None:
            new = replace(
                old,
                state=IncidentState.MERGED,
                merged_into=new_root.id,
                reason=f"{old.reason}. Explained by {new_root.family} at {new_root.root}",
            )
        else:
            new = replace(
                old,
                state=IncidentState.RESOLVED,
                certainty=Certainty.WEAK,
                reason=f"Withdrawn: later evidence took its reason away. It was: {old.reason}",
            )
        new = replace(new, revision=old.revision + 1, updated_at=now, closed_at=now)
        self._keep(replace(row, incident=new, withdrawn=new_root is None), old)
        return Changes((new,), (timeline_entry(old, new, now),)), []

    def _close(self, row: DocumentRow, closed_at: datetime, now: datetime) -> Changes:
        """Close an incident whose evidence is gone as an operator or a run said; nothing when it is over already."""
        old = row.incident
        if old.state.is_over:
            return Changes()
        new = replace(
            old, state=IncidentState.RESOLVED, closed_at=closed_at, revision=old.revision + 1, updated_at=now
        )
        self._keep(replace(row, incident=new), old)
        return Changes((new,), (timeline_entry(old, new, now),))

    def _index(self, name: str, row: DocumentRow) -> None:
        self._by_place.setdefault(row.place, set()).add(name)
        for job in row.incident.jobs:
            self._by_job.setdefault(job.key, set()).add(name)
        for entity in names_of(row.incident):
            self._by_entity.setdefault(entity, set()).add(name)

    def _unindex(self, name: str, row: DocumentRow) -> None:
        _discard(self._by_place, row.place, name)
        for job in row.incident.jobs:
            _discard(self._by_job, job.key, name)
        for entity in names_of(row.incident):
            _discard(self._by_entity, entity, name)


def _firsts(job: str, failures: Iterable[Hypothesis]) -> dict[str, list[PastFault]]:
    """A job's failures by the histories of where it failed first, of those where one was first."""
    found: dict[str, list[PastFault]] = {}
    for h in failures:
        nodes, device = str(h.facts.get(FIRST_NODES) or ""), h.facts.get(FIRST_GPU)
        for name in first_names(h.facts):
            fault = untold_fault(
                h.id, h.family, h.fault_at, job, nodes, str(device) if device is not None else None
            )
            found.setdefault(name, []).append(fault)
    return found


def _is_incident(h: Hypothesis, claims: Mapping[str, Sequence[Sighting]]) -> bool:
    if h.retry == "over":
        return False
    # Connections that a program closed as it failed cost nobody more than its failure did; ranks that are left waiting do.
    own = h.family == IncidentFamily.APPLICATION
    return h.opens_alone or (_waits(claims) if own else _is_felt(claims))


def _waits(claims: Mapping[str, Sequence[Sighting]]) -> bool:
    return any(s.kind == SignalKind.NCCL_TIMEOUT for found in claims.values() for s in found)


def _is_felt(claims: Mapping[str, Sequence[Sighting]]) -> bool:
    """Whether a job suffers: codes of its kernels alone, which jobs leave all day, say no such thing."""
    return any(s.kind != SignalKind.GPU_XID for found in claims.values() for s in found)


def _may_be_brief(h: Hypothesis, claims: Mapping[str, Sequence[Sighting]], now: datetime) -> bool:
    """Whether it may be over by itself soon, and costs nobody anything until then."""
    if h.brief_until is None or now >= h.brief_until or (_is_felt(claims) and h.retry != "waits"):
        return False
    return settled(h, claims, now).certainty is not Certainty.DECISIVE


def _discard(index: dict[K, set[str]], key: K, name: str) -> None:
    if key in index:
        index[key].discard(name)
        if not index[key]:
            del index[key]


def _last(row: DocumentRow) -> datetime:
    return max(row.incident.closed_at or row.incident.updated_at, row.last_at)


def _ties(row: DocumentRow) -> set[Place]:
    """What an incident may share with others: its place, its root's node, its jobs."""
    root = row.incident.root
    node = {Place(PlaceKind.NODE, root.node)} if root.node else set()
    return {row.place, *node, *(Place(PlaceKind.JOB, job.key) for job in row.incident.jobs)}


def _latest(h: Hypothesis, claims: Mapping[str, Sequence[Sighting]]) -> datetime:
    """The time of its latest evidence, or of anything it explains."""
    evidence = (*h.causes, *h.context, *h.symptoms, *(s for found in claims.values() for s in found))
    return max([h.last_at, *(s.at for s in evidence)])


def _is_progress_due(old: Incident, new: Incident, config: Config) -> bool:
    """Whether a sign of progress is published: while a run may wait for it, and not for every iteration.

    Also a job's later checkpoint, as long as the incident is not over; a job that saves every few seconds makes few revisions.
    """
    saved = {one.job.key: one.at for one in old.checkpoints}
    if not new.state.is_over and any(
        one.job.key not in saved or one.at >= saved[one.job.key] + config.progress_mitigating
        for one in new.checkpoints
    ):
        return True
    if new.progress == old.progress:
        return False
    match new.state:
        case IncidentState.VERIFYING:
            every = config.progress_every
        case IncidentState.MITIGATING | IncidentState.AWAITING_HUMAN:
            # Most of the time its run does other things; one of its jobs may go on while another is still moved, or
            # while somebody is asked about something else.
            every = config.progress_mitigating
        case _:
            return False
    known = {p.job.key: p.at for p in old.progress}
    return any(p.job.key not in known or p.at >= known[p.job.key] + every for p in new.progress)

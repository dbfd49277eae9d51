"""Prunes a cluster's rows: evidence that is old and that no open incident is built from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from streams.correlate.policy.config import Config
from streams.correlate.policy.link_parts import parts
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import DROPPING, LOW_CLOCKS, PAST, Sighting, order
from streams.correlate.state.allocations import nodes_of
from streams.correlate.state.fact_rows import FactRows
from streams.correlate.state.node_work import is_of_drain, work_at
from streams.correlate.state.place import Place, PlaceKind, Touched
from streams.correlate.state.placement import ended_at
from streams.correlate.state.pod_jobs import job_ref
from streams.correlate.state.rows import Groups, JobRow, NodeRow, PodRow, PortRow, of_kind
from streams.correlate.state.store import State
from streams.correlate.state.topology import Topology
from streams.model.kinds import SignalKind


class Retention:
    """Drops rows, and sightings out of rows."""

    def __init__(self, state: State, topology: Topology, facts: FactRows) -> None:
        self._state = state
        self._topology = topology
        self._facts = facts

    def prune(self, now: datetime, config: Config, open_jobs: set[str], places: set[str]) -> Touched:
        """Forget what is older than the retention and part of nothing open. Returns what was touched by it.

        A node and the ports at its cables are pruned together: half of the evidence about a link would mean something else.
        `places` are places whose sightings an open incident of another place is built from.
        """
        cut = now - config.retention
        touched = Touched()
        busy = {d.scope for d in self._state.documents.values()} | places
        for name in self._state.nodes.reaching_before(cut):
            row = self._state.nodes[name]
            if not self._is_held(name, busy, open_jobs):
                kept = _since_each(row.seen, self.kept_since(Place(PlaceKind.NODE, name), cut, config))
                kept |= _of_announced_absence(row)
                kept |= _of_drains(row, now)
                kept |= _of_low_clocks(row, now)
                kept = _with_losses(kept, row.seen, cut, now)
                if kept != row.seen:
                    self._state.nodes.put(name, replace(row, seen=kept))
                    touched.nodes.add(name)
        for name in self._state.ports.reaching_before(cut):
            port = self._state.ports[name]
            ends, hosts = self._topology.cable(name), self._topology.hosts_at(name)
            held = any(f"port/{end}" in busy for end in ends)
            if not held and not any(self._is_held(n, busy, open_jobs) for n in hosts):
                kept = _since_each(port.seen, self.kept_since(Place(PlaceKind.PORT, name), cut, config))
                kept = _with_losses(kept, port.seen, cut, now)
                if kept != port.seen:
                    self._state.ports.put(name, replace(port, seen=kept))
                    touched.ports.add(name)
        for name in self._pods_to_prune(cut):
            if (
                f"{PlaceKind.POD}/{name}" not in busy
                and not self._topology.pod_jobs.jobs_of(name) & open_jobs
            ):
                touched |= self._prune_pod(name, self._state.pods[name], cut)
        touched |= self._facts.forget_heard(now)
        touched |= self._facts.forget_gpu_hosts(now)
        # Places go last: only those are dropped where nothing is kept any more.
        self._drop_places(cut, busy)
        for name in [name for name, job in self._state.jobs.items() if _is_known_by_scheduler(job)]:
            if name not in open_jobs:
                touched |= self._facts.forget_allocations(job_ref(name), cut, now)
        for name, job in list(self._state.jobs.items()):
            if name not in open_jobs and self._has_ended(name, job, cut):
                self._state.jobs.drop(name)
        for name, base in list(self._state.bases.items()):
            if base.until < now - config.bases_kept:
                self._state.bases.drop(name)
        self._topology.pod_jobs.forget_failures()
        return touched

    def _has_ended(self, name: str, job: JobRow, cut: datetime) -> bool:
        """Whether a job was gone by then. One of a kind that is not watched has no fact and no end: it goes with its last pod."""
        if job.fact is not None or job.gone_at is not None:
            return job.is_gone and job.gone_at is not None and job.gone_at < cut
        topology = self._topology
        return not (
            _is_known_by_scheduler(job)
            or topology.placements.names_of(name)
            or topology.pod_jobs.unplaced(name)
        )

    def kept_since(self, place: Place, cut: datetime, config: Config) -> datetime:
        """From when on what was seen at a place is kept that no incident holds: `cut`, or earlier (`_forget_before`)."""
        match place.kind:
            case PlaceKind.NODE:
                links = self._links_at([place.name], ())
            case PlaceKind.PORT if place.name.endswith("/"):
                return cut - config.switch_orders
            case PlaceKind.PORT:
                links = self._links_at(self._topology.hosts_at(place.name), self._topology.cable(place.name))
            case _:
                return cut
        return _forget_before(links, cut, config)

    def kept_with(self, place: Place) -> set[Place]:
        """Places whose sightings are kept as long as an incident is known at this one: of a port, both ends of its cable."""
        ends = self._topology.cable(place.name) if place.kind is PlaceKind.PORT else ()
        hosts = {host for end in ends for host in self._topology.hosts_at(end)}
        return {Place(PlaceKind.PORT, e) for e in ends} | {Place(PlaceKind.NODE, h) for h in hosts}

    def forget_names(self) -> set[str]:
        """Forget names that no kept sighting uses any more. Returns the keys whose meaning changes by that."""
        keys: set[str] = set()
        called: dict[tuple[str, str], set[str | None]] = {}
        for reported, place in self._topology.names.kept():
            if place not in called:
                called[place] = self._names_at(*place)
            if reported not in called[place]:
                keys |= self._topology.names.forget(reported, place)
        return keys

    def _names_at(self, kind: str, name: str) -> set[str | None]:
        """What nodes are called in the sightings of a place, or by the scheduler of a job."""
        if kind == "job":
            job = self._state.jobs.get(name)
            return {*nodes_of(job)} if job is not None else set()
        seen = self._state.seen_at(kind, name)
        row = self._state.nodes.get(name) if kind == "node" else None
        own = {name} if row is not None and row.nics else set()
        return {s.said for s in seen} | {s.entity.node for s in seen} | own

    def _links_at(self, nodes: Iterable[str], ports: Iterable[str]) -> Iterator[Sequence[Sighting]]:
        """What was seen on these nodes, at these ports, and at the ends of the nodes' cables."""
        rows = [self._state.nodes.get(node) for node in nodes]
        around = {
            end
            for node in nodes
            for port in self._topology.ports_of(node)
            for end in self._topology.cable(port)
        }
        for row in (*rows, *(self._state.ports.get(port) for port in sorted(around.union(ports)))):
            yield from row.seen.values() if row is not None else ()

    def _is_held(self, node: str, busy: set[str], open_jobs: set[str]) -> bool:
        """Whether something is built from what was seen on a node, or at the ports of its cables."""
        if f"node/{node}" in busy or self._topology.placements.jobs_near(node) & open_jobs:
            return True
        return any(
            f"port/{end}" in busy
            for port in self._topology.ports_of(node)
            for end in self._topology.cable(port)
        )

    def _pods_to_prune(self, cut: datetime) -> list[str]:
        """Pods of which anything may be forgotten: before `cut` one was over or something was seen, or there is none."""
        old = set(self._state.pods.reaching_before(cut))
        old.update(name for name, end in self._topology.placements.ended.items() if end < cut)
        old.update(n for n, pod in self._state.pods.items() if not (pod.tenancies or pod.seen))
        return sorted(old)

    def _prune_pod(self, name: str, row: PodRow, cut: datetime) -> Touched:
        placements = self._topology.placements.of_pod(name)
        over = {s.uid for s in placements if s.end is not None and s.end < cut}
        # Also what never was placed, or is no training job.
        over |= {t.fact.uid for t in row.tenancies if (end := ended_at(row, t.fact)) and end < cut}
        tenancies = tuple(t for t in row.tenancies if t.fact.uid not in over)
        seen = _since_each(row.seen, cut)
        lasting = tuple(one for one in row.lasting or () if one.until >= cut) or None
        heard = [
            *(t.at for t in row.ranks),
            *([row.progress_at] if row.progress_at else []),
            *(row.busy or ())[-1:],
            *(save.at for save in (row.saves or ())[-1:]),
        ]
        silent = not heard or max(heard) < cut
        is_same = tenancies == row.tenancies and seen == row.seen and lasting == row.lasting
        if is_same and (tenancies or seen or not silent):
            return Touched()
        if not tenancies and not seen and silent:
            touched = Touched(jobs=self._topology.pod_jobs.jobs_of(name), pods={name})
            self._state.pods.drop(name)
            self._topology.pod_jobs.leave_unplaced(name)
            self._topology.placements.update(name, None)
            return touched
        return self._facts.pod(name, replace(row, tenancies=tenancies, seen=seen, lasting=lasting))

    def _drop_places(self, cut: datetime, busy: set[str]) -> None:
        """Drop deleted nodes, and places that only pruned signals named."""
        deleted, unlisted = self._topology.deleted, self._topology.unlisted.names
        for name in sorted(deleted):
            row = self._state.nodes.get(name)
            if row is None or row.left_at is None:
                deleted.discard(name)
            elif (
                row.left_at < cut
                and not row.seen
                and f"node/{name}" not in busy
                and not self._topology.placements.jobs_near(name)
            ):
                deleted.discard(name)
                self._topology.move_node(name, row.fact, None)
                self._state.nodes.drop(name)
                self._topology.hosts.put(name, None)
        for kind in ("node", "port"):
            store = self._state.places[kind]
            for name in sorted(unlisted[kind]):
                if (place := store.get(name)) is None or not (
                    place.seen or name in self._topology.gpu_hosts or _names_nics(place, cut)
                ):
                    unlisted[kind].discard(name)
                    store.drop(name)
        unlisted["pod"].intersection_update(self._state.pods)


def _is_known_by_scheduler(job: JobRow) -> bool:
    """Whether anything is kept of a job without an object: where it ran, that its end was asked for, how it ended."""
    return bool(job.allocations or job.asked or job.outcomes or job.labelled)


def _names_nics(place: NodeRow | PortRow, cut: datetime) -> bool:
    """Whether it is a node whose NICs were named lately: health checks and exporters do that all day."""
    nics = place.nics if isinstance(place, NodeRow) else None
    return nics is not None and nics[-1].last >= cut - PAST


def _of_low_clocks(row: NodeRow, now: datetime) -> Groups:
    """What is kept of a node whose clocks are low for longer than anything is told for it.

    What was done to many nodes at once must not look like one node's fault when those that came first are forgotten.
    """
    cut = now - policy().slow_nodes.kept
    return {
        key: left
        for key, group in row.seen.items()
        if group[0].kind == SignalKind.GPU_SLOW and group[0].text("subtype") == LOW_CLOCKS
        if (left := _since(group, cut))
    }


def _of_announced_absence(row: NodeRow) -> Groups:
    """What is kept of a node as long as it is away for somebody's work.

    Nothing is reported of it until it is overdue, and then it must be known since when it is away and why.
    """
    if row.fact is None or row.fact.ready or row.left_at is not None:
        return {}
    readiness = sorted((s for s in of_kind(row.seen, SignalKind.NODE_NOT_READY)), key=order)
    back = max((s.at for s in readiness if not s.firing), default=None)
    gone = next((s for s in readiness if s.firing and (back is None or s.at > back)), None)
    if gone is None or work_at(row, gone.at) is None:
        return {}
    kinds = (SignalKind.NODE_NOT_READY, SignalKind.NODE_MAINTENANCE, SignalKind.NODE_CONDITION)
    return {key: group for key, group in row.seen.items() if group[0].kind in kinds}


def _of_drains(row: NodeRow, now: datetime) -> Groups:
    """What is kept of a node that was drained in Slurm: what it does until it is given back is left to whoever drained it."""
    return {
        key: left
        for key, group in row.seen.items()
        if is_of_drain(group[0]) and (left := _since(group, now - PAST))
    }


def _with_losses(kept: Groups, seen: Groups, cut: datetime, now: datetime) -> Groups:
    """`kept` with what NICs and ports of switches go on losing: counters tell once that it began, and once that it is over.

    As long as the end is kept (since `cut`), so is the begin: what a job suffered in between would have had no reason else.

    What has shown it for hours is no news, and is what others are compared with. After a day nobody reads these counters.
    """
    last: dict[tuple[str, ...], Sighting] = {}
    for s in sorted(filter(_is_loss, of_kind(seen, SignalKind.FABRIC_LINK)), key=order):
        last[_series(s)] = s
    lasting = {series for series, s in last.items() if s.at >= (now - PAST if s.firing else cut)}
    if not lasting:
        return kept
    found = dict(kept)
    for key, group in seen.items():
        ids = {s.id for s in kept.get(key, ())}
        if left := tuple(s for s in group if s.id in ids or (_is_loss(s) and _series(s) in lasting)):
            found[key] = left
    return found


def _is_loss(s: Sighting) -> bool:
    return s.kind == SignalKind.FABRIC_LINK and (s.text("subtype") == DROPPING or parts().is_counted_way(s))


def _series(s: Sighting) -> tuple[str, ...]:
    return (s.entity.key, *map(s.text, ("device", "subtype", "counter", "series", "alert", "condition")))


def _forget_before(seen: Iterable[Sequence[Sighting]], cut: datetime, config: Config) -> datetime:
    """From when on what was seen of links is kept that may be one fault: `cut`, or earlier where such a fault lies across it.

    It is pruned as a whole, with what excuses it. Half of it would mean something else: without the bounce before it, a rising
    counter looks like failing optics.
    """
    gap = config.link_quiet + config.link_alone
    since: datetime | None = None
    for at in sorted(
        (s.at for group in seen if group[0].kind == SignalKind.FABRIC_LINK for s in group), reverse=True
    ):
        if at < cut and (since is None or since - at > gap):
            break
        since = at
    return cut if since is None else min(cut, since - config.before)


def _since_each(seen: Groups, cut: datetime) -> Groups:
    return {key: left for key, group in seen.items() if (left := _since(group, cut))}


def _since(group: tuple[Sighting, ...], cut: datetime) -> tuple[Sighting, ...]:
    return tuple(s for s in group if s.at >= cut)

"""Services that jobs share: a registry, the webhook that must let their pods pass, the resolver of names, space in a storage.

One job that cannot pull its image may have misspelled it. Two jobs that the same registry refuses within minutes suffer from the
registry: one fault of the service, and they are its victims. No node is at fault, and no other node would help.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import NamedTuple

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.job_complaints import Complaints, JobComplaints, Spans, is_firm, stays
from streams.correlate.job_rules.refusals import Created, Owner, fails_at, names_webhook
from streams.correlate.job_rules.service_policy import REGISTRY, SANDBOX, STORAGE, WEBHOOK, service_policy
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting, distinct, order, split_at_gaps
from streams.correlate.state.incarnations import FiringInterval, Incarnations
from streams.correlate.state.place import ADDRESS_POOL, PODS, RESOLVER, Place, PlaceKind
from streams.correlate.state.placement import Placement
from streams.correlate.state.rows import LastingFailure
from streams.model.entity import Entity, Part
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import Severity

FAILS = "webhook fails"
"""The rule of a webhook that is at fault by what the API server says of it, whoever asks."""
EXPIRED = "certificate_expired"
"""A fact of a service that does not get well by itself."""
_SHOWN_EACH = 2
"""Lines of each job that are kept with the fault, of the first and of the last."""
_SHOWN = 64
_SHOWN_OTHERS = 4
"""Of so many other workloads lines are kept with the fault: a thousand are refused by the same words."""
_CRASH = "resolver_crash"
_MAX_NAME = 200
_EACH = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Shortage:
    """A fault of a service as one job has it: from its own first complaint to its last."""

    incident: str
    service: str
    since: datetime
    until: datetime
    stays: bool = False
    """Whether it does not get better by itself, or is known to go on: what suffers from it need not last."""


class End(NamedTuple):
    """A stretch in which pods of a job ended badly."""

    start: datetime
    end: datetime


def is_of_pool(s: Sighting) -> bool:
    """Whether a node says that no address is free for a pod there, and how the pool is called that has none."""
    return (
        s.kind == SignalKind.NODE_CONDITION
        and s.firing
        and s.text("subtype") == "no_addresses"
        and bool(s.text("pool"))
    )


def is_of_resolver(s: Sighting) -> bool:
    """Whether a pod that resolves names for the cluster is not well: it starts over and over, or does not answer its node."""
    return s.kind == SignalKind.UNKNOWN and s.firing and s.text("subtype") in (_CRASH, "resolver_unwell")


def complaints(failed: Iterable[Sighting]) -> dict[str, tuple[Sighting, ...]]:
    """By the name of its place: each service that these failures of a job name, with the lines that do, in order of time.

    A line that names no file is about the storages that others of the job's lines name.
    """
    found: dict[str, list[Sighting]] = {}
    pathless: list[Sighting] = []
    for s in failed:
        rule = families().rule(s) if s.firing else None
        if rule is None or rule.shares is None:
            continue
        if rule.shares == STORAGE and not s.text("path"):
            pathless.append(s)
        elif (name := _service(s, rule.shares, rule.named_service(s))) is not None:
            found.setdefault(name, []).append(s)
    for name in found if pathless else ():
        if name.startswith(f"{STORAGE}/"):
            found[name] += pathless
    return {name: tuple(sorted(lines, key=order)) for name, lines in found.items()}


def lasting_for(name: str, lines: Sequence[Sighting], failures: Iterable[LastingFailure]) -> Spans:
    """When whoever has these lines about a service, in order of time, went on failing for it between the first and the last.

    Failures for want of space count for every storage that the lines name: which one it was is not kept.
    """
    kind, first, last = name.partition("/")[0], lines[0].at, lines[-1].at
    found = []
    for one in failures:
        shares, _, named = one.service.partition("/")
        is_same = shares == kind if kind == STORAGE else _place_of(shares, named) == name
        if is_same and one.since <= last and one.until >= first:
            found.append((max(one.since, first), min(one.until, last)))
    return tuple(sorted(found))


def complaints_of(
    owner: str, failed: Iterable[Sighting], failures: Sequence[LastingFailure]
) -> dict[str, Complaints]:
    """By the name of its place: what a job or a pod (`owner`) says of each service in these failures of it.

    `failures`: for which services its pods went on failing. A sandbox that only the first tries did not get is left out.
    """
    found = {}
    for name, lines in complaints(failed).items():
        lasting = lasting_for(name, lines, failures)
        if name not in (ADDRESS_POOL, SANDBOX) or any(b - a >= service_policy().heals for a, b in lasting):
            found[name] = Complaints(owner, thinned(lines), lasting=lasting)
    return found


def thinned(lines: Sequence[Sighting]) -> tuple[Sighting, ...]:
    """One a minute of many lines, and the last: a thousand ranks say the same."""
    found = list(lines[:1])
    for s in lines[1:-1]:
        if s.at - found[-1].at >= _EACH:
            found.append(s)
    return (*found, *lines[1:][-1:])


def shortages(mine: Mapping[str, Sequence[Sighting]], faults: Iterable[Hypothesis]) -> tuple[Shortage, ...]:
    """The faults of services as a job has them that complains of those."""
    found = []
    for h in faults:
        times = [s.at for s in mine.get(h.place.name, ()) if h.fault_at <= s.at <= h.last_at]
        if times:
            stays = EXPIRED in h.facts or h.rule == FAILS
            found.append(Shortage(h.id, h.place.name, min(times), max(times), stays))
    return tuple(found)


def service_faults(
    cluster: str,
    name: str,
    heard: Sequence[Complaints],
    incarnations: Incarnations,
    own_pods: Sequence[Sighting],
    others: Sequence[Complaints],
    created: Created,
) -> list[Hypothesis]:
    """The faults of one service: stretches in which jobs complain of it, several within minutes of each other.

    `own_pods` are signals of its own pods, which name it, and of nodes where these stand that drop connections; of
    addresses, what nodes call their pool. `others` is what other workloads fail for. Of a webhook that is what it refuses
    to create, and `created` tells what it let pass. Of a registry it counts beside a job that fails in the same words, of
    addresses beside a job that has none: a certificate that has expired by two nodes' clocks has expired, and a registry
    that is known to be at fault stays so for as long as anybody fails.
    """
    rule, kind = service_policy(), name.partition("/")[0]
    if kind == SANDBOX or (len(heard) < rule.jobs and kind not in rule.alone):
        return []
    if kind == REGISTRY:
        others = _in_words_of(heard, others)
    by_jobs = JobComplaints(kind, heard, others)
    owner = by_jobs.owner
    refusals = _Refusals((*heard, *others), created)
    lines = sorted((s for one in (*heard, *others) for s in one.sightings), key=order)
    intervals = []
    for stretch in _stretches(lines, (*heard, *others)):
        if refusals.known_at(stretch) is not None:
            faulty = [stretch]
        else:
            of_jobs = [s for s in stretch if s.id in owner]
            faulty = [part for part in _stretches(of_jobs, heard) if by_jobs.are_of_it(part)]
            if kind == ADDRESS_POOL and faulty:
                # No address was free for whoever asked first, job or not.
                faulty = [stretch]
            if kind == REGISTRY and faulty:
                # Once it is known, whoever goes on failing is one more of its victims, and needs no second one.
                faulty = [stretch[stretch.index(faulty[0][0]) :]]
        for part in faulty:
            shown = tuple(_shown(part, owner))
            intervals.append(FiringInterval(shown[0].at, shown[-1].at, shown[-1].at + rule.over, shown))
    counted_as = _entity(cluster, kind, name.partition("/")[2])
    family = IncidentFamily.STORAGE_FAULT if kind == STORAGE else IncidentFamily.PLATFORM_FAULT
    found = []
    for session in incarnations.sessions(counted_as, families()[family].domain, intervals):
        mine = sorted(session.sightings, key=order)
        there = [s for s in lines if session.start <= s.at <= session.last]
        fails = refusals.known_at(there)
        together = by_jobs.known_at([s for s in there if s.id in owner])
        if kind == REGISTRY:
            # Others tell until when it lasts. A thousand builds fail in the same words: each is no news, and no proof more.
            mine = [s for s in mine if s.id in owner]
        seen_at = min((at for at in (fails, together) if at is not None), default=None)
        if seen_at is None or not mine:
            continue
        jobs = {owner[s.id] for s in there if s.id in owner}
        signs = families().signs(mine, 3)
        own = [s for s in own_pods if session.start - rule.within <= s.at <= session.last]
        node = _node_of(own)
        root = _root(counted_as, mine, own) if node is None else Entity(cluster, node=node)
        drops = [s for s in own if node is not None and families().drops_connections(s)]
        told = _told(root, kind) if node is None else _told_of_node(root, drops)
        found.append(
            Hypothesis(
                place=Place(PlaceKind.SERVICE, name),
                root=root,
                counted_as=counted_as,
                family=family,
                **session.times(),
                certainty=Certainty.LIKELY,
                ready_at=seen_at,
                rule="shared service" if fails is None else FAILS,
                why=_why(len(jobs), signs, told)
                if fails is None
                else _why_fails(len(refusals.of(there)), signs, told),
                # A job that got over it without a loss has nobody called.
                alone=fails is not None,
                severity=Severity.ERROR
                if fails is not None and any(one.gpus for one in refusals.of(there))
                else None,
                causes=distinct(sorted((*_first_of(own, drops), *mine), key=order)),
                facts={
                    "jobs_hit": len(jobs),
                    "service": kind,
                    **({EXPIRED: True} if any(map(stays, mine)) else {}),
                },
                stops="never",
            )
        )
    return found


class _Refusals:
    """What a service refuses to create, and for whom."""

    def __init__(self, complaints: Iterable[Complaints], created: Created) -> None:
        self._owners = {
            s.id: one.owner
            for one in complaints
            if one.owner is not None
            for s in one.sightings
            if names_webhook(s)
        }
        self._created = created

    def known_at(self, lines: Sequence[Sighting]) -> datetime | None:
        """When it was known by these lines alone, in order of time, that the service fails."""
        mine = [s for s in lines if s.id in self._owners]
        return fails_at(mine, self._owners, self._created, service_policy().refusals) if mine else None

    def of(self, lines: Iterable[Sighting]) -> set[Owner]:
        """For whom these lines say that nothing could be created."""
        return {owner for s in lines if (owner := self._owners.get(s.id)) is not None}


def ends(placements: Iterable[Placement]) -> list[End]:
    """When pods of a job ended badly, those of the same minute as one."""
    moments = sorted(p.end for p in placements if p.end is not None and p.succeeded is False)
    return [End(group[0], group[-1]) for group in split_at_gaps(moments, lambda at: at, _EACH)]


def shortage_at(
    mine: Mapping[str, Sequence[Sighting]],
    shortages: Sequence[Shortage],
    since: datetime,
    until: datetime,
) -> Shortage | None:
    """The fault of a service of which a job complains around that time; the first, if there are several."""
    rule = service_policy()
    first, last = since - timedelta(seconds=rule.before_s), until + timedelta(seconds=rule.after_s)
    fitting = [
        one
        for one in shortages
        if any(first <= s.at <= last and one.since <= s.at <= one.until for s in mine.get(one.service, ()))
    ]
    return min(fitting, key=lambda one: (one.since, one.incident), default=None)


def stood_still(
    lines: Sequence[Sighting], moved: Sequence[datetime], placements: Sequence[Placement], since: timedelta
) -> End | None:
    """From when to when a job that had just started got no further for want of names, by what it says of that.

    One that ran before goes on without names, as far as anybody knows: what needs none is not seen to wait. `since`: how long
    after its start at most it must have begun to complain.
    """
    firm = [s for s in lines if is_firm(s)]
    if not firm:
        return None
    first, last = firm[0].at, firm[-1].at
    began = [p.start for p in placements if p.start <= first]
    if not began or first - max(began) > since or any(max(began) <= at <= last for at in moved):
        return None
    return End(first, last) if last - first >= timedelta(seconds=service_policy().lasts_s) else None


def _service(s: Sighting, kind: str, named: str) -> str | None:
    """The name of the place of the service that a failure names; None where it names none that jobs share."""
    if kind == STORAGE:
        mount = mount_of(s.text("path"))
        return f"{STORAGE}/{mount}" if mount is not None else None
    return _place_of(kind, named)


def _place_of(kind: str, named: str) -> str | None:
    """The name of the place of a service that lines call by that name."""
    if kind in (RESOLVER, ADDRESS_POOL, SANDBOX):
        return kind
    if kind == WEBHOOK and not named:
        return WEBHOOK
    named = registry_of(named) if kind == REGISTRY else named
    return f"{kind}/{named[:_MAX_NAME]}" if named else None


def registry_of(named: str) -> str:
    """A registry by its host, and its port unless that is the one that everybody asks: however it is written, it is one."""
    host, _, port = named.strip().rpartition("://")[2].partition("/")[0].lower().partition(":")
    return host.rstrip(".") + (f":{port}" if port not in ("", "443", "80") else "")


def mount_of(path: str) -> str | None:
    """Where the storage that holds a path is mounted, as far as the path tells; None where every node has its own."""
    rule = service_policy()
    parts = [part for part in path.split("/") if part]
    if not path.startswith("/") or len(parts) < 2:
        return None
    top, below = parts[0], "/".join(parts[:2])
    if top in rule.own or below in rule.own or any(below.startswith(f"{own}/") for own in rule.own):
        return None
    if top not in rule.apart:
        return f"/{top}"
    return f"/{below}" if len(parts) > 2 else None


def _why(jobs: int, signs: str, service: str) -> str:
    if jobs == 1:
        return f"a job tells of it: {signs}. That is {service}, whoever asks"
    return f"{jobs} jobs within minutes: {signs}. They share {service}"


def _why_fails(owners: int, signs: str, service: str) -> str:
    """Without a number: who else is refused is no news, and shown beside the incident."""
    whose = "several owners ask" if owners > 1 else "one owner asks"
    what = f"the API server refuses to create what {whose} for, again and again for minutes"
    return f"{what}: {signs}. That is {service}, whoever asks"


def _in_words_of(heard: Iterable[Complaints], others: Iterable[Complaints]) -> list[Complaints]:
    """What others say in words that a job has, too: one that asks for an image that is not there tells nothing of the rest."""
    of_jobs = {words(s) for one in heard for s in one.sightings}
    found = []
    for one in others:
        mine = tuple(s for s in one.sightings if words(s) in of_jobs)
        if len(mine) == len(one.sightings):
            found.append(one)
        elif mine:
            spans = ((max(a, mine[0].at), min(b, mine[-1].at)) for a, b in one.lasting)
            found.append(
                replace(one, sightings=mine, lasting=tuple(span for span in spans if span[0] <= span[1]))
            )
    return found


def words(s: Sighting) -> str:
    """In which words it says so: those of its rule, whatever they name."""
    rule = families().rule(s)
    return rule.says if rule is not None else ""


def _stretches(lines: Sequence[Sighting], complaints: Iterable[Complaints]) -> list[list[Sighting]]:
    """Lines, in order of time, in groups: a new one begins where none of those whose lines they are failed for long enough."""
    over = service_policy().over
    spans = ((since, "", until, None) for one in complaints for since, until in one.lasting)
    moments = sorted([*((s.at, s.id, s.at, s) for s in lines), *spans], key=lambda one: one[:2])
    groups: list[list[Sighting]] = []
    last: datetime | None = None
    for since, _, until, s in moments:
        if last is None or since - last > over:
            groups.append([])
        last = until if last is None else max(last, until)
        groups[-1] += [s] if s is not None else []
    return [group for group in groups if group]


def _shown(lines: Sequence[Sighting], owner: Mapping[str, str]) -> list[Sighting]:
    """Of each job the first and the last lines, of many those that lie first and last.

    Of other workloads those of the first few, and the last line of all: how many there are makes no difference to the incident.
    """
    by_job: dict[str, list[Sighting]] = {}
    others: dict[str, list[Sighting]] = {}
    last: Sighting | None = None
    for s in lines:
        if s.id in owner:
            by_job.setdefault(owner[s.id], []).append(s)
            continue
        last = s
        if (key := s.entity.key) in others or len(others) < _SHOWN_OTHERS:
            others.setdefault(key, []).append(s)
    by_job |= {f"other {key}": mine[:_SHOWN_EACH] for key, mine in others.items()}
    if last is not None:
        by_job["last"] = [last]
    ends = (s for mine in by_job.values() for s in (*mine[:_SHOWN_EACH], *mine[-_SHOWN_EACH:]))
    found = list(distinct(ends))
    return found if len(found) <= 2 * _SHOWN else [*found[:_SHOWN], *found[-_SHOWN:]]


def _entity(cluster: str, kind: str, named: str) -> Entity:
    """A service as a root: the cluster itself, where no line names it."""
    if kind == STORAGE:
        return Entity(cluster, storage=named)
    if kind == ADDRESS_POOL:
        return Entity(cluster, part=Part(kind, PODS))
    return Entity(cluster, part=Part(kind, named)) if named else Entity(cluster)


def _root(counted_as: Entity, lines: Sequence[Sighting], crashes: Sequence[Sighting]) -> Entity:
    """The root, more precisely: of a storage the directory that all paths have in common, of a resolver its own name."""
    if named := min((name for s in crashes if (name := s.text("service"))), default=""):
        return Entity(counted_as.cluster, part=Part(RESOLVER, named))
    if counted_as.part is not None and counted_as.part.kind == ADDRESS_POOL:
        pools = Counter(pool for s in (*lines, *crashes) if (pool := s.text("pool")))
        named = min(pools, key=lambda pool: (-pools[pool], pool), default=PODS)
        return replace(counted_as, part=Part(ADDRESS_POOL, named))
    if counted_as.storage is None:
        return counted_as
    paths = [path.strip("/").split("/")[:-1] for s in lines if (path := s.text("path"))]
    same = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    common = "/".join(names[0] for names in same)
    return Entity(counted_as.cluster, storage=f"/{common}" if common else counted_as.storage)


def _node_of(own: Sequence[Sighting]) -> str | None:
    """The one node where all pods of the resolver that are not well stand, where that node says that it drops connections."""
    there = {s.entity.node for s in own if is_of_resolver(s)}
    drops = {s.entity.node for s in own if families().drops_connections(s)}
    return next(iter(there)) if len(there) == 1 and there <= drops else None


def _first_of(own: Sequence[Sighting], drops: Sequence[Sighting]) -> list[Sighting]:
    """What is shown of the service's own pods: of a node that drops connections the first such lines as well."""
    return [*[s for s in own if is_of_resolver(s) or is_of_pool(s)][:_SHOWN_EACH], *drops[:_SHOWN_EACH]]


def _told_of_node(node: Entity, drops: Sequence[Sighting]) -> str:
    return f"the cluster's resolver of names, whose pods that do not answer all stand on {node}: {families().signs(drops, 2)}"


def _told(root: Entity, kind: str) -> str:
    if kind == RESOLVER:
        crash = f", whose own pods ({root.part.name}) start over and over" if root.part else ""
        return f"the cluster's resolver of names{crash}"
    if kind == ADDRESS_POOL:
        return f"the {root.part}, which has no address left" if root.part else ""
    if kind == STORAGE:
        return f"{root.storage}, which has no space left"
    return "the API server, which cannot create their pods" if root.part is None else str(root)

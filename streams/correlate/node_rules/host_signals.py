"""Faults of a node that its own signals tell: host, power and cooling, storage, platform, notices, slow GPUs.

What belongs to which of them, how sure it is and how long it must last is in `families.yaml`; here it is only put together: the
signals of one family on one node are one incident until that is closed or all of them are over. Its root is the GPU, when they
all speak of the same one, else the node.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.notices import is_said_by_object, notice_facts
from streams.correlate.node_rules.planned_work import work_facts, work_words
from streams.correlate.node_rules.pod_starts import is_of_one_job
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families, level, storage_system
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting, distinct, dropped_middle, order, split_at_gaps
from streams.correlate.state.gpu_aliases import learned, renamed
from streams.correlate.state.incarnations import FiringInterval, Incarnations, Session, firing_intervals
from streams.correlate.state.node_groups import node_group
from streams.correlate.state.place import Place, PlaceKind
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.node_notice import NODE_ENDS, UNREAD, announced
from streams.model.signal import Attribute

_SIGNS_SHOWN = 4


def host_faults(
    root: Entity, seen: Iterable[Sighting], incarnations: Incarnations, cuts: Sequence[datetime] = ()
) -> list[Hypothesis]:
    """A hypothesis for each incarnation of one family's causes on the node `root`. `cuts` as for `gpu_faults`."""
    table = families()
    streams: dict[str, dict[str, list[Sighting]]] = defaultdict(lambda: defaultdict(list))
    seen = list(seen)
    reports, back = [s for s in seen if s.kind in table.kinds], sorted(s.at for s in seen if _is_back(s))
    names = learned(reports)
    for s in reports:
        rule = table.rule(s)
        if rule is not None and rule.role == "cause" and table[rule.family].found_on == "node":
            one = renamed(s, names)
            stream = f"{one.kind}|{one.entity.key}|{_condition(one)}|{_system(one, rule.family) or ''}"
            streams[rule.family][stream].append(one)
    return [
        h
        for family in sorted(streams)
        for h in _faults(
            root,
            family,
            streams[family],
            incarnations,
            back,
            cuts if family in policy().maintenance.given_back else (),
        )
    ]


def until_missed(h: Hypothesis, config: Config) -> Hypothesis:
    """A weak fault of a host that only Slurm watches: it may be a kernel's last words, and Slurm misses a node minutes later."""
    if h.family != IncidentFamily.HOST_FAULT or h.certainty is not Certainty.WEAK:
        return h
    until = min(s.seen_at for s in h.causes) + config.missed_late
    return replace(h, brief_until=max(until, h.brief_until or until))


def _is_back(s: Sighting) -> bool:
    return s.kind == SignalKind.NODE_NOT_READY and not s.firing


def _until_ready(interval: FiringInterval, back: Sequence[datetime]) -> FiringInterval:
    """The interval with its end: why a kubelet calls its node not ready is over when it is ready again, and nobody says so."""
    ready = next((at for at in back if at >= interval.last), None)
    if interval.end is not None or ready is None or not all(map(_is_why, interval.sightings)):
        return interval
    return replace(interval, end=ready)


def _is_why(s: Sighting) -> bool:
    return s.kind == SignalKind.NODE_CONDITION and s.text("subtype") in _WHY_NOT_READY


_WHY_NOT_READY = frozenset({"container_runtime", "network_unavailable"})


_OF_SUPPLIES = frozenset({"psu", "psu_redundancy", "psu_hardware"})


def _condition(s: Sighting) -> str:
    """What is over together. Supplies are redundant again with the one that was missed: not every controller says both."""
    subtype = s.text("subtype")
    return "psu" if s.kind == SignalKind.NODE_POWER and subtype in _OF_SUPPLIES else subtype


def _faults(
    root: Entity,
    family: str,
    streams: Mapping[str, list[Sighting]],
    incarnations: Incarnations,
    back: Sequence[datetime],
    cuts: Sequence[datetime],
) -> Iterable[Hypothesis]:
    """The incarnations of one family."""
    lasting: list[FiringInterval] = []
    ready: dict[str, datetime] = {}
    held: dict[str, datetime] = {}
    brief: set[str] = set()
    passed: set[str] = set()
    for _, stream in sorted(streams.items()):
        for found in _occasions(firing_intervals(stream)):
            interval = _until_ready(found, back)
            rules = [rule for s in interval.sightings if (rule := families().rule(s)) is not None]
            lasts = max(timedelta(seconds=rule.lasts_s) for rule in rules)  # the most patient of its signals
            if interval.end is not None and interval.end - interval.start < lasts:
                continue
            hold = timedelta(seconds=max(rule.hold_s for rule in rules))
            lone = timedelta(seconds=min(rule.alone_s for rule in rules))
            first = min(o.seen_at for o in interval.sightings)
            lasting.append(interval)
            if interval.end is not None and interval.end - interval.start < hold:
                brief.update(s.id for s in interval.sightings)
            if interval.end is not None and interval.end - interval.start < lone:
                passed.update(s.id for s in interval.sightings)
            ready |= {s.id: first + lasts for s in interval.sightings}
            held |= {s.id: first + max(lasts, hold, lone) for s in interval.sightings}
    gpus = {s.entity.key: s.entity for i in lasting for s in i.sightings if s.entity.gpu}
    names = [root, *(gpus[key] for key in sorted(gpus))]
    domain = families()[family].domain
    for session in incarnations.sessions(root, domain, lasting, names, cuts=cuts, back=_disk_again):
        # What every host has now and then does not let what must last be told before it has.
        firm = [s for s in session.sightings if _counts_alone((s,))]
        until = min(held[s.id] for s in firm or session.sightings)
        # What was over before it would have been told is no incident then either.
        counts = _counts_alone(s for s in distinct(session.sightings) if s.id not in brief)
        gone = all(s.id in passed for s in session.sightings)
        yield replace(
            _hypothesis(root, family, session, ready), brief_until=until, alone=counts, was_brief=gone
        )


def _disk_again(session: Session, interval: FiringInterval) -> timedelta | None:
    """How long a disk may have been quiet that was at fault, where it is what reports trouble again."""
    disks = {name for s in session.sightings if (name := disk_of(s))}
    if not disks.intersection(map(disk_of, interval.sightings)) or not _counts_alone(session.sightings):
        return None
    return families().recurring.disk_again


def _occasions(intervals: Iterable[FiringInterval]) -> Iterable[FiringInterval]:
    """Intervals of what every host has now and then cut where it was quiet: nothing ever says that it is over."""
    quiet = families().recurring.quiet
    for interval in intervals:
        if interval.end is not None or not all(_recurs(s) for s in interval.sightings):
            yield interval
            continue
        occasions = list(split_at_gaps(interval.sightings, lambda s: s.at, quiet))
        unknown = _unknown_stretches(interval.sightings) if len(occasions) > 1 else []
        groups: list[list[Sighting]] = []
        for group in occasions:
            if groups and any(a <= groups[-1][-1].at and group[0].at <= b for a, b in unknown):
                groups[-1] += group
            else:
                groups.append(group)
        for group in groups:
            yield FiringInterval(group[0].at, group[-1].at, group[-1].at + quiet, tuple(group))


def _unknown_stretches(sightings: Iterable[Sighting]) -> list[tuple[datetime, datetime]]:
    """From when to when nobody knows that it was quiet: the middle of many was dropped, of each group by itself."""
    groups: dict[str, list[Sighting]] = defaultdict(list)
    for s in sightings:
        groups[node_group(s)].append(s)
    return [
        (s.at, until)
        for group in groups.values()
        for dropped in (dropped_middle(group),)
        for s in group
        if (until := dropped.get(s.id)) is not None
    ]


_PART = re.compile(r"^(?P<disk>nvme\d+)(?:c\d+)?n\d+(?:p\d+)?$|^(?P<other>[hsv]d[a-z]+)\d+$")


def disk_of(s: Sighting) -> str:
    """The disk that a line is about, by whatever partition or namespace; empty where it names none."""
    device = s.text("device").removeprefix("/dev/") if s.kind == SignalKind.NODE_STORAGE else ""
    part = _PART.match(device)
    return (part["disk"] or part["other"]) if part else device


def _recurs(s: Sighting) -> bool:
    rule = families().rule(s)
    return rule is not None and rule.recurs


def _hypothesis(node: Entity, family: str, session: Session, ready: Mapping[str, datetime]) -> Hypothesis:
    table = families()
    mine = distinct(session.sightings)
    root = _root(node, mine)
    signs = list(dict.fromkeys(table.says(s) for s in mine))
    shown = ", ".join(signs[:_SIGNS_SHOWN])
    if len(signs) > _SIGNS_SHOWN:
        shown += f" and {len(signs) - _SIGNS_SHOWN} more"
    kinds = {f"{s.kind}.{s.text('subtype')}".rstrip(".") for s in mine}
    if any(kind.startswith(SignalKind.NODE_STORAGE) for kind in kinds):
        kinds.discard(f"{SignalKind.NODE_KERNEL}.hung_task")  # what waits for a disk hangs in the kernel
    facts: dict[str, Attribute] = {"signs": tuple(sorted(kinds))}
    if gpus := {s.entity.key for s in mine if s.entity.gpu is not None}:
        facts["gpus_failed"] = len(gpus)
    if systems := sorted({name for s in mine if (name := _system(s, family)) is not None}):
        facts["storage"] = tuple(systems)
    certainty = max((table.certainty(s) for s in mine), key=level, default=Certainty.WEAK)
    why = f"{root}: {shown}"
    if family == IncidentFamily.PREEMPTION and (due := notice_facts(mine)):
        facts |= due
        if unread := due.get(UNREAD):
            why += f"; when that is cannot be read: {unread}"
        else:
            why += f"; it {'goes' if due[NODE_ENDS] == 'gone' else 'is taken down'} {announced(due)}"
        # A line can be quoted by anybody; what stands on the Node object was written by who takes it.
        certainty = Certainty.DECISIVE if is_said_by_object(mine) else certainty
    if family == IncidentFamily.PLANNED_WORK:
        facts |= work_facts(mine)
        why = f"{root}: {work_words(facts)}"
    return Hypothesis(
        place=Place(PlaceKind.NODE, node.node or ""),
        root=root,
        family=family,
        **session.times(),
        certainty=certainty,
        ready_at=min(ready[s.id] for s in mine),
        rule="signs of the place",
        why=why,
        causes=mine,
        facts=facts,
        stops=table[family].stops,
    )


def _counts_alone(mine: Iterable[Sighting]) -> bool:
    """Whether the signs are enough for an incident although no job stands still: not what every busy host gives now and then."""
    table, occasions, last = families(), 0, None
    seen = list(mine)
    if is_of_one_job(seen):
        return False
    for s in sorted(seen, key=order):
        rule = table.rule(s)
        if rule is not None and not rule.alone:
            continue
        if rule is None or not rule.recurs:
            return True
        if last is None or s.at - last >= timedelta(seconds=table.recurring.apart_s):
            occasions, last = occasions + 1, s.at
    return occasions >= table.recurring.times


def _system(s: Sighting, family: str) -> str | None:
    return storage_system(s) if family == IncidentFamily.STORAGE_FAULT else None


def _root(node: Entity, mine: Iterable[Sighting]) -> Entity:
    """The GPU that every line speaks of, with its best name; the node when they differ."""
    named = {s.entity.key: s.entity for s in mine if s.entity.gpu is not None}
    if len(named) == 1 and all(s.entity.gpu is not None for s in mine):
        only = next(iter(named.values()))
        return Entity(node.cluster, node=node.node, gpu=only.gpu)
    return node

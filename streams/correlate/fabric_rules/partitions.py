"""Ports that were taken out of a partition of an InfiniBand subnet: their links stay up, and nobody in it reaches them any more.

Tenants come and go, and so do the members of their partitions: that is nobody's fault. It is one where a job loses connections
to just those ports (`job_rules/left_partitions.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.hypothesis import LEFT_PARTITION, Hypothesis
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting, distinct, order
from streams.correlate.state.incarnations import FiringInterval, Incarnations, firing_intervals
from streams.correlate.state.place import Place, PlaceKind
from streams.correlate.state.rows import Groups, of_kind
from streams.model.entity import Entity, Part
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

PARTITION = "infiniband-partition"
"""The kind of such a part."""
TOGETHER = timedelta(minutes=10)
"""Members that leave within this leave together: a manager takes them out one by one."""


Joined = Mapping[str, Sequence[datetime]]
"""By GUID, in lower case: when it became a member of a partition."""


def partition_faults(
    cluster: str,
    place: str,
    pkey: str,
    seen: Groups,
    refused: Sequence[Sighting],
    joined: Joined,
    incarnations: Incarnations,
    config: Config,
) -> list[Hypothesis]:
    """Each time that members were taken out of a partition.

    Args:
        cluster: The name of the cluster.
        place: The name under which it is kept what is said of the partition.
        pkey: Its key.
        seen: What is said of it.
        refused: What ports of the subnet refused because of its key, in any partition.
        joined: When which GUID became a member of any partition.
        incarnations: What was published of it before.
        config: Its `leaf_share_up` is the share of the members that must be back.
    """
    said = [s for s in of_kind(seen, SignalKind.FABRIC_LINK) if s.text("pkey")]
    members: dict[str, list[Sighting]] = defaultdict(list)
    for s in said:
        if guid := s.text("member"):
            members[guid.lower()].append(s)
    # A manager that logs the request only names no member.
    whole = [] if members else firing_intervals(s for s in said if s.firing)
    intervals = [
        _until_joined(i, joined.get(guid, ()))
        for guid, stream in members.items()
        for i in firing_intervals(stream)
    ] + whole
    asked = [s for s in said if s.firing and s.text("by")]
    root = Entity(cluster, part=Part(PARTITION, pkey))
    found = []
    leaves = [_together(mine, config) for mine in _at_once(intervals)]
    for session in incarnations.sessions(root, "fabric", leaves):
        until = session.start + TOGETHER
        by = [s for s in asked if abs(s.at - session.start) <= TOGETHER]
        causes = session.sightings
        ports = len({s.text("member").lower() for s in causes if s.text("member")})
        hosts = sorted({node for s in causes if (node := s.entity.node) is not None and s.text("device")})
        what = f"{ports} port{'s were' if ports != 1 else ' was'}" if ports else "ports were"
        on = f" ({', '.join(hosts[:8])})" if hosts else ""
        who = f" by {by[0].text('by')}" if by else ""
        late = [s for s in refused if session.start <= s.at <= session.start + config.partition_refused]
        why = (
            f"{what}{on} taken out of partition {pkey} at {session.start:%H:%M} UTC{who}: their links stay up, and whoever is in "
            "it does not reach them; no host is at fault, so none is closed"
        )
        found.append(
            Hypothesis(
                place=Place(PlaceKind.PORT, place),
                root=root,
                family=IncidentFamily.FABRIC_FAULT,
                **session.times(),
                certainty=Certainty.LIKELY,
                ready_at=min(s.seen_at for s in causes) + config.storm_settle,
                rule=LEFT_PARTITION,
                lag=timedelta(),
                stops=families()[IncidentFamily.FABRIC_FAULT].stops,
                alone=False,
                why=why,
                causes=causes,
                context=distinct((*(s for s in by if s.at <= until and s not in causes), *late[:8])),
                facts={
                    "source": str(root),
                    "ports": ports,
                    **({"hosts": tuple(hosts[:64])} if hosts else {}),
                    **({"refused": len(late)} if late else {}),
                },
            )
        )
    return found


def _until_joined(i: FiringInterval, joined: Sequence[datetime]) -> FiringInterval:
    """The time that a port was in none: whoever uses it after it joined another one has nothing to do with this."""
    ends = [at for at in (i.end, *joined) if at is not None and at > i.start]
    return replace(i, end=min(ends)) if ends else i


def _at_once(intervals: Iterable[FiringInterval]) -> Iterable[list[FiringInterval]]:
    """Intervals that begin together."""
    mine: list[FiringInterval] = []
    for i in sorted(intervals, key=lambda i: (i.start, order(i.sightings[0]))):
        if mine and i.start - mine[0].start > TOGETHER:
            yield mine
            mine = []
        mine.append(i)
    if mine:
        yield mine


def _together(mine: Sequence[FiringInterval], config: Config) -> FiringInterval:
    """Members that left at once, as one; it is over when nearly all are back."""
    ends = sorted(i.end for i in mine if i.end is not None)
    end = ends[-1] if len(ends) >= config.leaf_share_up * len(mine) else None
    lines = tuple(sorted((s for i in mine for s in i.sightings), key=order))
    return FiringInterval(mine[0].start, max(i.last for i in mine), end, lines)

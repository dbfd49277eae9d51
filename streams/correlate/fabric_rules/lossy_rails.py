"""Rails that lose packets: NICs of one name on the nodes of jobs, while the other NICs of these nodes do not.

NICs of one name hang on one switch, or one for each block of nodes, where a fabric is built in rails. So what they alone show
points at a switch, nobody knows which, and nobody's counters but theirs are read. One bad cable looks much like it to those
who send to its node: there that node loses most by far.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from streams.correlate.fabric_rules.resending_hosts import TOGETHER, Around, FeltLoss, Shown, Spell, spells_of
from streams.correlate.policy.config import Config
from streams.correlate.policy.link_parts import parts
from streams.correlate.sightings import Sighting, distinct, order
from streams.correlate.state.incarnations import FiringInterval
from streams.model.entity import Entity, Part

RAIL = "rail"
"""The kind of such a part."""
_LEAST = 4
"""So many nodes must begin together."""
_SHARE_OF_ONE_JOB, _SHARE = 0.75, 0.5
"""The share of a job's nodes that must: a lone job's; that of each of several."""
_ELSEWHERE = 0.25
"""As many of these nodes may show it on other NICs, and as many nodes of other jobs on any: else the fabric is busy."""
_ALONE = 5.0
"""Where a node loses so many times what half of the others do, it is that node's own NIC or cable."""
_NUMBER = re.compile(r"[1-9]\d*$")
"""Ends the name of a NIC that is not the first of its host."""

Spells = Mapping[str, Sequence[Spell]]
"""By the name of a NIC: when packets of it were lost on a host."""


def lost_by_rail(shown: Shown) -> dict[str, tuple[Spell, ...]]:
    """When packets of which NIC of a host were lost or ran out of time, by the NIC's name."""
    lossy, by_nic = parts().lost | parts().timed_out, defaultdict[str, list[FiringInterval]](list)
    for nic, interval in shown:
        if nic and any(s.text("subtype") in lossy for s in interval.sightings):
            by_nic[nic.partition(":")[0]].append(interval)
    return {nic: spells_of(intervals) for nic, intervals in by_nic.items()}


def may_lose_rail(starts: Iterable[datetime]) -> bool:
    """Whether enough of these hosts begin together for it to be worth a comparison."""
    at = sorted(starts)
    return any(late - early <= TOGETHER for early, late in zip(at, at[_LEAST - 1 :], strict=False))


@dataclass(frozen=True, slots=True)
class _Rail:
    """A rail, all hosts that show anything, and what else is known of hosts."""

    nic: str
    shown: Mapping[str, Spells]
    members: Callable[[str, datetime], Set[str]]
    around: Around

    def begun(self, at: datetime) -> dict[str, Spell]:
        """The hosts whose NIC of the rail begins within ten minutes."""
        found: dict[str, Spell] = {}
        for host, spells in self.shown.items():
            for s in spells.get(self.nic, ()):
                if at <= s.start <= at + TOGETHER:
                    found.setdefault(host, s)
        return found

    def showing(self, hosts: Set[str], at: datetime) -> list[Spell]:
        """What NICs of the rail show on these hosts about that time, however long they have."""
        mine = (s for host in sorted(hosts) for s in self.shown.get(host, {}).get(self.nic, ()))
        return [s for s in mine if s.meets(at, at + TOGETHER)]

    def shows(self, host: str, at: datetime, *, other: bool) -> bool:
        """Whether a host shows it about that time, on any NIC; or on another one than the rail's (`other`)."""
        return any(
            s.meets(at, at + TOGETHER)
            for nic, spells in self.shown.get(host, {}).items()
            if not (other and nic == self.nic)
            for s in spells
        )


def rail_losses(
    cluster: str,
    nic: str,
    shown: Mapping[str, Spells],
    members: Callable[[str, datetime], Set[str]],
    around: Around,
    config: Config,
) -> list[FeltLoss]:
    """The times in which NICs of one name lose packets on most nodes of the jobs that use them.

    Args:
        cluster: The name of the cluster.
        nic: The name of the NICs.
        shown: By host: when packets of which of its NICs were lost.
        members: The nodes of a job at a time.
        around: What else is known of hosts.
        config: Its `leaf_share_up` is the share that must be quiet again.
    """
    rail, found, until = _Rail(nic, shown, members, around), list[FeltLoss](), None
    for at in sorted({s.start for spells in shown.values() for s in spells.get(nic, ())}):
        if until is not None and at <= until:
            continue
        if (loss := _at(rail, at, cluster, config)) is not None:
            found.append(loss)
            until = at + TOGETHER
    return found


def _at(rail: _Rail, at: datetime, cluster: str, config: Config) -> FeltLoss | None:
    begun = rail.begun(at)
    if len(begun) < _LEAST:
        return None
    jobs = {host: rail.around.jobs(host, at) for host in begun}
    ill = rail.around.ill(at)
    suffer = set[str]().union(*(rail.around.jobs(host, at) for host in ill))
    nodes = {
        job: rail.members(job, at) for job in set[str]().union(*jobs.values()) - suffer
    }  # a node in trouble makes all that talk to it send again
    hit = {job: {h for h in there if h in begun and h not in ill} for job, there in nodes.items()}
    several = sum(len(mine) > 1 for mine in hit.values()) > 1
    share = _SHARE if several else _SHARE_OF_ONE_JOB
    hit = {job: mine for job, mine in hit.items() if len(mine) > 1 and len(mine) >= share * len(nodes[job])}
    hosts = set[str]().union(*hit.values())
    if len(hosts) < _LEAST or (
        _NUMBER.search(rail.nic) is None and not any(len(rail.shown[h]) > 1 for h in hosts)
    ):
        return None  # that a host has other NICs at all must be known
    if sum(rail.shows(h, at, other=True) for h in hosts) > _ELSEWHERE * len(hosts):
        return None
    theirs = set[str]().union(*(nodes[job] for job in hit))
    strangers = [h for h in rail.shown if h not in theirs and rail.shows(h, at, other=False)]
    if len(strangers) > _ELSEWHERE * len(hosts) or _is_of_one(rail.showing(theirs, at)):
        return None
    spells = sorted(((h, begun[h]) for h in hosts), key=lambda item: (item[1].start, item[0]))
    firsts = tuple(sorted((min(s.sightings, key=order) for _, s in spells), key=order))
    ends = sorted(s.end for _, s in spells if s.end is not None)
    lost = sum(any(s.text("subtype") in parts().lost for s in spell.sightings) for _, spell in spells)
    return FeltLoss(
        root=Entity(cluster, part=Part(RAIL, rail.nic)),
        interval=FiringInterval(
            at,
            max(s.at for s in firsts),
            ends[-1] if len(ends) >= config.leaf_share_up * len(spells) else None,
            firsts,
        ),
        hosts=tuple(sorted(hosts)),
        known=len(theirs),
        peers=(),
        lines=distinct(s for _, spell in spells for s in spell.sightings),
        seen_at=sorted(s.seen_at for s in firsts)[_LEAST - 1],
        one_job=len(hit) == 1,
        is_lost=lost >= _LEAST,
        times_out=False,
        by_rail=True,
    )


def _is_of_one(spells: Sequence[Spell]) -> bool:
    """Whether one host loses most by far of what all of them lose."""
    rates = sorted(rate for s in spells if (rate := max(map(_rate, s.sightings), default=0.0)) > 0)
    return len(rates) >= _LEAST and rates[-1] >= _ALONE * median(rates[:-1])


def _rate(s: Sighting) -> float:
    """What a counter's row says of it; alerts and conditions have no figure."""
    rate = s.attributes.get("count_per_minute")
    return float(rate) if isinstance(rate, (int, float)) else 0.0

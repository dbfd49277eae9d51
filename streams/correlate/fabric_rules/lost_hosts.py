"""Hosts that are gone from all of their switches at once: the hosts went dark, and no switch is at fault.

A rack that loses its power takes its hosts' links to every leaf along, and with rail-optimised cabling each host hangs on eight
of them. Each leaf then misses the same few hosts, which looks like a fault of each leaf. A leaf that fails takes one link of each
of its hosts, and these say so themselves, for they run on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from streams.correlate.fabric_rules.switch_faults import SwitchFault
from streams.correlate.policy.config import Config
from streams.correlate.sightings import distinct
from streams.correlate.state.place import PlaceKind
from streams.model.entity import WENT_WITH, Entity, Part
from streams.model.kinds import IncidentFamily

WENT_TOGETHER = "hosts lost by several switches"
"""The rule of such a fault."""
_SWITCHES = 2
"""So many switches must miss the same hosts."""
_MAX_NAMED = 6


@dataclass(frozen=True, slots=True)
class LostHosts:
    """Hosts that several switches miss from one moment on."""

    hosts: frozenset[str]
    faults: tuple[tuple[str, SwitchFault], ...]
    """What each switch lost, with its name, the first name first."""

    def fault(self, cluster: str) -> SwitchFault:
        """The one fault that it is, where nobody knows what these hosts share. It is kept where the first switch's was."""
        names = [name for name, _ in self.faults]
        first = self.faults[0][1].hypothesis
        hosts = sorted(self.hosts)
        hypotheses = [fault.hypothesis for _, fault in self.faults]
        more = f" and {len(hosts) - _MAX_NAMED} more" if len(hosts) > _MAX_NAMED else ""
        why = (
            f"{', '.join(hosts[:_MAX_NAMED])}{more} lost their links to {len(names)} switches ({', '.join(names[:_MAX_NAMED])}"
            f"{' …' if len(names) > _MAX_NAMED else ''}) within a minute, and none of these hosts says that it runs on: they "
            "went dark together, and no switch is at fault. What they share is not known: look at their power first"
        )
        hypothesis = replace(
            first,
            root=Entity(cluster, part=Part(WENT_WITH, hosts[0])),
            family=IncidentFamily.SHARED_FAULT,
            fault_at=min(h.fault_at for h in hypotheses),
            last_at=max(h.last_at for h in hypotheses),
            rule=WENT_TOGETHER,
            why=why,
            causes=distinct(s for h in hypotheses for s in h.causes),
            nodes=tuple(hosts),
            candidates=(),
            facts={**first.facts, "source": "their switches", "switches": tuple(names[:64])},
        )
        members = {place: at for _, fault in reversed(self.faults) for place, at in fault.members.items()}
        return SwitchFault(hypothesis, members)


class _Lost(NamedTuple):
    """What one switch lost: hosts."""

    switch: str
    fault: SwitchFault
    hosts: frozenset[str]


def lost_hosts(faults: Mapping[str, Iterable[SwitchFault]], config: Config) -> list[LostHosts]:
    """The groups of hosts that at least two switches each (`faults`, by switch) lost within one minute, largest first."""
    lost = [
        _Lost(name, fault, hosts)
        for name in sorted(faults)
        for fault in faults[name]
        if (hosts := _hosts_of(fault)) and not fault.by_hosts and fault.hypothesis.alone
    ]
    lost.sort(key=lambda one: (-len(one.hosts), one.fault.hypothesis.fault_at, one.switch))
    # Of thousands of switches those that miss one host are few.
    missing: dict[str, list[_Lost]] = defaultdict(list)
    for one in lost:
        for host in one.hosts:
            missing[host].append(one)
    found, taken = list[LostHosts](), set[int]()
    for first in lost:
        if id(first) in taken:
            continue
        beside = {id(one): one for host in sorted(first.hosts) for one in missing[host]}
        mine = [one for one in beside.values() if id(one) not in taken and _are_same(first, one, config)]
        taken |= {id(one) for one in mine}
        if len({one.switch for one in mine}) >= _SWITCHES:
            by_name = sorted(mine, key=lambda one: (one.switch, one.fault.hypothesis.id))
            found.append(LostHosts(first.hosts, tuple((one.switch, one.fault) for one in by_name)))
    return found


def _hosts_of(fault: SwitchFault) -> frozenset[str]:
    """The hosts that a switch lost; none where it lost another switch as well, or a port whose end nobody knows."""
    of_hosts = all(place.kind is PlaceKind.NODE for place in fault.members)
    return frozenset(place.name for place in fault.members) if of_hosts else frozenset()


def _are_same(one: _Lost, other: _Lost, config: Config) -> bool:
    """Whether two switches lost the same hosts at the same time. Of many lines that say so, some are always lost."""
    if abs(one.fault.hypothesis.fault_at - other.fault.hypothesis.fault_at) > config.leaf_window:
        return False
    return len(one.hosts & other.hosts) >= config.leaf_share_up * len(one.hosts | other.hosts)

"""Hosts that are gone from all of their switches at once: the hosts went dark, and no switch is at fault.

A rack that loses its power takes its hosts' links to every leaf along, and with rail-optimised cabling each host hangs on eight
of them. Each leaf then misses the same few hosts, which looks like a fault of each leaf. A leaf that fails takes one link of each
of its hosts, and these say so themselves, for they run on. Leafs that restart together miss the same hosts as well: see
`went_dark.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from streams.correlate.fabric_rules.switch_faults import SwitchFault, mostly_over
from streams.correlate.fabric_rules.went_dark import (
    Finding,
    Gone,
    LinkTimes,
    Witnesses,
    times_of,
    what_was_gone,
)
from streams.correlate.policy.config import Config
from streams.correlate.sightings import distinct, latest_end
from streams.correlate.state.place import PlaceKind
from streams.model.entity import WENT_WITH, Entity, Part
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily

WENT_TOGETHER = "hosts lost by several switches"
"""The rule of such a fault."""
RUN_ON = "hosts_run_on"
"""Fact of a switch's fault: its hosts are known to run on, though they may be missed as well."""
_SWITCHES = 2
"""So many switches must miss the same hosts."""
_MAX_NAMED = 6


@dataclass(frozen=True, slots=True)
class LostHosts:
    """Hosts that several switches miss from one moment on."""

    hosts: frozenset[str]
    faults: tuple[tuple[str, SwitchFault], ...]
    """What each switch lost, with its name, the first name first."""
    finding: Finding
    """Whether the hosts or the switches were gone."""
    over_at: datetime | None
    """When all of them were back: every host at nearly all of its switches, and every switch with nearly all of its links."""

    def fault(self, cluster: str, config: Config) -> SwitchFault:
        """The one fault that it is, where nobody knows what these hosts share. It is kept where the first switch's was."""
        names = [name for name, _ in self.faults]
        first = self.faults[0][1].hypothesis
        hosts = sorted(self.hosts)
        hypotheses = [fault.hypothesis for _, fault in self.faults]
        briefs = [h.brief_until for h in hypotheses]
        ready_at, certainty = first.ready_at, first.certainty
        if self.finding.gone is Gone.UNKNOWN:
            # A kubelet is missed after most of a minute, and what a switch says as it boots is shipped when it is up.
            ready_at = max(ready_at, min(s.seen_at for h in hypotheses for s in h.causes) + config.link_alone)
            certainty = Certainty.WEAK
        hypothesis = replace(
            first,
            root=Entity(cluster, part=Part(WENT_WITH, hosts[0])),
            family=IncidentFamily.SHARED_FAULT,
            certainty=certainty,
            fault_at=min(h.fault_at for h in hypotheses),
            last_at=max(h.last_at for h in hypotheses),
            cleared_at=self.over_at,
            flaps=max(h.flaps for h in hypotheses),
            ready_at=ready_at,
            brief_until=max((at for at in briefs if at is not None), default=None) if all(briefs) else None,
            was_brief=all(h.was_brief for h in hypotheses),
            rule=WENT_TOGETHER,
            why=self._why(hosts, names),
            causes=distinct(s for h in hypotheses for s in h.causes),
            nodes=tuple(hosts),
            candidates=(),
            facts={**first.facts, "source": "their switches", "switches": tuple(names[:64])},
        )
        members = {place: at for _, fault in reversed(self.faults) for place, at in fault.members.items()}
        return SwitchFault(hypothesis, members)

    def _why(self, hosts: list[str], names: list[str]) -> str:
        more = f" and {len(hosts) - _MAX_NAMED} more" if len(hosts) > _MAX_NAMED else ""
        what = (
            f"{', '.join(hosts[:_MAX_NAMED])}{more} lost their links to {len(names)} switches ({', '.join(names[:_MAX_NAMED])}"
            f"{' …' if len(names) > _MAX_NAMED else ''}) within a minute"
        )
        if self.finding.gone is Gone.UNKNOWN:
            return (
                f"{what}. Either these hosts went dark together, or the switches restarted and the hosts run on: nothing shows "
                "which. Look at the uptime of the switches first, then at the power of the hosts"
            )
        if self.finding.gone is Gone.LINKS:
            return (
                f"{what}, but neither the hosts nor the switches were gone: {self.finding.says}. What these links share is not "
                "known: look at their cables and patch panels, and at what was changed on these hosts"
            )
        shown = f" ({self.finding.says})" if self.finding.says else ""
        return (
            f"{what}, and none of these hosts says that it runs on: they went dark together{shown}, and no switch is at fault. "
            "What they share is not known: look at their power first"
        )

    def restarted(self, switch: str, fault: SwitchFault) -> SwitchFault:
        """The fault of one of the switches, where they were gone and not the hosts."""
        others = sorted({name for name, _ in self.faults} - {switch})
        named = f"{', '.join(others[:_MAX_NAMED])}{' …' if len(others) > _MAX_NAMED else ''}"
        beside = f"{named} lost the same hosts within a minute, but these" if others else "Its hosts"
        why = f"{fault.hypothesis.why}. {beside} did not go dark: {self.finding.says}"
        facts = {**fault.hypothesis.facts, RUN_ON: True}
        return replace(fault, hypothesis=replace(fault.hypothesis, why=why, facts=facts))


class _Lost(NamedTuple):
    """What one switch lost: hosts."""

    switch: str
    fault: SwitchFault
    hosts: frozenset[str]


_AGAIN = timedelta(minutes=1)
"""While hosts are missed, that nothing more is seen says something, too: it is looked at anew as time passes."""


class _Judged(NamedTuple):
    at: datetime
    group: LostHosts

    def is_due(self, now: datetime, config: Config) -> bool:
        """Whether time alone may have changed it: as it may be told first, and now and then while hosts are missed."""
        told = min(fault.hypothesis.fault_at for _, fault in self.group.faults) + config.link_alone
        return self.group.over_at is None and (self.at < told <= now or now - self.at >= _AGAIN)


class LostHostGroups:
    """Finds the groups, and judges each once for as long as nothing changes of its hosts and switches.

    Many racks may be gone at once, and every batch looks at all of them.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._known: dict[tuple[object, ...], _Judged] = {}
        self._found: set[tuple[object, ...]] = set()

    def begin(self, hosts: Set[str], switches: Set[str]) -> None:
        """Forget what was judged of groups with any of these, and of those that were not found any more."""
        self._known = {
            key: judged
            for key, judged in self._known.items()
            if key in self._found
            and hosts.isdisjoint(judged.group.hosts)
            and not any(switch in switches for switch, _ in judged.group.faults)
        }
        self._found = set()

    def find(
        self,
        faults: Mapping[str, Iterable[SwitchFault]],
        witnesses: Witnesses,
        now: datetime,
        least: int = _SWITCHES,
    ) -> list[LostHosts]:
        """The groups of hosts that so many switches at least (`faults`, by switch) lost within one minute, largest first.

        What was lost for work on a switch that somebody ordered is none of it.
        """
        found = []
        for hosts, mine in _groups(faults, self._config, least):
            by_name = tuple(sorted(mine, key=lambda one: (one.switch, one.fault.hypothesis.id)))
            key = (hosts, *((one.switch, one.fault.hypothesis.id) for one in by_name))
            self._found.add(key)
            known = self._known.get(key)
            same = known is not None and all(
                one.fault is fault for one, (_, fault) in zip(by_name, known.group.faults, strict=True)
            )
            if known is None or not same or known.is_due(now, self._config):
                known = self._known[key] = _Judged(now, _judged(hosts, by_name, witnesses, self._config))
            found.append(known.group)
        return found


def _groups(
    faults: Mapping[str, Iterable[SwitchFault]], config: Config, least: int
) -> Iterable[tuple[frozenset[str], list[_Lost]]]:
    lost = [
        _Lost(name, fault, hosts)
        for name in sorted(faults)
        for fault in faults[name]
        if (hosts := _hosts_of(fault)) and not fault.by_hosts and not fault.ordered and fault.hypothesis.alone
    ]
    lost.sort(key=lambda one: (-len(one.hosts), one.fault.hypothesis.fault_at, one.switch))
    # Of thousands of switches those that miss one host are few.
    missing: dict[str, list[_Lost]] = defaultdict(list)
    for one in lost:
        for host in one.hosts:
            missing[host].append(one)
    taken = set[int]()
    for first in lost:
        if id(first) in taken:
            continue
        beside = {id(one): one for host in sorted(first.hosts) for one in missing[host]}
        mine = [one for one in beside.values() if id(one) not in taken and _are_same(first, one, config)]
        taken |= {id(one) for one in mine}
        if len({one.switch for one in mine}) >= least:
            yield first.hosts, mine


def _judged(
    hosts: frozenset[str], by_name: Sequence[_Lost], witnesses: Witnesses, config: Config
) -> LostHosts:
    lost: dict[str, dict[str, LinkTimes]] = {}
    for one in by_name:
        lost.setdefault(one.switch, {}).update(times_of(one.fault, one.switch, config))
    ends: dict[str, list[datetime | None]] = defaultdict(list)
    for times in lost.values():
        for host, link in times.items():
            ends[host].append(link.end)
    over_at = latest_end(
        [
            *(one.fault.hypothesis.cleared_at for one in by_name),
            *(mostly_over(ends[host], config) for host in sorted(hosts) if host in ends),
        ]
    )
    finding = what_was_gone(hosts, lost, witnesses, config)
    return LostHosts(hosts, tuple((one.switch, one.fault) for one in by_name), finding, over_at)


def _hosts_of(fault: SwitchFault) -> frozenset[str]:
    """The hosts that a switch lost; none where it lost another switch as well, or a port whose end nobody knows.

    Hosts that storm or lose packets have their links.
    """
    of_hosts = all(place.kind is PlaceKind.NODE for place in fault.links)
    return frozenset(place.name for place in fault.links) if of_hosts else frozenset()


def _are_same(one: _Lost, other: _Lost, config: Config) -> bool:
    """Whether two switches lost the same hosts at the same time. Of many lines that say so, some are always lost."""
    if abs(one.fault.hypothesis.fault_at - other.fault.hypothesis.fault_at) > config.leaf_window:
        return False
    return len(one.hosts & other.hosts) >= config.leaf_share_up * len(one.hosts | other.hosts)

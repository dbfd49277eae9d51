"""Whether hosts that several switches lost at once went dark, or run on behind switches that restarted.

Two leafs of one rack that restart in the same minute miss the same hosts as a rack without power does. What tells the two apart:
a host that goes dark takes its links to all switches along, and they are back when it is; a switch that restarts takes the links
of all its hosts along, and they are back when it is, and says that it was booted. A host that speaks meanwhile, whose job goes
on, or that is back without a new boot did not go dark; one that was booted anew did. Where nothing tells, nobody is accused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Protocol

from streams.correlate.fabric_rules.links import LinkFault
from streams.correlate.fabric_rules.nic_timeline import LinkEvent, counted_since
from streams.correlate.fabric_rules.switch_faults import SwitchFault, falls_at
from streams.correlate.policy.config import Config
from streams.correlate.sightings import latest_end
from streams.correlate.state.place import PlaceKind
from streams.model.clock import span
from streams.model.signal import MANAGER

_LEAST = 2
"""So many switches must have lost the hosts, and so many hosts tell by their times whose links went together."""
_MAX_NAMED = 4


class Gone(StrEnum):
    """What was gone."""

    HOSTS = "hosts"
    SWITCHES = "switches"
    LINKS = "links"
    """Neither: hosts and switches run on."""
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """What was gone, and in a few words what tells so; no words where nothing does."""

    gone: Gone
    says: str = ""
    ports: tuple[str, ...] = ()
    """The switch ports of which that was said."""


class Away(NamedTuple):
    """When hosts were without links: from the first that was lost until the first that was back; None while none is."""

    since: datetime
    until: datetime | None


class Witnesses(Protocol):
    """What else is known of the hosts and the switches."""

    def hosts_of(self, switch: str) -> Set[str]:
        """The hosts that are known to hang on it."""
        ...

    def is_booted_anew(self, host: str, away: Away) -> bool:
        """Whether the host was booted meanwhile."""
        ...

    def life_of(self, hosts: Collection[str], away: Mapping[str, Away]) -> str:
        """What shows that one of these hosts ran on while it was without links; empty where nothing does."""
        ...

    def said_boot(self, switch: str, away: Away) -> bool:
        """Whether the switch says that it was booted then."""
        ...

    def spoke(self, switch: str, away: Away) -> str | None:
        """The port of which the switch itself said anything in the middle of it; None where it was silent."""
        ...


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """When a host lost its links to one switch."""

    went: datetime
    back: datetime | None
    """When those were back that it lost first."""
    end: datetime | None
    """When all of them were back for good."""
    exact: bool
    """Whether the switch itself dates them; who reads counters, or asks ports in turn, knows the minute only."""


def times_of(fault: SwitchFault, switch: str, config: Config) -> dict[str, LinkTimes]:
    """By host: when the switch lost it."""
    return {
        place.name: _times(link, switch, fault.hypothesis.fault_at - config.skew, config)
        for place, link in fault.links.items()
        if place.kind is PlaceKind.NODE
    }


def _times(link: LinkFault, switch: str, since: datetime, config: Config) -> LinkTimes:
    falls = [m for m in falls_at(link, switch) if m.at >= since] or list(link.events)
    went = min(m.at for m in falls)
    first = [m for m in falls if m.at <= went + config.skew]
    return LinkTimes(
        went,
        latest_end(m.end for m in first),
        latest_end(m.end for m in falls),
        all(_is_exact(m, switch) for m in first),
    )


def _is_exact(m: LinkEvent, switch: str) -> bool:
    s = m.sighting
    by_itself = s.entity.switch == switch and MANAGER not in s.attributes and "alert" not in s.attributes
    return by_itself and counted_since(s) is None


class _Outage:
    """Hosts that several switches lost at once, and what the tests ask of both; each is worked out when the first test asks."""

    def __init__(
        self,
        hosts: Set[str],
        lost: Mapping[str, Mapping[str, LinkTimes]],
        witnesses: Witnesses,
        config: Config,
    ) -> None:
        self._hosts, self.lost, self.witnesses, self.config = hosts, lost, witnesses, config

    @cached_property
    def away(self) -> Mapping[str, Away]:
        """By host: when it was without links."""
        return {
            host: _away(times[host] for times in self.lost.values() if host in times)
            for host in sorted(self._hosts)
        }

    @cached_property
    def stretches(self) -> Mapping[str, Away]:
        """By switch: when it was without these hosts."""
        return {switch: _away(times.values()) for switch, times in self.lost.items()}

    @cached_property
    def booted(self) -> Sequence[str]:
        """The switches that report a boot of their own then."""
        return [s for s in sorted(self.lost) if self.witnesses.said_boot(s, self.stretches[s])]

    @cached_property
    def others(self) -> Mapping[str, Mapping[str, LinkTimes]]:
        """What the other switches lost."""
        return {switch: times for switch, times in self.lost.items() if switch not in self.booted}

    @cached_property
    def life(self) -> str:
        """What shows that the hosts ran on; empty where nothing does."""
        return self.witnesses.life_of(self.away, self.away)


def what_was_gone(
    hosts: Set[str], lost: Mapping[str, Mapping[str, LinkTimes]], witnesses: Witnesses, config: Config
) -> Finding:
    """What was gone as each of these switches lost these hosts (`lost`, by switch and host), by the first test that can tell."""
    outage = _Outage(hosts, lost, witnesses, config)
    found = (test(outage) for test in _TESTS)
    return next((finding for finding in found if finding is not None), Finding(Gone.UNKNOWN))


def _hosts_rebooted(outage: _Outage) -> Finding | None:
    rebooted = sum(outage.witnesses.is_booted_anew(host, away) for host, away in outage.away.items())
    if rebooted >= outage.config.rebooted_share * len(outage.away):
        return Finding(Gone.HOSTS, "they were booted anew")
    return None


def _switches_rebooted(outage: _Outage) -> Finding | None:
    if outage.booted and len(outage.others) < _LEAST:
        return Finding(Gone.SWITCHES, f"{_named(outage.booted)} reported a boot meanwhile")
    return None


def _switches_kept_other_hosts(outage: _Outage) -> Finding | None:
    share, hosts_of = outage.config.leaf_share_up, outage.witnesses.hosts_of
    kept = [s for s, times in sorted(outage.others.items()) if len(times) < share * len(hosts_of(s))]
    if not kept:
        return None
    says = f"other hosts of {_named(kept)} kept their links"
    return Finding(Gone.LINKS, f"{outage.life}, and {says}") if outage.life else Finding(Gone.HOSTS, says)


def _hosts_ran_on(outage: _Outage) -> Finding | None:
    return Finding(Gone.SWITCHES, outage.life) if outage.life else None


def _links_went_together(outage: _Outage) -> Finding | None:
    return _by_times(outage.others, outage.config)


def _switches_ran_on(outage: _Outage) -> Finding | None:
    spoke = {
        switch: port
        for switch in sorted(outage.others)
        if (port := outage.witnesses.spoke(switch, outage.stretches[switch])) is not None
    }
    if not spoke:
        return None
    says = f"{_named(list(spoke))} kept reporting on its ports meanwhile"
    return Finding(Gone.HOSTS, says, tuple(spoke.values()))


_TESTS = (
    _hosts_rebooted,
    _switches_rebooted,
    _switches_kept_other_hosts,
    _hosts_ran_on,
    _links_went_together,
    _switches_ran_on,
)
"""In this order: a boot is sure, that something ran on nearly so, and times agree by chance now and then."""


def _away(times: Iterable[LinkTimes]) -> Away:
    known = list(times)
    return Away(min(t.went for t in known), min((t.back for t in known if t.back is not None), default=None))


def _by_times(lost: Mapping[str, Mapping[str, LinkTimes]], config: Config) -> Finding | None:
    """Whose links went, or were back, at one moment: those of each host, or those of each switch.

    How long a link was away depends on nobody's clock, so that counts first.
    """
    exact = {s: {h: t for h, t in times.items() if t.exact} for s, times in lost.items()}
    if any(len(times) < _LEAST for times in exact.values()):
        return None
    back = {s: {h: t.back - t.went for h, t in times.items() if t.back} for s, times in exact.items()}
    if all(len(back[s]) >= config.leaf_share_up * len(lost[s]) for s in lost):
        one, other = _spreads(back)
        if other and one <= config.together and min(other) > max(config.skew, one):
            took = ", ".join(f"{s} {span(min(back[s].values()))}" for s in sorted(back)[:_MAX_NAMED])
            return Finding(
                Gone.SWITCHES,
                f"each switch had all of its links back at once, after a time of its own ({took})",
            )
        if other and max(other) <= config.skew and one > config.together:
            return Finding(
                Gone.HOSTS,
                "each of them had its links to all of these switches back at once, one after another",
            )
    began = min(t.went for times in exact.values() for t in times.values())
    one, other = _spreads({s: {h: t.went - began for h, t in times.items()} for s, times in exact.items()})
    if other and one <= config.skew and min(other) > config.skew:
        return Finding(
            Gone.SWITCHES, "each switch lost all of its links at one moment, and not at that of the others"
        )
    if other and max(other) <= config.skew and one > config.skew:
        return Finding(
            Gone.HOSTS, "each of them lost its links to all of these switches at once, one after another"
        )
    return None


def _spreads(by_switch: Mapping[str, Mapping[str, timedelta]]) -> tuple[timedelta, list[timedelta]]:
    """How far the times of one switch lie apart at most, and how far those of each host do that several switches report."""
    by_host: dict[str, list[timedelta]] = defaultdict(list)
    for times in by_switch.values():
        for host, at in times.items():
            by_host[host].append(at)
    within = max(max(times.values()) - min(times.values()) for times in by_switch.values())
    return within, [max(times) - min(times) for times in by_host.values() if len(times) > 1]


def _named(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_MAX_NAMED])}{' …' if len(names) > _MAX_NAMED else ''}"

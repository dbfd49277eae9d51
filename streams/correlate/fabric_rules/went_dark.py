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
    """Whether the switch itself tells the times; who reads counters, or asks ports in turn, tells of a minute."""


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


def what_was_gone(
    hosts: Set[str], lost: Mapping[str, Mapping[str, LinkTimes]], witnesses: Witnesses, config: Config
) -> Finding:
    """What was gone as each of these switches lost these hosts (`lost`, by switch and host)."""
    away = {host: _away(times[host] for times in lost.values() if host in times) for host in sorted(hosts)}
    if 2 * sum(witnesses.is_booted_anew(host, stretch) for host, stretch in away.items()) >= len(away):
        return Finding(Gone.HOSTS, "they were booted anew")
    stretches = {switch: _away(times.values()) for switch, times in lost.items()}
    booted = [switch for switch in sorted(lost) if witnesses.said_boot(switch, stretches[switch])]
    if booted and len(lost) - len(booted) < _LEAST:
        return Finding(Gone.SWITCHES, f"{_named(booted)} said meanwhile to have been booted")
    rest = {switch: times for switch, times in lost.items() if switch not in booted}
    life = witnesses.life_of(away, away)
    kept = [s for s in sorted(rest) if len(rest[s]) < config.leaf_share_up * len(witnesses.hosts_of(s))]
    if kept:
        others = f"other hosts of {_named(kept)} kept their links"
        return Finding(Gone.LINKS, f"{life}, and {others}") if life else Finding(Gone.HOSTS, others)
    if life:
        return Finding(Gone.SWITCHES, life)
    if (found := _by_times(rest, config)) is not None:
        return found
    told = {switch: witnesses.spoke(switch, stretches[switch]) for switch in sorted(rest)}
    if spoke := {switch: port for switch, port in told.items() if port is not None}:
        says = f"{_named(list(spoke))} itself went on to speak of its ports"
        return Finding(Gone.HOSTS, says, tuple(spoke.values()))
    return Finding(Gone.UNKNOWN)


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
    """How far the times of one switch lie apart at most, and how far those of each host do that several switches tell of."""
    by_host: dict[str, list[timedelta]] = defaultdict(list)
    for times in by_switch.values():
        for host, at in times.items():
            by_host[host].append(at)
    within = max(max(times.values()) - min(times.values()) for times in by_switch.values())
    return within, [max(times) - min(times) for times in by_host.values() if len(times) > 1]


def _named(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_MAX_NAMED])}{' …' if len(names) > _MAX_NAMED else ''}"

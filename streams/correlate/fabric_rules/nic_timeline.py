"""Link events by NIC: which names mean the same NIC, and when each fault began and ended.

A NIC has several names (`eth2`, `mlx5_2`, its PCI address, the switch port it is attached to). Names in one line or of one cable
mean the same NIC, and those that something joined before (`nic_names.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from streams.correlate.policy.config import Config
from streams.correlate.policy.link_parts import Part, parts
from streams.correlate.sightings import Sighting, dropped_middle, order
from streams.correlate.state.incarnations import FiringInterval, firing_intervals
from streams.correlate.state.nic_names import NicNames, host_names
from streams.correlate.state.rows import PortRow, of_kind
from streams.model.clock import from_millis
from streams.model.entity import Entity
from streams.model.kinds import SignalKind
from streams.model.nics import nic_name_kind
from streams.model.signal import MANAGER, SERIES, SINCE


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """One sighting of one NIC, and when the fault it reports ended (None while it lasts)."""

    sighting: Sighting
    part: Part
    nic: str
    """The NIC, by the first of all its names; not for display."""
    kinds: frozenset[str]
    """Of which kinds its host's names are that are known, and this one. Two NICs have each a name of one kind."""
    name: Entity
    """The NIC or port as this sighting names it, for display."""
    start: datetime
    """When the sighting's interval began."""
    end: datetime | None
    until: datetime | None = None
    """Until when the fault lasted at least, where sightings in the middle are forgotten."""

    @property
    def at(self) -> datetime:
        """The line's time."""
        return self.sighting.at

    @property
    def by_host(self) -> bool:
        """Whether the host itself reports it, and therefore is alive."""
        return self.sighting.entity.switch is None and MANAGER not in self.sighting.attributes


def of_port(row: PortRow) -> list[Sighting]:
    """What a switch reported about the link in one port."""
    return of_kind(row.seen, SignalKind.FABRIC_LINK)


def counted_since(s: Sighting) -> datetime | None:
    """The sample before the one in which a counter had risen: it rose since then; None for what is no counter."""
    since = s.number(SINCE)
    return from_millis(since) if SERIES in s.attributes and since is not None else None


def how_many(events: Iterable[LinkEvent]) -> int:
    """The least number of NICs: names of different kinds may mean the same one, names of one kind do not."""
    kinds: dict[str, set[str]] = {}
    for m in events:
        for kind in m.kinds:
            kinds.setdefault(kind, set()).add(m.nic)
    return max(map(len, kinds.values()), default=0)


def link_events(
    reports: Sequence[tuple[Sighting, Entity]], names: NicNames, config: Config
) -> list[LinkEvent]:
    """Every firing sighting with the end of its interval, sorted. A counter that rose is over at once. `names` are the host's.

    What went down as somebody shut its port is left out, whichever end of the cable reports it.
    """
    table = parts()
    same, kinds_of = _aliases(reports, names)
    streams: dict[tuple[str, str, str], list[tuple[Sighting, Entity]]] = {}
    shut = [
        (same[_names(s, name, names)[0]], s.at) for s, name in reports if s.firing and table.of(s) == "shut"
    ]
    for s, name in reports:
        if table.of(s) == "shut":
            continue
        if s.firing and table.is_intended(s):
            continue
        nic = same[_names(s, name, names)[0]]
        source = s.entity.switch or "host"
        streams.setdefault((nic, f"{source}/{s.entity.port}", s.text("subtype")), []).append((s, name))
    for (nic, source, subtype), stream in streams.items():
        if subtype == "cable_unplugged":
            # A link that is up has its cable in; not every driver says so.
            stream += [(s, n) for s, n in streams.get((nic, source, "link_down"), ()) if not s.firing]
        elif subtype in table.device - table.reset:
            # A driver that has reset its device has ended whatever it reset it for.
            for reset in sorted(table.reset):
                stream += [(s, n) for s, n in streams.get((nic, source, reset), ()) if not s.firing]
    events = []
    for (nic, _, _), stream in streams.items():
        shown = {s.id: name for s, name in stream}
        goes_on = dropped_middle(s for s, _ in stream)
        found = (
            part for i in firing_intervals(s for s, _ in stream) for part in _stretches(i, goes_on, config)
        )
        for interval in found:
            if any(
                nic == port and -config.together <= interval.start - at <= config.shut_takes
                for port, at in shut
            ):
                continue
            for s in interval.sightings:
                part = table.of(s)
                end = s.at if part == "bounced" else interval.end
                kinds = kinds_of[nic] | ({"port"} if s.entity.switch is not None else set())
                events.append(
                    LinkEvent(s, part, nic, kinds, shown[s.id], interval.start, end, goes_on.get(s.id))
                )
    return _seen_from_both_ends(sorted(events, key=lambda m: order(m.sighting)), config)


def _stretches(
    interval: FiringInterval, gaps: Mapping[str, datetime], config: Config
) -> list[FiringInterval]:
    """The interval, split where its start is reported again (`found_anew`); errors in a log are over an hour after the last.

    A bad contact errs on and off for hours, and is one fault.
    """
    if not all(map(parts().is_endless, interval.sightings)):
        return found_anew(interval, gaps, config.quiet, config.link_alone)
    again = config.link_again
    *before, last = found_anew(interval, gaps, again, again)
    return [*before, replace(last, end=last.end or last.last + again)]


def _seen_from_both_ends(events: list[LinkEvent], config: Config) -> list[LinkEvent]:
    """Where only one end of a cable reported that its link is up again, it is up at the other end too: lines get lost.

    Only where the link is certain: one of the host's own and one of a switch went down within the clock skew.
    """
    down = [m for m in events if m.part == "down"]
    if all(m.end is not None for m in down) or len({m.by_host for m in down}) < 2:
        return events
    ends: dict[str, datetime] = {}
    for m in down:
        near = [o for o in down if abs(o.start - m.start) <= config.skew]
        others = [o.end for o in near if o.by_host is not m.by_host and o.end is not None]
        if m.end is None and others and how_many(near) == 1:
            ends[m.sighting.id] = max(others)
    return [replace(m, end=ends.get(m.sighting.id, m.end)) for m in events]


def found_anew(
    interval: FiringInterval, gaps: Mapping[str, datetime], quiet: timedelta, least: timedelta
) -> list[FiringInterval]:
    """The interval, split where its start is reported again after `quiet`: it must have ended, and that line was lost.

    `gaps` is where sightings were dropped; `least` is how long a part is assumed to have lasted.
    """
    parts: list[list[Sighting]] = [[interval.sightings[0]]]
    for before, s in pairwise(interval.sightings):
        if s.at - before.at > quiet and before.id not in gaps:
            parts.append([])
        parts[-1].append(s)
    last = len(parts) - 1
    return [
        FiringInterval(
            part[0].at, part[-1].at, interval.end if number == last else part[-1].at + least, tuple(part)
        )
        for number, part in enumerate(parts)
    ]


def _own_names(s: Sighting, name: Entity) -> tuple[str, ...]:
    return host_names(s) or ((name.nic,) if name.nic else ())


def _names(s: Sighting, name: Entity, names: NicNames) -> list[str]:
    """Every name that its NIC has by one sighting and what is known; at least one."""
    found = [f"{name.switch}/{name.port}"] if name.switch else []
    return found + names.keys(_own_names(s, name), s.at) or ["?"]


def _aliases(
    reports: Iterable[tuple[Sighting, Entity]], names: NicNames
) -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """Each name → the least name of the NIC it belongs to; and that → the kinds of the names that its host has for it."""
    least: dict[str, str] = {}
    kinds: list[tuple[str, Set[str]]] = []

    def find(name: str) -> str:
        while least.setdefault(name, name) != name:
            name = least[name]
        return name

    for s, name in reports:
        first, *others = _names(s, name, names)
        for other in others:
            one, two = sorted((find(first), find(other)))
            least[two] = one
        find(first)
        own = {other for n in _own_names(s, name) for other in names.of(n, s.at)}
        if s.entity.switch is None:
            kinds.append((first, set(map(nic_name_kind, own)) or {"address"}))
        else:
            # A topology file may call a NIC otherwise than its host does: what only a cable names is of no kind.
            kinds.append((first, set(map(nic_name_kind, own)) if len(own) > 1 else set()))
    found: dict[str, frozenset[str]] = {}
    for first, of_these in kinds:
        found[find(first)] = found.get(find(first), frozenset()) | of_these
    return {name: find(name) for name in list(least)}, found

"""Switches that drop what is sent to most of their hosts, as one does without PFC, or with another class made lossless.

No link is lost and no line is logged: counters of its ports show the drops, and those of the hosts' NICs that they send again.
Either alone says little: a port drops when a reader cannot keep up, and a NIC sends again for whatever its peers suffer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from streams.correlate.policy.config import Config
from streams.correlate.policy.link_parts import parts
from streams.correlate.sightings import DROPPING, Sighting, order
from streams.correlate.state.incarnations import FiringInterval, firing_intervals
from streams.correlate.state.nic_names import nic_names
from streams.correlate.state.rows import Groups, NodeRow, of_kind
from streams.model.kinds import SignalKind

READ_LATE = timedelta(minutes=15)
"""Counters are read every five or ten minutes, and the first read after a fault began shows it."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A time in which a switch dropped: `drops` says of which ports, `retransmits` by which NICs of its hosts it is felt.

    `nics` are the names of NICs that are the same on several of its hosts, as those of one rail are. `known` is how many hosts
    are known at its ports, 0 where its cables are not: then `hosts` are those that send again, and `ports` those that drop.
    `sole` is whether no other switch dropped at half as many ports when it began.
    """

    interval: FiringInterval
    hosts: tuple[str, ...]
    known: int
    nics: tuple[str, ...]
    retransmits: tuple[Sighting, ...]
    ports: int = 0
    sole: bool = True


@dataclass(slots=True)
class LossySwitches:
    """Which ports of which switch drop, and when; kept up to date port by port."""

    _of: dict[str, dict[str, tuple[FiringInterval, ...]]] = field(default_factory=lambda: defaultdict(dict))

    def put(self, port: str, seen: Groups) -> bool:
        """Replace what a port (`switch/port`) reported. Returns whether its drops changed."""
        switch = port.partition("/")[0]
        ports = self._of.get(switch, {})
        before, after = ports.get(port, ()), tuple(_stretches(seen, DROPPING))
        if before == after:
            return False
        if after:
            self._of[switch][port] = after
        else:
            del ports[port]
            if not ports:
                del self._of[switch]
        return True

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, switch: str) -> bool:
        return switch in self._of

    def wide(self, config: Config) -> set[str]:
        """The switches that drop at more ports than one host may have."""
        return {switch for switch, ports in self._of.items() if len(ports) > config.ports_a_host}

    def uncabled(
        self,
        switch: str,
        ports_known: int,
        resending: Mapping[str, Mapping[str, Sequence[FiringInterval]]],
        config: Config,
    ) -> list[Loss]:
        """The times in which a switch whose cables are not known dropped at most of its ports, and no other switch did.

        Hosts that send again then, with NICs of one name, are taken for its own; where none does, twice as many ports must drop,
        for a single host may have many that read too slowly.

        Args:
            switch: Its name.
            ports_known: How many ports of it are known at all.
            resending: By host and name of a NIC, when packets of it were lost; without NICs that are known to hang elsewhere.
            config: Its `ports_a_host` are the most ports of one host, and `leaf_neighbours` the fewest hosts.
        """
        ports = self._of.get(switch, {})
        least = max(config.ports_a_host + 1, (ports_known + 1) // 2)
        if len(ports) < least:
            return []
        found = []
        for start, end in _together(ports, least):
            mine = [i for one in ports.values() for i in one if _meets(i, start, end)]
            dropping = sum(any(_meets(i, start, end) for i in one) for one in ports.values())
            if self._drops_elsewhere(switch, dropping, start):
                continue  # all are congested, or what lies behind all of them is at fault
            felt: dict[str, list[Sighting]] = defaultdict(list)
            hosts: dict[str, set[str]] = defaultdict(set)
            for host, nics in resending.items():
                for nic, stretches in nics.items():
                    if here := [s for i in stretches if _meets(i, start, end) for s in i.sightings]:
                        felt[nic] += here
                        hosts[nic].add(host)
            names = {nic for nic, there in hosts.items() if len(there) >= config.leaf_neighbours}
            if not names and dropping < 2 * config.ports_a_host:
                continue
            lines = sorted((s for i in mine for s in i.sightings), key=order)
            again = tuple(sorted((s for nic in names for s in felt[nic]), key=order))
            found.append(
                Loss(
                    FiringInterval(start, max(s.at for s in lines), end, tuple(lines)),
                    tuple(sorted({host for nic in names for host in hosts[nic]})),
                    0,
                    tuple(sorted(names)),
                    again,
                    dropping,
                )
            )
        return found

    def _drops_elsewhere(self, switch: str, ports: int, at: datetime) -> bool:
        """Whether another switch drops at half as many ports about that time."""
        for other, theirs in self._of.items():
            if other == switch or 2 * len(theirs) < ports:
                continue
            if 2 * sum(any(_meets(i, at, at) for i in one) for one in theirs.values()) >= ports:
                return True
        return False

    def of(
        self,
        switch: str,
        known: int,
        ends_at: Callable[[str], Iterable[tuple[str, str | None]]],
        row_of: Callable[[str], NodeRow],
        config: Config,
    ) -> list[Loss]:
        """The times in which it dropped what was sent to at least half of the hosts known at its ports, and they felt it.

        Args:
            switch: Its name.
            known: How many hosts are known at its ports.
            ends_at: The host at the end of a port, and which of its NICs, as far as the cable tells.
            row_of: What is kept of a host.
            config: Its `leaf_neighbours` are the fewest hosts, and NICs of one name.
        """
        ports = self._of.get(switch)
        if not ports or known < config.leaf_neighbours:
            return []
        by_host: dict[str, list[FiringInterval]] = defaultdict(list)
        cabled: dict[str, set[str]] = defaultdict(set)
        for port, stretches in ports.items():
            for host, nic in ends_at(port):
                by_host[host] += stretches
                cabled[host] |= {nic} if nic else set()
        least = max(config.leaf_neighbours, (known + 1) // 2)
        found = []
        for start, end in _together(by_host, least):
            mine = {
                host: [i for i in intervals if _meets(i, start, end)]
                for host, intervals in sorted(by_host.items())
            }
            hosts = tuple(host for host, intervals in mine.items() if intervals)
            felt = _felt({host: cabled[host] for host in hosts}, row_of, start, end, config)
            if not felt:
                continue
            lines = sorted((s for i in mine.values() for one in i for s in one.sightings), key=order)
            interval = FiringInterval(start, max(s.at for s in lines), end, tuple(lines))
            again = tuple(sorted((s for one in felt.values() for s in one), key=order))
            dropping = sum(any(_meets(i, start, end) for i in one) for one in ports.values())
            sole = not self._drops_elsewhere(switch, dropping, start)
            found.append(Loss(interval, hosts, known, tuple(sorted(felt)), again, dropping, sole))
        return found


def _felt(
    cabled: Mapping[str, Set[str]],
    row_of: Callable[[str], NodeRow],
    start: datetime,
    end: datetime | None,
    config: Config,
) -> Mapping[str, list[Sighting]]:
    """What NICs of hosts send again meanwhile, by their names; of names that are the same on enough hosts.

    What is known to be another NIC than the one at the switch's port does not count.
    """
    found: dict[str, list[Sighting]] = defaultdict(list)
    times: Counter[str] = Counter()
    for host, ends in cabled.items():
        row = row_of(host)
        names = nic_names(row.nics)
        for nic, stretches in lost_by_nic(row.seen).items():
            here = [s for i in stretches if _meets(i, start, end) for s in i.sightings]
            if here and not (ends and names.relation(ends, (nic,), here[0].at) == "different"):
                times[nic] += 1
                found[nic] += here
    return {nic: lines for nic, lines in found.items() if times[nic] >= config.leaf_neighbours}


def lost_by_nic(seen: Groups) -> Mapping[str, list[FiringInterval]]:
    """When packets of which NIC of a host were lost, by the name that the host gives it."""
    said: dict[str, list[Sighting]] = defaultdict(list)
    lossy = parts().timed_out | parts().lost
    for s in of_kind(seen, SignalKind.FABRIC_LINK):
        if s.text("subtype") in lossy and (nic := s.entity.nic or s.text("device")):
            said[nic].append(s)
    return {nic: firing_intervals(lines) for nic, lines in said.items()}


def _stretches(seen: Groups, subtype: str) -> list[FiringInterval]:
    return firing_intervals(s for s in of_kind(seen, SignalKind.FABRIC_LINK) if s.text("subtype") == subtype)


def _together(
    by_host: Mapping[str, Iterable[FiringInterval]], least: int
) -> Iterable[tuple[datetime, datetime | None]]:
    """From when until when so many hosts are in an interval of theirs at one time."""
    marks = [(i.start, 1, host) for host, one in by_host.items() for i in one]
    marks += [(i.end, -1, host) for host, one in by_host.items() for i in one if i.end is not None]
    now: Counter[str] = Counter()
    since: datetime | None = None
    for at, by, host in sorted(marks, key=lambda m: (m[0], -m[1], m[2])):
        now[host] += by
        if not now[host]:
            del now[host]
        if since is None and len(now) >= least:
            since = at
        elif since is not None and len(now) < least:
            yield since, at
            since = None
    if since is not None:
        yield since, None


def _meets(i: FiringInterval, start: datetime, end: datetime | None) -> bool:
    """Whether an interval and a time overlap, as far as the reading of counters tells."""
    return (end is None or i.start <= end + READ_LATE) and (i.end is None or i.end >= start - READ_LATE)

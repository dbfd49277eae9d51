"""Switches that lose what is sent over them, as the NICs of their hosts show it while those of other switches stand still.

Where neither the counters nor the log of a switch are read, a leaf without its PFC or QoS settings looks like many bad NICs:
those of its hosts send again, time out, see packets out of order or many notifications of congestion. Each of these also has
other reasons: its own cable, a peer that died, a process that reads too slowly, a checkpoint that all write at once. So what
counts is hosts, never ports, that begin together, and what the hosts of other switches show at that time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.correlate.fabric_rules.lossy_switches import READ_LATE
from streams.correlate.hypothesis import BY_RAIL, FELT_ONLY, SOMEWHERE, Hypothesis, rejected
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.policy.link_parts import parts
from streams.correlate.sightings import Sighting, distinct, latest_end, order
from streams.correlate.state.incarnations import FiringInterval, Session, firing_intervals
from streams.correlate.state.place import Place, PlaceKind
from streams.correlate.state.rows import Groups, of_kind
from streams.model.clock import span
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

TOGETHER = timedelta(minutes=10)
"""Hosts of one switch that begin within this begin together: a rate is taken over ten minutes, and a high one is seen sooner."""
_SHARE = 0.5
"""The share of a switch's hosts with traffic that must show it."""
_SHARE_OF_ONE_JOB = 0.75
"""The same where all of them hold one job: one bad NIC of it makes those that talk to it send again."""
_FEW_OF_ONE_JOB = 4
_ELSEWHERE = 0.25
"""Where so many other hosts show it as well, the fabric is busy, or what lies behind all leaves is at fault."""
_CLEARLY = 0.25
"""By so much the share of a leaf must exceed that of another one whose hosts are peers of its own."""
_LEAST_STILL = 2
"""So many hosts with traffic elsewhere must stand still: without any there is nothing to compare with."""
_ALONE = timedelta(minutes=20)
"""It is told without a job that suffers when queue pairs run out of time for so long."""


@dataclass(frozen=True, slots=True)
class Spell:
    """A stretch in which NICs of a host show it; pauses shorter than the time between two readings are none."""

    start: datetime
    end: datetime | None
    sightings: tuple[Sighting, ...]

    def meets(self, since: datetime, until: datetime) -> bool:
        """Whether it has a moment in common with a time."""
        return self.start <= until and (self.end is None or self.end >= since)


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts that share a switch, or a part where no switch is known, and what those show whose NICs may be attached there."""

    root: Entity
    hosts: frozenset[str]
    spells: Mapping[str, tuple[Spell, ...]]
    guess: str = ""
    """Why it is only a guess that they share it."""

    def showing(self, at: datetime) -> set[str]:
        """The hosts that show it about that time, however long they have."""
        return {
            host for host, spells in self.spells.items() if any(s.meets(at, at + TOGETHER) for s in spells)
        }


@dataclass(frozen=True, slots=True)
class Around:
    """What else is known of hosts at a time."""

    is_busy: Callable[[str, datetime], bool]
    """Whether anything may send there: it is not known that nothing holds its GPUs."""
    jobs: Callable[[str, datetime], Set[str]]
    """Keys of the jobs that run there."""
    ill: Callable[[datetime], Set[str]]
    """Hosts with a trouble of their own, which makes their peers send again: a bad link, a storm, a node that is gone."""


@dataclass(frozen=True, slots=True)
class FeltLoss:
    """A time in which a switch, or one of what hosts share, loses packets by what these hosts show."""

    root: Entity
    interval: FiringInterval
    hosts: tuple[str, ...]
    known: int
    """Its hosts with traffic."""
    peers: tuple[str, ...]
    """Hosts elsewhere that show it as well, and run a job together with these."""
    lines: tuple[Sighting, ...]
    seen_at: datetime
    """When enough hosts had shown it."""
    one_job: bool
    """All these hosts hold one job."""
    is_lost: bool
    """Packets were lost on enough of them, which a process that dies does not make its peers show."""
    times_out: bool
    """Queue pairs ran out of time on most of them, and they hold different jobs."""
    guess: str = ""
    by_rail: bool = False
    """These hosts are known to share no switch: their NICs of one name show it, and their others do not."""

    @property
    def is_sure_of_order(self) -> bool:
        """Whether it cannot as well have followed from the end of the one job that these hosts hold."""
        return self.is_lost or not self.one_job


Shown = tuple[tuple[str, FiringInterval], ...]
"""NICs by the name that the host gives them (empty where it gives none), each with a stretch of one of its counters."""


def shown_by(seen: Groups) -> Shown:
    """What a host shows."""
    # Each counter says itself when it is over, so that each is a stream of its own.
    streams: dict[tuple[str, str], list[Sighting]] = defaultdict(list)
    for s in of_kind(seen, SignalKind.FABRIC_LINK):
        if parts().is_of_way(s):
            which = "|".join(map(s.text, ("subtype", "counter", "series", "alert", "condition")))
            streams[s.entity.nic or s.text("device"), which].append(s)
    return tuple((nic, i) for (nic, _), lines in sorted(streams.items()) for i in firing_intervals(lines))


def spells_of(intervals: Iterable[FiringInterval]) -> tuple[Spell, ...]:
    """Stretches of a host's NICs put together."""
    found: list[Spell] = []
    for i in sorted(intervals, key=lambda i: (i.start, i.last)):
        if found and (found[-1].end is None or i.start <= found[-1].end + READ_LATE):
            last = found[-1]
            end = latest_end((last.end, i.end))
            found[-1] = Spell(last.start, end, (*last.sightings, *i.sightings))
        else:
            found.append(Spell(i.start, i.end, i.sightings))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Wave:
    """Hosts of one group that begin together."""

    group: HostGroup
    at: datetime
    spells: Mapping[str, Spell]
    known: int
    jobs: Mapping[str, Set[str]]

    @property
    def share(self) -> float:
        return len(self.spells) / self.known

    @property
    def one_job(self) -> bool:
        """Whether one job runs on all of these hosts; so it is taken where none is known."""
        held = Counter(job for jobs in self.jobs.values() for job in jobs)
        return not held or max(held.values()) == len(self.spells)

    def having(self, subtypes: Set[str]) -> int:
        """How many hosts show one of these."""
        return sum(
            any(s.text("subtype") in subtypes for s in spell.sightings) for spell in self.spells.values()
        )

    def is_enough(self, config: Config) -> bool:
        """Whether so many begin that it is not the trouble of one of them."""
        hosts, share = len(self.spells), self.share
        if not self.one_job:
            return share >= _SHARE and (hosts >= config.leaf_neighbours or (hosts > 1 and share == 1))
        # What holds up one job alone may be how that job reads and writes: then something was lost on the way.
        lost = self.having(parts().lost | parts().timed_out | parts().vague) >= config.leaf_neighbours
        return lost and (share == 1 or (hosts >= _FEW_OF_ONE_JOB and share >= _SHARE_OF_ONE_JOB))


def may_lose(group: HostGroup, around: Around) -> bool:
    """Whether enough hosts of a group begin together for it to be worth a comparison with all others. It asks for no others."""
    starts = sorted((s.start, host) for host, spells in group.spells.items() for s in spells)
    for i, (at, _) in enumerate(starts):
        together = set(_within(starts[i:], at))
        if len(together) < 2:
            continue
        silent = sum(h not in group.spells and around.is_busy(h, at) for h in group.hosts)
        if len(together) >= _SHARE * (len(together) + silent):
            return True
    return False


def _within(starts: Iterable[tuple[datetime, str]], at: datetime) -> Iterator[str]:
    """The hosts of those starts, in order of time, that belong together with the first."""
    for start, host in starts:
        if start > at + TOGETHER:
            return
        yield host


def felt_losses(
    groups: Sequence[HostGroup], around: Around, config: Config, which: Container[str] | None = None
) -> list[FeltLoss]:
    """The times in which one of these groups loses packets by what its hosts show, and what others do not.

    Args:
        groups: All that are of one kind, also those whose hosts show nothing: they are what a group is compared with.
        around: What else is known of hosts.
        config: Its `leaf_neighbours` are the fewest hosts, where a group has more with traffic.
        which: Keys of the roots of those that may be one (`may_lose`); None for all.
    """
    found = []
    for group in groups:
        if which is not None and group.root.key not in which:
            continue
        starts = sorted((s.start, host) for host, spells in group.spells.items() for s in spells)
        until: datetime | None = None
        for at, _ in starts:
            if until is not None and at <= until:
                continue
            wave = _wave(group, at, around)
            if wave is None or not wave.is_enough(config):
                continue
            if (loss := _compared(wave, groups, around, config)) is not None:
                found.append(loss)
                until = at + TOGETHER
    return found


def _wave(group: HostGroup, at: datetime, around: Around, *, new: bool = True) -> _Wave | None:
    """The hosts of a group that begin within ten minutes from a moment on; with `new` False, those that show it at all then."""
    spells: dict[str, Spell] = {}
    usual: set[str] = set()
    for host, mine in group.spells.items():
        for s in mine:
            if at <= s.start <= at + TOGETHER:
                spells.setdefault(host, s)
            elif s.start < at and s.meets(at, at + TOGETHER):
                usual.add(host)
                if not new:
                    spells[host] = s
    if len(spells) < 2:
        return None
    jobs = {host: around.jobs(host, at) for host in spells}
    ill = around.ill(at)
    if 2 * len(ill & spells.keys()) <= len(spells):
        theirs = set[str]().union(*(around.jobs(host, at) for host in ill))
        spells = {h: s for h, s in spells.items() if h not in ill and theirs.isdisjoint(jobs[h])}
    if len(spells) < 2:
        return None
    # What a host has shown for hours says nothing of now, neither for nor against.
    left_out = (jobs.keys() - spells.keys()) | (usual if new else set())
    known = {h for h in group.hosts if h not in left_out and (h in spells or around.is_busy(h, at))}
    return _Wave(group, at, spells, len(known), {h: jobs[h] for h in spells})


def _compared(wave: _Wave, groups: Sequence[HostGroup], around: Around, config: Config) -> FeltLoss | None:
    """What a wave shows about its group, beside what the hosts of all others show then; None where it is not the only one."""
    mine = set[str]().union(*wave.jobs.values())
    others = [g for g in groups if g is not wave.group]
    accused: list[HostGroup] = []
    for other in others:
        rival = _wave(other, wave.at, around, new=False)
        if rival is None or not rival.is_enough(config):
            continue
        strangers = sum(jobs.isdisjoint(mine) for jobs in rival.jobs.values())
        if 2 * strangers >= len(rival.spells) and rival.spells.keys() != wave.spells.keys():
            if rival.share >= _SHARE_OF_ONE_JOB:
                accused.append(other)  # both may have lost their settings
        elif rival.share > wave.share - _CLEARLY and 2 * len(rival.spells) > len(wave.spells):
            return None  # one job over both leaves: either may be the one, or neither is
    shown = {other.root.key: other.showing(wave.at) for other in others}
    ends = [
        (host, other, host in shown[other.root.key])
        for other in others
        if other not in accused
        # Other NICs of the same hosts may be for something else: storage, or nothing at all.
        for host in sorted(other.hosts - wave.group.hosts)
        if host in other.spells or around.is_busy(host, wave.at)
    ]
    peers = {
        host
        for host, _, shows in ends
        if shows and host not in wave.spells and not mine.isdisjoint(around.jobs(host, wave.at))
    }
    showing = sum(shows and host not in peers for host, _, shows in ends)
    still = sum(not shows for _, _, shows in ends)
    with_traffic = 1 + len(accused) + len({other.root.key for _, other, _ in ends})
    if still < _LEAST_STILL or showing > min(_ELSEWHERE, wave.share / 3) * (showing + still):
        return None
    if 2 * (1 + len(accused)) > with_traffic:
        return None
    table = parts()
    spells = sorted(wave.spells.items(), key=lambda item: (item[1].start, item[0]))
    firsts = tuple(min(s.sightings, key=order) for _, s in spells)
    lines = distinct(s for _, spell in spells for s in spell.sightings)
    ends_at = sorted(s.end for _, s in spells if s.end is not None)
    # Of many that tell that it is over, some are always lost.
    end = ends_at[-1] if len(ends_at) >= config.leaf_share_up * len(spells) else None
    seen = sorted(s.seen_at for s in firsts)
    return FeltLoss(
        root=wave.group.root,
        interval=FiringInterval(wave.at, max(s.at for s in firsts), end, tuple(sorted(firsts, key=order))),
        hosts=tuple(sorted(wave.spells)),
        known=wave.known,
        peers=tuple(sorted(peers)),
        lines=lines,
        seen_at=seen[min(len(seen), config.leaf_neighbours) - 1],
        one_job=wave.one_job,
        is_lost=wave.having(table.lost) >= min(len(spells), config.leaf_neighbours),
        times_out=not wave.one_job
        and wave.having(table.timed_out) >= max(config.leaf_neighbours, _SHARE_OF_ONE_JOB * wave.known),
        guess=wave.group.guess,
    )


def felt_hypothesis(root: Entity, session: Session, losses: Sequence[FeltLoss], config: Config) -> Hypothesis:
    """A switch, or what hosts share, that loses packets as far as its hosts show. It closes none of them.

    By itself it is told only where queue pairs of several jobs run out of time for long; else where a job suffers.
    """
    hosts = sorted({host for loss in losses for host in loss.hosts})
    peers = sorted({host for loss in losses for host in loss.peers} - set(hosts))
    last = losses[-1]
    alone = any(loss.times_out for loss in losses)
    until = min(loss.seen_at for loss in losses) + _ALONE
    is_switch = root.switch is not None
    where = f"{root}" if is_switch else f"one switch of {root}"
    of_all = f"{len(hosts)} of the {max(loss.known for loss in losses)}"
    if last.by_rail and root.part is not None:
        what = f"{of_all} nodes of jobs lose packets of {root.part.name} since about one moment ({_shown(losses)}), and of "
        what += "their other NICs hardly any: it is the switch of that rail, whose name is not known"
    else:
        what = f"{of_all} hosts with traffic at {where} lose packets since about one moment ({_shown(losses)}), and hosts "
        what += "elsewhere do not"
    why = f"{what}: its queues or their configuration (PFC, QoS, buffers); no host is at fault, so none is closed"
    if peers:
        why += f". {', '.join(peers[:4])}{' …' if len(peers) > 4 else ''} elsewhere send to them and show it, too"
    if last.guess:
        why += f". {last.guess}"
    causes = session.sightings
    return Hypothesis(
        place=Place(PlaceKind.SWITCH, root.switch or SOMEWHERE),
        root=root,
        family=IncidentFamily.FABRIC_FAULT,
        **session.times(),
        certainty=Certainty.LIKELY,
        ready_at=min(loss.seen_at for loss in losses) + config.doubt_settle,
        rule=FELT_ONLY,
        # One job whose process died leaves the same at its peers: then what it suffers must come after this.
        lag=READ_LATE if any(loss.is_sure_of_order for loss in losses) else timedelta(),
        stops=families()[IncidentFamily.FABRIC_FAULT].stops,
        alone=alone,
        brief_until=until if alone else None,
        was_brief=alone and session.cleared_at is not None and session.cleared_at < until,
        why=why,
        causes=causes,
        context=distinct(s for loss in losses for s in loss.lines if s.id not in {c.id for c in causes}),
        facts={
            "source": str(root),
            "link": FELT_ONLY,
            "hosts": tuple(hosts),
            "peers": tuple(peers[:64]),
            "neighbours": max(loss.known for loss in losses),
            "nics": tuple(sorted({nic for loss in losses for s in loss.lines if (nic := s.entity.nic)})[:16]),
            **({BY_RAIL: True} if last.by_rail else {}),
        },
        candidates=tuple(
            rejected(
                Entity(root.cluster, node=host),
                IncidentFamily.NIC_LINK,
                "one host's NIC",
                "hosts of the same switch began with it",
                f"fewer than {config.leaf_neighbours} of its hosts that begin within {span(TOGETHER)}, or as many elsewhere; "
                f"{len(hosts)} did",
            )
            for host in hosts[:6]
        ),
    )


def _shown(losses: Iterable[FeltLoss]) -> str:
    """The counters, alerts or kinds that show it, most frequent first."""
    names = Counter(
        s.text("counter") or s.text("alert") or s.text("subtype").replace("_", " ") or "errors"
        for loss in losses
        for s in loss.lines
    )
    return ", ".join(name for name, _ in sorted(names.items(), key=lambda item: (-item[1], item[0]))[:4])


def felt_members(losses: Iterable[FeltLoss]) -> dict[Place, datetime]:
    """The hosts whose own link errors are part of it, those of peers too, each with the moment from which on they are."""
    found: dict[Place, datetime] = {}
    for loss in losses:
        since = loss.interval.start - READ_LATE
        for host in (*loss.hosts, *loss.peers):
            place = Place(PlaceKind.NODE, host)
            found[place] = min(since, found.get(place, since))
    return found

"""Traces a PFC storm hop by hop, from a paused uplink to the host or switch that sends the pause frames.

A port that reports a storm is paused by what is attached to it. If that is another switch, the source is behind it: one of its
hosts, or an uplink again. A path that returns to its start is a deadlock without a source. Storms without a known source that
come at the same time are one incident.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import level
from streams.correlate.sightings import distinct, latest_end
from streams.model.clock import to_the_second
from streams.model.incident import Certainty
from streams.model.signal import SERIES

Peer = Callable[[str], str | None]
"""A switch port, as `SWITCH/PORT` → the switch at the other end of its cable, if it is one."""
Switches = Callable[[str], Set[str]]
"""A node → the switches it is attached to."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The result of tracing the storms at ports without a host."""

    part_of: dict[str, str] = field(default_factory=dict)
    """Storm → the incident it was merged into."""
    independent: Mapping[str, Hypothesis] = field(default_factory=dict)
    """Incidents of their own, with what was merged into them, by id."""


def spread(
    uplinks: Mapping[str, Sequence[Hypothesis]],
    hosts: Iterable[Hypothesis],
    cables: Mapping[str, Sequence[Hypothesis]],
    peer: Peer,
    switches: Switches,
    config: Config,
) -> Spread:
    """Trace every storm on an uplink to its source.

    `uplinks` are storms by the port that reports them, ports of hosts left out; `cables` are faults of the same ports' cables: a
    bad cable is the source of a storm on it.
    """
    sources = sorted(hosts, key=lambda h: (h.fault_at, h.id))
    part_of: dict[str, str] = {}
    alone: list[tuple[str, Hypothesis]] = []
    flat = sorted(
        ((port, h) for port, storms in uplinks.items() for h in storms),
        key=lambda p: (p[1].fault_at, p[1].id),
    )
    for port, storm in flat:
        bad = [c for c in cables.get(port, ()) if c.alone and are_near(c, storm, config)]
        if bad:
            part_of[storm.id] = min(bad, key=lambda c: (c.fault_at, c.id)).id
            continue
        source = _source(port, storm, flat, sources, peer, switches, config)
        if source is not None:
            part_of[storm.id] = source.id
        else:
            alone.append((port, storm))
    independent: dict[str, Hypothesis] = {}
    for group in _together(alone, config):
        leader = _leader(group, peer)
        independent[leader.id] = leader
        part_of |= {h.id: leader.id for _, h in group[1:]}
    return Spread(part_of, independent)


def _source(
    port: str,
    storm: Hypothesis,
    flat: Sequence[tuple[str, Hypothesis]],
    sources: Sequence[Hypothesis],
    peer: Peer,
    switches: Switches,
    config: Config,
) -> Hypothesis | None:
    """The host's storm behind it. If the cabling leads to none, any host's at that time: reports get lost."""
    near = [h for h in sources if _begins_with(h, storm, config)]
    if not near:
        return None
    reached = _reached(peer(port), [p for p, h in flat if are_near(h, storm, config)], peer)
    behind = [h for h in near if h.root.switch in reached or switches(h.root.node or "") & reached]
    if behind:
        return behind[0]
    return None if port.partition("/")[0] in reached else near[0]


def _reached(first: str | None, ports: Iterable[str], peer: Peer) -> set[str]:
    """Every switch on the path of the pause frames, including `first`."""
    onward: dict[str, set[str]] = defaultdict(set)
    for port in ports:
        far = peer(port)
        if far is not None:
            onward[port.partition("/")[0]].add(far)
    reached: set[str] = set()
    waiting = [first] if first else []
    while waiting:
        switch = waiting.pop()
        if switch not in reached:
            reached.add(switch)
            waiting += sorted(onward[switch])
    return reached


def _together(storms: Sequence[tuple[str, Hypothesis]], config: Config) -> list[list[tuple[str, Hypothesis]]]:
    """Storms without a source, in groups that overlap in time."""
    groups: list[list[tuple[str, Hypothesis]]] = []
    for port, storm in storms:
        last = max((h.last_at for _, h in groups[-1]), default=None) if groups else None
        if last is not None and storm.fault_at <= last + config.storm_join:
            groups[-1].append((port, storm))
        else:
            groups.append([(port, storm)])
    return groups


def _leader(group: Sequence[tuple[str, Hypothesis]], peer: Peer) -> Hypothesis:
    """The earliest storm with the others merged into it; a deadlock where the path is a circle."""
    _, leader = group[0]
    ports = sorted({port for port, _ in group})
    if len(group) == 1:
        return leader
    ring = sorted({s for port in ports if (s := port.partition("/")[0]) in _reached(peer(port), ports, peer)})
    others = len(ports) - 1
    why, rule = leader.why, leader.rule
    if ring:
        rule = "pause in a circle"
        why = f"pause goes round in a circle through {', '.join(ring[:6])}: a deadlock, to which no host belongs; none is closed"
    elif others:
        why = f"{leader.why}; {others} more port(s) are paused with it"
    storms = [h for _, h in group]
    certainty = max((h.certainty for h in storms), key=level)
    weak = certainty is Certainty.WEAK
    return replace(
        leader,
        rule=rule,
        why=why,
        certainty=certainty,
        brief_until=leader.brief_until if weak else None,
        was_brief=weak and all(h.was_brief for h in storms),
        last_at=max(h.last_at for h in storms),
        cleared_at=latest_end(h.cleared_at for h in storms),
        causes=distinct(s for h in storms for s in h.causes),
        facts={**leader.facts, "ports": tuple(ports[:32]), **({"cycle": tuple(ring)} if ring else {})},
        candidates=(
            *leader.candidates,
            *(
                rejected(
                    h.root,
                    h.family,
                    h.rule,
                    "paused later: spreading",
                    f"to be paused before {leader.root}, from {to_the_second(leader.fault_at)} on; it was from "
                    f"{to_the_second(h.fault_at)} on",
                )
                for h in storms[1:6]
            ),
        ),
    )


def _begins_with(source: Hypothesis, storm: Hypothesis, config: Config) -> bool:
    join = config.storm_join
    until = max(source.last_at, source.cleared_at or source.last_at) + join
    counted = any(SERIES in s.attributes for s in source.causes if s.firing)
    if source.cleared_at is None and counted:
        # A counter says when it is over: until then each storm that comes and goes may be its. One whose exporter or host is gone
        # never says so.
        until = source.last_at + config.retention
    return source.fault_at - join <= storm.fault_at <= until


def are_near(one: Hypothesis, other: Hypothesis, config: Config) -> bool:
    """Whether two faults are at one time, as late as storms are seen."""
    join = config.storm_join
    return one.fault_at - join <= other.last_at and other.fault_at <= one.last_at + join

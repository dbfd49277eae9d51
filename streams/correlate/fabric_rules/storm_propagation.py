"""How a storm spreads through the fabric: from a paused uplink to whoever pauses it, switch by switch.

A port that reports a storm is paused by what hangs on it. Where that is another switch, the source lies behind it: one of its
hosts, or again an uplink. A way that comes back to where it began is a deadlock: everybody waits for everybody, and no host is
the source. Storms that lead nowhere are put together when they come at the same time: pause travels, and one that nobody can
follow is still one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.policy.config import Config
from streams.correlate.sightings import distinct, latest_end
from streams.model.incident import Certainty

Peer = Callable[[str], str | None]
"""A switch port, as `SWITCH/PORT` → the switch at the other end of its cable, if it is one."""
Switches = Callable[[str], set[str]]
"""A node → the switches it hangs on."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What became of the storms at ports without a host."""

    part_of: Mapping[str, str] = field(default_factory=dict)
    """Storm → the incident it belongs to."""
    standing: Mapping[str, Hypothesis] = field(default_factory=dict)
    """Those that stand for themselves, told with what belongs to them."""


def spread(
    uplinks: Mapping[str, Sequence[Hypothesis]],
    hosts: Iterable[Hypothesis],
    cables: Mapping[str, Sequence[Hypothesis]],
    peer: Peer,
    switches: Switches,
    config: Config,
) -> Spread:
    """Follow every storm on an uplink to where it comes from.

    Args:
        uplinks: Storms by the port that reports them, ports of hosts left out.
        hosts: Storms from hosts.
        cables: Faults of the same ports' cables: a bad cable is the reason of a storm on it.
        peer: The cabling.
        switches: What a node hangs on.
        config: Measures of time.
    """
    sources = sorted(hosts, key=lambda h: (h.fault_at, h.id))
    part_of: dict[str, str] = {}
    alone: list[tuple[str, Hypothesis]] = []
    flat = sorted(
        ((port, h) for port, storms in uplinks.items() for h in storms),
        key=lambda p: (p[1].fault_at, p[1].id),
    )
    for port, storm in flat:
        bad = [c for c in cables.get(port, ()) if c.alone and _near(c, storm, config)]
        if bad:
            part_of[storm.id] = min(bad, key=lambda c: (c.fault_at, c.id)).id
            continue
        source = _source(port, storm, flat, sources, peer, switches, config)
        if source is not None:
            part_of[storm.id] = source.id
        else:
            alone.append((port, storm))
    standing: dict[str, Hypothesis] = {}
    for group in _together(alone, config):
        leader = _leader(group, peer)
        standing[leader.id] = leader
        part_of |= {h.id: leader.id for _, h in group[1:]}
    return Spread(part_of, standing)


def _source(
    port: str,
    storm: Hypothesis,
    flat: Sequence[tuple[str, Hypothesis]],
    sources: Sequence[Hypothesis],
    peer: Peer,
    switches: Switches,
    config: Config,
) -> Hypothesis | None:
    """The host's storm behind it. Where the cabling leads to none, any of that time: reports get lost, switches are mute."""
    near = [h for h in sources if _begins_with(h, storm, config)]
    if not near:
        return None
    reached = _reached(peer(port), [p for p, h in flat if _near(h, storm, config)], peer)
    behind = [h for h in near if h.root.switch in reached or switches(h.root.node or "") & reached]
    if behind:
        return behind[0]
    return None if port.partition("/")[0] in reached else near[0]


def _reached(first: str | None, ports: Iterable[str], peer: Peer) -> set[str]:
    """Every switch on the way of the pause, from the first on."""
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
    """Storms without a source, cut where none of them goes on."""
    groups: list[list[tuple[str, Hypothesis]]] = []
    for port, storm in storms:
        last = max((h.last_at for _, h in groups[-1]), default=None) if groups else None
        if last is not None and storm.fault_at <= last + config.storm_join:
            groups[-1].append((port, storm))
        else:
            groups.append([(port, storm)])
    return groups


def _leader(group: Sequence[tuple[str, Hypothesis]], peer: Peer) -> Hypothesis:
    """The earliest of them, with what belongs to it; where the way closes, as the deadlock it is."""
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
    return replace(
        leader,
        rule=rule,
        why=why,
        certainty=Certainty.LIKELY
        if any(h.certainty is not Certainty.WEAK for h in storms)
        else Certainty.WEAK,
        last_at=max(h.last_at for h in storms),
        cleared_at=latest_end(h.cleared_at for h in storms),
        causes=distinct(s for h in storms for s in h.causes),
        facts={**leader.facts, "ports": tuple(ports[:32]), **({"cycle": tuple(ring)} if ring else {})},
        candidates=(
            *leader.candidates,
            *(rejected(h.root, h.family, h.rule, "paused later: spreading") for h in storms[1:6]),
        ),
    )


def _begins_with(source: Hypothesis, storm: Hypothesis, config: Config) -> bool:
    join = config.storm_join
    return source.fault_at - join <= storm.fault_at <= source.last_at + join


def _near(one: Hypothesis, other: Hypothesis, config: Config) -> bool:
    join = config.storm_join
    return one.fault_at - join <= other.last_at and other.fault_at <= one.last_at + join

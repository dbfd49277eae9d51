"""PFC storms: who pauses whom.

A switch port that reports a storm is being paused by what is attached to it: on an access port that host is the source, on an
uplink the source lies beyond (Guo et al., RDMA over Commodity Ethernet at Scale, 2016; SONiC pfcwd). A host whose NIC sends
pause without end is a source; one that only receives it is a victim and never a source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from streams.correlate.config import Config
from streams.correlate.hypotheses import Hypothesis, rejected
from streams.correlate.lives import Lives, Session, Spell, spells
from streams.correlate.rows import PortRow
from streams.correlate.sightings import Sighting, order
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.signal import Attribute

PFC = "fabric.pfc_storm"
SENT, RECEIVED, BY_SWITCH = "sent", "received", "received_by_switch"


def host_storms(
    cluster: str,
    node: str,
    seen: Iterable[Sighting],
    ports: Mapping[str, PortRow],
    lives: Lives,
    config: Config,
) -> list[Hypothesis]:
    """Storms whose source is a NIC of this node. `ports` are the switch ports with this node at their end."""
    reports = [
        s for row in ports.values() for group in row.seen.values() for s in group if _told_by_switch(s)
    ]
    sent = [s for s in seen if s.kind == PFC and s.text("direction") == SENT]
    found = []
    # Incarnations are counted for the whole host: its NIC goes by several names.
    host = Entity(cluster, node=node)
    names = [host, *(_at_port(cluster, node, row, None) for row in ports.values())]
    for nic in sorted({s.entity.nic for s in sent if s.entity.nic}):
        names += [
            Entity(cluster, node=node, nic=nic),
            *(_at_port(cluster, node, row, nic) for row in ports.values()),
        ]
    for session in lives.sessions(host, "pfc", _lasting([*reports, *sent], config), names):
        mine = sorted(session.sightings, key=order)
        root = _source(cluster, node, mine, ports)
        found.append(_host_hypothesis(node, root, session, mine, config))
    return found


def fabric_storm(cluster: str, name: str, row: PortRow, lives: Lives, config: Config) -> list[Hypothesis]:
    """Storms on a port with no host at its end: an uplink, or a port nobody described. They close nothing."""
    if row.link is not None and row.link.node is not None:
        return []
    switch, _, port = name.partition("/")
    root = Entity(cluster, switch=switch, port=port)
    known = row.link is not None
    reports = [s for group in row.seen.values() for s in group if _told_by_switch(s)]
    peer = f"{row.link.peer_switch} {row.link.peer_port or ''}".strip() if row.link else ""
    where = (
        f"its other end is {peer or 'another switch'}" if known else "what is at its other end is not known"
    )
    return [
        Hypothesis(
            scope=f"port/{name}",
            root=root,
            family="pfc_storm",
            incarnation=session.incarnation,
            certainty=Certainty.LIKELY if known else Certainty.WEAK,
            fault_at=session.start,
            first_at=session.start,
            last_at=session.last,
            ready_at=min(s.seen_at for s in session.sightings) + config.storm_settle,
            rule="no access source",
            lag=config.skew,
            why=f"port {port} of {switch} is paused and {where}: no host can be named, so none is closed",
            cleared_at=session.cleared_at,
            flaps=session.flaps,
            causes=tuple(sorted(session.sightings, key=order)),
            facts={"direction": BY_SWITCH, "uplink": known, "source": str(root)},
            candidates=(rejected(root, "pfc_storm", "host is the source", where),),
        )
        for session in lives.sessions(root, "pfc", _lasting(reports, config))
    ]


def victims(seen: Iterable[Sighting], since: datetime, until: datetime) -> tuple[Sighting, ...]:
    """Pause received by a host in that time: it is told to stop sending."""
    return tuple(
        s
        for s in seen
        if s.kind == PFC and s.firing and s.text("direction") == RECEIVED and since <= s.at <= until
    )


def weigh(storms: list[Hypothesis], config: Config) -> list[Hypothesis]:
    """Storms from several hosts at once: none is closed without a person, but for one that stands out by its evidence.

    One sick NIC makes its neighbours' ports back up; many hosts that pause share a cause (workload, firmware, fabric).
    """
    weighed = []
    for storm in storms:
        rivals = [o for o in storms if o.root.key != storm.root.key and _together(o, storm, config)]
        stands_out = _both_ends(storm) and not any(_both_ends(o) for o in rivals)
        facts: dict[str, Attribute] = {**storm.facts, "shared_nodes": len({o.root.node for o in rivals}) + 1}
        if rivals and not stands_out:
            why = f"{storm.why}; but {len(rivals)} more host(s) pause at the same time, so the cause may be shared"
            storm = replace(storm, certainty=Certainty.LIKELY, why=why)
        weighed.append(replace(storm, facts=facts))
    return weighed


def _host_hypothesis(
    node: str, root: Entity, session: Session, mine: list[Sighting], config: Config
) -> Hypothesis:
    by_switch = [s for s in mine if _told_by_switch(s)]
    by_host = [s for s in mine if not _told_by_switch(s)]
    signs = []
    if by_switch:
        signs.append(
            f"port {by_switch[0].entity.port} of {by_switch[0].entity.switch} is paused without end by what is attached to it"
        )
    if by_host:
        signs.append(f"NIC {by_host[0].entity.nic} sends pause frames without end")
    facts: dict[str, Attribute] = {
        "direction": SENT,
        "source": str(root),
        "both_ends": bool(by_switch and by_host),
    }
    priority = next((p for s in mine if (p := s.number("priority")) is not None), None)
    if priority is not None:
        facts["priority"] = priority
    return Hypothesis(
        scope=f"node/{node}",
        root=root,
        family="pfc_storm",
        incarnation=session.incarnation,
        # A host's own counter alone may be a slow receiver; a switch that sees it from outside may not.
        certainty=Certainty.DECISIVE if by_switch else Certainty.LIKELY,
        fault_at=session.start,
        first_at=session.start,
        last_at=session.last,
        ready_at=min(s.seen_at for s in mine) + config.storm_settle,
        rule="access port" if by_switch else "pause sent",
        lag=config.skew if by_switch else config.scrape,
        why=f"{node} is the source: {' and '.join(signs)}; hosts that only receive pause are its victims",
        cleared_at=session.cleared_at,
        flaps=session.flaps,
        causes=tuple(mine),
        facts=facts,
    )


def _told_by_switch(s: Sighting) -> bool:
    return s.kind == PFC and s.text("direction") in (BY_SWITCH, "") and s.entity.switch is not None


def _source(cluster: str, node: str, mine: list[Sighting], ports: Mapping[str, PortRow]) -> Entity:
    """The NIC, by the cabling where there is a report from a switch, by the host's own name else."""
    reports = [s for s in mine if _told_by_switch(s)]
    own = sorted({s.entity.nic for s in mine if s.entity.nic and not _told_by_switch(s)})
    if not reports:
        return Entity(cluster, node=node, nic=own[0] if own else None)
    first = reports[0].entity
    row = ports.get(f"{first.switch}/{first.port}", PortRow())
    return _at_port(cluster, node, row, own[0] if own else None, first)


def _at_port(cluster: str, node: str, row: PortRow, own: str | None, told: Entity | None = None) -> Entity:
    link = row.link
    switch, port = (link.switch, link.port) if link else (told.switch, told.port) if told else (None, None)
    return Entity(cluster, node=node, nic=(link.nic if link else None) or own, switch=switch, port=port)


def _lasting(sightings: Iterable[Sighting], config: Config) -> list[Spell]:
    """Spells by stream (who tells it, of which queue), without brief ones, unless they come again and again."""
    streams: dict[str, list[Sighting]] = {}
    for s in sightings:
        streams.setdefault(f"{s.entity.key}|{s.text('queue')}|{s.text('priority')}", []).append(s)
    kept: list[Spell] = []
    for stream in streams.values():
        all_ = spells(stream)
        brief = [s for s in all_ if s.end is not None and s.end - s.start < config.brief_storm]
        repeated = len(brief) >= 3 and brief[-1].start - brief[0].start <= config.quiet
        kept += all_ if repeated else [s for s in all_ if s not in brief]
    return kept


def _together(one: Hypothesis, other: Hypothesis, config: Config) -> bool:
    return abs(one.fault_at - other.fault_at) <= config.storm_join


def _both_ends(storm: Hypothesis) -> bool:
    return storm.facts.get("both_ends") is True

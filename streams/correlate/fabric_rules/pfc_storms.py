"""PFC storms: who pauses whom.

A switch port that reports a storm is being paused by what is attached to it: on an access port that host is the source, on an
uplink the source lies beyond (Guo et al., RDMA over Commodity Ethernet at Scale, 2016; SONiC pfcwd). A host whose NIC sends
pause without end is a source; one that only receives it is a victim and never a source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.fabric_rules.nic_timeline import found_anew, of_port
from streams.correlate.fabric_rules.switch_faults import SwitchFault
from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.policy.config import Config
from streams.correlate.sightings import Sighting, distinct, dropped_middle, latest_end, order, split_at_gaps
from streams.correlate.state.incarnations import FiringInterval, Incarnations, Session, firing_intervals
from streams.correlate.state.nic_names import NicNames, host_names
from streams.correlate.state.place import Place, PlaceKind
from streams.correlate.state.rows import PortRow
from streams.model.clock import span
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import Attribute

SENT, RECEIVED, BY_SWITCH = "sent", "received", "received_by_switch"


def host_storms(
    cluster: str,
    node: str,
    seen: Iterable[Sighting],
    ports: Mapping[str, PortRow],
    names: NicNames,
    incarnations: Incarnations,
    config: Config,
) -> list[Hypothesis]:
    """Storms whose source is a NIC of this node. `ports` are the switch ports with this node at their end, `names` its NICs'."""
    reports = [s for row in ports.values() for group in row.seen.values() for s in group if _is_by_switch(s)]
    seen = list(seen)
    sent = [s for s in seen if s.kind == SignalKind.FABRIC_PFC_STORM and s.text("direction") == SENT]
    if not reports and not sent:
        return []
    errors = [s for s in seen if s.kind == SignalKind.FABRIC_LINK and s.firing]
    cabled = [s for row in ports.values() for s in of_port(row) if s.firing]
    found = []
    # Incarnations are counted for the whole host: its NIC has several names.
    host = Entity(cluster, node=node)
    roots = [host, *(_at_port(cluster, node, row, None) for row in ports.values())]
    for nic in sorted({s.entity.nic for s in sent if s.entity.nic}):
        roots += [
            Entity(cluster, node=node, nic=nic),
            *(_at_port(cluster, node, row, nic) for row in ports.values()),
        ]
    for session in incarnations.sessions(host, "pfc", _lasting([*reports, *sent], config), roots):
        mine = sorted(session.sightings, key=order)
        root = _source(cluster, node, mine, ports)
        since, until = session.start - config.scrape, session.last + config.scrape
        nics = frozenset(s.entity.nic for s in mine if s.entity.nic)
        paused = [
            s
            for s in victims(seen, since, until)
            if s.entity.nic and names.relation(nics, (s.entity.nic,), s.at) == "same"
        ]
        since, until = session.start - config.before, session.last + config.before
        bad = [
            s
            for s in (*errors, *cabled)
            if since <= s.at <= until and names.relation(nics, host_names(s), s.at) != "different"
        ]
        known = sorted({name for nic in nics for name in names.of(nic, session.start)})
        found.append(_host_hypothesis(node, root, known, session, mine, paused, bad, config))
    return found


def fabric_storm(
    cluster: str, name: str, row: PortRow, incarnations: Incarnations, config: Config
) -> list[Hypothesis]:
    """Storms on a port with no host at its end: an uplink, or an undescribed port. No node is cordoned for them."""
    if row.link is not None and row.link.node is not None:
        return []
    switch, _, port = name.partition("/")
    root = Entity(cluster, switch=switch, port=port)
    known = row.link is not None
    # What is at the end of an unknown port may tell so itself, with its next sample.
    settle = config.storm_settle if known else config.storm_join
    reports = [s for group in row.seen.values() for s in group if _is_by_switch(s)]
    peer = f"{row.link.peer_switch} {row.link.peer_port or ''}".strip() if row.link else ""
    where = (
        f"its other end is {peer or 'another switch'}" if known else "what is at its other end is not known"
    )
    found = (
        Hypothesis(
            place=Place(PlaceKind.PORT, name),
            root=root,
            family=IncidentFamily.PFC_STORM,
            **session.times(),
            certainty=Certainty.LIKELY if known else Certainty.WEAK,
            ready_at=min(s.seen_at for s in session.sightings) + settle,
            rule="no access source",
            lag=config.skew,
            why=f"port {port} of {switch} is paused and {where}: no host can be named, so none is closed",
            causes=tuple(sorted(session.sightings, key=order)),
            facts={
                "direction": BY_SWITCH,
                "uplink": known,
                "source": str(root),
                **measured(session.sightings),
            },
            candidates=(
                rejected(
                    root,
                    IncidentFamily.PFC_STORM,
                    "host is the source",
                    where,
                    "a host at the port's other end: by the topology file, LLDP or a cable that its NIC reports; "
                    f"{f'known there: {peer}' if peer else 'none is known'}",
                ),
            ),
        )
        for session in incarnations.sessions(root, "pfc", _lasting(reports, config))
    )
    return [_held(storm, config) for storm in found]


def _held(storm: Hypothesis, config: Config) -> Hypothesis:
    """The storm, not told at once where it names nobody: nothing can be done about it before it lasts or harms a job."""
    if storm.certainty is not Certainty.WEAK or storm.flaps:
        return storm
    until = min(s.seen_at for s in storm.causes) + config.storm_weak
    over = storm.cleared_at is not None and storm.cleared_at - storm.fault_at < config.storm_weak
    return replace(storm, brief_until=until, was_brief=over)


def victims(seen: Iterable[Sighting], since: datetime, until: datetime) -> tuple[Sighting, ...]:
    """Pause frames that hosts received in that time."""
    return tuple(s for s in seen if since <= s.at <= until and is_victim(s))


def is_victim(s: Sighting) -> bool:
    """Whether it is about pause frames that a host received."""
    return s.kind == SignalKind.FABRIC_PFC_STORM and s.firing and s.text("direction") == RECEIVED


def weigh(storms: list[Hypothesis], config: Config) -> list[Hypothesis]:
    """Storms from several hosts at once: none is cordoned without approval, unless one stands out by its evidence.

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


def shared_storms(
    cluster: str, switch: str, storms: Sequence[Hypothesis], incarnations: Incarnations, config: Config
) -> list[SwitchFault]:
    """Storms from many hosts of one switch at once: they share a cause (workload, firmware, the switch), and no host is it.

    One that both ends report is left out: it is an incident of its own. `switch` is "" if the hosts' switch is unknown.
    """
    root = Entity(cluster, switch=switch) if switch else Entity(cluster)
    mine = sorted(
        (h for h in storms if h.facts.get("both_ends") is not True), key=lambda h: (h.fault_at, h.id)
    )
    groups = split_at_gaps(mine, lambda h: h.fault_at, config.storm_join)
    crowds = [g for g in groups if len({h.root.node for h in g}) >= config.leaf_neighbours]
    by_line = {h.causes[0].id: (h, crowd) for crowd in crowds for h in crowd}
    stretches = [
        FiringInterval(
            crowd[0].fault_at, h.causes[0].at, latest_end(o.cleared_at for o in crowd), (h.causes[0],)
        )
        for h, crowd in by_line.values()
    ]
    found = []
    for session in incarnations.sessions(root, "pfc", stretches):
        hosts = [by_line[s.id][0] for s in session.sightings]
        names = sorted({h.root.node for h in hosts if h.root.node})
        where = f"under {switch}" if switch else "of this cluster"
        hypothesis = Hypothesis(
            place=Place(PlaceKind.SWITCH, switch),
            root=root,
            family=IncidentFamily.PFC_STORM,
            **session.times(*(h.last_at for h in hosts)),
            certainty=Certainty.LIKELY,
            ready_at=min(h.ready_at for h in hosts),
            rule="many hosts pause",
            lag=config.scrape,
            why=f"{len(names)} hosts {where} send pause at the same time: what they share is at fault, so none is closed",
            causes=tuple(s for h in hosts for s in h.causes),
            facts={
                "direction": SENT,
                "source": str(root),
                "hosts": tuple(names[:64]),
                "shared_nodes": len(names),
            },
            candidates=tuple(
                rejected(
                    h.root,
                    IncidentFamily.PFC_STORM,
                    h.rule,
                    "one of many hosts that pause together",
                    f"a report by its switch port as well, or fewer than {config.leaf_neighbours} hosts that pause within "
                    f"{span(config.storm_join)}; {len(names)} do",
                )
                for h in hosts[:6]
            ),
        )
        found.append(SwitchFault(hypothesis, {h.place: h.fault_at for h in reversed(hosts)}))
    return found


def _host_hypothesis(
    node: str,
    root: Entity,
    nics: list[str],
    session: Session,
    mine: list[Sighting],
    paused: list[Sighting],
    bad: list[Sighting],
    config: Config,
) -> Hypothesis:
    """One storm from a host. `nics` are its NICs' names, `paused` what the same NIC receives, `bad` faults of its links."""
    by_switch = [s for s in mine if _is_by_switch(s)]
    by_host = [s for s in mine if not _is_by_switch(s)]
    signs = []
    if by_switch:
        signs.append(
            f"port {by_switch[0].entity.port} of {by_switch[0].entity.switch} is paused without end by what is attached to it"
        )
    if by_host:
        signs.append(f"NIC {by_host[0].entity.nic} sends pause frames without end")
    says = f"{node} is the source: {' and '.join(signs)}; hosts that only receive pause are its victims"
    # A host's own counter alone may be a slow receiver; a switch that sees it from outside may not.
    rule, certainty = ("access port", Certainty.DECISIVE) if by_switch else ("pause sent", Certainty.LIKELY)
    if by_switch and len(mine) == 1:
        # One report only: the end of a burst may still be on its way, shippers are later than we wait.
        certainty = Certainty.LIKELY
    if paused and not by_switch:
        rule, certainty = "pause sent while paused", Certainty.WEAK
        says = f"{node}: {' and '.join(signs)}, but it is told to pause itself: it may be congested and no source"
    if bad:
        says = f"{says}; its link makes errors as well, so look at the cable and its optics first"
    facts: dict[str, Attribute] = {
        "direction": SENT,
        "source": str(root),
        "both_ends": bool(by_switch and by_host),
        "link_errors": bool(bad),
        **({"nics": tuple(nics[:16])} if nics else {}),
        **measured(mine),
    }
    storm = Hypothesis(
        place=Place(PlaceKind.NODE, node),
        root=root,
        family=IncidentFamily.PFC_STORM,
        **session.times(),
        certainty=certainty,
        ready_at=_ready_at(by_switch, by_host, config),
        rule=rule,
        lag=config.skew if by_switch else config.scrape,
        why=says,
        causes=tuple(mine),
        context=distinct((*paused, *bad)),
        facts=facts,
    )
    return _held(storm, config)


def _ready_at(by_switch: Sequence[Sighting], by_host: Sequence[Sighting], config: Config) -> datetime:
    """While only the switch's log reports a storm, the line that ends it may still be on its way.

    A host's counters report a storm only after it has lasted.
    """
    seen = min(s.seen_at for s in by_switch or by_host)
    if not by_switch:
        return seen + config.storm_settle
    confirmed = [max(seen, s.seen_at) + config.storm_settle for s in by_host]
    return min([seen + config.storm_alone, *confirmed])


def measured(storm: Sequence[Sighting]) -> dict[str, Attribute]:
    """What counters and watchdogs measured: the priority, the largest share of time paused, what the switch's watchdog does.

    A watchdog that drops makes the source's own traffic fail, one that forwards lets it pass without its lossless class
    (SONiC, pfcwd actions).
    """
    facts: dict[str, Attribute] = {}
    priority = next(
        (p for s in storm for name in ("priority", "queue") if (p := s.number(name)) is not None), None
    )
    if priority is not None:
        facts["priority"] = priority
    shares = [v for s in storm if isinstance(v := s.attributes.get("fraction"), float | int)]
    if shares:
        facts["fraction"] = float(max(shares))
    frames = [v for s in storm if isinstance(v := s.attributes.get("frames_per_s"), float | int)]
    if frames:
        facts["frames_per_s"] = float(max(frames))
    actions = [s.text("action").lower() for s in storm if s.text("action")]
    dropped = [n for s in storm for name in ("tx_dropped", "rx_dropped") if (n := s.number(name)) is not None]
    if actions:
        facts["watchdog"] = actions[-1]
    elif dropped:
        facts["watchdog"] = "drop" if any(dropped) else "forward"
    return facts


def _is_by_switch(s: Sighting) -> bool:
    return (
        s.kind == SignalKind.FABRIC_PFC_STORM
        and s.text("direction") in (BY_SWITCH, "")
        and s.entity.switch is not None
    )


def _source(cluster: str, node: str, mine: list[Sighting], ports: Mapping[str, PortRow]) -> Entity:
    """The NIC, by the cabling where there is a report from a switch, by the host's own name else."""
    reports = [s for s in mine if _is_by_switch(s)]
    own = sorted({s.entity.nic for s in mine if s.entity.nic and not _is_by_switch(s)})
    if not reports:
        return Entity(cluster, node=node, nic=own[0] if own else None)
    first = reports[0].entity
    row = ports.get(f"{first.switch}/{first.port}", PortRow())
    return _at_port(cluster, node, row, own[0] if own else None, first)


def _at_port(
    cluster: str, node: str, row: PortRow, own: str | None, reported: Entity | None = None
) -> Entity:
    link = row.link
    switch, port = (
        (link.switch, link.port) if link else (reported.switch, reported.port) if reported else (None, None)
    )
    return Entity(cluster, node=node, nic=(link.nic if link else None) or own, switch=switch, port=port)


def _lasting(sightings: Iterable[Sighting], config: Config) -> list[FiringInterval]:
    """Intervals by stream (reporter and queue), without brief ones, unless they recur."""
    streams: dict[str, list[Sighting]] = {}
    for s in sightings:
        streams.setdefault(f"{s.entity.key}|{s.text('queue')}|{s.text('priority')}", []).append(s)
    kept: list[FiringInterval] = []
    for stream in streams.values():
        gaps = dropped_middle(stream)
        all_ = [
            part
            for i in firing_intervals(stream)
            for part in found_anew(i, gaps, config.quiet, 2 * config.brief_storm)
        ]
        brief = [s for s in all_ if _is_brief(s, config)]
        repeated = any(
            third.start - first.start <= config.quiet for first, third in zip(brief, brief[2:], strict=False)
        )
        lasting = all_ if repeated else [s for s in all_ if s not in brief]
        kept += _bridged(lasting, gaps)
    return kept


def _is_brief(interval: FiringInterval, config: Config) -> bool:
    if interval.end is None:
        return False
    whole_seconds = not interval.start.microsecond and not interval.end.microsecond
    most = config.brief_storm + (timedelta(seconds=1) if whole_seconds else timedelta())
    return interval.end - interval.start < most


def _bridged(found: list[FiringInterval], gaps: Mapping[str, datetime]) -> list[FiringInterval]:
    """The intervals, extended over dropped sightings: a storm found and restored all day is one."""
    return [
        replace(i, end=max(i.end, *until))
        if i.end is not None and (until := [gaps[s.id] for s in i.sightings if s.id in gaps])
        else i
        for i in found
    ]


def _together(one: Hypothesis, other: Hypothesis, config: Config) -> bool:
    return abs(one.fault_at - other.fault_at) <= config.storm_join


def _both_ends(storm: Hypothesis) -> bool:
    return storm.facts.get("both_ends") is True

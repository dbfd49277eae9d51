"""What the hosts report of storage: those that mount one, and those that serve one, with their faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.node_death import death_policy
from streams.correlate.node_rules.storage_monitoring import MONITORED, is_of_monitoring
from streams.correlate.node_rules.storage_names import ONE_A_SITE, Outage, hosts_in, system_of, target_of
from streams.correlate.policy.families import families, storage_system
from streams.correlate.sightings import Sighting
from streams.correlate.state.incarnations import firing_intervals
from streams.correlate.state.place import is_of_storage
from streams.model.hostnames import short
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

FAMILY = IncidentFamily.STORAGE_FAULT
_MAX_SHOWN = 6


@dataclass(frozen=True, slots=True)
class StorageReports:
    """One node's evidence: targets it cannot reach, and its hypotheses of nothing but hung tasks."""

    outages: tuple[Outage, ...] = ()
    hung: tuple[Hypothesis, ...] = ()
    disks: tuple[Hypothesis, ...] = ()
    """Faults of its own disks, and that it is down, where it may be what serves a storage."""
    names: frozenset[str] | None = None
    """What a storage that it serves is called; None for a host that is no node of the cluster, and may serve any."""
    gone: tuple[Hypothesis, ...] = ()
    """That it is NotReady for no reason of its own, as far as nothing else says that it is dead."""
    own: tuple[Outage, ...] = ()
    """What its monitoring says of a storage, where this is no node that mounts one: the storage itself, or a host of it."""
    serves: frozenset[str] = frozenset()
    """What its own lines, or alerts about it, call what it serves."""
    only_port: bool = False
    """Whether just one port of it is known."""


def serves_storage(s: Sighting) -> bool:
    """Whether a host says that it serves a storage, or a target of one (`target`)."""
    return s.kind == SignalKind.NODE_STORAGE and s.text("subtype") == "storage_server"


def storage_reports(
    host: str,
    seen: Iterable[Sighting],
    hypotheses: Sequence[Hypothesis],
    names: frozenset[str] | None,
    gone_alone: Sequence[Hypothesis],
    *,
    only: bool,
) -> StorageReports:
    """The evidence about storage in the sightings and hypotheses of a host. `names` are those of `StorageReports`.

    `gone_alone` is when it was NotReady for no reason of its own. What is said of a storage itself is kept as for a host of it.
    `only`: of the host one port is known.
    """
    streams: dict[tuple[str, str, bool, bool], list[Sighting]] = defaultdict(list)
    lasts: dict[tuple[str, str, bool, bool], timedelta] = {}
    replicated: dict[tuple[str, str, bool, bool], bool] = {}
    no_client, serves = names is None or is_of_storage(host), set[str]()
    for s in seen:
        if s.kind != SignalKind.NODE_STORAGE:
            continue
        own = no_client and is_of_monitoring(s)
        if own or serves_storage(s):
            serves |= {text for text in (storage_system(s), s.text("target"), s.text("filesystem")) if text}
        rule = families().rule(s)
        if rule is None or rule.family != FAMILY or (rule.role != "cause" and not own):
            continue
        # What its several daemons say on hosts of their own is of the one storage of that kind.
        named = storage_system(s) is not None or is_of_storage(host) or s.text("subtype") in ONE_A_SITE
        key = (system_of(s), target_of(s)) if named or not own else (host, host)
        stream = (*key, own, rule.role == "cause")
        streams[stream].append(s)
        lasts[stream] = timedelta(seconds=rule.lasts_s)
        replicated[stream] = replicated.get(stream, True) and rule.replicated
    outages = [
        (own, Outage(system, target, i, lasts[stream], firm, replicated[stream]))
        for stream in sorted(streams)
        for system, target, own, firm in (stream,)
        for i in firing_intervals(streams[stream])
        if i.end is None or i.end - i.start >= min(lasts[stream], families().shared.storage.brief)
    ]
    told = tuple(outage for own, outage in outages if own)
    lost = tuple(outage for own, outage in outages if not own)
    hung = tuple(h for h in hypotheses if _only_hangs(h))
    served = serves and not no_client
    faults = tuple(h for h in hypotheses if _is_of_server(h)) if names is None or names or served else ()
    gone = tuple(h for h in gone_alone if _may_only_hang(h)) if lost or hung else ()
    return StorageReports(lost, hung, faults, names if faults else None, gone, told, frozenset(serves), only)


def servers_of(
    storage: Hypothesis, evidence: Collection[tuple[str, StorageReports]], known: int, within: timedelta
) -> dict[str, str]:
    """The faults of disks, links and hosts that are why a storage is gone, each with its host: from minutes before that."""
    few = len(storage.nodes) < families().shared.storage.enough(known) and MONITORED not in storage.facts
    if storage.root.storage is None or few:
        return {}
    called = {storage.root.storage, *storage.fact_texts("storage")}
    called = called.union(*(hosts_in(s) for s in (*storage.causes, *storage.context)))
    called |= {host for host, reports in evidence if reports.serves & called}
    return {
        h.id: node
        for node, reports in evidence
        for h in reports.disks
        if node not in storage.nodes
        and _serves(node, h, reports, called)
        and storage.fault_at - within <= h.fault_at
        and (storage.cleared_at is None or h.fault_at <= storage.cleared_at)
    }


def of_servers(evidence: Iterable[tuple[str, StorageReports]], servers: Mapping[str, str]) -> str:
    """What the hosts that serve a storage report of themselves, and the switches of their ports."""
    mine = [(h, reports) for _, reports in evidence for h in reports.disks if h.id in servers]
    shown = [f"{servers[h.id]} ({_sign(h, reports)})" for h, reports in mine[:_MAX_SHOWN]]
    return f"What serves it is at fault: {', '.join(shown)}"


def _sign(h: Hypothesis, reports: StorageReports) -> str:
    """What one fault of a host is: of a link, at which port."""
    if h.family != IncidentFamily.NIC_LINK:
        return families().signs(h.causes, _MAX_SHOWN)
    port = f"port {h.root.port} of {h.root.switch}" if h.root.port else str(h.root)
    return f"{h.facts['link']} at {port}{', the only port that is known of it' if reports.only_port else ''}"


def _serves(node: str, h: Hypothesis, reports: StorageReports, called: Collection[str]) -> bool:
    """Whether a host with such a fault may be what serves a storage of these names: any with bad disks, else by its own name."""
    if short(node) in {short(name) for name in called} or (reports.names or frozenset()) & set(called):
        return True
    return reports.names is None and _is_of_disks(h)


def _is_of_server(h: Hypothesis) -> bool:
    return _is_of_disks(h) or h.family == IncidentFamily.NODE_DOWN or _is_cut_off(h)


def _is_cut_off(h: Hypothesis) -> bool:
    """Whether a link of the host is down, or goes down time and again: not one that bounced, or only makes errors."""
    return h.family == IncidentFamily.NIC_LINK and h.alone


def _is_of_disks(h: Hypothesis) -> bool:
    return h.family == IncidentFamily.HOST_FAULT and any(s.kind == SignalKind.NODE_STORAGE for s in h.causes)


def _only_hangs(h: Hypothesis) -> bool:
    return h.family == IncidentFamily.HOST_FAULT and all(s.text("subtype") == "hung_task" for s in h.causes)


def _may_only_hang(h: Hypothesis) -> bool:
    """Whether a node that is NotReady may be alive: no last words of it, and no sign from outside that it is dead."""
    signs = death_policy().signs
    return h.certainty is not Certainty.DECISIVE and h.sure not in (signs.alert.says, signs.ports.says)

"""Jobs that lose connections to ports which were taken out of the partition that they work in."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import timedelta

from streams.correlate.hypothesis import LEFT_PARTITION, Hypothesis
from streams.correlate.job_rules.connection_votes import edges, says
from streams.correlate.job_rules.culprit import HangFinding
from streams.correlate.job_rules.job_evidence import JobEvidence, placed_at
from streams.correlate.job_rules.rank_reports import Episode
from streams.correlate.policy.config import Config
from streams.correlate.sightings import Sighting
from streams.model.incident import Certainty
from streams.model.kinds import SignalKind

_SHARE = 0.75
"""So many of the connections that a job loses must end at such a port: those that fail for these follow."""
_LEAST = 2
"""So many connections fail where only the time tells which ports they were."""
_KEY_TABLE = "P_Key"
"""What a port says of itself when its table of keys was changed (IBV_EVENT_PKEY_CHANGE)."""


def guid_of(gid: str) -> int | None:
    """The GUID of a port by its GID, of which it is the lower half; None where that is a GID of RoCE, or no address."""
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return None
    return int(address) & (1 << 64) - 1 if address.ipv4_mapped is None else None


def _guids_left(h: Hypothesis) -> frozenset[int]:
    """The GUIDs of the ports that left, as far as their manager named them."""
    return frozenset(int(guid, 16) for s in h.causes if (guid := s.text("member")))


def left_partition(
    evidence: JobEvidence, episode: Episode, finding: HangFinding, config: Config
) -> Hypothesis | None:
    """The partition that ports were taken out of to which the job loses connections, one after the other as it uses them.

    By their GUIDs, which are in the GIDs of newer NCCL's lines; else by the ports of the job whose tables of keys were changed
    then; else, where neither is said, by the time, if ports refused keys meanwhile. What proves that a node or the program is
    why is not this, unless the GUIDs tell.
    """
    lost = [s for s in _lines(episode) if s.kind == SignalKind.NCCL_ERROR and says(s) == "edge"]
    if not lost or finding.mismatch:
        return None
    first = min(s.at for s in lost)
    found = []
    for h in evidence.causes:
        over = evidence.closed.get(h.id) or h.cleared_at
        if h.rule != LEFT_PARTITION or h.fault_at > first + config.skew:
            continue
        if over is not None and over + config.linger < episode.start:
            continue
        if _lost_to_it(h, lost, evidence, episode, finding, config):
            found.append(h)
    return max(found, key=lambda h: (h.fault_at, h.id), default=None)


def _lost_to_it(
    h: Hypothesis,
    lost: list[Sighting],
    evidence: JobEvidence,
    episode: Episode,
    finding: HangFinding,
    config: Config,
) -> bool:
    known, left = [ends for s in lost if (ends := _guids(s))], _guids_left(h)
    if known and left:
        return sum(not ends.isdisjoint(left) for ends in known) >= _SHARE * len(known)
    if finding.certainty is Certainty.DECISIVE:
        return False
    there = placed_at(evidence.placements, episode.start, config)
    addresses = evidence.addresses(there).with_those_of(episode.reports)
    if changed := _changed(h, evidence, config):
        pairs = [{e.node, e.peer} for e in edges(episode.reports, addresses) if e.says == "edge"]
        return bool(pairs) and sum(not pair.isdisjoint(changed) for pair in pairs) >= _SHARE * len(pairs)
    soon = min(s.at for s in lost) <= h.fault_at + config.partition_refused
    return soon and len(lost) >= _LEAST and bool(h.facts.get("refused"))


def _changed(h: Hypothesis, evidence: JobEvidence, config: Config) -> set[str]:
    """The nodes of the job whose ports' tables of keys were changed as the members left."""
    since, until = h.fault_at - timedelta(minutes=1), h.last_at + config.partition_refused
    return {
        t.node
        for t in evidence.reports
        if t.node is not None
        and since <= t.sighting.at <= until
        and t.sighting.text("subtype") == "async_event"
        and _KEY_TABLE in t.sighting.text("reason")
    }


def _guids(s: Sighting) -> set[int]:
    """The GUIDs of both ends of a connection, as far as its line tells."""
    gids = (s.text("gid"), s.text("peer_gid"))
    return {guid for gid in gids if gid and (guid := guid_of(gid)) is not None}


def _lines(episode: Episode) -> Iterable[Sighting]:
    return (t.sighting for t in episode.reports)

"""Jobs that have become slower than they were: what began to be wrong on just one of their nodes is why.

A slow job is no incident by itself, nor are faint signs of heat or of a narrow PCIe link, or one report of a slow rank: both
together are. Reports of a slow rank that recur are an incident by themselves, with their job.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from streams.correlate.hypothesis import BY_RAIL, DROPS, FELT_ONLY, SOLE, Hypothesis
from streams.correlate.job_rules.job_evidence import JobEvidence
from streams.correlate.job_rules.pod_failures import SLOW
from streams.correlate.policy.config import Config
from streams.correlate.sightings import Sighting
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

_BEFORE = timedelta(minutes=30)
"""How long before a job is slow what slows it may begin: heat builds up, and a pace is a mean over minutes."""
_SLOWING = frozenset(
    {
        IncidentFamily.POWER_COOLING,
        IncidentFamily.STRAGGLER,
        IncidentFamily.NIC_LINK,
        IncidentFamily.FABRIC_FAULT,
        IncidentFamily.HOST_FAULT,
        IncidentFamily.STORAGE_FAULT,
        IncidentFamily.GPU_NVLINK,
    }
)
"""What makes a job slow without stopping it."""


def slowed(evidence: JobEvidence, config: Config) -> Iterator[tuple[Sighting, Hypothesis]]:
    """Each report that the job is slow, or a rank or node of it, with what slows it."""
    for s in evidence.failed:
        if s.firing and s.kind == SignalKind.JOB_STALLED and s.text("subtype") == SLOW:
            cause = _slowing(evidence, s, config)
            if cause is not None:
                yield s, cause
    for cause in evidence.causes:
        if cause.family == IncidentFamily.STRAGGLER and cause.opens_alone:
            reports = {s.id for s in cause.causes}
            yield from ((s, cause) for s in evidence.failed if s.id in reports)


def _felt_at(cause: Hypothesis) -> tuple[str, ...]:
    """The hosts that show that a switch loses packets: it is on no node, and slows what runs on these.

    Where several switches drop, the fabric is busy, and a job is as slow as its peers.
    """
    loses = cause.rule == FELT_ONLY or (cause.rule == DROPS and SOLE in cause.facts)
    return cause.fact_texts("hosts") if loses else ()


def _slowing(evidence: JobEvidence, slow: Sighting, config: Config) -> Hypothesis | None:
    """The strongest of what began when the job became slow, if all of that is in one place."""
    nodes = {p.node for p in evidence.placements if p.overlaps(slow.fault_at, slow.at)}
    found = [
        cause
        for cause in evidence.causes
        if cause.family in _SLOWING
        and not nodes.isdisjoint({cause.root.node, *cause.nodes, *_felt_at(cause)})
        and slow.fault_at - _BEFORE <= cause.fault_at <= slow.at
        # Ports drop for a while on any busy day: one that began long after the job became slow is not why.
        and (cause.rule != DROPS or cause.fault_at <= slow.fault_at + cause.lag)
        and (cause.cleared_at is None or cause.cleared_at >= slow.fault_at + config.linger)
    ]
    if any(cause.rule in (DROPS, FELT_ONLY) for cause in found):
        # Beside a switch that loses packets, what is faint on one node of many is chance, or follows from that.
        found = [cause for cause in found if cause.certainty is not Certainty.WEAK]
        if not all(BY_RAIL in cause.facts for cause in found):
            found = [cause for cause in found if BY_RAIL not in cause.facts]
    # Nodes that a feed or a switch slows together are one place.
    roots = [evidence.owners.get(cause.id, cause).root for cause in found]
    places = {root.node or root.key for root in roots}
    return max(found, key=lambda c: (*c.strength, c.fault_at, c.id)) if len(places) == 1 else None

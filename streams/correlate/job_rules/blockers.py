"""Platform faults that keep a job from running, and what they follow from."""

from __future__ import annotations

from datetime import datetime

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.applications import Burst
from streams.correlate.job_rules.explaining_causes import (
    evicting_node,
)
from streams.correlate.job_rules.job_evidence import (
    JobEvidence,
    forgotten,
    placed_at,
    recovered,
)
from streams.correlate.job_rules.pod_failures import PLATFORM, PlatformBlocker, platform_blockers
from streams.correlate.job_rules.rank_reports import Episode
from streams.correlate.job_rules.services import complaints, ends, shortage_at, stood_still
from streams.correlate.job_rules.start_failures import stuck_on_node
from streams.correlate.job_rules.verdict import JobVerdict, Suspicion
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting
from streams.correlate.state.place import RESOLVER, SERVERS, Cause, Place, PlaceKind, Suspect
from streams.model.hostnames import is_address, short
from streams.model.incident import Certainty
from streams.model.kinds import SignalKind


def for_a_service(evidence: JobEvidence, trouble: Burst | Episode | PlatformBlocker) -> Cause | None:
    """The fault of a service of which the job complains as it fails."""
    if not evidence.shortages:
        return None
    found = shortage_at(complaints(evidence.failed), evidence.shortages, trouble.start, trouble.end)
    return found.incident if found is not None else None


def claim_ends(evidence: JobEvidence, verdict: JobVerdict, config: Config) -> None:
    """Ends of the job's pods that nothing else explains follow from the service of which it complained until then."""
    if not evidence.shortages:
        return
    mine = complaints(evidence.failed)
    own = [h.fault_at for h in verdict.hypotheses] + [s.episode.start for s in verdict.suspicions]
    for end in ends(evidence.placements):
        since, until = end.start - config.before, end.end + config.before
        if any(since <= at <= until for at in own) or any(
            first <= until and last >= since for first, last, _ in verdict.explained
        ):
            continue
        found = shortage_at(mine, evidence.shortages, end.start, end.end)
        before = [s for s in mine[found.service] if s.at <= end.end] if found is not None else []
        # What went on after its last complaint ended for something else.
        if found is not None and not any(
            s.at < at <= end.start for s in before[-1:] for at in evidence.moved
        ):
            verdict.claim(found.incident, end, before[-1:])


def claim_waits(evidence: JobEvidence, verdict: JobVerdict, config: Config) -> None:
    """What a job waits for that has just started, and complains of the resolver of names for minutes, follows from that."""
    for found in evidence.shortages:
        if found.service != RESOLVER:
            continue
        mine = [s for s in complaints(evidence.failed)[RESOLVER] if found.since <= s.at <= found.until]
        wait = stood_still(mine, evidence.moved, evidence.placements, config.before)
        if wait is not None and not any(
            first <= wait.end and last >= wait.start for first, last, _ in verdict.explained
        ):
            verdict.claim(found.incident, wait, mine)


def evaluate_blockers(
    evidence: JobEvidence, verdict: JobVerdict, config: Config
) -> list[tuple[PlatformBlocker, Cause]]:
    """Platform faults that keep the job from running, unless another incident of the job is why. Returns each with its cause."""
    found: list[tuple[PlatformBlocker, Cause]] = []
    count, until = forgotten(evidence, families()[PLATFORM].domain)
    failed = [s for s in evidence.failed if until is None or s.at > until]
    blockers = platform_blockers(failed, evidence.pods, config, _of_what_stays(evidence))
    for number, blocker in enumerate(blockers, count + 1):
        service = for_a_service(evidence, blocker) if not blocker.waits else None
        why = service or _storage_of(evidence, blocker, config) or _evicted_by(evidence, blocker, config)
        why = why or _drained_for(evidence, blocker, config) or _behind(evidence, verdict, blocker, config)
        if why is not None:
            verdict.claim(why, blocker, blocker.sightings)
            found.append((blocker, why))
            continue
        if (here := stuck_on_node(evidence, blocker)) is not None:
            episode, node = here.episode(), here.node
            ready_at = blocker.seen_at + config.application_settle
            verdict.suspicions.append(Suspicion(node, evidence.job, here.finding(), episode, ready_at, ()))
            suspect = Suspect(Place(PlaceKind.NODE, node))
            verdict.claim(suspect, blocker, blocker.sightings)
            found.append((blocker, suspect))
            continue
        ends = [blocker.over_at(evidence.placements), recovered(evidence, blocker.end, config)]
        over_at = min((at for at in ends if at is not None), default=None)
        ready_at, says = blocker.seen_at + config.application_settle, blocker.says
        if blocker.waits:
            ready_at = max(ready_at, _patience_ends(evidence, blocker))
            if not _ran_before(evidence, blocker) or (over_at is not None and over_at <= ready_at):
                continue  # a condition of a full cluster, which `faultline capacity` reports
            says = f"it ran before, and {says} since {blocker.since or blocker.start:%Y-%m-%d %H:%M} UTC"
        own = Hypothesis(
            place=evidence.place,
            root=evidence.root,
            family=PLATFORM,
            incarnation=number,
            certainty=Certainty.LIKELY,
            fault_at=blocker.start,
            last_at=blocker.end,
            ready_at=ready_at,
            rule="waits too long" if blocker.waits else "platform in the way",
            why=f"{evidence.job}: {says}, and nothing that happened to it before explains that",
            alone=not blocker.is_routine(len(placed_at(evidence.placements, blocker.start, config))),
            cleared_at=over_at,
            causes=blocker.sightings,
            jobs=(evidence.job,),
            facts={"nodes_told": blocker.nodes[:16]},
            stops="never",
        )
        verdict.hypotheses.append(own)
        found.append((blocker, own.id))
    return found


def _of_what_stays(evidence: JobEvidence) -> frozenset[str]:
    """Ids of what the job complains of services that do not get well by themselves."""
    stays = [one for one in evidence.shortages if one.stays]
    mine = complaints(evidence.failed) if stays else {}
    return frozenset(s.id for one in stays for s in mine[one.service] if one.since <= s.at <= one.until)


def is_unmounted(s: Sighting) -> bool:
    """Whether a volume of a pod cannot be mounted."""
    return s.kind == SignalKind.JOB_FAILED and s.text("subtype") == "volume"


def _storage_of(evidence: JobEvidence, blocker: PlatformBlocker, config: Config) -> Cause | None:
    """The storage that is gone where the job's volumes cannot be mounted."""
    volumes = [s for s in blocker.sightings if is_unmounted(s)]
    if not volumes:
        return None
    gone = [
        h
        for h in evidence.storages
        if h.certainty is not Certainty.WEAK
        and h.fault_at - config.before <= blocker.end
        and (h.cleared_at is None or blocker.start <= h.cleared_at + config.before)
        and any(_is_on(s, h) for s in volumes)
    ]
    return min(gone, key=lambda h: (h.fault_at, h.id)).id if gone else None


def _is_on(volume: Sighting, storage: Hypothesis) -> bool:
    """Whether a volume is on a storage: it names it, or cannot be mounted in time on a node that does not reach it.

    A name and an address may be the same server; two names, or two addresses, are two.
    """
    called = {storage.root.storage or "", *storage.fact_texts("storage"), *storage.fact_texts(SERVERS)}
    known = {short(name.partition(":")[0]) for name in called if name}
    server = volume.text("server")
    if server and short(server) in known:
        return True
    if volume.entity.node not in storage.nodes or not volume.text("mount"):
        return False
    return not server or all(is_address(server) is not is_address(name) for name in known)


def is_waiting(s: Sighting) -> bool:
    """Whether a pod waits for a node."""
    rule = families().rule(s)
    return rule is not None and rule.waits


def _drained_for(evidence: JobEvidence, blocker: PlatformBlocker, config: Config) -> Cause | None:
    """The rollout that took the nodes away on which the job ran, and did not give them back."""
    if not blocker.waits:
        return None
    since = blocker.start - config.retention
    left = {p.node for p in evidence.placements if p.end is not None and since <= p.end <= blocker.end}
    behind = [
        h
        for h in evidence.rollouts
        if since <= h.fault_at <= blocker.end
        and (h.cleared_at is None or h.cleared_at >= blocker.start)
        and not left.isdisjoint(h.nodes)
    ]
    return min(behind, key=lambda h: (h.fault_at, h.id)).id if behind else None


def _evicted_by(evidence: JobEvidence, blocker: PlatformBlocker, config: Config) -> Cause | None:
    """The node that evicts the job's pods for what it lacks itself."""
    if not blocker.is_eviction:
        return None
    node = evicting_node(evidence, blocker.start, blocker.end, config)
    return node.id if node is not None else None


def _patience_ends(evidence: JobEvidence, blocker: PlatformBlocker) -> datetime:
    """Until when it is usual that a job of this kind waits."""
    return (blocker.since or blocker.start) + policy().waiting.of(evidence.job.kind)


def _ran_before(evidence: JobEvidence, blocker: PlatformBlocker) -> bool:
    """Whether pods of the job stood on nodes before those that wait came to be."""
    return evidence.ran_at is not None and evidence.ran_at < (blocker.since or blocker.start)


def _unstarted_on(evidence: JobEvidence, blocker: PlatformBlocker) -> set[str]:
    """Where the job's pods cannot be started meanwhile: one whose own trouble is not long enough yet may hold up the others."""
    if blocker.waits:
        return set()
    told = (s for s in evidence.failed if s.firing and blocker.start <= s.at <= blocker.end)
    there = (s.entity.node for s in told if (rule := families().rule(s)) is not None and rule.local)
    return {*blocker.nodes, *(node for node in there if node)}


def _behind(
    evidence: JobEvidence, verdict: JobVerdict, blocker: PlatformBlocker, config: Config
) -> Cause | None:
    """The incident that took the job's pods away, or that of the node where they cannot start."""
    if not blocker.may_follow:
        return None
    since, nodes = blocker.start - config.retention, _unstarted_on(evidence, blocker)
    # What happens on a node that the pods come to at last is not what they waited for.
    left = {p.node for p in evidence.placements if p.start <= blocker.end}
    behind = [
        c
        for c in evidence.causes
        if since <= c.fault_at <= blocker.end
        and not (blocker.is_eviction and c.certainty is Certainty.WEAK and not c.alone)
        # A pod's network may fail with its node's, what it is given of the node does not.
        and not (c.only_drops and any(s.text("subtype") != "sandbox" for s in blocker.sightings))
        # What harms nobody by itself took no capacity away.
        and (c.alone or not blocker.waits)
        and (c.root.node in nodes or (c.certainty is not Certainty.WEAK and c.stops != "never"))
        and (c.root.node is None or c.root.node in nodes or not left.isdisjoint({c.root.node, *c.nodes}))
        and c.domain not in ("pfc", "fabric", "link")
    ]
    if behind:
        return max(behind, key=lambda c: (*c.strength, -c.fault_at.timestamp(), c.id)).id
    own = [h.id for h in verdict.hypotheses if h.family != PLATFORM and since <= h.fault_at <= blocker.start]
    accused = [s.node for s in verdict.suspicions if since <= s.episode.start <= blocker.start]
    return Suspect(Place(PlaceKind.NODE, min(accused))) if accused and not own else min(own, default=None)

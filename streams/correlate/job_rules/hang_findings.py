"""A job's hangs, and what its ranks say about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from streams.correlate.job_rules.busy_ranks import cleared_by_work
from streams.correlate.job_rules.connection_votes import FAILING_CONNECTIONS, NO_ADDRESSES
from streams.correlate.job_rules.culprit import ERRORS_ONLY, WANDERS, HangFinding, find_culprit
from streams.correlate.job_rules.job_evidence import (
    Behind,
    JobEvidence,
    forgotten,
    launchers_beside,
    placed_at,
)
from streams.correlate.job_rules.rank_assignment import (
    gpus_of,
    numbered,
    where_ranks_stand,
    without_group_ranks,
)
from streams.correlate.job_rules.rank_reports import Episode, episodes, joined, names_others
from streams.correlate.job_rules.relayed_lines import at_their_address, elsewhere
from streams.correlate.policy.config import Config
from streams.correlate.sightings import Sighting
from streams.correlate.state.allocations import is_partial
from streams.correlate.state.placement import Placement
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import Severity

_PORT_EVENT = "async_event"


def hangs_of(evidence: JobEvidence, config: Config) -> list[Episode]:
    """The job's hangs: what the same pods report within minutes is still the same one being torn down."""
    _, until = forgotten(evidence, IncidentFamily.HANG)
    reports = [t for t in evidence.reports if until is None or t.sighting.at > until]
    found: list[Episode] = []
    for episode in episodes(reports, config.episode_gap):
        if all(map(_goes_on, episode.lines)):
            continue
        last = found[-1] if found else None
        if (
            last is not None
            and episode.start - last.end <= config.same_pods_gap
            and _same_pods(evidence, last, episode)
        ):
            found[-1] = joined(last, episode)
        else:
            found.append(episode)
    return found


def _goes_on(s: Sighting) -> bool:
    """Whether a library only warns of something and goes on: a device that it leaves out, a port that bounced as it saw it."""
    warns = s.severity in (Severity.INFO, Severity.WARNING)
    return s.kind == SignalKind.NCCL_ERROR and (warns or s.text("subtype") == _PORT_EVENT)


def _same_pods(evidence: JobEvidence, one: Episode, other: Episode) -> bool:
    spoke = {t.pod for t in one.reports} & {t.pod for t in other.reports}
    before = {s.uid for s in evidence.placements if s.pod in spoke and s.overlaps(one.end, one.end)}
    after = {s.uid for s in evidence.placements if s.pod in spoke and s.overlaps(other.end, other.end)}
    return bool(before & after)


def finding_of(evidence: JobEvidence, episode: Episode, config: Config) -> HangFinding:
    """What the ranks' reports say about a hang."""
    there = placed_at(evidence.placements, episode.start, config)
    reports = elsewhere(
        without_group_ranks(there, episode.reports), launchers_beside(evidence.placements, there)
    )
    addresses = evidence.addresses(there) if names_others(reports) else NO_ADDRESSES
    reports = at_their_address(reports, there, addresses.nodes)
    numbers = numbered(there, reports)
    placements = numbers.placements
    episode = replace(episode, reports=where_ranks_stand(placements, reports))
    finding = find_culprit(episode, placements, addresses)
    partial = any(is_partial(p) for p in there)
    if numbers.is_guess or partial:
        finding = replace(finding, complete=False)
    if (numbers.conflicts or numbers.is_guess or partial) and finding.certainty is Certainty.DECISIVE:
        finding = replace(finding, certainty=Certainty.LIKELY)
    if finding.certainty is Certainty.DECISIVE and (doubt := _doubt(evidence, episode, placements, finding)):
        finding = replace(finding, certainty=Certainty.LIKELY, why=f"{finding.why}; but {doubt}")
    finding = cleared_by_work(finding, episode, placements, config)
    held = gpus_of(placements, finding.ranks)
    return replace(
        finding,
        gpu=next(iter(held.values())) if len(finding.ranks) == len(held) == 1 else None,
        gpus=tuple(sorted({gpu.pci for gpu in held.values() if gpu.pci})),
        doubts=numbers.conflicts,
    )


def _doubt(
    evidence: JobEvidence, episode: Episode, placements: Sequence[Placement], finding: HangFinding
) -> str:
    """Why the node that the ranks prove may be innocent all the same; "" if nothing contradicts them."""
    placed = sum(p.expected for p in placements)
    world = max((evidence.world or 0, *(t.nranks for p in placements for t in p.observed)))
    if placed < world:
        return f"only {placed} of the job's {world} ranks are placed, and the others may be what it waits for"
    here = [p for p in placements if p.node == finding.node]
    if finding.silent and any(p.end is not None and p.end < episode.reported_at for p in here):
        return "its pod had ended before the others spoke, so that its silence says nothing of the node"
    return ""


def wandering_ranks(
    evidence: JobEvidence, hangs: Sequence[Episode], config: Config
) -> Mapping[datetime, HangFinding]:
    """Hangs of one job of which no node is why, though each by itself may accuse one; by their start.

    Where ranks of different nodes were behind, while others of the same nodes kept up, it follows the program, try after try: two
    nodes do not fail one after the other for the same job. Where connections of one node failed, and in its other hangs those of
    others, it is what lies between them.
    """
    if len(hangs) < 2:
        return {}
    found = {e.start: finding_of(evidence, e, config) for e in hangs}
    return _behind_elsewhere(found) | _failing_elsewhere(found)


def behind_in_kin(found: HangFinding, mine: Behind, kin: Sequence[Behind]) -> HangFinding | None:
    """A hang of which no node is why, for the same ranks were behind on others in other runs of the program (`kin`); else None.

    Ranks are dealt out to nodes anew with each run: what stays with the number is in the program, or in what that rank reads.
    """
    elsewhere = [b for b in kin if b.node != mine.node]
    if not elsewhere:
        return None
    runs = ", ".join(sorted({f"{b.job.name} on {b.node}" for b in elsewhere})[:4])
    return _of_nobody(found, f"The same ranks were behind in other runs of the program, elsewhere: {runs}")


def _behind_elsewhere(found: Mapping[datetime, HangFinding]) -> dict[datetime, HangFinding]:
    behind = {start: f for start, f in found.items() if f.others_keep_up and f.node is not None}
    nodes = sorted({str(f.node) for f in behind.values()})
    if len(nodes) < 2:
        return {}
    why = f"{len(behind)} times some ranks of one node were behind: of {', '.join(nodes[:8])}, while others there kept up"
    return {start: _of_nobody(f, why) for start, f in behind.items()}


def _failing_elsewhere(found: Mapping[datetime, HangFinding]) -> dict[datetime, HangFinding]:
    ends = {start: f.vote.ends for start, f in found.items() if f.vote is not None}
    wandering = {}
    for start, f in found.items():
        if f.vote is None or f.node is None or f.rule != FAILING_CONNECTIONS:
            continue
        others = {pair for at, pairs in ends.items() if at != start for pair in pairs}
        without = sum(f.node not in pair for pair in others)
        # Of a node that fails, others fail a little beside it: what is torn down closes connections, too.
        if without > 1 and 4 * without > len(others):
            why = f"but in its other hangs {without} of {len(others)} connections that failed were between other nodes"
            wandering[start] = _of_nobody(f, why, ERRORS_ONLY)
    return wandering


def _of_nobody(found: HangFinding, why: str, rule: str = WANDERS) -> HangFinding:
    return replace(
        found, node=None, certainty=Certainty.WEAK, rule=rule, why=f"{found.why}. {why}", suspects=()
    )

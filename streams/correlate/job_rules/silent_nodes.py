"""Nodes that the ranks of jobs suspect: they say nothing of themselves, and whole collectives wait for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.first_failures import RULE
from streams.correlate.job_rules.job_causes import culprit_facts
from streams.correlate.job_rules.start_failures import START_RULE
from streams.correlate.job_rules.verdict import Suspicion
from streams.correlate.sightings import order
from streams.correlate.state.incarnations import FiringInterval, Incarnations
from streams.correlate.state.place import Place, PlaceKind
from streams.model.entity import Entity
from streams.model.incident import Audience, Certainty
from streams.model.kinds import IncidentFamily
from streams.model.message import some


def silent_roots(
    root: Entity, suspicions: Iterable[Suspicion], incarnations: Incarnations
) -> list[Hypothesis]:
    """A node that the ranks of one or more jobs point at."""
    by_lines: dict[str, Suspicion] = {}
    stretches = []
    for suspicion in sorted(suspicions, key=lambda s: (s.episode.start, s.job.key)):
        lines = tuple(suspicion.episode.lines)
        by_lines |= {line.id: suspicion for line in lines}
        stretches.append(FiringInterval(suspicion.episode.start, suspicion.episode.end, None, lines[:1]))
    found = []
    for session in incarnations.sessions(root, "silent", stretches):
        members = list({id(by_lines[s.id]): by_lines[s.id] for s in session.sightings}.values())
        found.append(_silent(root, session.incarnation, members))
    return found


def _part(node: Entity, members: Iterable[Suspicion]) -> Entity:
    """The GPU of the one rank that all jobs suspect, or the NIC at which failing connections meet; else the node."""
    findings = [m.finding for m in members]
    votes = [f.vote for f in findings if f.vote is not None and f.vote.level == "nic"]
    nics = {vote.nic if vote.node == node.node else None for vote in votes}
    if len(votes) == len(findings) and len(nics) == 1 and (nic := nics.pop()):
        return replace(node, nic=nic)
    gpus = {f.gpu for f in findings}
    return replace(node, gpu=gpus.pop()) if len(gpus) == 1 else node


_DOES = {RULE: "ended", START_RULE: "cannot start"}


def _silent(root: Entity, incarnation: int, members: list[Suspicion]) -> Hypothesis:
    best = max(
        members, key=lambda m: (m.finding.certainty is Certainty.DECISIVE, -m.episode.start.timestamp())
    )
    why = f"{best.job} {_DOES.get(best.finding.rule, 'hangs')}: {best.finding.why}"
    facts = culprit_facts(best.finding, best.episode)
    if len(members) > 1 and best.finding.rule not in _DOES:
        facts = {**facts, "hangs": len(members)}
        jobs = sorted({str(m.job) for m in members})
        why += f"; {len(members)} times ranks there were waited for, by {some(jobs, 4)}"
    return Hypothesis(
        place=Place(PlaceKind.NODE, root.node or ""),
        root=_part(root, members),
        counted_as=root,
        family=IncidentFamily.SILENT_NODE,
        incarnation=incarnation,
        certainty=best.finding.certainty,
        fault_at=min(m.episode.start for m in members),
        last_at=max(m.episode.end for m in members),
        ready_at=min(m.ready_at for m in members),
        rule=best.finding.rule,
        why=why,
        causes=tuple(sorted((line for m in members for line in m.episode.lines), key=order)),
        jobs=tuple(sorted({m.job for m in members}, key=lambda j: j.key)),
        facts=facts,
        candidates=tuple(c for m in members for c in m.candidates),
        # What a second job finds there as well is no program's.
        audience=best.audience
        if len({m.job.key for m in members}) == 1 and len({m.audience for m in members}) == 1
        else Audience.ON_CALL,
    )

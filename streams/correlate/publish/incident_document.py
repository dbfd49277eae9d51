"""From a hypothesis to the document that is published: texts, proofs, blast radius. Written for a tired person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.policy.families import families
from streams.correlate.policy.policy import policy
from streams.correlate.publish.evidence_age import newest
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.placement import Placement
from streams.model.checkpoint import Checkpoint
from streams.model.entity import JobRef
from streams.model.incident import (
    Candidate,
    Impact,
    Incident,
    IncidentState,
    Progress,
    Proof,
)
from streams.model.kinds import SignalKind
from streams.model.node_notice import deadline_in
from streams.model.signal import Attribute

MAX_CAUSES, MAX_SYMPTOMS, MAX_CONTEXT, MAX_CANDIDATES = 10, 16, 8, 12
"""How many of each a document holds at most: it travels in one record, and nobody reads more."""
_MAX_SIGNS = 5


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a document needs besides its hypothesis."""

    placements: Sequence[Placement]
    """Where the affected jobs ran when it began."""
    symptoms: Sequence[Sighting]
    jobs: Sequence[JobRef]
    progress: tuple[Progress, ...]
    checkpoints: tuple[Checkpoint, ...]
    state: IncidentState
    closed_at: datetime | None
    note: str = ""
    slowed: frozenset[str] = frozenset()
    """Keys of jobs that are known to have become slower, and no more."""


def document(h: Hypothesis, around: Surroundings, now: datetime) -> Incident:
    """The first revision of an incident, as far as its hypothesis goes."""
    row = families()[h.family]
    jobs = tuple(sorted({j.key: j for j in around.jobs}.values(), key=lambda j: j.key))
    affected = {p.node for p in around.placements}
    nodes = tuple(sorted({*affected, *h.nodes, h.root.node} - {None}, key=str))
    words = _words(h, jobs)
    stopped = () if _goes_on(h, around.symptoms) else around.placements
    stopped = [p for p in stopped if p.job.key not in around.slowed]
    impact = _impact(h, stopped, jobs, nodes)
    latest = newest(h)
    reason = row.reason.format_map(words)
    if not around.state.is_over and any(p.node == h.root.node for p in stopped):
        reason += row.with_ranks.format_map(words)
    return Incident(
        id=h.id,
        cluster=h.root.cluster,
        family=h.family,
        root=h.root,
        incarnation=h.incarnation,
        revision=1,
        state=around.state,
        severity=h.severity
        or policy().severity_of(h.family, row.severity, len(jobs), impact.gpus, spared=h.spares_jobs),
        certainty=h.certainty,
        title=row.title.format_map(words),
        reason=f"{reason}. {around.note}" if around.note else reason,
        fault_at=h.fault_at,
        opened_at=now,
        updated_at=now,
        closed_at=around.closed_at,
        jobs=jobs,
        nodes=tuple(str(n) for n in nodes),
        impact=impact,
        facts=dict(sorted({**h.facts, **_bursts(h)}.items())),
        proofs=_proofs(h, around.symptoms),
        candidates=_candidates(h, reason),
        progress=around.progress,
        checkpoints=around.checkpoints,
        flaps=h.flaps,
        evident_at=latest.at if latest else None,
        evident_read_at=latest.seen_at if latest else None,
        audience=h.audience,
    )


class Documents:
    """The documents as they were written last. Of the incidents that a batch touches most are as they were.

    A document depends on nothing but its hypothesis and what surrounds it, besides the moment, which is only noted.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Hypothesis, Surroundings, Incident]] = {}

    def of(self, h: Hypothesis, around: Surroundings, now: datetime) -> Incident:
        """What `document` writes."""
        if (kept := self._kept.get(h.id)) is not None and kept[:2] == (h, around):
            return replace(kept[2], opened_at=now, updated_at=now)
        written = document(h, around, now)
        self._kept[h.id] = (h, around, written)
        return written

    def drop(self, incident: str) -> None:
        """Forget an incident's document."""
        self._kept.pop(incident, None)


def comparable(incident: Incident) -> Incident:
    """The document without what changes by itself: two revisions with the same one hold no news."""
    return replace(
        incident,
        revision=0,
        updated_at=incident.opened_at,
        progress=(),
        checkpoints=(),
        evident_at=None,
        evident_read_at=None,
    )


def says_more(old: Incident, new: Incident) -> bool:
    """Whether a reader learns something from the new revision, and not only of more lines or places of the same kinds."""
    return _gist(old) != _gist(new)


def only_grows(old: Incident, new: Incident) -> bool:
    """Whether the new revision of what many nodes share differs in numbers and lists of nodes only: they go one by one."""
    root = new.root
    return root.node is None and root.job is None and _outline(old) == _outline(new)


def _outline(incident: Incident) -> tuple[Incident, frozenset[tuple[str, str]]]:
    gist, kinds = _gist(incident)
    facts = {name: value for name, value in gist.facts.items() if isinstance(value, (bool, str))}
    return replace(gist, reason="", nodes=(), impact=Impact(), facts=facts), kinds


def _gist(incident: Incident) -> tuple[Incident, frozenset[tuple[str, str]]]:
    facts = {name: value for name, value in incident.facts.items() if name != "bursts"}
    kinds = frozenset((proof.role, proof.kind) for proof in incident.proofs)
    return replace(comparable(incident), proofs=(), candidates=(), facts=facts), kinds


def _words(h: Hypothesis, jobs: Sequence[JobRef]) -> Mapping[str, str]:
    words = {name: str(value) for name, value in h.facts.items()}
    failed = h.facts.get("gpus_failed")
    place = f"{h.root}" if h.root.gpu else f"a GPU of {h.root.node}"
    if isinstance(failed, int) and failed > 1:
        place = f"{place}, the first of {failed} GPUs of that board"
    return _Words(
        words
        | {
            "node": h.root.node or str(h.root),
            "place": place,
            "root": str(h.root),
            "job": str(h.root.job or next(iter(jobs), "a job")),
            "source": h.root.node or str(h.root),
            "signs": families().signs(sorted(h.causes, key=order), _MAX_SIGNS),
            "why": h.why,
            "when": f" at {due:%H:%M} UTC" if (due := deadline_in(h.facts)) is not None else "",
        }
    )


class _Words(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "not known"


def _goes_on(h: Hypothesis, symptoms: Sequence[Sighting]) -> bool:
    """Whether the jobs go on in spite of it: the node lives, and no rank of theirs waits or fails."""
    return h.facts.get("lives") is True and not any(s.kind.startswith("nccl.") for s in symptoms)


def _impact(
    h: Hypothesis, placements: Sequence[Placement], jobs: Sequence[JobRef], nodes: Sequence[object]
) -> Impact:
    keys = {job.key for job in jobs}
    stopped = [p for p in placements if p.job.key in keys]
    gpus = sum(p.gpus for p in stopped)
    # Dated back by its own lines: until the first of them a watchdog was waiting, and nothing else could be seen.
    reported_at = min((s.at for s in h.causes), default=h.fault_at)
    return Impact(
        jobs=len(jobs),
        nodes=len(nodes),
        gpus=gpus,
        gpu_hours_per_hour=float(gpus),
        ranks=sum(p.expected for p in stopped),
        timeout_s=round(max((reported_at - h.fault_at).total_seconds(), 0.0), 3),
    )


def _bursts(h: Hypothesis) -> dict[str, Attribute]:
    """In how many bursts of lines a GPU's codes came; only kept lines are counted."""
    lines = sorted((s for s in h.causes if s.code is not None), key=order)
    count, codes = 0, set[int]()
    until: datetime | None = None
    for s in lines:
        if until is None or s.at > until:
            count, codes = count + 1, set()
        codes.add(s.code or 0)
        until = s.at + policy().bursts.silence(codes)
    return {"bursts": count} if count > 1 else {}


def _proofs(h: Hypothesis, symptoms: Sequence[Sighting]) -> tuple[Proof, ...]:
    causes = {s.id for s in h.causes}
    context = [s for s in h.context if s.id not in causes]
    known = causes | {s.id for s in context}
    following = [s for s in (*h.symptoms, *symptoms) if s.id not in known]
    return (
        *_grouped(h.causes, "cause", MAX_CAUSES),
        *_grouped(context, "context", MAX_CONTEXT),
        *_grouped(following, "symptom", MAX_SYMPTOMS),
    )


def _grouped(sightings: Iterable[Sighting], role: str, most: int) -> Iterable[Proof]:
    """One proof for each kind of sighting at each place, represented by its earliest line.

    The first place of every kind goes before the second of any: a hundred nodes' clean-up must not hide the timeouts.
    """
    groups: dict[tuple[str, str, str], tuple[Sighting, set[str]]] = {}
    for s in sightings:
        entity = s.entity
        if role == "cause" and s.kind.startswith("gpu"):
            where = entity.key
        else:
            where = entity.node or entity.switch or (entity.pod.key if entity.pod else "")
        key = (s.kind, s.text("xid") or s.text("subtype"), where)
        group = groups.get(key)
        if group is None:
            groups[key] = (s, {s.id})
            continue
        first, ids = group
        ids.add(s.id)
        if s.at <= first.at and order(s) < order(first):
            groups[key] = (s, ids)
    turns: dict[tuple[str, str], int] = {}
    found: list[tuple[int, datetime, str, tuple[str, str, str]]] = []
    for key, (first, _) in sorted(groups.items(), key=lambda item: order(item[1][0])):
        turn = turns[key[:2]] = turns.get(key[:2], -1) + 1
        found.append((turn, first.at, first.id, key))
    chosen = [groups[key] for *_, key in sorted(found)[:most]]
    return [
        Proof(s.id, s.kind, s.entity, s.at, role, summary(s), s.evidence, len(ids))
        for s, ids in sorted(chosen, key=lambda group: order(group[0]))
    ]


def summary(s: Sighting) -> str:
    """One line about a sighting in our own words: anybody can write to a log, so little is quoted, in plain characters."""
    match s.kind:
        case SignalKind.GPU_XID:
            name = f"XID {s.code} {s.text('mnemonic')}".strip()
            return f"{name} on {s.entity}" + (f", recovery: {s.text('action')}" if s.code == 154 else "")
        case SignalKind.GPU_OFF_BUS:
            return f"gone from the bus: {s.entity}"
        case SignalKind.NCCL_TIMEOUT:
            waited = s.number("elapsed_ms")
            parts = [f"rank {s.text('rank') or s.entity.rank} waited"]
            parts += [f"{waited / 1000:.0f} s"] if waited else []
            parts += [f"in collective {s.text('seq')}"] if s.text("seq") else []
            parts += [f"(last enqueued {s.text('last_enqueued')})"] if s.text("last_enqueued") else []
            return " ".join(parts)
        case SignalKind.NCCL_ERROR:
            return _error(s)
        case SignalKind.FABRIC_PFC_STORM:
            direction = {"sent": "sends pause without end", "received": "is paused"}.get(
                s.text("direction"), "is paused by what is attached"
            )
            return f"{s.entity} {direction}" if s.firing else f"{s.entity} is quiet again"
        case SignalKind.FABRIC_LINK:
            what = s.text("subtype").replace("_", " ") or "link"
            return f"{s.entity}: {what}" if s.firing else f"{s.entity}: {what} is over"
        case SignalKind.NODE_NOT_READY:
            return f"{s.entity.node} is {'NotReady' if s.firing else 'Ready'}"
        case _:
            return f"{families().says(s)} at {s.entity}" + ("" if s.firing else ", over")


_STATUS = {
    4: "LOC_PROT",
    5: "WR_FLUSH",
    10: "REM_ACCESS",
    11: "REM_OP",
    12: "RETRY_EXC",
    13: "RNR_RETRY",
}
"""ibv_wc_status, as rdma-core's verbs.h names it."""
_WORDS = re.compile(r"[^\w .:%-]")


def _error(s: Sighting) -> str:
    """What failed, towards which peer, on which device, with which status. Names from the log are cut to plain characters."""
    rank = s.entity.rank if s.entity.rank is not None else s.number("rank")
    who = f"rank {rank}" if rank is not None else str(s.entity)
    parts = [f"{who}: {s.text('subtype').replace('_', ' ') or 'NCCL error'}"]
    parts += [f"to {_plain(s.text('peer'))}"] if s.text("peer") else []
    parts += [f"on {_plain(s.text('device'))}"] if s.text("device") else []
    status, vendor = s.number("status"), s.number("vendor_err")
    if status is not None:
        named = _STATUS.get(status)
        parts.append(f"status {status}{f' {named}' if named else ''}")
    parts += [f"vendor error {vendor}"] if vendor is not None else []
    parts += [f"({_plain(s.text('reason'))})"] if s.text("reason") else []
    return " ".join(parts)


def _plain(text: str) -> str:
    return _WORDS.sub("", text)[:64]


def _candidates(h: Hypothesis, reason: str) -> tuple[Candidate, ...]:
    seen: dict[tuple[str, str, str], Candidate] = {}
    for c in h.candidates:
        seen.setdefault((c.entity.key, c.family, c.rule), c)
    others = sorted(seen.values(), key=lambda c: (c.family, c.entity.key, c.rule))
    return (Candidate(h.root, h.family, True, h.rule, reason), *others[: MAX_CANDIDATES - 1])

"""Faults of a node's GPUs: XIDs and off-bus lines put together into one root each.

What fails on one GPU is one incident until that is closed, under the highest-ranked family seen; GPUs of one node that fail
together fail of one cause, which is the first of them. The recovery that a 154 names overrides the code's own (Xid catalog,
154), and a DCGM gauge confirms but never opens: it shows the last code long after (dcgm-exporter, DCGM_FI_DEV_XID_ERRORS).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from streams.correlate.config import Config
from streams.correlate.families import RECOVERY_ACTION, families, level
from streams.correlate.hypotheses import Hypothesis
from streams.correlate.lives import Lives
from streams.correlate.sightings import Sighting, order
from streams.model.entity import Entity, Gpu
from streams.model.incident import Candidate, Certainty
from streams.model.signal import Attribute

KINDS = ("gpu.xid", "gpu.off_bus")


@dataclass(slots=True)
class _Group:
    """One root in the making."""

    leader: Entity
    incarnation: int
    causes: list[Sighting]
    gpus: set[str]
    cleared_at: datetime | None = None
    flaps: int = 0
    context: list[Sighting] = field(default_factory=list)

    @property
    def first(self) -> datetime:
        return self.causes[0].at


def is_gauge(sighting: Sighting) -> bool:
    """A metric that holds the last code, not the moment of a fault."""
    return sighting.text("source") in ("dcgm", "gauge") or sighting.text("subtype") in ("dcgm", "gauge")


def gpu_faults(node: str, seen: Iterable[Sighting], lives: Lives, config: Config) -> list[Hypothesis]:
    """The roots among a node's GPU sightings, sorted by when they began."""
    lines = sorted((s for s in seen if s.kind in KINDS), key=order)
    table = families()
    groups: list[_Group] = []
    counts: dict[str, int] = {}
    for s in lines:
        if is_gauge(s):
            continue
        if not s.firing:
            _clear(groups, s)
        elif table.role(s) == "cause":
            _place(groups, counts, _located(s, lines), lives, config)
    for s in lines:
        if s.firing and (is_gauge(s) or table.role(s) != "cause"):
            _accompany(groups, s, config)
    return [_hypothesis(node, group, config) for group in groups]


def _located(s: Sighting, lines: list[Sighting]) -> Sighting:
    """A line without an address (masked, or lost) belongs to the GPU that left the bus on the same node, if there is one."""
    if s.entity.gpu is not None:
        return s
    named = [
        o
        for o in lines
        if o.entity.gpu and o.firing and not is_gauge(o) and _leaves_bus(o) and _leaves_bus(s)
    ]
    return replace(s, entity=named[0].entity) if named else s


def _leaves_bus(s: Sighting) -> bool:
    return families().family_of(s) == "gpu_off_bus"


def _place(groups: list[_Group], counts: dict[str, int], s: Sighting, lives: Lives, config: Config) -> None:
    key = s.entity.key
    for group in reversed(groups):
        if _is_over(group, s.at, lives, config):
            continue
        if key in group.gpus or s.at - group.first <= config.board:
            if group.cleared_at is not None and s.at > group.cleared_at:
                group.flaps += 1
                group.cleared_at = None
            group.causes.append(s)
            group.gpus.add(key)
            return
    base = lives.base(s.entity, "gpu")
    if base and s.at <= base.until + config.linger:
        return
    counts[key] = counts.get(key, base.count if base else 0) + 1
    groups.append(_Group(s.entity, counts[key], [s], {key}))


def _is_over(group: _Group, at: datetime, lives: Lives, config: Config) -> bool:
    ends = [group.cleared_at, lives.closing(group.leader, "gpu", group.incarnation)]
    return any(end is not None and at > end + config.linger for end in ends)


def _clear(groups: list[_Group], s: Sighting) -> None:
    for group in groups:
        if group.cleared_at is None and group.gpus <= {s.entity.key}:
            group.cleared_at = s.at


def _accompany(groups: list[_Group], s: Sighting, config: Config) -> None:
    for group in groups:
        if s.entity.key in group.gpus and s.at >= group.first - config.before:
            group.context.append(s)
            return


def _hypothesis(node: str, group: _Group, config: Config) -> Hypothesis:
    table = families()
    best = max(group.causes, key=lambda s: (table[table.family_of(s)].rank, level(table.certainty(s))))
    family = table.family_of(best)
    certainty = max((table.certainty(s) for s in group.causes if table.family_of(s) == family), key=level)
    told = [s for s in group.causes if s.code == RECOVERY_ACTION]
    action = told[-1].text("action") if told else best.text("action")
    if action in table.actions.decisive and told:
        certainty = Certainty.DECISIVE
    first = group.first
    root = _entity(group)
    return Hypothesis(
        scope=f"node/{node}",
        root=root,
        family=family,
        incarnation=group.incarnation,
        certainty=certainty,
        fault_at=first,
        first_at=first,
        last_at=max(s.at for s in group.causes),
        ready_at=min(s.seen_at for s in group.causes),
        rule="recovery action" if told else "hardware evidence",
        cleared_at=group.cleared_at,
        flaps=group.flaps,
        causes=tuple(group.causes),
        context=tuple(group.context),
        facts=_facts(group, best, action),
        candidates=_outranked(group, family),
    )


def _entity(group: _Group) -> Entity:
    """The leading GPU with every name that any line gave it."""
    names = [
        s.entity.gpu
        for s in (*group.causes, *group.context)
        if s.entity.key == group.leader.key and s.entity.gpu
    ]
    if not names:
        return group.leader
    merged = Gpu(
        pci=next((g.pci for g in names if g.pci), None),
        uuid=min((g.uuid for g in names if g.uuid), default=None),
        index=min((g.index for g in names if g.index is not None), default=None),
        mig=names[0].mig,
    )
    return Entity(group.leader.cluster, node=group.leader.node, gpu=merged)


def _facts(group: _Group, best: Sighting, action: str) -> dict[str, Attribute]:
    codes = sorted({s.code for s in (*group.causes, *group.context) if s.code is not None})
    facts: dict[str, Attribute] = {"gpus_failed": len(group.gpus), "action": action}
    if best.code is not None:
        facts["xid"] = best.code
    elif best.kind == "gpu.off_bus":
        facts["xid"] = 79
    if codes:
        facts["xids"] = tuple(codes)
    if best.text("mnemonic"):
        facts["mnemonic"] = best.text("mnemonic")
    if (link := best.number("link")) is not None:
        facts["link"] = link
    return facts


def _outranked(group: _Group, family: str) -> tuple[Candidate, ...]:
    table = families()
    others = {table.family_of(s): s for s in reversed(group.causes) if table.family_of(s) != family}
    return tuple(
        Candidate(s.entity, other, False, "higher family", f"part of the same fault: {family} says more")
        for other, s in sorted(others.items())
        if s.code != RECOVERY_ACTION
    )

"""Faults of a node's GPUs: XIDs, SXids, memory counts, driver and off-bus lines put together into one root each.

What fails on one GPU is one incident until that is closed, under the highest-ranked family seen; GPUs of one node that fail
together fail of one cause, which is the first of them. The recovery that a 154 names overrides the code's own (Xid catalog,
154), and a DCGM gauge confirms but never opens: it shows the last code long after (dcgm-exporter, DCGM_FI_DEV_XID_ERRORS).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.node_rules.program_errors import confirming
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import PROGRAM, RECOVERY_ACTION, at_most, families, is_gauge, level
from streams.correlate.same_observation import without_echoes
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.gpu_aliases import Names, learned, may_be_same, renamed
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.place import Place, PlaceKind
from streams.model.clock import span
from streams.model.entity import Entity, Gpu
from streams.model.incident import Candidate, Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import RELAYED, Attribute


@dataclass(slots=True)
class _Group:
    """The sightings of one root."""

    causes: list[Sighting]
    gpus: set[str]
    cleared_at: datetime | None = None
    flaps: int = 0
    context: list[Sighting] = field(default_factory=list)
    _leader: Entity | None = None

    @property
    def first(self) -> datetime:
        return self.causes[0].at

    def take(self, cause: Sighting, gpu: str) -> None:
        """Add a sighting."""
        self.causes.append(cause)
        self.gpus.add(gpu)
        self._leader = None

    @property
    def leader(self) -> Entity:
        """The GPU that failed first of those with the gravest family; the other ends of its links only report it.

        A switch that loses its links names no GPU and may report before the GPU that left the bus (SXid 20034 after XID 79).
        """
        if self._leader is None:
            gravest = max(map(_weight, self.causes))
            self._leader = min(
                self.causes,
                key=lambda s: (
                    _weight(s) < gravest,
                    RELAYED
                    in s.attributes,  # what a job prints names the GPU only where the kernel itself does not
                    s.entity.gpu is None,
                    families().blames_its_peer(s),
                    s.at,
                    s.seen_at,  # many logs know whole seconds only: the one that is read first opens the incident
                    s.id,
                ),
            ).entity
        return self._leader


def _weight(s: Sighting) -> tuple[bool, int]:
    """Which cause names the fault: weak signs do not rename a certain one, and a 154 only names what has no other name."""
    table = families()
    names = s.code != RECOVERY_ACTION and table.certainty(s) is not Certainty.WEAK
    return names, table[table.family_of(s)].rank


def gpu_faults(
    node: str,
    seen: Iterable[Sighting],
    incarnations: Incarnations,
    config: Config,
    cuts: Sequence[datetime] = (),
    errors: Sequence[Sighting] = (),
) -> list[Hypothesis]:
    """The roots among a node's GPU sightings, sorted by when they began.

    Nothing is one fault across `cuts`, the times until which a node that was booted anew and given back reported what is over.
    `errors` are hardware errors that programs there met.
    """
    reports = [s for s in seen if s.kind.startswith("gpu.") and _is_of_gpu(s)]
    names = learned(reports)
    lines = list(without_echoes(sorted((renamed(s, names) for s in reports), key=order)))
    table = families()
    groups: list[_Group] = []
    proof = confirming(lines, errors) if errors else frozenset()
    for s in lines:
        if s.id in proof:
            _place(groups, s, incarnations, config, cuts)
        if s.id in proof or is_gauge(s):
            continue
        if not s.firing:
            _clear(groups, s)
        elif table.role(s) == "cause":
            s = _located(s, lines)
            _place(groups, s, incarnations, config, cuts, _indistinct(groups, s, names))
    for s in lines:
        if s.firing and s.id not in proof and (is_gauge(s) or table.role(s) != "cause"):
            _accompany(groups, s, config)
    for s in errors:
        _take_error(groups, s, proof, incarnations, config)
    return [_hypothesis(node, group, _incarnation(groups, group, incarnations)) for group in groups]


def _is_of_gpu(s: Sighting) -> bool:
    if s.kind == SignalKind.GPU_XID:
        return True
    rule = families().rule(s)
    return rule is not None and families()[rule.family].found_on == "gpu"


def _located(s: Sighting, lines: list[Sighting]) -> Sighting:
    """A line without an address (masked, or lost) belongs to the GPU that left the bus on the same node, if there is one."""
    if s.entity.gpu is not None or not _leaves_bus(s):
        return s
    named = [
        o
        for o in lines
        if o.entity.gpu and o.firing and not is_gauge(o) and _leaves_bus(o) and families().role(o) == "cause"
    ]
    return replace(s, entity=named[0].entity) if named else s


def _indistinct(groups: list[_Group], s: Sighting, names: Names) -> _Group | None:
    """The latest memory fault, of one GPU, that a sighting of failing memory cannot be told apart from; None without one.

    Memory that fails goes on failing: a row is remapped, then another, then there is none left. Each may come from another
    source, by the GPU's address, by its index or by neither.
    """
    if not _of_memory(s):
        return None
    alike = (
        group
        for group in reversed(groups)
        if len(group.gpus) == 1
        and all(map(_of_memory, group.causes))
        and may_be_same(group.leader.gpu, s.entity.gpu, names)
    )
    return next(alike, None)


def _of_memory(s: Sighting) -> bool:
    return families().family_of(s) == IncidentFamily.GPU_MEMORY


def _leaves_bus(s: Sighting) -> bool:
    return families().family_of(s) == IncidentFamily.GPU_OFF_BUS


def _place(
    groups: list[_Group],
    s: Sighting,
    incarnations: Incarnations,
    config: Config,
    cuts: Sequence[datetime],
    indistinct: _Group | None = None,
) -> None:
    key = s.entity.key
    for group in reversed(groups):
        if any(group.first <= cut < s.at for cut in cuts):
            break
        mine = key in group.gpus or s.at - group.first <= config.board or group is indistinct
        if mine and not _is_over(groups, group, s.at, incarnations, config):
            if group.cleared_at is not None and s.at > group.cleared_at:
                group.flaps += 1
                group.cleared_at = None
            if group is indistinct and group.leader.gpu is not None:
                s, key = replace(s, entity=group.leader), group.leader.key
            group.take(s, key)
            return
    base = incarnations.base(s.entity, "gpu")
    if base and s.at <= base.until + config.linger:
        return
    groups.append(_Group([s], {key}))


def _incarnation(groups: list[_Group], group: _Group, incarnations: Incarnations) -> int:
    """The group's number among those that its leader leads, after those that are forgotten."""
    leader = group.leader
    base = incarnations.base(leader, "gpu")
    number = base.count if base else 0
    for other in groups:
        if other is group or other.leader.key == leader.key:
            number = incarnations.next_number((leader,), "gpu", number, other.first)
        if other is group:
            break
    return number


def _is_over(
    groups: list[_Group], group: _Group, at: datetime, incarnations: Incarnations, config: Config
) -> bool:
    quiet = config.flap_quiet if group.flaps else config.linger
    if group.cleared_at is not None and at > group.cleared_at + quiet:
        return True
    if not incarnations.has_closings:
        return False
    closing = incarnations.closing(group.leader, "gpu", _incarnation(groups, group, incarnations))
    return closing is not None and at > closing + config.linger


def _clear(groups: list[_Group], s: Sighting) -> None:
    for group in groups:
        if group.cleared_at is None and group.gpus <= {s.entity.key}:
            group.cleared_at = s.at


def _accompany(groups: list[_Group], s: Sighting, config: Config) -> None:
    for group in groups:
        mine = s.entity.key in group.gpus or (
            s.entity.gpu is None and s.at <= group.causes[-1].at + config.before
        )
        if mine and s.at >= group.first - config.before:
            group.context.append(s)
            return


def _take_error(
    groups: list[_Group],
    error: Sighting,
    proof: frozenset[str],
    incarnations: Incarnations,
    config: Config,
) -> None:
    """A program's error is of the fault that metrics confirm, from the first one on until that is over."""
    family = families().family_of(error)
    for group in reversed(groups):
        mine = [s for s in group.causes if s.id in proof and families().family_of(s) == family]
        if mine and not _is_over(groups, group, error.at, incarnations, config):
            group.causes = sorted((*group.causes, error), key=order)
            return


def _hypothesis(node: str, group: _Group, incarnation: int) -> Hypothesis:
    table = families()
    best = max(group.causes, key=lambda s: (*_weight(s), level(table.certainty(s))))
    family = table.family_of(best)
    certainty = max((table.certainty(s) for s in group.causes if table.family_of(s) == family), key=level)
    recovery = [s for s in group.causes if s.code == RECOVERY_ACTION and RELAYED not in s.attributes]
    action = recovery[-1].text("action") if recovery else best.text("action")
    if action in table.actions.decisive and recovery:
        # What a GPU needs because the other end of its link failed is no evidence against the GPU.
        victim = all(table.blames_its_peer(s) for s in group.causes if table.family_of(s) == family)
        certainty = Certainty.LIKELY if victim else Certainty.DECISIVE
    by_programs = any(RELAYED in s.attributes and s.text("subtype") == PROGRAM for s in group.causes)
    if by_programs and all(is_gauge(s) or table.role(s) != "cause" for s in group.causes):
        certainty = at_most(certainty, Certainty.LIKELY)
    first = group.first
    root = _entity(group)
    return Hypothesis(
        place=Place(PlaceKind.NODE, node),
        root=root,
        family=family,
        incarnation=incarnation,
        certainty=certainty,
        fault_at=first,
        last_at=max(s.at for s in group.causes),
        ready_at=min(s.seen_at for s in group.causes) + _settles(group, family),
        rule="recovery action" if recovery else "program and metric" if by_programs else "hardware evidence",
        cleared_at=group.cleared_at,
        flaps=group.flaps,
        causes=tuple(group.causes),
        context=tuple(group.context),
        facts=_facts(group, best, action),
        candidates=_outranked(group, family),
        brief_until=_announced_until(group, certainty),
    )


def _settles(group: _Group, family: str) -> timedelta:
    """How long it is not known yet whose fault it is: a lost link has two ends, and a recovery has a reason."""
    known = family != IncidentFamily.GPU_NVLINK and any(s.code != RECOVERY_ACTION for s in group.causes)
    # Nobody else is still to speak of what is read long after, and old evidence is not kept while it waits.
    late = any(s.seen_at - s.at > Config().read_again for s in group.causes)
    return timedelta() if known or late else timedelta(seconds=families().shared.nvlink.settle_s)


def _announced_until(group: _Group, certainty: Certainty) -> datetime | None:
    """Until when the GPU that failed may still speak: an NVSwitch and the other ends of its links may be heard first."""
    table = families()
    if certainty is Certainty.DECISIVE:
        return None
    if not all(s.kind == SignalKind.GPU_SXID or table.blames_its_peer(s) for s in group.causes):
        return None
    return min(s.seen_at for s in group.causes) + timedelta(seconds=table.shared.nvlink.within_s)


def _entity(group: _Group) -> Entity:
    """The leading GPU with every name that any line gave it."""
    leader = group.leader
    names = [
        s.entity.gpu for s in (*group.causes, *group.context) if s.entity.key == leader.key and s.entity.gpu
    ]
    if not names:
        return leader
    merged = Gpu(
        pci=next((g.pci for g in names if g.pci), None),
        uuid=min((g.uuid for g in names if g.uuid), default=None),
        index=min((g.index for g in names if g.index is not None), default=None),
        mig=names[0].mig,
    )
    return Entity(leader.cluster, node=leader.node, gpu=merged)


def _facts(group: _Group, best: Sighting, action: str) -> dict[str, Attribute]:
    codes = sorted({s.code for s in (*group.causes, *group.context) if s.code is not None})
    failed = {s.entity.key for s in group.causes if s.entity.gpu is not None}
    facts: dict[str, Attribute] = {"gpus_failed": max(len(failed), 1)}
    if action:
        facts["action"] = action
    if best.code is not None:
        facts["xid"] = best.code
    elif best.kind == SignalKind.GPU_OFF_BUS:
        facts["xid"] = 79
    if codes:
        facts["xids"] = tuple(codes)
    sxids = sorted({n for s in (*group.causes, *group.context) if (n := s.number("sxid")) is not None})
    if sxids:
        facts["sxids"] = tuple(sxids)
    # Signs besides codes, e.g. `gpu.row_remap.pending`: the code alone does not say what a repair has to do.
    signs = {
        f"{s.kind}.{s.text('subtype')}"
        for s in (*group.causes, *group.context)
        if s.kind != SignalKind.GPU_XID and s.text("subtype")
    }
    if signs:
        facts["signs"] = tuple(sorted(signs))
    if best.text("mnemonic"):
        facts["mnemonic"] = best.text("mnemonic")
    if (link := best.number("link")) is not None:
        facts["link"] = link
    return facts


def _outranked(group: _Group, family: str) -> tuple[Candidate, ...]:
    table = families()
    others = {table.family_of(s): s for s in reversed(group.causes) if table.family_of(s) != family}
    return tuple(
        rejected(
            s.entity,
            other,
            "higher family",
            f"part of the same fault: {family} says more",
            f"a rank above the {table.families[family].rank} of {family}, it has {table.families[other].rank}; or a distance of "
            f"more than {span(Config().board)}",
        )
        for other, s in sorted(others.items())
        if s.code != RECOVERY_ACTION
    )

"""Many nodes that are NotReady at once: one incident of what they share instead of one per node.

What they share is a part of most of them (a leaf, a zone, a pool; what loses power as a whole has rules of its own), else what
watches them all: the API server and the network to it. That many are NotReady is no evidence against any of them. When most are
back, those that stayed away are evaluated on their own again. Policy is in `node_outages.yaml`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import pairwise
from math import ceil
from pathlib import Path

from streams.config.yaml_tables import Strict, load_table
from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.node_rules.node_death import death_policy
from streams.correlate.node_rules.node_readiness import down_intervals
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.node_rules.shared_parts import peak, root_of
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting, distinct, latest_end, order, split_at_gaps
from streams.correlate.state.incarnations import FiringInterval, Incarnations, Session
from streams.correlate.state.place import NODES, Place, PlaceKind
from streams.correlate.state.rows import NodeRow, of_kind
from streams.correlate.state.topology import Topology
from streams.model.clock import span
from streams.model.entity import Entity, Part
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import Attribute

FAMILY = IncidentFamily.NODES_NOT_READY
_MAX_SHOWN = 10
_OF_SLURM = "slurm_controller"


class OutagePolicy(Strict):
    """The whole file."""

    within_s: int
    waits_s: int
    nodes: int
    least: int
    share: float
    part_nodes: int
    part_share: float
    part_of_all: float
    whole: float
    back_share: float
    settle_s: int
    again_s: int
    alone_share: float
    unreached_within_s: int
    unreached_share: float
    unreached_told_s: int
    unreached_least_s: int
    unreached_quiet_s: int
    control_before_s: int

    @property
    def within(self) -> timedelta:
        """How far apart nodes of one outage go at most."""
        return timedelta(seconds=self.within_s)

    @property
    def settle(self) -> timedelta:
        """How long after the others a node may come back."""
        return timedelta(seconds=self.settle_s)

    @property
    def unreached_told(self) -> timedelta:
        """For how long agents must go on missing the control plane."""
        return timedelta(seconds=self.unreached_told_s)

    def are_most(self, count: int, known: int) -> bool:
        """Whether so many nodes are most of the cluster."""
        return count >= self.least and count >= self.share * known

    def needed(self, known: int) -> int:
        """How many nodes of so many do not go at once by chance."""
        return next(count for count in range(1, self.nodes + 1) if self.are_many(count, known))

    def are_many(self, count: int, known: int) -> bool:
        """Whether so many nodes do not go at once by chance."""
        return count >= self.nodes or self.are_most(count, known)


outage_policy = cache(partial(load_table, Path(__file__).with_name("node_outages.yaml"), OutagePolicy))
"""The policy that ships."""


@dataclass(frozen=True, slots=True)
class Absence:
    """One time that a node is or was NotReady for no reason of its own, and what it shares with others."""

    node: str
    hypothesis: Hypothesis
    line: Sighting
    """The first report of it."""
    end: datetime | None
    is_last: bool
    """Whether its incident knows of no later time."""
    parts: tuple[Part, ...] = ()
    by_agent: bool = False
    """Whether the node's own agent reports it, and not the control plane."""

    @property
    def start(self) -> datetime:
        """When the node went."""
        return self.line.at


def absences_of(node: str, h: Hypothesis, row: NodeRow, parts: tuple[Part, ...]) -> list[Absence]:
    """Each time that the node was away in one incident of it: one that flaps was away several times."""
    known = {s.id for s in h.causes}
    every = down_intervals(s for group in row.seen.values() for s in group)
    mine = [i for i in every if i.sightings[0].id in known]
    return [Absence(node, h, m.sightings[0], m.end, m is mine[-1], parts) for m in mine]


def unreached(cluster: str, node: str, row: NodeRow, parts: tuple[Part, ...]) -> list[Absence]:
    """Each time that the node's agent could not reach the control plane for long: the same outage, told from its other end.

    It speaks, so the node lives. By itself it is no incident of the node.
    """
    policy = outage_policy()
    lines = [s for s in of_kind(row.seen, SignalKind.NODE_CONDITION) if s.firing and is_unreached(s)]
    found, gap = [], timedelta(seconds=policy.unreached_quiet_s)
    for group in split_at_gaps(sorted(lines, key=order), lambda s: s.at, gap):
        first, last = group[0], group[-1]
        hypothesis = Hypothesis(
            place=Place(PlaceKind.NODE, node),
            root=Entity(cluster, node=node),
            family=IncidentFamily.NODE_DOWN,
            incarnation=0,
            certainty=Certainty.WEAK,
            fault_at=first.at,
            last_at=last.at,
            ready_at=first.seen_at + policy.unreached_told,
            rule="many nodes at once",
            facts={"lives": True},
        )
        longest = max((b.at - a.at for a, b in pairwise(group)), default=timedelta())
        end = last.at + min(gap, max(2 * longest, timedelta(seconds=policy.unreached_least_s)))
        found.append(Absence(node, hypothesis, first, end, is_last=False, parts=parts, by_agent=True))
    return found


def is_unreached(s: Sighting) -> bool:
    """Whether a node's own agent says that it cannot reach the API server, or Slurm's controller."""
    return s.kind == SignalKind.NODE_CONDITION and s.text("subtype") in ("node_status", _OF_SLURM)


@dataclass(frozen=True, slots=True)
class Outages:
    """All outages. `left_behind` are nodes that stayed away when the others came back, and when that was.

    `held` is until when nodes wait that are part of no outage, because others may follow.
    """

    faults: tuple[SharedFault, ...] = ()
    left_behind: Mapping[str, datetime] = field(default_factory=dict)
    held: Mapping[str, datetime] = field(default_factory=dict)
    away: int = 0
    """How many nodes are NotReady now, by reports that are kept or by the inventory."""

    def for_node(self, incident: str) -> tuple[datetime | None, datetime | None]:
        """When the others came back without it, and until when it waits for others."""
        return self.left_behind.get(incident), self.held.get(incident)


@dataclass(frozen=True, slots=True)
class _Wave:
    """Nodes that went together. `over_at` is when enough of them were back."""

    root: Entity
    absences: Sequence[Absence]
    over_at: datetime | None

    @property
    def parts(self) -> list[Absence]:
        """Those without an incident of their own."""
        return [a for a in self.absences if self.keeps(a)]

    def keeps(self, absence: Absence) -> bool:
        """Whether a node came back with the others, or may still do so."""
        back = absence.end
        if self.over_at is None:
            return True
        return back is not None and back <= self.over_at + outage_policy().settle

    @property
    def interval(self) -> FiringInterval:
        """From when to when it lasted. One line stands for all: there may be thousands."""
        ends = [a.end for a in self.parts if a.end is not None]
        end = max(ends) if self.over_at is not None else None
        first, last = self.absences[0], self.absences[-1]
        return FiringInterval(first.start, last.start, end, (first.line,))


def outages(
    cluster: str,
    absences: Iterable[Absence],
    topology: Topology,
    of_parts: Collection[str],
    incarnations: Incarnations,
    control: Sequence[Hypothesis],
) -> Outages:
    """The times when many nodes were NotReady together. `of_parts` are hypotheses that a part's own fault accounts for.

    `control` are faults of hosts of the control plane.
    """
    absences = sorted(absences, key=lambda a: (a.start, a.hypothesis.id))
    by_root: dict[str, list[_Wave]] = defaultdict(list)
    held: dict[str, datetime] = {}
    for together in split_at_gaps(absences, lambda a: a.start, outage_policy().within):
        held |= dict.fromkeys((a.hypothesis.id for a in together if a.is_last), _held_until(together))
        if (wave := _wave(cluster, together, topology, of_parts)) is not None:
            by_root[wave.root.key].append(wave)
    known = topology.nodes_known_at
    faults = [
        fault for key in sorted(by_root) for fault in _faults(by_root[key], known, incarnations, control)
    ]
    behind = {
        a.hypothesis.id: wave.over_at
        for waves in by_root.values()
        for wave in waves
        if wave.over_at is not None
        for a in wave.absences
        if a.is_last and not wave.keeps(a)
    }
    taken = {part for fault in faults for part in fault.parts}
    held = {name: until for name, until in held.items() if name not in taken}
    away = {a.node for a in absences if a.is_last and a.end is None} | topology.nodes_not_ready()
    return Outages(tuple(faults), behind, held, len(away))


def is_crowded(away: int, known: int) -> bool:
    """Whether so many nodes are away that none of them counts as alone."""
    return away - 1 > outage_policy().alone_share * max(known - 1, 0)


def _wave(
    cluster: str, together: Sequence[Absence], topology: Topology, of_parts: Collection[str]
) -> _Wave | None:
    """What went together without the parts that went dark by themselves, if that is many; None if it is not."""
    known = topology.nodes_known_at(together[0].start)
    rest = [a for a in together if a.hypothesis.id not in of_parts]
    if not _is_unreached_for_long([a for a in rest if a.by_agent], known):
        rest = [a for a in rest if not a.by_agent]
    if (part := _part(rest, topology)) is not None:
        return _wave_of(root_of(cluster, part), [a for a in rest if part in a.parts])
    many = outage_policy().are_many(peak((a.start, a.end, a.node) for a in rest), known)
    return _wave_of(Entity(cluster), rest) if many else None


def _is_unreached_for_long(agents: Sequence[Absence], known: int) -> bool:
    """Whether so many nodes' agents go on saying that they do not reach the control plane: somewhere one has just missed it."""
    policy = outage_policy()
    window = timedelta(seconds=policy.unreached_within_s)
    if not agents or max(a.hypothesis.last_at for a in agents) - agents[0].start < policy.unreached_told:
        return False
    count = peak((a.start, a.start + window, a.node) for a in agents)
    return policy.are_many(count, known) and count >= policy.unreached_share * known


def _nodes(absences: Iterable[Absence]) -> int:
    """How many nodes these are: of one the kubelet and the API server may both tell."""
    return len({a.node for a in absences})


def _wave_of(root: Entity, absences: Sequence[Absence]) -> _Wave:
    backs = sorted(a.end for a in absences if a.end is not None)
    enough = ceil(outage_policy().back_share * len(absences))
    return _Wave(root, absences, backs[enough - 1] if len(backs) >= enough else None)


def _part(absences: Sequence[Absence], topology: Topology) -> Part | None:
    """The smallest part that nearly all of them share, if most of its nodes went and it is not most of the cluster itself."""
    if not absences:
        return None
    rule, began = outage_policy(), absences[0].start
    known, went = topology.nodes_known_at(began), _nodes(absences)
    by_part: dict[Part, list[Absence]] = defaultdict(list)
    for absence in absences:
        for part in absence.parts:
            by_part[part].append(absence)
    found = []
    for part, mine in by_part.items():
        size, nodes = topology.parts.size(part, began), len({a.node for a in mine})
        if nodes < rule.part_of_all * went or size >= part_policy().all * known:
            continue
        # Where most of the cluster went, only a part that went as a whole, and alone, is why.
        whole = nodes >= rule.whole * size and nodes >= rule.whole * went
        if rule.are_most(went, known) and not whole:
            continue
        hit = peak((a.start, a.end, a.node) for a in mine)
        if hit >= rule.part_nodes and hit >= rule.part_share * size:
            found.append(part)
    return min(found, key=lambda p: part_policy().size(p, topology.parts.size(p, began)), default=None)


def _faults(
    waves: Sequence[_Wave],
    known: Callable[[datetime], int],
    incarnations: Incarnations,
    control: Sequence[Hypothesis],
) -> Iterable[SharedFault]:
    root, by_line = waves[0].root, {wave.interval.sightings[0].id: wave for wave in waves}
    again = timedelta(seconds=outage_policy().again_s)
    domain = families()[FAMILY].domain
    for session in incarnations.sessions(root, domain, [wave.interval for wave in waves], again=again):
        mine = [by_line[s.id] for s in session.sightings]
        size, hit = known(mine[0].absences[0].start), max(_nodes(wave.absences) for wave in mine)
        fault = _fault(root, session, mine, hit, size)
        is_wide = root.kind == "cluster" and outage_policy().are_most(hit, size)
        yield _by_control_plane(fault, control) if is_wide else fault


def _by_control_plane(outage: SharedFault, control: Sequence[Hypothesis]) -> SharedFault:
    """An outage of most nodes, with the node of the control plane as root that reports its own host's fault before or meanwhile.

    What the same node reports later is the same occasion as long as it goes on, or comes again within the hour.
    """
    h, policy = outage.hypothesis, outage_policy()
    since = h.fault_at - timedelta(seconds=policy.control_before_s)
    own = [c for c in control if c.last_at >= since and (h.cleared_at is None or c.fault_at <= h.cleared_at)]
    if not own:
        return outage
    first, until = min(own, key=lambda c: (c.fault_at, c.id)), h.cleared_at
    mine: list[Hypothesis] = []
    for c in sorted(control, key=lambda c: (c.fault_at, c.id)):
        again = c.root.node == first.root.node and (
            until is None or since <= c.fault_at <= until + timedelta(seconds=policy.again_s)
        )
        if c in own or again:
            mine.append(c)
            until = latest_end((until, c.cleared_at))
    node, signs = first.root.node or "", families().signs([s for c in mine for s in c.causes], 3)
    of_host = [s for c in mine for s in c.causes[:_MAX_SHOWN]]
    told = replace(
        h,
        root=Entity(h.root.cluster, node=node),
        counted_as=h.root,
        fault_at=min([h.fault_at, *(c.fault_at for c in mine if c.fault_at >= since)]),
        last_at=max([h.last_at, *(c.last_at for c in mine)]),
        cleared_at=until,
        why=f"{node}, a node of the control plane, tells of its own host: {signs}. {h.why}",
        causes=distinct((*of_host, *h.causes)),
    )
    return replace(outage, hypothesis=told, parts={**outage.parts, **{c.id: c.root.node or "" for c in mine}})


def is_of_host(h: Hypothesis) -> bool:
    """Whether a fault is a host's own, of which what it serves may stand still."""
    return h.family == IncidentFamily.HOST_FAULT or (h.family == IncidentFamily.NODE_DOWN and is_dead(h))


def _fault(root: Entity, session: Session, waves: Sequence[_Wave], hit: int, known: int) -> SharedFault:
    mine = [a for wave in waves for a in wave.parts]
    first = waves[0].absences
    hypothesis = Hypothesis(
        place=NODES.place,
        root=root,
        family=FAMILY,
        **session.times(*(wave.absences[-1].start for wave in waves)),
        certainty=Certainty.LIKELY,
        ready_at=_ready_at(first, known),
        rule="many nodes at once",
        why=_why(root, waves, hit, known),
        causes=tuple(a.line for a in first[:_MAX_SHOWN]),
        facts=_facts(waves, hit, known),
        candidates=tuple(
            rejected(
                a.hypothesis.root,
                a.hypothesis.family,
                "one node's trouble",
                "others went with it",
                f"fewer than {outage_policy().needed(known)} nodes that go within {span(outage_policy().within)}, or a sign "
                f"of its own that it is dead; {rounded(hit)} went",
            )
            for a in first[:_MAX_SHOWN]
        ),
        stops=families()[FAMILY].stops,
    )
    counted = frozenset(a.node for wave in waves for a in wave.absences)
    return SharedFault(hypothesis, {a.hypothesis.id: a.node for a in mine if a.is_last}, counted)


def _ready_at(absences: Sequence[Absence], known: int) -> datetime:
    """When the first has waited for the others, and enough of them lasted."""
    ready = sorted(max(a.hypothesis.ready_at, _seen_at(a)) for a in absences)
    count = next((n for n in range(1, len(ready)) if outage_policy().are_many(n, known)), len(ready))
    return max(_seen_at(absences[0]) + outage_policy().within, ready[count - 1])


def _held_until(absences: Sequence[Absence]) -> datetime:
    longest = timedelta(seconds=outage_policy().waits_s)
    seen = [_seen_at(a) for a in absences]
    return min(max(seen), min(seen) + longest) + outage_policy().within


def _seen_at(absence: Absence) -> datetime:
    return absence.line.seen_at


def _facts(waves: Sequence[_Wave], hit: int, known: int) -> dict[str, Attribute]:
    facts: dict[str, Attribute] = {"nodes_hit": rounded(hit), "nodes_known": known}
    if _live(waves):
        facts["nodes_live"] = True
    if waves[-1].over_at is not None and not any(a.by_agent for a in waves[-1].absences):
        facts["nodes_back"] = True
    return facts


def _live(waves: Sequence[_Wave]) -> bool:
    """Whether any of the nodes showed that it lives."""
    return any(a.hypothesis.facts.get("lives") is True for wave in waves for a in wave.absences)


def _why(root: Entity, waves: Sequence[_Wave], hit: int, known: int) -> str:
    absences = waves[0].absences
    shared = "" if known < hit else f" of {known}"
    at_once = absences[-1].start - absences[0].start <= outage_policy().within
    when = "within the minute" if at_once else "one after the other"
    count = f"{rounded(hit)}{' or more' if rounded(hit) < hit else ''}{shared}"
    why = f"{count} nodes went NotReady {when}"
    if any(a.by_agent for a in absences):
        server = "Slurm's controller" if absences[0].line.text("subtype") == _OF_SLURM else "the API server"
        why = f"{count} nodes do not reach {server}"
        if not all(a.by_agent for wave in waves for a in wave.absences):
            why += ", which shows them NotReady"
    if root.kind != "cluster":
        why += f", nearly all of them of {root}: look at it and at the network behind it before at any node"
    elif outage_policy().are_most(hit, known):
        why += ": look at the control plane and at the network to it before at any node"
    else:
        pools = set.intersection(*({p.name for p in a.parts if p.kind == "pool"} for a in absences))
        pool = f" They are all of pool {pools.pop()}." if pools else ""
        why += f".{pool} Look at what they share (control plane, network, an upgrade) before at any of them"
    if _live(waves):
        why += ". Logs or jobs of some of them go on: these live, and it is what watches them that does not hear them"
    if len(waves) > 1:
        why += f". It has come in {len(waves)} waves"
    return f"{why}. Nothing is done to any node because of it"


def rounded(count: int) -> int:
    """A number for texts: exact while it is small, then in steps, so that a growing outage is not republished at every node."""
    if count < 20:
        return count
    step = 5 if count < 100 else 10 ** (len(str(count)) - 2)
    return count // step * step


def is_dead(h: Hypothesis) -> bool:
    """Whether a node is known to be dead by a sign of its own, whatever happens to the others."""
    return h.certainty is Certainty.DECISIVE


def held(h: Hypothesis, outages_: Outages) -> Hypothesis:
    """A node's own hypothesis as published: it waits for others that may follow, or for its return with the others."""
    if (over_at := outages_.left_behind.get(h.id)) is not None:
        return _left_behind(h, over_at)
    return replace(h, ready_at=max(h.ready_at, outages_.held.get(h.id, h.ready_at)))


def _left_behind(h: Hypothesis, over_at: datetime) -> Hypothesis:
    """A node that did not come back when the others did: from then on it is alone."""
    until = over_at + outage_policy().settle
    sure_at = max(h.sure_at, over_at + death_policy().signs.absence.after) if h.sure_at is not None else None
    return replace(
        h,
        ready_at=max(h.ready_at, until),
        sure_at=sure_at,
        why=f"{h.why}; it stayed away when the others came back",
    )

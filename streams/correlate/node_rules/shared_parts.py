"""Trouble on many nodes at once that share a part: a rack, a power feed, a coolant loop, an NVLink domain, a zone.

One node that is hot or loses a GPU has a fault of its own; several of one part within a minute share one, and none of them is the
cause. The root is the smallest part that covers them, if enough of its nodes are hit: its nodes that are well speak against it.
Policy is in `shared_parts.yaml` (`part_policy.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.node_rules.dark_parts import dark_for_more
from streams.correlate.node_rules.lost_inputs import still_has_power
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.part_speakers import (
    MAX_SHOWN,
    POWER,
    TrayReports,
    of_tray,
    signs_of,
)
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.policy.families import families
from streams.correlate.sightings import latest_end, split_at_gaps
from streams.correlate.state.incarnations import FiringInterval, Incarnations, Session
from streams.correlate.state.parts import PartIndex
from streams.correlate.state.place import GroupKind, SharedGroup
from streams.inventory.parts import shared_parts
from streams.model.clock import span
from streams.model.entity import NAMED, Entity, Part
from streams.model.hostnames import short
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import Attribute

GONE = IncidentFamily.NODE_DOWN
_HEAT = (SignalKind.GPU_THERMAL, SignalKind.NODE_THERMAL)
_NEVER, _FOREVER = (at.replace(tzinfo=UTC) for at in (datetime.min, datetime.max))


@dataclass(frozen=True, slots=True)
class Trouble:
    """One hypothesis of a node that may be the node's share in something larger."""

    node: str
    hypothesis: Hypothesis
    parts: tuple[Part, ...]
    guessed: tuple[str, ...] = ()
    of_itself: bool = False
    """Whether no node tells it but the part itself: a PDU, a coolant unit, a chassis."""
    serves: frozenset[str] = frozenset()
    """Names of racks that a device says it serves."""

    @property
    def start(self) -> datetime:
        """When it began."""
        return self.hypothesis.fault_at


def troubles_of(
    node: str,
    hypotheses: Iterable[Hypothesis],
    gone_alone: Sequence[Hypothesis],
    parts: tuple[Part, ...],
    guessed: tuple[str, ...],
) -> tuple[Trouble, ...]:
    """A node's hypotheses that count as trouble. A NotReady counts where nothing else explains it, or where power may."""
    found = [h for h in hypotheses if _counts(h)]
    if not any(h.family == POWER for h in found):
        found = [h for h in found if h.family != GONE or h in gone_alone]
    return tuple(Trouble(node, h, parts, guessed) for h in found if h.facts.get("maintenance") is not True)


def told_by(device: str, part: Part, hypotheses: Iterable[Hypothesis]) -> tuple[Trouble, ...]:
    """What a part reports of its own power or heat: under its own name, or by a device that stands in it."""
    if part.kind in part_policy().not_power:
        return ()
    found = (h for h in hypotheses if h.family == POWER)
    return tuple(Trouble(device, h, (part,), of_itself=True) for h in found)


def followers(hypotheses: Iterable[Hypothesis]) -> tuple[Hypothesis, ...]:
    """A node's hypotheses that become part of an event of its part, but make none."""
    return tuple(h for h in hypotheses if h.family in part_policy().takes)


def _counts(h: Hypothesis) -> bool:
    if h.family not in part_policy().trouble or not h.alone:
        return False
    # A GPU that says the other end of its NVLink is to blame proves nothing against either; a domain full of them does.
    return h.certainty is not Certainty.WEAK or h.family in (POWER, GONE, IncidentFamily.GPU_NVLINK)


@dataclass(frozen=True, slots=True)
class _Episode:
    """Trouble on nodes of one part, one after the other."""

    part: Part
    troubles: tuple[Trouble, ...]
    nodes: frozenset[str]
    size: int
    """How many nodes shared the part when it began."""


def elected(
    troubles: Iterable[Trouble], parts: PartIndex, known: Callable[[datetime], int]
) -> dict[str, Part]:
    """By id of a hypothesis: the part that it is one event of. `known` is how many nodes the cluster had at a time."""
    ordered = sorted(troubles, key=lambda t: (t.start, t.hypothesis.id))
    found = _elect(ordered, parts, by_power=True, known=known)
    left = [t for t in ordered if t.hypothesis.id not in found]
    sudden = _elect(left, parts, by_power=False, known=known)
    wider = _went_for_more(ordered, found, sudden, parts, known)
    if wider:
        sudden = _elect([t for t in left if t.hypothesis.id not in wider], parts, by_power=False, known=known)
    return found | sudden


def _went_for_more(
    ordered: Sequence[Trouble],
    by_power: Mapping[str, Part],
    sudden: Mapping[str, Part],
    parts: PartIndex,
    known: Callable[[datetime], int],
) -> Set[str]:
    """Hypotheses of nodes that went dark together with their part, but not for it."""
    wider: set[str] = set()
    went = (t for t in ordered if t.hypothesis.family == GONE)
    for together in split_at_gaps(went, lambda t: t.start, part_policy().sudden.within):
        dark: dict[Part, set[str]] = defaultdict(set)
        for t in together:
            if (part := sudden.get(t.hypothesis.id)) is not None:
                dark[part].add(t.node)
        if not dark:
            continue
        explained = {t.node for t in together if t.hypothesis.id in by_power}
        gone, began = {t.node for t in together} - explained, together[0].start
        found = dark_for_more(dark, gone, partial(parts.size, at=began), known(began) - len(explained))
        wider |= {t.hypothesis.id for t in together if sudden.get(t.hypothesis.id) in found}
    return wider


def _elect(
    troubles: Sequence[Trouble], parts: PartIndex, *, by_power: bool, known: Callable[[datetime], int]
) -> dict[str, Part]:
    """The largest events first: each at the smallest part that covers it, until no part has enough left."""
    found: dict[str, Part] = {}
    left: dict[Part, list[Trouble]] = defaultdict(list)
    for trouble in troubles:
        if by_power and trouble.hypothesis.family not in (POWER, GONE):
            continue
        for part in trouble.parts:
            left[part].append(trouble)
    episodes: dict[Part, list[_Episode]] = {}
    changed: Iterable[Part] = list(left)
    while True:
        # A feed takes a hundred racks along: only the parts that lost troubles to the last event are looked at again.
        for part in changed:
            episodes[part] = _episodes(part, left[part], parts, by_power=by_power, known=known)
        standing = [e for of_part in episodes.values() for e in of_part]
        if not standing:
            return found
        largest = max(standing, key=lambda e: (len(e.nodes), -e.size, e.part))
        covering = [
            e
            for e in standing
            if len(e.nodes & largest.nodes) >= part_policy().covers * len(largest.nodes)
            and e.troubles[0].start <= largest.troubles[-1].start
            and largest.troubles[0].start <= e.troubles[-1].start
        ]
        best = min(covering, key=lambda e: part_policy().size(e.part, e.size))
        taken = {t.hypothesis.id for t in best.troubles}
        # Where nodes only went dark, and not for their power, the rules of outages report it.
        if _family(best.troubles, best.part) != IncidentFamily.NODES_NOT_READY:
            found |= dict.fromkeys(taken, best.part)
        changed = sorted({part for t in best.troubles for part in t.parts})
        for part in changed:
            left[part] = [t for t in left[part] if t.hypothesis.id not in taken]


def _episodes(
    part: Part,
    mine: Sequence[Trouble],
    parts: PartIndex,
    *,
    by_power: bool,
    known: Callable[[datetime], int],
) -> list[_Episode]:
    """Stretches of trouble under one part with enough nodes of it."""
    rule, table = (part_policy().power if by_power else part_policy().sudden), part_policy()
    if not mine or (len(mine) < 2 and not mine[0].of_itself) or (by_power and part.kind in table.not_power):
        return []
    found = []
    for group in together(mine, rule.within):
        if not (episode := _in_common(group)):
            continue
        began = episode[0].start
        size = parts.size(part, began)
        if not by_power and size >= table.all * known(began):
            continue
        families_ = {t.hypothesis.family for t in episode}
        if by_power and POWER not in families_:
            continue
        nodes = frozenset(t.node for t in episode if not t.of_itself)
        if (
            any(t.of_itself for t in episode)
            or rule.are_met(_peak_of(episode), size)
            or (
                not by_power
                and part.kind == table.nvlink.part
                and not _gpu_failed(group)
                and _are_of_switch(episode, size)
            )
        ):
            found.append(_Episode(part, tuple(episode), nodes, size))
    return found


def _peak_of(episode: Iterable[Trouble]) -> int:
    return peak((t.start, t.hypothesis.cleared_at, t.node) for t in episode)


def _are_of_switch(episode: Iterable[Trouble], size: int) -> bool:
    """Whether links fail on so many nodes of an NVLink domain that it is what they end at."""
    return part_policy().nvlink.are_met(
        _peak_of(t for t in episode if t.hypothesis.family == IncidentFamily.GPU_NVLINK), size
    )


def _gpu_failed(group: Iterable[Trouble]) -> bool:
    return any(t.hypothesis.domain == "gpu" and t.hypothesis.certainty is Certainty.DECISIVE for t in group)


@dataclass(slots=True)
class _Group:
    """Troubles that go together, and until when others of a kind go on joining. Kept as they join, for there may be thousands."""

    troubles: list[Trouble]
    told_until: datetime = _NEVER
    """Until when the part reports trouble of its own."""
    short_until: datetime = _NEVER
    """Until when a host, or what feeds it, lacks power."""
    hot_until: dict[str, datetime] = field(default_factory=dict)
    """By node: until when it is in trouble of power or heat of which it may go dark (`ran_on_until`)."""

    def add(self, t: Trouble) -> None:
        """One more of them."""
        self.troubles.append(t)
        h = t.hypothesis
        until = h.cleared_at or _FOREVER
        if t.of_itself:
            self.told_until = max(self.told_until, until)
        if any(s.kind == SignalKind.NODE_POWER for s in h.causes):
            self.short_until = max(self.short_until, until)
        if h.family == POWER:
            hot = min(until, h.fault_at + part_policy().inputs.dark) if still_has_power(h) else until
            self.hot_until[t.node] = max(self.hot_until.get(t.node, _NEVER), hot)

    def takes(self, t: Trouble, within: timedelta) -> bool:
        """Whether a trouble that begins later belongs to it."""
        family = t.hypothesis.family
        return (
            t.start - self.troubles[-1].start <= within
            or (family == POWER and t.start <= self.told_until)
            or (family == GONE and t.start <= self.hot_until.get(t.node, _NEVER))
            or (t.start <= self.short_until and is_brake(t))
        )


def together(ordered: Iterable[Trouble], within: timedelta) -> list[list[Trouble]]:
    """Troubles, earliest first, in groups of which each began soon after one before it.

    Heat goes with what the part itself tells for as long as that lasts: coolant warms for half an hour before a GPU does. A node
    that goes dark while it is hot goes for that, and one that is made to draw less power while others lack an input is, too. One
    that goes dark long after it lost an input does not go for that one.
    """
    groups: list[_Group] = []
    for t in ordered:
        if not groups or not groups[-1].takes(t, within):
            groups.append(_Group([]))
        groups[-1].add(t)
    return [group.troubles for group in groups]


def is_brake(t: Trouble) -> bool:
    """Whether a node's power brake is on and nothing else is wrong with it: its host was told that it may draw less."""
    return all(
        s.kind == SignalKind.GPU_POWER and s.text("subtype") == "power_brake" for s in t.hypothesis.causes
    )


def is_heat(t: Trouble) -> bool:
    """Whether any of its lines reports heat."""
    return any(s.kind in _HEAT for s in t.hypothesis.causes)


def ran_on_until(gone: Trouble, lost: Hypothesis) -> bool:
    """Whether a node went dark while it lacked an input (`lost`), but long after: it ran on with the others until then."""
    return (
        still_has_power(lost)
        and gone.start - lost.fault_at > part_policy().inputs.dark
        and (lost.cleared_at is None or gone.start <= lost.cleared_at)
    )


def _in_common(episode: Sequence[Trouble]) -> list[Trouble]:
    """The troubles without what is decisive by itself on a node or two: a GPU lost in a rack that went dark is a lost GPU.

    Without links as well whose far end is blamed on a few nodes, or beside a GPU that surely failed: that one is the far end.
    """
    hit: dict[str, set[str]] = defaultdict(set)
    for t in episode:
        hit[t.hypothesis.family].add(t.node)
    least = part_policy().sudden.nodes
    blaming = {t.node for t in episode if _blames(t)}
    enough = len(blaming) >= part_policy().blaming and not _gpu_failed(episode)
    return [
        t
        for t in episode
        if (t.hypothesis.certainty is not Certainty.DECISIVE or len(hit[t.hypothesis.family]) >= least)
        and (enough or not _blames(t))
    ]


def _blames(t: Trouble) -> bool:
    return t.hypothesis.family == IncidentFamily.GPU_NVLINK and t.hypothesis.certainty is Certainty.WEAK


def common_part(nodes: Collection[str], parts: PartIndex, known: int) -> Part | None:
    """The smallest part that nearly all of these nodes share, and of which they are enough; None if there is none."""
    table = part_policy()
    counts = Counter(part for node in nodes for part in parts.at(node))
    found = [
        part
        for part, hit in counts.items()
        if hit >= table.covers * len(nodes)
        and parts.size(part) < table.all * known
        and table.sudden.are_met(hit, parts.size(part))
    ]
    return min(found, key=lambda p: table.size(p, parts.size(p)), default=None)


def peak(spans: Iterable[tuple[datetime, datetime | None, str]]) -> int:
    """How many nodes were in trouble at one time, at most. A wave of work that goes from node to node is few at a time."""
    grace = part_policy().sudden.within
    moments: list[tuple[datetime, int, str]] = []
    for start, end, node in spans:
        moments.append((start, 1, node))
        if end is not None:
            moments.append((max(end, start + grace), -1, node))
    active: dict[str, int] = defaultdict(int)
    most = count = 0
    for _, step, node in sorted(moments):
        count += (step > 0 and active[node] == 0) - (step < 0 and active[node] == 1)
        active[node] += step
        most = max(most, count)
    return most


def part_faults(
    cluster: str,
    part: Part,
    troubles: Sequence[Trouble],
    others: Mapping[str, Sequence[Hypothesis]],
    parts: PartIndex,
    incarnations: Incarnations,
    trays: Mapping[str, TrayReports],
) -> list[SharedFault]:
    """The faults of a part, of the troubles that were found to be its own. `others` are what follows on its nodes, by node.

    Where it is NVLink errors, the switch tray that reports trouble meanwhile (`trays`) is the culprit.
    """
    root = root_of(cluster, part)
    ordered = sorted(troubles, key=lambda t: (t.start, t.hypothesis.id))
    stretches: dict[str, list[FiringInterval]] = defaultdict(list)
    members: dict[str, Trouble] = {}
    lacking: dict[str, list[Hypothesis]] = defaultdict(list)
    cuts: list[datetime] = []
    for episode in together(ordered, part_policy().power.within):
        lines = tuple(t.hypothesis.causes[0] for t in episode)
        again = any(t.hypothesis.family == GONE and _ran_on(t, lacking[t.node]) for t in episode)
        if again:
            cuts.append(min(s.at for s in lines) - timedelta.resolution)
        for t in episode:
            lacking[t.node].append(t.hypothesis)
        stretches[POWER if again else _family(episode, part)].append(
            FiringInterval(
                episode[0].start,
                max(t.hypothesis.last_at for t in episode),
                latest_end(t.hypothesis.cleared_at for t in episode),
                lines,
            )
        )
        members |= {t.hypothesis.causes[0].id: t for t in episode}
    found = []
    for family in sorted(stretches):
        domain = families()[family].domain
        for session in incarnations.sessions(root, domain, stretches[family], cuts=cuts):
            mine = [members[s.id] for s in session.sightings]
            known = parts.size(part, min(t.start for t in mine))
            hit = {t.node for t in mine if not t.of_itself}
            if family == POWER and len(hit) < len(mine):
                # A rack that says it has no power takes its links along before its nodes are missed.
                hit |= {node for node in others if part in parts.at(node)}
            fault = _fault(
                root, part, family, session, mine, {n: others[n] for n in hit if n in others}, known
            )
            if _are_links(mine):
                near = {part}.union(*(parts.at(node) for node in hit))
                links = _links_by_gpu(mine)
                most = max(map(len, links.values()), default=0)
                of_part = fault.hypothesis.root
                fault = of_tray(fault, trays, partial(_stands_in, near, parts), most)
                if fault.hypothesis.root == of_part and (same := _same_links(links)):
                    h = fault.hypothesis
                    fault = replace(fault, hypothesis=replace(h, why=f"{h.why}. {same}"))
            found.append(fault)
    return found


def _ran_on(gone: Trouble, lost: Iterable[Hypothesis]) -> bool:
    return any(ran_on_until(gone, h) for h in lost)


def _stands_in(near: Set[Part], parts: PartIndex, device: str) -> bool | None:
    """Whether a device stands in one of these parts, by the rack or domain in its name; None where it names none.

    Else by how its name begins, if nodes' names begin so: `hx07s3` stands with `hx07t01`.
    """
    named = {part for part in parts.named_in(device) if part.kind in part_policy().places}
    if not named:
        begins = Part(NAMED, shared_parts(short(device), {}).parts.get(NAMED, ""))
        named = {begins} if parts.size(begins) else set()
    return not near.isdisjoint(named) if named else None


def _are_links(mine: Collection[Trouble]) -> bool:
    """Whether nearly all of the nodes report NVLink errors, whatever else those led to on them."""
    of_links = {t.node: False for t in mine}
    for t in mine:
        of_links[t.node] |= any(
            families().family_of(s) == IncidentFamily.GPU_NVLINK for s in t.hypothesis.causes
        )
    return sum(of_links.values()) >= part_policy().covers * len(of_links)


def _links_by_gpu(mine: Iterable[Trouble]) -> dict[str, set[str]]:
    """The links that failed on each GPU, as far as their numbers are reported. A link that is no one's (-1) has none."""
    links: dict[str, set[str]] = defaultdict(set)
    for t in mine:
        for s in (*t.hypothesis.causes, *t.hypothesis.context):
            if (number := s.number("link")) is not None and number >= 0:
                links[s.entity.key].add(str(number))
    return links


def _same_links(by_gpu: Mapping[str, Set[str]]) -> str:
    """That the GPUs lost one and the same link or two, for people; empty where they did not, or there are too few to tell.

    GPUs of one domain have the link of one number at one switch tray, and each has `to_one_tray` links there. Which tray it is
    depends on the product, so none is named. A GPU of which one line was lost still has to name no other link.
    """
    rule = part_policy().nvlink
    named = sorted(set[str]().union(*by_gpu.values()), key=int)
    if len(by_gpu) < rule.nodes or not 0 < len(named) <= rule.to_one_tray:
        return ""
    return (
        f"All {len(by_gpu)} GPUs that report their links name NVLink {' and '.join(named)} and no other: by that it is rather "
        "one NVSwitch tray, at which these end, than the GPUs (a guess from the numbers of the links)"
    )


def root_of(cluster: str, part: Part) -> Entity:
    """The part as the culprit. Racks and switches have names of their own."""
    match part.kind:
        case "rack":
            return Entity(cluster, rack=part.name)
        case "leaf":
            return Entity(cluster, switch=part.name)
        case GroupKind.INPUTS:
            return Entity(cluster)
    return Entity(cluster, part=part)


def _family(episode: Sequence[Trouble], part: Part) -> str:
    seen = {t.hypothesis.family for t in episode}
    if POWER in seen or (seen == {GONE} and part.kind not in part_policy().not_dark):
        return POWER
    return IncidentFamily.NODES_NOT_READY if seen == {GONE} else IncidentFamily.SHARED_FAULT


def _fault(
    root: Entity,
    part: Part,
    family: str,
    session: Session,
    mine: Sequence[Trouble],
    others: Mapping[str, Sequence[Hypothesis]],
    known: int,
) -> SharedFault:
    nodes = sorted({t.node for t in mine if not t.of_itself})
    found = [t.hypothesis for t in mine]
    spoken = [t.hypothesis for t in mine if t.of_itself]
    gone = sorted({t.node for t in mine if t.hypothesis.family == GONE})
    needed = sorted(h.ready_at for h in found)[min(len(found), part_policy().sudden.nodes) - 1]
    needed = min([needed, *(h.ready_at for h in spoken)])
    # A pump that stops and starts again harms nobody: heat must last while the part's nodes are well.
    hot = bool(spoken) and all(s.kind == SignalKind.NODE_THERMAL for h in spoken for s in h.causes)
    alone = min(h.ready_at for h in spoken) + part_policy().unfelt_lasts if hot and not nodes else None
    facts: dict[str, Attribute] = {"nodes_hit": len(nodes), "nodes_known": known, "not_ready": len(gone)}
    guess = any(part.kind in t.guessed for t in mine)
    enough = part_policy().power if family == POWER else part_policy().sudden
    if guess:
        facts["guessed"] = True
    hypothesis = Hypothesis(
        place=SharedGroup(part.kind, part.name).place,
        root=root,
        family=family,
        **session.times(*(h.last_at for h in found)),
        certainty=Certainty.LIKELY,
        ready_at=needed,
        brief_until=alone,
        was_brief=alone is not None and session.cleared_at is not None and session.cleared_at < alone,
        rule="shared by a part",
        why=_why(root, mine, nodes, gone, known, guess=guess),
        causes=tuple({s.id: s for h in (*spoken, *found) for s in h.causes[:2]}.values()),
        facts=facts,
        candidates=tuple(
            rejected(
                h.root,
                h.family,
                "one node's trouble",
                f"others of {root} have it too",
                f"fewer than {enough.needed(known)} of the {known} nodes of {root} in trouble within {span(enough.within)}; "
                f"{len(nodes)} are",
            )
            for h in [h for h in found if h not in spoken][:MAX_SHOWN]
        ),
        # A warm rack stops nobody, one that shut down does.
        stops="near"
        if family == POWER and gone and 4 * len(gone) >= len(nodes)
        else families()[family].stops,
        nodes=tuple(nodes),
    )
    within = part_policy().sudden.within
    # A brake may be on for as long as power is short.
    began = [t.start for t in mine if not is_brake(t)] or [t.start for t in mine]
    start, last = min(began) - within, max(began) + within
    taken = {h.id: node for node, theirs in others.items() for h in theirs if start <= h.fault_at <= last}
    return SharedFault(hypothesis, {**taken, **{t.hypothesis.id: t.node for t in mine}})


def _why(
    root: Entity,
    mine: Sequence[Trouble],
    nodes: Sequence[str],
    gone: Sequence[str],
    known: int,
    *,
    guess: bool,
) -> str:
    share = f"{len(nodes)} of {known} nodes" if known >= len(nodes) else f"{len(nodes)} nodes"
    power = [t.hypothesis for t in mine if t.hypothesis.family == POWER and not t.of_itself]
    spoken = [t.hypothesis for t in mine if t.of_itself]
    took = max(t.start for t in mine) - min(t.start for t in mine)
    when = "at once" if took < timedelta(seconds=2) else f"within {span(took)}"
    if spoken and not nodes:
        return f"{root} tells of itself: {signs_of(spoken)}. None of its nodes is in trouble so far"
    if spoken:
        told = f"; {len(gone)} of them are not ready" if gone else ""
        why = f"{root} tells of itself: {signs_of(spoken)}; and {share} of it are in trouble {when}{told}"
    elif power:
        why = f"{share} of {root} {when}: {signs_of(power)}"
        why += f"; {len(gone)} of them are not ready" if gone else ""
    elif len(gone) == len(nodes):
        why = f"{share} of {root} went dark {when}: its power, or the switch that all of it hangs on"
    else:
        words = dict.fromkeys(part_policy().trouble[t.hypothesis.family] for t in mine)
        why = f"{share} of {root} {' or '.join(words)} {when}: look at what they share before at any of them"
    if guess:
        why += f". That they share it is a guess from labels or names: {root}"
    return f"{why}. The nodes are victims of it"

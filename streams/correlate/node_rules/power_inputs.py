"""Hosts that each lose one of their power inputs at one time: what feeds them is why, and none of their supplies is broken.

A rack, a row or a hall hangs on two feeds. When one of them trips or is switched off, the controller of each host reports a
supply without input, or supplies that are not redundant any more, and every host runs on. Few sites label which feed a host hangs
on. So what is one event of a rack or of a feed where labels or devices name it is one of the cluster's power where they do not.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.lost_inputs import is_lost_input, is_of_input
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.part_speakers import POWER, signs_of
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.node_rules.shared_parts import GONE, Trouble, is_brake, peak, ran_on_until, together
from streams.correlate.sightings import Sighting, order, split_at_gaps
from streams.correlate.state.place import INPUTS
from streams.model.clock import span
from streams.model.entity import Part
from streams.model.signal import Attribute

_SUPPLY = re.compile(r"(?i)\b(?:power[ _-]?supply|psu?|supply)[ _.#-]{0,2}(?:slot[ .])?(\d{1,2})(?!\w|\.\d)")
_SUPPLY_IN_NAME = re.compile(r"(?i)\bpsu?(\d{1,2})(?=[_ -])")
_NAMED_IN = ("sensor", "name", "unit", "reason")
"""Attributes in which a controller may name the supply."""
_MAX_SUPPLIES = 6


def loses_input(t: Trouble) -> bool:
    """Whether a host, and not what feeds it, reports that an input is lost."""
    return not t.of_itself and is_lost_input(t.hypothesis)


def _began(t: Trouble) -> datetime:
    return t.start


def _are_enough(group: Iterable[Trouble]) -> bool:
    """Whether so many hosts lacked an input at one time that it is no supply of theirs."""
    lost = ((t.start, t.hypothesis.cleared_at, t.node) for t in group if _lasts(t))
    return peak(lost) >= part_policy().power.nodes


def _last_together(group: Sequence[Trouble]) -> bool:
    """Whether enough of these hosts of one part lack their input for long; of a chassis with two hosts both."""
    lasting = {t.node for t in group if _lasts(t)}
    return len(lasting) >= min(part_policy().power.nodes, len({t.node for t in group}))


def _lasts(t: Trouble) -> bool:
    """Whether a host lacks its input for longer than a transfer switch takes, or new firmware of a supply."""
    cleared_at = t.hypothesis.cleared_at
    return cleared_at is None or cleared_at - t.start >= part_policy().inputs.settles


def on_one_clock(troubles: Iterable[Trouble]) -> list[Trouble]:
    """The troubles, with those lost inputs that a clock behind ours dates too early at the time when they were read.

    A clock is taken to be behind only where its host is one of several then: else the report was late.
    """
    found, within = list(troubles), part_policy().power.within
    groups = split_at_gaps(sorted(filter(loses_input, found), key=_began), _began, within)
    several = [group for group in groups if _are_enough(group)]
    moved: dict[str, Trouble] = {}
    left: list[Trouble] = []
    for group in groups:
        others, alone = [g for g in several if g is not group], group not in several
        for t in group:
            read = _as_read(t)
            if read is not t and any(
                g[0].start - within <= read.start <= g[-1].start + within for g in others
            ):
                moved[t.hypothesis.id] = read
            elif alone:
                left.append(read)
    for group in split_at_gaps(sorted(left, key=_began), _began, within):
        if _are_enough(group):
            moved |= {t.hypothesis.id: t for t in group}
    return [moved.get(t.hypothesis.id, t) for t in found]


def _as_read(t: Trouble) -> Trouble:
    """The trouble at the time at which its first line was read; itself where its clock may be right."""
    first = min(t.hypothesis.causes, key=order)
    behind = first.seen_at - first.at
    if not part_policy().power.within < behind <= part_policy().inputs.behind:
        return t
    h = t.hypothesis
    cleared_at = h.cleared_at + behind if h.cleared_at is not None else None
    return replace(
        t,
        hypothesis=replace(
            h, fault_at=h.fault_at + behind, last_at=h.last_at + behind, cleared_at=cleared_at
        ),
    )


def went_by_themselves(troubles: Sequence[Trouble]) -> set[str]:
    """Hypotheses of hosts that went dark long after they lost an input, and not together with another one of those.

    A feed may be away for days, and a host dies of something else meanwhile; when the second feed goes as well, several do.
    """
    lost: dict[str, list[Trouble]] = defaultdict(list)
    for t in troubles:
        if t.hypothesis.family == POWER and not t.of_itself:
            lost[t.node].append(t)
    gone = sorted((t for t in troubles if t.hypothesis.family == GONE and t.node in lost), key=_began)
    alone: set[str] = set()
    for group in split_at_gaps(gone, _began, part_policy().sudden.within):
        if len({t.node for t in group}) == 1:
            alone |= {t.hypothesis.id for t in group if _is_late(t, lost[t.node])}
    return alone


def _is_late(gone: Trouble, power: Iterable[Trouble]) -> bool:
    """Whether nothing but an input that was lost long before may be why a host went."""
    within = part_policy().power.within
    return all(loses_input(t) and gone.start - t.start > within for t in power)


def by_input(found: Mapping[str, Part], troubles: Iterable[Trouble]) -> dict[str, Part]:
    """By id of a hypothesis: the part that it is one event of (`found`), with all lost inputs of one time under one.

    That is the part on which nearly all of these hosts hang, else the cluster's power (`INPUTS`). What else was part of the
    same event of a smaller part goes along: its PDU's own report, and nodes that went dark with it. So do those that ran on and
    went dark long after, an event of its own, where no smaller part has all of them. Where too few go without for long, it is no
    event: each of those that do has a fault of its own.
    """
    ordered = sorted(troubles, key=lambda t: (t.start, t.hypothesis.id))
    of_parts: dict[Part, list[Trouble]] = defaultdict(list)
    for t in ordered:
        if (part := found.get(t.hypothesis.id)) is not None:
            of_parts[part].append(t)
    gone = [t for t in ordered if t.hypothesis.family == GONE and t.hypothesis.id not in found]
    moved = dict(found)
    for mine_of_part in of_parts.values():
        for group in together(mine_of_part, part_policy().power.within):
            if all(map(loses_input, group)) and not _last_together(group):
                for t in group:
                    del moved[t.hypothesis.id]
    lost = filter(loses_input, ordered)
    for episode in split_at_gaps(lost, _began, part_policy().power.within):
        if not _are_enough(episode):
            continue
        mine = {t.hypothesis.id for t in episode}
        root, parts = _root(episode, found), {found[name] for name in mine if name in found}
        of_node: dict[str, list[Trouble]] = defaultdict(list)
        for t in episode:
            of_node[t.node].append(t)
        joined = [t for t in gone if _went_for(t, of_node.get(t.node, ()))]
        for part in parts:
            for group in together(of_parts[part], part_policy().power.within):
                if any(t.hypothesis.id in mine for t in group):
                    joined += group
        joined += _went_later_at_several(ordered, of_node, found, of_parts)
        moved |= {t.hypothesis.id: root for t in (*episode, *joined)}
    return moved


def _went_later_at_several(
    ordered: Iterable[Trouble],
    lost: Mapping[str, Sequence[Trouble]],
    found: Mapping[str, Part],
    of_parts: Mapping[Part, Sequence[Trouble]],
) -> list[Trouble]:
    """Troubles of nodes that ran on without an input (`lost`, by node) and went dark together later, if no one part has all."""
    went = (
        t
        for t in ordered
        if t.hypothesis.family == GONE and any(ran_on_until(t, o.hypothesis) for o in lost.get(t.node, ()))
    )
    joined: list[Trouble] = []
    for wave in split_at_gaps(went, _began, part_policy().sudden.within):
        names = {t.hypothesis.id for t in wave}
        parts = {found[name] for name in names if name in found}
        if len(parts) == 1 and names <= found.keys():
            continue
        for part in sorted(parts):
            for group in together(of_parts[part], part_policy().power.within):
                if any(t.hypothesis.id in names for t in group):
                    joined += group
    return joined


def _root(episode: Sequence[Trouble], found: Mapping[str, Part]) -> Part:
    """The part that most of these hosts' troubles are an event of, if that is nearly all of them; else the cluster's power."""
    nodes: dict[Part, set[str]] = defaultdict(set)
    for t in episode:
        if (part := found.get(t.hypothesis.id)) is not None:
            nodes[part].add(t.node)
    most = max(nodes, key=lambda p: (len(nodes[p]), p), default=None)
    enough = part_policy().covers * len({t.node for t in episode})
    return most if most is not None and len(nodes[most]) >= enough else Part(*INPUTS)


def _went_for(gone: Trouble, lost: Iterable[Trouble]) -> bool:
    """Whether a node went dark after it lost an input (`lost`), and before it got it back."""
    return any(
        t.start <= gone.start and (t.hypothesis.cleared_at is None or gone.start <= t.hypothesis.cleared_at)
        for t in lost
    )


@dataclass(frozen=True, slots=True)
class InputsLost:
    """What is known of all nodes that lost an input, by node: that, and when they went dark."""

    lost: Mapping[str, Sequence[Trouble]] = field(default_factory=dict)
    gone: Mapping[str, Sequence[Trouble]] = field(default_factory=dict)

    @classmethod
    def of(cls, troubles: Iterable[Trouble]) -> InputsLost:
        """Those of the cluster's troubles."""
        lost, gone = defaultdict[str, list[Trouble]](list), defaultdict[str, list[Trouble]](list)
        for t in troubles:
            if loses_input(t):
                lost[t.node].append(t)
            elif t.hypothesis.family == GONE:
                gone[t.node].append(t)
        return cls(lost, {node: gone[node] for node in lost if node in gone})

    def went_later(self, power: Iterable[Trouble]) -> set[str]:
        """The nodes of these lost inputs that ran on without, and went dark later."""
        return {t.node for t in power for g in self.gone.get(t.node, ()) if ran_on_until(g, t.hypothesis)}

    def lacking(self, gone: Iterable[Trouble]) -> list[Trouble]:
        """The inputs that these nodes had run on without for long when they went dark."""
        return [o for g in gone for o in self.lost.get(g.node, ()) if ran_on_until(g, o.hypothesis)]

    def last_lines(self, power: Iterable[Trouble]) -> list[Sighting]:
        """What the controllers of nodes that ran on reported before they went dark: that the last input was lost as well."""
        dark = part_policy().inputs.dark
        found = {
            s.id: s
            for t in power
            for g in self.gone.get(t.node, ())
            if ran_on_until(g, t.hypothesis)
            for s in t.hypothesis.causes
            if is_of_input(s) and abs(g.start - s.at) <= dark
        }
        return sorted(found.values(), key=order)


def of_inputs(
    fault: SharedFault, troubles: Iterable[Trouble], inputs: InputsLost, known: Callable[[datetime], int]
) -> SharedFault:
    """The fault of a part as it is reported where its hosts have lost an input, and nothing worse; itself where there is more.

    Args:
        fault: The fault.
        troubles: All troubles of its part.
        inputs: What is known of all lost inputs.
        known: How many nodes the cluster had at a time.
    """
    mine = [t for t in troubles if t.hypothesis.id in fault.parts]
    hosts = [t for t in mine if not t.of_itself]
    power = [t for t in hosts if t.hypothesis.family == POWER]
    if not power and fault.hypothesis.family == POWER:
        return _of_last_input(fault, mine, inputs, known)
    spoken = [t for t in mine if t.of_itself]
    of_cluster = fault.hypothesis.place == INPUTS.place
    besides = sum(map(loses_input, power)) < part_policy().covers * len(power)
    if not power or besides:
        return fault
    h = fault.hypothesis
    power = [t for t in power if not is_brake(t)]
    gone = {t.node for t in hosts if t.hypothesis.family == GONE}
    facts: dict[str, Attribute] = {**h.facts, "inputs_lost": True}
    last = {s.id for s in inputs.last_lines(power)}
    lines = [s for t in power for s in t.hypothesis.causes if is_of_input(s) and s.id not in last]
    if supplies := _supplies(lines, len({t.node for t in power})):
        facts["supplies"] = tuple(supplies)
    if of_cluster:
        facts["nodes_known"] = max(known(h.fault_at), len(h.nodes))
    # A clock that is behind dates its line, and not the fault.
    h = replace(h, fault_at=max(h.fault_at, min(t.start for t in mine)))
    later = inputs.went_later(power) - gone
    why = _why(replace(h, facts=facts), power, gone, later, spoken, of_cluster=of_cluster)
    h = replace(h, facts=facts, why=why, spares_jobs=not gone)
    if not gone and not spoken and any(map(_lasts, power)):
        # Nobody stands still. Those of one rack are often read first, and a transfer from one source to another takes seconds.
        since = sorted(t.hypothesis.ready_at for t in power if _lasts(t))
        needed = min(part_policy().power.nodes, len(since))
        h = replace(h, brief_until=since[needed - 1] + part_policy().inputs.settles)
    return replace(fault, hypothesis=h)


def _of_last_input(
    fault: SharedFault, mine: Sequence[Trouble], inputs: InputsLost, known: Callable[[datetime], int]
) -> SharedFault:
    """The fault of a part whose nodes went dark long after they had lost an input: they lost the last one. Else itself.

    It began with what their controllers reported before they were missed.
    """
    gone = [t for t in mine if t.hypothesis.family == GONE]
    lacking = inputs.lacking(gone)
    if not lacking or len({o.node for o in lacking}) < part_policy().covers * len(gone):
        return fault
    h, lines = fault.hypothesis, inputs.last_lines(lacking)
    began = min([h.fault_at, *(s.at for s in lines)])
    facts: dict[str, Attribute] = {**h.facts, "last_input_lost": True}
    supplies = _supplies(lines, len({o.node for o in lacking}))
    if supplies:
        facts["supplies"] = tuple(supplies)
    of_cluster = h.place == INPUTS.place
    if of_cluster:
        facts["nodes_known"] = max(known(began), len(h.nodes))
    h = replace(h, fault_at=began, facts=facts)
    ran_on = f"{span(began - max(o.start for o in lacking))} after they had lost one of their power inputs"
    if any(t.of_itself for t in mine):
        why = f"{h.why}. They went dark {ran_on}"
    else:
        share = _share(h, {t.node for t in gone}) + ("" if of_cluster else f" of {h.root}")
        why = f"{share} went dark {_when(gone)}{_named(supplies)}, {ran_on}"
        why += ": look at what fed them since (a feed, a busway, a PDU)"
        if facts.get("guessed"):
            why += f". That they share it is a guess from labels or names: {h.root}"
        why += ". The nodes are victims of it"
    return replace(fault, hypothesis=replace(h, why=why, causes=(*lines, *h.causes)))


def _supplies(lines: Iterable[Sighting], hosts: int) -> list[str]:
    """The numbers of the supplies without input, as most of so many hosts name them; none where they do not."""
    named = Counter(
        number for _, number in {(s.entity.node, number) for s in lines for number in _numbers(s)}
    )
    usual = sorted((n for n, count in named.items() if 2 * count >= hosts), key=int)
    return usual if len(usual) <= _MAX_SUPPLIES else []


def _numbers(s: Sighting) -> set[str]:
    if s.text("subtype") == "psu_redundancy":
        return set()
    texts = [s.text(name) for name in _NAMED_IN]
    found = {m[1] for text in texts for p in (_SUPPLY, _SUPPLY_IN_NAME) for m in p.finditer(text)}
    return {str(int(number)) for number in found}


def _when(troubles: Sequence[Trouble]) -> str:
    took = max(t.start for t in troubles) - min(t.start for t in troubles)
    return "at once" if took < timedelta(seconds=2) else f"within {span(took)}"


def _named(supplies: Sequence[str]) -> str:
    return f" (supply {', '.join(supplies)})" if supplies else ""


def _share(h: Hypothesis, hosts: set[str]) -> str:
    known = h.facts.get("nodes_known")
    enough = isinstance(known, int) and known >= len(hosts)
    return f"{len(hosts)} of {known} nodes" if enough else f"{len(hosts)} nodes"


def _why(
    h: Hypothesis,
    power: Sequence[Trouble],
    gone: set[str],
    later: set[str],
    spoken: Sequence[Trouble],
    *,
    of_cluster: bool,
) -> str:
    when, share = _when(power), _share(h, hosts := {t.node for t in power})
    back = hosts - {t.node for t in power if t.hypothesis.cleared_at is None}
    lost = f"lost one of their power inputs {when}{_named(h.fact_texts('supplies'))}"
    why = f"{share} {lost}" if of_cluster else f"{share} of {h.root} {lost}"
    if spoken and not of_cluster:
        why = f"{h.root} tells of itself: {signs_of(t.hypothesis for t in spoken)}; and {share} of it {lost}"
    elif devices := sorted({t.node for t in spoken}):
        why += f"; {', '.join(devices[:3])}{' …' if len(devices) > 3 else ''} report it as well"
    if gone:
        why += f"; {len(gone)} of them are not ready"
    elif later:
        why += (
            f"; {len(later)} of them ran on without redundancy until they went dark: an incident of its own"
        )
    elif len(back) < len(hosts):
        why += "; they run on without redundancy"
    if back:
        why += f"; {len(back) if len(back) < len(hosts) else 'all'} have it back"
    if h.facts.get("guessed"):
        why += f". That they share it is a guess from labels or names: {h.root}"
    elif of_cluster:
        why += ". No label names what they share"
    if not spoken:
        why += ". Look at what feeds them (a feed, a busway, a PDU)"
    return f"{why}. The nodes are victims of it"

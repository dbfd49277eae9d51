"""Coolant units and power feeds that tell why nodes are hot, or dark, where no node's labels say which of them serves it.

The one of its kind that complains while parts are in trouble is the culprit of them all. Where several do, the one that says it
serves them is, else none. Beside a device that complains a few nodes are enough that would be no event of their rack alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.part_speakers import POWER
from streams.correlate.node_rules.power_inputs import loses_input
from streams.correlate.node_rules.shared_parts import GONE, Trouble, is_brake, is_heat, peak, together
from streams.correlate.sightings import Sighting
from streams.correlate.state.parts import PartIndex
from streams.correlate.state.place import INPUTS
from streams.inventory.parts import device_kind
from streams.model.entity import Part
from streams.model.kinds import SignalKind
from streams.model.signal import RACK, SERVES


def complaints_of(
    device: str, hypotheses: Iterable[Hypothesis], seen: Iterable[Sighting]
) -> tuple[Trouble, ...]:
    """What a coolant unit or a power feed reports of its power or heat; nothing where the name is no such device's.

    Which racks it serves may stand in any of its lines (`seen`).
    """
    kind = device_kind(device)
    if kind is None or kind not in part_policy().feeds:
        return ()
    part = Part(kind, device)
    serves = frozenset(name for s in seen if (text := s.text(SERVES)) for name in _names_in(text))
    return tuple(
        Trouble(device, h, (part,), () if serves else (kind,), of_itself=True, serves=serves)
        for h in hypotheses
        if h.family == POWER
    )


def by_device(
    found: Mapping[str, Part],
    troubles: Iterable[Trouble],
    devices: Mapping[str, Sequence[Trouble]],
    parts: PartIndex,
) -> dict[str, Part]:
    """By id of a hypothesis: the part that it is one event of (`found`), now the device of which it is one, and its complaint.

    Heat on a single node of a rack that the device says it serves is part of it, too. Where nobody knows in which rack nodes
    stand, several that are in trouble together are those of the one device that complains.
    """
    of_parts: dict[Part, list[Trouble]] = defaultdict(list)
    ordered = sorted(troubles, key=lambda t: (t.start, t.hypothesis.id))
    for t in ordered:
        if (part := found.get(t.hypothesis.id)) is not None:
            of_parts[part].append(t)
    moved = dict(found)
    for part, mine in of_parts.items():
        for episode in together(mine, part_policy().power.within):
            complaint, others = _complaints(episode, devices, parts)
            if complaint is None and part == Part(*INPUTS):
                others = _meanwhile(episode, devices)
            moved |= {t.hypothesis.id: part for t in others}
            if complaint is None:
                continue
            served = _served(complaint, parts) if complaint.serves else set()
            alone = (t for t in ordered if t.hypothesis.id not in found and _follows(t, complaint, served))
            joined = (*episode, complaint, *others, *alone)
            moved |= {t.hypothesis.id: complaint.parts[0] for t in joined}
    placeless = [t for t in ordered if t.hypothesis.id not in moved and _is_placeless(t)]
    for episode in together(placeless, part_policy().power.within):
        if peak((t.start, t.hypothesis.cleared_at, t.node) for t in episode) < part_policy().power.nodes:
            continue
        complaint, others = _complaints(episode, devices, parts)
        if complaint is not None and complaint.hypothesis.id not in moved:
            later = (t for t in placeless if _lasts_at(t, complaint))
            joined = (*episode, complaint, *others, *later)
            moved |= {t.hypothesis.id: complaint.parts[0] for t in joined if t.hypothesis.id not in moved}
    for kind in sorted(part_policy().feeds):
        moved |= _of_few(moved, kind, ordered, devices, parts)
    return moved


def _of_few(
    moved: Mapping[str, Part],
    kind: str,
    ordered: Sequence[Trouble],
    devices: Mapping[str, Sequence[Trouble]],
    parts: PartIndex,
) -> dict[str, Part]:
    """By id of a hypothesis: the device of which it is an event, though too few nodes have one to be an event of their part.

    One node of a rack that the device serves is enough. Of hosts that nobody knows it takes two, at about the same time; where
    devices of several places complain then, it is the cluster's power.
    """
    policy = part_policy()
    complaints = [
        t
        for _, theirs in sorted(devices.items())
        for t in theirs
        if t.parts[0].kind == kind
        and t.hypothesis.id not in moved
        and (kind == policy.feeds_hot or _is_of_power(t))
    ]
    complaints.sort(key=lambda t: (t.start, t.node))
    left = [
        t
        for t in (ordered if complaints else ())
        if t.hypothesis.family == POWER and t.hypothesis.id not in moved and not t.of_itself
    ]
    found: dict[str, Part] = {}
    serves = {t.hypothesis.id: _served(t, parts) for t in complaints}
    for complaint in complaints:
        served = serves[complaint.hypothesis.id]
        rivals = [t for t in complaints if t.node != complaint.node and _are_one_time(t, complaint)]
        beside = [t for t in rivals if _are_one_place(t, complaint, serves)]
        if complaint.hypothesis.id in found or (beside and kind == policy.feeds_hot):
            continue
        root = complaint.parts[0]
        mine = [t for t in left if not served.isdisjoint(t.parts) and _suffers(t, complaint)]
        unknown = [t for t in left if _speaks_beside(t, complaint, served, parts)]
        if len(beside) == len(rivals):
            mine += unknown if mine or len({t.node for t in unknown}) >= _SEVERAL else ()
        elif not mine and len({t.node for t in unknown}) >= _SEVERAL:
            root, mine, beside = Part(*INPUTS), unknown, rivals
        mine = [t for t in mine if t.hypothesis.id not in found]
        # Coolant that no longer flows is an event where no node is hot yet, too, if it lasts; a feed that fails is one anyway.
        if mine or (served and any(s.text("subtype") in policy.unfelt for s in complaint.hypothesis.causes)):
            found |= {t.hypothesis.id: root for t in (complaint, *beside, *mine)}
    return found


def _are_one_time(one: Trouble, other: Trouble) -> bool:
    """Whether what two devices report may be one event: feeds fail at once, coolant units one beside the other."""
    first, second = sorted((one, other), key=lambda t: t.start)
    within = part_policy().power.within
    until = first.hypothesis.cleared_at if first.parts[0].kind == part_policy().feeds_hot else first.start
    return until is None or second.start <= until + within


def _are_one_place(one: Trouble, other: Trouble, serves: Mapping[str, Set[Part]]) -> bool:
    """Whether two devices serve the same racks, as far as anything tells."""
    mine, theirs = serves[one.hypothesis.id], serves[other.hypothesis.id]
    return not mine.isdisjoint(theirs) if mine and theirs else _stands_at(one) == _stands_at(other)


def _suffers(t: Trouble, complaint: Trouble) -> bool:
    """Whether a node of a rack that a device serves has what such a device brings about, at the time at which it would."""
    policy, ended = part_policy(), complaint.hypothesis.cleared_at
    if complaint.parts[0].kind == policy.feeds_hot:
        since, until = complaint.start, ended or complaint.hypothesis.last_at + policy.complains_before
        return is_heat(t) and since <= t.start <= until
    if is_brake(t):
        return complaint.start <= t.start and (ended is None or t.start <= ended)
    return _is_of_power(t) and abs(t.start - complaint.start) <= policy.power.within


def _is_of_power(t: Trouble) -> bool:
    return any(s.kind == SignalKind.NODE_POWER for s in t.hypothesis.causes)


def _speaks_beside(t: Trouble, complaint: Trouble, served: Set[Part], parts: PartIndex) -> bool:
    """Whether a host of which nobody knows where it stands lost an input as a feed complained. Its name may tell otherwise."""
    policy = part_policy()
    if complaint.parts[0].kind != policy.feeds_dark or not loses_input(t):
        return False
    if abs(t.start - complaint.start) > policy.sudden.within:
        return False
    # With a rack that is known it is one of those the device serves, and counted, or of another one.
    return not served or all(p.kind not in policy.places for p in (*t.parts, *parts.named_in(t.node)))


def _meanwhile(episode: Sequence[Trouble], devices: Mapping[str, Sequence[Trouble]]) -> list[Trouble]:
    """What feeds report of themselves while hosts of several racks lose an input: none of them is the one, all are part of it."""
    policy = part_policy()
    first, last = episode[0].start - policy.power.within, episode[-1].start + policy.power.within
    return [
        t
        for _, complaints in sorted(devices.items())
        for t in complaints
        if t.parts[0].kind == policy.feeds_dark and first <= t.start <= last
    ]


def may_be_of_device(t: Trouble) -> bool:
    """Whether a coolant unit or a power feed may be why."""
    return t.hypothesis.family in (POWER, GONE)


def _is_placeless(t: Trouble) -> bool:
    """Whether a node lacks power or is hot of which nobody knows where it stands."""
    return may_be_of_device(t) and not any(p.kind in part_policy().places for p in t.parts)


def _follows(t: Trouble, complaint: Trouble, served: Set[Part]) -> bool:
    """Whether heat or a lack of power on one node follows from what the device tells that serves its rack."""
    return not t.of_itself and not served.isdisjoint(t.parts) and _lasts_at(t, complaint)


def _lasts_at(t: Trouble, complaint: Trouble) -> bool:
    """Whether a node came to lack power, or to be hot, while a device complained."""
    ended = complaint.hypothesis.cleared_at
    return t.hypothesis.family == POWER and complaint.start <= t.start and (ended is None or t.start <= ended)


def _complaints(
    episode: Sequence[Trouble], devices: Mapping[str, Sequence[Trouble]], parts: PartIndex
) -> tuple[Trouble | None, Sequence[Trouble]]:
    """What the one device told that complained as these nodes got into trouble; it may have begun long before them.

    Those that tell, by their words or by their name, that they serve these nodes' rack count, else those that name none.
    Others that serve it as well are part of the same event. Of two feeds of a rack the first that failed is the culprit; which of
    two coolant units is one, nobody knows. With what a part reports of itself, it is the culprit.
    """
    if not any(t.hypothesis.family == POWER for t in episode):
        return None, ()
    policy, began = part_policy(), episode[0].start
    hot = any(map(is_heat, episode))
    kind = policy.feeds_hot if hot else policy.feeds_dark
    near = [
        t
        for _, complaints in sorted(devices.items())
        for t in complaints
        if t.parts[0].kind == kind
        and began - policy.complains_before <= t.start <= began + policy.power.within
        and ((ended := t.hypothesis.cleared_at) is None or ended >= began - policy.power.within)
    ]
    served = {t.hypothesis.id: _served(t, parts) for t in near}
    nodes = [t for t in episode if not t.of_itself]
    enough = policy.covers * len(nodes)
    serving = [
        t
        for t in near
        if (theirs := served[t.hypothesis.id])
        and sum(not theirs.isdisjoint(n.parts) for n in nodes) >= enough
    ]
    if any(t.of_itself for t in episode):
        return None, serving if nodes else ()
    named = serving or [t for t in near if not served[t.hypothesis.id]]
    named.sort(key=lambda t: (t.start, t.node))
    of_one_rack = bool(serving) or len({_stands_at(t) for t in named}) == 1
    if len({t.node for t in named}) == 1 or (named and kind == policy.feeds_dark and of_one_rack):
        return named[0], named[1:]
    return None, serving


def _stands_at(complaint: Trouble) -> str:
    """What the feeds of one rack have in common: the rack that their alerts tell, else their name without its last letter."""
    racks = {rack for s in complaint.hypothesis.causes if (rack := s.text(RACK))}
    return racks.pop() if len(racks) == 1 else _LETTER.sub("", complaint.node.partition(".")[0].lower())


def _served(complaint: Trouble, parts: PartIndex) -> set[Part]:
    """The parts that a device says it serves, else those that its name holds; none where neither names any that is known."""
    told = {part for name in complaint.serves for part in parts.named_as(name)}
    return told or {part for part in parts.named_in(complaint.node) if part.kind in part_policy().places}


def _names_in(text: str) -> Iterator[str]:
    """What racks may be called of which a device says that it serves them: `R07,R08`, `racks 7 to 9`, `k11-k14`."""
    for match in islice(_RUN.finditer(text.lower()), _MAX_SERVED):
        prefix, first = match["prefix"], match["first"]
        last = int(match["last"] or first)
        for number in range(int(first), min(last, int(first) + _MAX_SERVED) + 1):
            for digits in {str(number), str(number).zfill(len(first)), f"{number:02}"}:
                yield from [f"{prefix}{digits}"] if prefix else (f"{word}{digits}" for word in _WORDS)


_RUN = re.compile(
    r"(?P<prefix>[a-z]*[-_]?)\[?(?P<first>\d{1,4})(?: ?(?:-|\.\.|to|through) ?(?:[a-z]*[-_]?)(?P<last>\d{1,4}))?"
)
_LETTER = re.compile(r"(?<=\d)[-_]?[ab]$")
_WORDS = ("", "r", "rack", "rack-", "rack_")
"""What may stand before the number of a rack that is told by its number alone."""
_MAX_SERVED = 64
_SEVERAL = 2

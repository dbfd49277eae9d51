"""Coolant units and power feeds that tell why nodes are hot, or dark, where no node's labels say which of them serves it.

The one of its kind that complains while parts are in trouble is the culprit of them all. Where several do, the one that says it
serves them is, else none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.part_speakers import POWER
from streams.correlate.node_rules.shared_parts import Trouble, together
from streams.correlate.sightings import Sighting
from streams.correlate.state.parts import PartIndex
from streams.inventory.parts import device_kind
from streams.model.entity import Part
from streams.model.kinds import SignalKind
from streams.model.signal import SERVES


def complaints_of(
    device: str, hypotheses: Iterable[Hypothesis], seen: Iterable[Sighting]
) -> tuple[Trouble, ...]:
    """What a coolant unit or a power feed tells of its power or heat; nothing where the name is no such device's.

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

    Heat on a single node of a rack that the device says it serves is part of it, too.
    """
    of_parts: dict[Part, list[Trouble]] = defaultdict(list)
    ordered = sorted(troubles, key=lambda t: (t.start, t.hypothesis.id))
    for t in ordered:
        if (part := found.get(t.hypothesis.id)) is not None:
            of_parts[part].append(t)
    moved = dict(found)
    for mine in of_parts.values():
        for episode in together(mine, part_policy().power.within):
            if (complaint := _complaint(episode, devices, parts)) is None:
                continue
            served = _served(complaint, parts) if complaint.serves else set()
            others = (t for t in ordered if t.hypothesis.id not in found and _follows(t, complaint, served))
            moved |= {t.hypothesis.id: complaint.parts[0] for t in (*episode, complaint, *others)}
    return moved


def _follows(t: Trouble, complaint: Trouble, served: Set[Part]) -> bool:
    """Whether heat or a lack of power on one node follows from what the device tells that serves its rack."""
    ended = complaint.hypothesis.cleared_at
    if t.of_itself or t.hypothesis.family != POWER or served.isdisjoint(t.parts):
        return False
    return complaint.start <= t.start and (ended is None or t.start <= ended)


def _complaint(
    episode: Sequence[Trouble], devices: Mapping[str, Sequence[Trouble]], parts: PartIndex
) -> Trouble | None:
    """What the one device told that complained as these nodes got into trouble; it may have begun long before them.

    Those that tell, by their words or by their name, that they serve these nodes' rack count, else those that tell of none.
    """
    if any(t.of_itself for t in episode) or not any(t.hypothesis.family == POWER for t in episode):
        return None
    policy, began = part_policy(), episode[0].start
    hot = any(s.kind in _HEAT for t in episode for s in t.hypothesis.causes)
    kind = policy.feeds_hot if hot else policy.feeds_dark
    near = {
        device: t
        for device, complaints in sorted(devices.items())
        for t in complaints
        if t.parts[0].kind == kind
        and began - policy.complains_before <= t.start <= began + policy.power.within
        and ((ended := t.hypothesis.cleared_at) is None or ended >= began - policy.power.within)
    }
    served = {device: _served(t, parts) for device, t in near.items()}
    enough = policy.covers * len(episode)
    serving = [
        device
        for device, theirs in served.items()
        if theirs and sum(not theirs.isdisjoint(t.parts) for t in episode) >= enough
    ]
    named = serving or [device for device, theirs in served.items() if not theirs]
    return near[named[0]] if len(named) == 1 else None


def _served(complaint: Trouble, parts: PartIndex) -> set[Part]:
    """The parts that a device says it serves, else those that its name holds; none where neither tells of any that is known."""
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
_WORDS = ("", "r", "rack", "rack-", "rack_")
"""What may stand before the number of a rack that is told by its number alone."""
_MAX_SERVED = 64
_HEAT = (SignalKind.GPU_THERMAL, SignalKind.NODE_THERMAL)

"""Errors in words that no rule knows (`SignalKind.UNKNOWN`), shown beside an incident of their place, for people.

Nothing is decided by them: they are put into a revision after it is known that there is one, and make none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.policy.config import Config
from streams.correlate.publish.incident_document import summary
from streams.correlate.sightings import ABOUT, Sighting, order
from streams.correlate.state.place import of_whole
from streams.correlate.state.rows import of_kind
from streams.correlate.state.store import State
from streams.model.entity import Entity
from streams.model.incident import Incident, Proof
from streams.model.kinds import SignalKind
from streams.model.signal import BY_SUBJECT

MOST = 4
"""How many different ones an incident shows: whoever reads it looks for one that says more than the rules know."""
_NODES = 64
"""Of how many of its nodes an incident's errors are looked for: what thousands share is seen on any of them."""
_OF_PROGRAMS = ("job.", "nccl.")
"""Kinds of what is said of jobs: on a busy cluster probes fail and pods are killed all day."""
_NUMBER = re.compile(r"\d[\w.:+-]*")
"""Times, addresses, counts and the numbers of devices and hosts: what differs between two lines of the same words."""


def unknown_errors(h: Hypothesis, state: State, config: Config) -> tuple[Proof, ...]:
    """The errors nearest to a root in place and time, each wording once, with how often and at how many places it was seen.

    The window is that of other context: as long before the fault as a cause may lie, and as long after its latest evidence.
    """
    since, until = h.fault_at - config.before, h.last_at + config.before
    alike: dict[str, list[Sighting]] = defaultdict(list)
    for s in _seen_where(h, state):
        if since <= s.at <= until and _is_shown(s):
            alike[_words(_line(s))].append(s)
    nearest = sorted(alike.values(), key=lambda group: min(_distance(s, h) for s in group))[:MOST]
    return tuple(sorted(map(_proof, nearest), key=_when))


def carried(old: Incident, new: Incident, found: tuple[Proof, ...]) -> tuple[Proof, ...] | None:
    """What the revision `new` shows, now that these are found.

    What was shown stays, also when its lines are forgotten. A higher count alone is no reason to edit what people read.
    """
    before = old.unknown_errors or ()
    shown = {proof.signal_id for proof in before}
    if old.proofs == new.proofs and all(proof.signal_id in shown for proof in found):
        return old.unknown_errors
    known = {_words(_line(proof)) for proof in found}
    left = [proof for proof in before if _words(_line(proof)) not in known]
    return tuple(sorted((*found, *left)[:MOST], key=_when))


def _seen_where(h: Hypothesis, state: State) -> Iterator[Sighting]:
    """The unknown errors kept of the root's node, of nodes that it reaches, and of its switch."""
    for name in {h.root.node, *sorted(h.nodes)[:_NODES]}:
        if name is not None and (node := state.nodes.get(name)) is not None:
            yield from of_kind(node.seen, SignalKind.UNKNOWN)
    if h.root.switch is not None and (port := state.ports.get(of_whole(h.root.switch))) is not None:
        yield from of_kind(port.seen, SignalKind.UNKNOWN)


def _is_shown(s: Sighting) -> bool:
    """Whether it is of a machine. A mere sign of a pod or a program is the business of whoever started it."""
    of_program = s.entity.pod is not None or s.text(ABOUT).startswith(_OF_PROGRAMS)
    return s.firing and bool(s.text("author")) and not (_is_sign(s) and of_program)


def _is_sign(s: Sighting) -> bool:
    """Whether only its words say that something is wrong, and not its author. Only a sign has its row's name as subtype."""
    return s.attributes.get(BY_SUBJECT) == "sign" or bool(s.text("subtype"))


def _distance(s: Sighting, h: Hypothesis) -> tuple[bool, bool, bool, timedelta, str]:
    """For choosing the nearest: errors before signs, the root itself before its node, its node before others, then by time."""
    is_root, is_there = s.entity.key == h.root.key, _place(s.entity) in (h.root.node, h.root.switch)
    return (_is_sign(s), not is_root, not is_there, abs(s.at - h.fault_at), s.id)


def _proof(alike: Iterable[Sighting]) -> Proof:
    """Lines of the same words, by the first of them."""
    lines = sorted(alike, key=order)
    first, more = lines[0], len({_place(s.entity) for s in lines}) - 1
    elsewhere = f", and at {more} other place{'s' if more > 1 else ''}" if more else ""
    return Proof(
        first.id,
        first.kind,
        first.entity,
        first.at,
        "context",
        f"{summary(first)}{elsewhere}",
        first.evidence,
        len(lines),
    )


def _place(entity: Entity) -> str | None:
    return entity.node or entity.switch


def _line(seen: Sighting | Proof) -> str:
    return seen.evidence[0].text if seen.evidence else ""


def _words(line: str) -> str:
    return _NUMBER.sub("#", line)


def _when(proof: Proof) -> tuple[datetime, str]:
    return proof.occurred_at, proof.signal_id

"""A signal as the correlator keeps it, and the one container for many of them.

Everything kept is upsert-shaped: the same signal again, in whatever order, gives the same state. Where there are too many,
the earliest and the latest are kept; that too does not depend on the order of arrival.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Annotated, TypeVar

from pydantic import Field

from streams.model.clock import not_ahead
from streams.model.entity import Entity
from streams.model.kinds import SignalKind
from streams.model.signal import BY_SUBJECT, Attribute, Evidence, Severity, Signal, SignalState

KEPT_EACH_END = 6
"""Of one kind of sighting at one place, this many of the earliest and this many of the latest are kept."""

EVIDENCE_TEXT = 320
"""Characters of the raw line that are kept here; the record itself is found by its coordinates."""

PAST = timedelta(hours=24)

ABOUT = "about"
"""Attribute of an unknown error: the kind and subtype that its line speaks of (`BY_SUBJECT`)."""

LOW_CLOCKS = "node_clock"
"""Subtype of a `gpu.slow` by which the detector reports that all of a node's busy GPUs are low."""

DROPPING = "drops"
"""The subtype of a port of a switch that throws away what is sent to it."""
EACH_MINUTE = "each_minute"
"""Attribute of what pods say of their node over and over, and whose they are: of each only the first of a minute is kept."""

T = TypeVar("T")


@dataclass(slots=True)
class Sighting:
    """One signal, reduced. `at` is the line's time, `fault_at` that minus the time that the line says it had waited.

    A value like any other, though not frozen: of every signal one is made, and a frozen one takes five times as long to make.
    """

    id: str
    kind: str
    entity: Entity
    at: datetime
    fault_at: datetime
    seen_at: datetime
    severity: Severity
    firing: bool = True
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    said: str | None = None
    """What the line calls its node, where that is not the node's name."""
    code: int | None = field(init=False, compare=False, repr=False)
    """The XID, if it is one."""
    role: str = field(init=False, default="", compare=False, repr=False)
    """Its role by the table of families, cached there."""
    rule: Annotated[tuple[object, ...] | None, Field(exclude=True)] = field(
        init=False, default=None, compare=False, repr=False
    )
    """The row of the table of families that it falls under, or none, cached there; None until somebody asks. Never stored."""

    def __post_init__(self) -> None:
        self.code = self.number("xid")

    def number(self, name: str) -> int | None:
        """An attribute that is a whole number."""
        value = self.attributes.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(self, name: str) -> str:
        """An attribute as text, empty when it is not there."""
        value = self.attributes.get(name, "")
        return value if value.__class__ is str else str(value)


def is_of_clock(seen: Sighting | Signal) -> bool:
    """Whether it tells that the clock of its host, or of who speaks to it, is off: munge refuses credentials for their time."""
    if seen.kind != SignalKind.NODE_CONDITION or seen.attributes.get("subtype") != "munge":
        return False
    return str(seen.attributes.get("reason", "")).startswith(("Rewound", "Expired"))


def sighting(signal: Signal) -> Sighting | None:
    """Reduce a signal; None for one about the distant past (a journal replayed after a reboot).

    What only its subject names (`BY_SUBJECT`) is of kind `unknown` here, so that no rule but those about unknown errors sees it.
    A clock that runs more than five minutes ahead is not believed: Kafka's time is taken instead.
    """
    if signal.observed_at - signal.occurred_at > PAST:
        return None
    at = not_ahead(signal.occurred_at, signal.observed_at)
    if is_of_clock(signal):
        at = signal.observed_at  # a clock that is off does not tell since when
    waited = signal.attributes.get("elapsed_ms")
    began = at
    if isinstance(waited, int) and waited > 0:
        began = at - timedelta(milliseconds=min(waited, 86_400_000))
    evidence = signal.evidence[:1]
    if evidence and len(evidence[0].text) > EVIDENCE_TEXT:
        evidence = (replace(evidence[0], text=evidence[0].text[:EVIDENCE_TEXT]),)
    kind, attributes = signal.kind, signal.attributes
    if BY_SUBJECT in attributes:
        # Its kind and subtype are a guess by nouns. Rules ask for either, so neither may be what they ask for.
        about = f"{kind} {attributes.get('subtype', '')}".rstrip()
        attributes = {name: value for name, value in attributes.items() if name != "subtype"}
        kind, attributes = SignalKind.UNKNOWN, {**attributes, ABOUT: about}
    return Sighting(
        signal.id,
        kind,
        signal.entity,
        at,
        began,
        signal.observed_at,
        signal.severity,
        signal.state is SignalState.FIRING,
        attributes,
        evidence,
    )


order: Callable[[Sighting], tuple[datetime, str]] = attrgetter("at", "id")
"""Sightings are sorted by their line's time, then by id."""


def added(kept: tuple[Sighting, ...], new: Sighting) -> tuple[Sighting, ...]:
    """`kept` with `new` in it: sorted, without duplicates, bounded. The same tuple when nothing changed."""
    if not kept:
        return (new,)
    for position, known in enumerate(kept):
        if known.id == new.id:
            best = min(known, new, key=_preference)
            return kept if best == known else (*kept[:position], best, *kept[position + 1 :])
    if len(kept) >= 2 * KEPT_EACH_END and order(kept[KEPT_EACH_END - 1]) < order(new) < order(
        kept[-KEPT_EACH_END]
    ):
        return kept
    merged = list(kept)
    insort(merged, new, key=order)
    if len(merged) > 2 * KEPT_EACH_END:
        del merged[KEPT_EACH_END]
    return tuple(merged)


def dropped_middle(stream: Iterable[Sighting]) -> dict[str, datetime]:
    """Where the middle of a long stream was dropped: the last sighting before the gap → the time of the first one after it.

    What goes on all day must not look like something that was there in the morning and again in the evening.
    """
    kept = firing(stream)
    if len(kept) < 2 * KEPT_EACH_END:
        return {}
    return {kept[KEPT_EACH_END - 1].id: kept[KEPT_EACH_END].at}


def _preference(one: Sighting) -> tuple[datetime, str]:
    """Of two copies of one line the one seen first is kept, whichever arrives first here."""
    return (one.seen_at, one.evidence[0].coordinates if one.evidence else "")


ACCESS_PORT = "access_port"
"""Of a port of a switch tray that went down: it may as well be what is at its other end."""
_OF_TRAY = ("switch_tray", ACCESS_PORT)


def tray_of(one: Sighting) -> str | None:
    """The NVLink switch tray that a line says to fail, or to lose a link: the one that it names, else the one that wrote it."""
    return (one.text("tray") or one.entity.switch) if one.text("subtype") in _OF_TRAY else None


def firing(sightings: Iterable[Sighting]) -> list[Sighting]:
    """Those that report a fault rather than its end, in order."""
    return sorted((s for s in sightings if s.firing), key=order)


def distinct(sightings: Iterable[Sighting]) -> tuple[Sighting, ...]:
    """Each sighting once, in order."""
    return tuple(sorted({s.id: s for s in sightings}.values(), key=order))


def split_at_gaps(items: Iterable[T], at: Callable[[T], datetime], gap: timedelta) -> list[list[T]]:
    """Items, sorted by their time `at`, in groups: a new one begins where more than `gap` passed since the item before."""
    groups: list[list[T]] = []
    for item in items:
        if not groups or at(item) - at(groups[-1][-1]) > gap:
            groups.append([])
        groups[-1].append(item)
    return groups


def latest_end(ends: Iterable[datetime | None]) -> datetime | None:
    """The latest of these ends; None while anything has not ended."""
    known = list(ends)
    return None if None in known else max((end for end in known if end is not None), default=None)

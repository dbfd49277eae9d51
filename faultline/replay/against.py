"""A replay against what production decided: incident by incident, where they part, and which differences are explained.

Production is what the capture's `incidents`, `runs` and `notices` hold. A replay acts on nothing, so what followed from an answer
of a person or a connector cannot come out of it again; such a difference is explained by the recorded answer. So is one that
another code, setting or runbook can have led to (`other_versions`). What is left is a defect of the replay or of production.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import zip_longest
from typing import TypeVar

from faultline.replay.capture import Capture
from faultline.replay.decisions import decisions_of, decisions_of_topics
from faultline.replay.difference import Aspect, Difference, Pair, differences
from faultline.replay.explanations import Explanations
from faultline.replay.pipeline import Happened
from faultline.replay.recorded_inputs import decoded
from faultline.replay.replayed import Replayed
from faultline.replay.topic_records import in_time_order
from runbooks.engine.run.shadow_mode import NO_TICKET_SYSTEM
from streams.kafka.topics import INCIDENTS, NOTICES, RUNS, Topic
from streams.model.errors import BadInput
from streams.model.incident import Incident
from streams.model.run import Mode, Run
from streams.model.thread import Thread

T = TypeVar("T")

EDGE = timedelta(seconds=15)
"""What opens so shortly before the capture's end may be on one side only: production needs seconds from a line to an incident,
and more after a crash, and a replay none."""


class Verdict(StrEnum):
    """How one incident compares."""

    SAME = "same"
    DIFFERENT = "different"
    ONLY_HERE = "only here"
    ONLY_THERE = "only there"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first point at which the two sides differ. A text is empty where that side has nothing any more."""

    at: datetime
    there: str
    here: str
    why_there: str
    why_here: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One incident of production and its counterpart; `pair.before` is production's, `pair.after` the replay's.

    `differences` are those without an explanation, `explained` the others with theirs.
    """

    pair: Pair
    differences: tuple[Difference, ...] = ()
    explained: tuple[tuple[Difference, str], ...] = ()
    first: Divergence | None = None

    @property
    def verdict(self) -> Verdict:
        """How it compares."""
        if self.pair.before is None:
            return Verdict.ONLY_HERE
        if self.pair.after is None:
            return Verdict.ONLY_THERE
        return Verdict.DIFFERENT if self.differences or self.explained else Verdict.SAME


class Revisions:
    """Follows a replay and keeps every revision of its incidents, by id."""

    def __init__(self) -> None:
        self.by_incident: defaultdict[str, list[Incident]] = defaultdict(list)

    def passes(self, now: datetime) -> None:
        """Time alone is no revision."""

    def sees(self, happened: Happened) -> None:
        """Keep what was revised."""
        for incident in happened.incidents:
            self.by_incident[incident.id].append(incident)


@dataclass(frozen=True, slots=True)
class Production:
    """What production decided, as a capture holds it. `revisions` are by incident, in their order."""

    revisions: Mapping[str, Sequence[Incident]]
    runs: tuple[Run, ...]
    notices: tuple[Thread, ...]
    has_notices: bool

    @property
    def had_no_tickets(self) -> bool:
        """Whether its responder had no ticket system: only its runs tell, a capture holds no connections."""
        return any(record.reason == NO_TICKET_SYSTEM for run in self.runs for record in run.steps)

    @classmethod
    def of(cls, capture: Capture) -> Production:
        """Read it.

        Raises:
            BadInput: when the capture holds no incidents of production.
        """
        if INCIDENTS.name not in capture.records and INCIDENTS.name not in capture.state:
            raise BadInput("the capture holds no `incidents` topic: there is nothing to compare with")
        revisions: defaultdict[str, dict[int, Incident]] = defaultdict(dict)
        for incident in _documents(capture, INCIDENTS, Incident):
            # After a takeover a correlator may publish an older revision again.
            revisions[incident.id].setdefault(incident.revision, incident)
        runs = {run.id: run for run in _documents(capture, RUNS, Run)}
        notices = {thread.incident: thread for thread in _documents(capture, NOTICES, Thread)}
        return cls(
            {name: [found[n] for n in sorted(found)] for name, found in revisions.items()},
            tuple(runs.values()),
            tuple(notices.values()),
            NOTICES.name in capture.records,
        )


def compared(
    capture: Capture,
    production: Production,
    decided: Replayed,
    revisions: Revisions,
    modes: Mapping[str, Mode],
    explanations: Explanations,
) -> tuple[Compared, ...]:
    """Every incident of either side whose fault is in the capture's own time, by the time of its fault.

    Of a capture that was cut to an incident, that one.
    """
    until = capture.meta.end
    there = decisions_of_topics(
        [found[-1] for found in production.revisions.values()], production.runs, production.notices, until
    )
    here = decisions_of(decided, modes, until)
    runs = {run.incident: run for run in production.runs}
    found = []
    for pair in differences(there, here):
        if pair.either.fault_at < capture.meta.begin or not capture.is_about(*pair.ids):
            continue
        told = [*_states(pair), *pair.differences]
        if not production.has_notices:
            told = [one for one in told if one.aspect is not Aspect.PAGE]
        found.append(_judged(pair, told, explanations, until, partial(_first, production, revisions, runs)))
    return tuple(found)


def _judged(
    pair: Pair,
    told: Iterable[Difference],
    explanations: Explanations,
    end: datetime,
    first: Callable[[Pair], Divergence | None],
) -> Compared:
    open_, explained = [], []
    for one in told:
        if why := _edge(pair, end) or explanations.of(pair, one):
            explained.append((one, why))
        else:
            open_.append(one)
    # What nobody explains comes first, and the mode last: it is no decision about the incident.
    rest = sorted((one for one, _ in explained), key=lambda one: one.aspect is Aspect.MODE)
    whole = replace(pair, differences=(*open_, *rest))
    return Compared(whole, tuple(open_), tuple(explained), first(whole) if whole.differences else None)


def _edge(pair: Pair, end: datetime) -> str:
    if pair.before is not None and pair.after is not None and pair.before.runbooks:
        return ""  # production was done with it
    opened = max(one.opened_at for one in (pair.before, pair.after) if one is not None)
    return (
        ""
        if end - opened > EDGE
        else f"it opened {(end - opened).total_seconds():.0f} s before the capture ends"
    )


def _states(pair: Pair) -> Iterator[Difference]:
    """Whether an incident is open, resolved, handed to people …: what it is told as at the end."""
    before, after = pair.before, pair.after
    if before is None or after is None or before.is_told is not after.is_told or before.state == after.state:
        return
    yield Difference(Aspect.INCIDENT, "state", before.state, after.state, before.reason, after.reason)


def _first(
    production: Production, revisions: Revisions, runs: Mapping[str, Run], pair: Pair
) -> Divergence | None:
    """Where the judgements of the two sides part first, else where their plans do."""
    there = _judgements(production.revisions.get(pair.before.incident, ()) if pair.before else ())
    here = _judgements(revisions.by_incident.get(pair.after.incident, ()) if pair.after else ())
    for one, other in zip_longest(there, here):
        if one is None or other is None or _judgement(one) != _judgement(other):
            at = min(incident.updated_at for incident in (one, other) if incident is not None)
            return Divergence(at, _told(one), _told(other), _reason(one), _reason(other))
    run = runs.get(pair.either.incident)
    for one in pair.differences:
        at = run.created_at if run is not None else pair.either.opened_at
        return Divergence(
            at, f"{one.what}: {one.before}", f"{one.what}: {one.after}", one.why_before, one.why_after
        )
    return None


def _judgements(revisions: Iterable[Incident]) -> list[Incident]:
    """The revisions that judge otherwise than the one before. How evidence was put together in batches is a matter of timing."""
    found: list[Incident] = []
    for incident in revisions:
        if not found or _judgement(found[-1]) != _judgement(incident):
            found.append(incident)
    return found


def _judgement(incident: Incident) -> tuple[str, ...]:
    return (
        incident.family,
        incident.root.key,
        incident.certainty.value,
        incident.severity.value,
        incident.state.value,
    )


def _told(incident: Incident | None) -> str:
    if incident is None:
        return ""
    return f"{incident.family} of {incident.root}, {incident.certainty}, {incident.state}"


def _reason(incident: Incident | None) -> str:
    return incident.reason if incident is not None else ""


def _documents(capture: Capture, topic: Topic, kind: type[T]) -> Iterator[T]:
    for source in (capture.state, capture.records):
        for record in in_time_order(source.get(topic.name, ())):
            if (document := decoded(capture, kind, record)) is not None:
                yield document

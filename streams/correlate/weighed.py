"""Every explanation that is weighed at a moment and what became of it, for whoever asks why something was not done.

Worked out from the engine's state when it is asked for: an engine that nobody asks does nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from streams.correlate.cause_sources.jobs import JobCauses
from streams.correlate.cause_sources.source import Causes
from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.verdict import LeftAlone
from streams.correlate.policy.config import Config
from streams.correlate.policy.policy import policy
from streams.correlate.publish.fate import Fate
from streams.correlate.publish.publisher import Publisher
from streams.correlate.sightings import Sighting
from streams.correlate.state.place import Place, PlaceKind
from streams.model.clock import span, to_the_second
from streams.model.kinds import IncidentFamily


@dataclass(frozen=True, slots=True)
class Weighed:
    """One explanation. `reason` and `needs` are empty for what is an incident of its own."""

    hypothesis: Hypothesis
    fate: Fate
    incident: str
    """The incident that it is, would be, or became part of."""
    reason: str = ""
    needs: str = ""
    """What would have made it an incident: the criterion that failed, with its numbers."""
    claims: Mapping[str, Sequence[Sighting]] | None = None
    """The symptoms that it explains, by job."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """What is known at a moment: all explanations, and by job what makes none."""

    explanations: tuple[Weighed, ...] = ()
    left_alone: Mapping[str, tuple[LeftAlone, ...]] | None = None


def weighing(causes: Causes, jobs: JobCauses, publisher: Publisher, now: datetime) -> Weighing:
    """Everything that is weighed now, by the time at which it began."""
    every = {h.id: h for source in causes.sources for h in source.all()}
    places = {h.place for h in every.values()} | {Place(PlaceKind.NODE, node) for node in jobs.suspected()}
    own = {h.id: h for place in sorted(places) for h in causes.at(place)}
    claims = jobs.claims(own)
    found = [
        _independent(
            h, publisher.fate_of(h.place, h, claims.get(h.id, {}), now), claims, publisher, causes, now
        )
        for h in own.values()
    ]
    found += _parts({name: h for name, h in every.items() if name not in own}, own, causes)
    return Weighing(
        tuple(sorted(found, key=lambda one: (one.hypothesis.fault_at, one.hypothesis.id))),
        dict(jobs.left_alone),
    )


def _parts(
    others: Mapping[str, Hypothesis], own: Mapping[str, Hypothesis], causes: Causes
) -> Iterator[Weighed]:
    for h in others.values():
        taker = causes.taker(h.place, h)
        owner = causes.owner_of(taker.id if taker is not None else h.id)
        root = own.get(owner)
        if root is None or owner == h.id:
            continue
        yield Weighed(
            h,
            Fate.PART,
            owner,
            f"it follows from {root.family} at {root.root}, which began at {to_the_second(root.fault_at)}",
            f"a begin more than {span(causes.config.before)} before that one, or a family that {root.family} does not explain",
        )


def _independent(
    h: Hypothesis,
    fate: Fate,
    claims: Mapping[str, Mapping[str, Sequence[Sighting]]],
    publisher: Publisher,
    causes: Causes,
    now: datetime,
) -> Weighed:
    reason, needs = _WORDS[fate](h, causes.config) if fate in _WORDS else ("", "")
    if fate is Fate.EXPECTED:
        by = publisher.expected_by(h, now) or "it is a notice, and no job runs there"
        reason, needs = (
            f"it is left to whoever works there: {by}",
            "a job that is hit, or a node that is back in service",
        )
    return Weighed(h, fate, h.id, reason, needs, claims.get(h.id, {}))


def _unfelt(h: Hypothesis, config: Config) -> tuple[str, str]:
    own = policy().own_failures
    if h.retry == "over":
        return (
            "the job's controller tried again, and that helped",
            f"no progress and no running pods of the next try within {span(own.retry)}",
        )
    if h.was_brief:
        lasted = span(h.cleared_at - h.fault_at) if h.cleared_at is not None else "a short time"
        least = f" more than {span(h.brief_until - h.fault_at)}" if h.brief_until is not None else " longer"
        return (
            f"it was over by itself after {lasted}, and no job suffered",
            f"to last{least}, or a job whose ranks wait or fail meanwhile",
        )
    if h.family == IncidentFamily.APPLICATION:
        return (
            "a program that fails by itself is its owner's business, who reads it in its log",
            f"a job of {own.gpus} GPUs (of {own.gpus_young} in its first {span(own.young_s)}), {own.gpu_hours:g} GPU-hours, "
            f"{own.times} failures alike, or other ranks that are left waiting",
        )
    if h.family in (IncidentFamily.NIC_LINK, IncidentFamily.FABRIC_FAULT):
        return (
            "a link that is back at once, or errs a little, harms nobody by itself",
            f"to stay down for {span(config.link_settle)}, {config.flaps} falls within {span(config.link_quiet)}, or a job whose "
            "ranks wait or fail because of it",
        )
    return (
        "by itself it harms nobody",
        "a job whose ranks wait or fail because of it",
    )


def _waits(h: Hypothesis, config: Config) -> tuple[str, str]:
    return (
        f"it waits for more evidence until {to_the_second(h.ready_at)}",
        f"to last until then, {span(h.ready_at - h.last_at)} after its latest evidence"
        if h.ready_at > h.last_at
        else "to last until then",
    )


def _brief(h: Hypothesis, config: Config) -> tuple[str, str]:
    until = to_the_second(h.brief_until) if h.brief_until is not None else "later"
    return (
        "it may be over by itself, and costs nobody anything until then",
        f"to last until {until}, decisive evidence, or a job that suffers from it",
    )


def _old_news(h: Hypothesis, config: Config) -> tuple[str, str]:
    return (
        "it was known for long without being an incident",
        f"evidence that is less than {span(config.retention)} old",
    )


_WORDS: Mapping[Fate, Callable[[Hypothesis, Config], tuple[str, str]]] = {
    Fate.UNFELT: _unfelt,
    Fate.WAITS: _waits,
    Fate.BRIEF: _brief,
    Fate.OLD_NEWS: _old_news,
}

"""What keeps a job from running that is neither its code nor hardware: images, volumes, scheduling, admission, eviction.

Kubernetes tries again by itself, so one event is a hiccup. What is reported of the same pod over and over, for as long as its row
wants (`lasts_s`), until it is scheduled, started or deleted, is a fault; events of different pods never add up to one. A job that
cannot be placed again after a node was lost waits for that node's incident, and is no fault of its own. That pods wait for GPUs
is the normal state of a full cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting, latest_end, order
from streams.correlate.state.placement import Placement
from streams.model.kinds import IncidentFamily, SignalKind

SLOW, CALLED_SLOW = "slow", "straggler"
"""Subtypes of a `job.stalled` that goes on: by its own pace, and by its program's report of one of its ranks or nodes."""

EXCEPTION = "exception"
"""Subtype of a `job.failed` that has the words of an exception which ended a process."""

PLATFORM = IncidentFamily.PLATFORM_FAULT


class PodTimes(NamedTuple):
    """When a pod came to be, and what ended its troubles so far."""

    created_at: datetime
    scheduled_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None

    def ends(self, waits: bool) -> list[datetime]:
        """When something that kept it from being scheduled (`waits`), or from being started, was over."""
        ends = (self.scheduled_at if waits else self.started_at, self.ended_at)
        return sorted(end for end in ends if end is not None)


@dataclass(frozen=True, slots=True)
class PlatformBlocker:
    """A stretch in which the platform was in a job's way."""

    start: datetime
    end: datetime
    seen_at: datetime
    sightings: tuple[Sighting, ...]
    waits: bool = False
    """Whether its pods only wait for a place."""
    since: datetime | None = None
    """When the first of its pods came to be."""
    gone_at: datetime | None = None
    """When the last of its pods was scheduled, started or deleted; None while one is not."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where it was reported, as far as the pods had a node. Those that wait for one get it afterwards."""
        if self.waits:
            return ()
        return tuple(sorted({s.entity.node for s in self.sightings if s.entity.node}))

    @property
    def may_follow(self) -> bool:
        """Whether a node that was lost, or that is not well, may be all that is behind it."""
        return all((rule := families().rule(s)) is not None and rule.follows for s in self.sightings)

    def is_routine(self, pods: int) -> bool:
        """Whether a job of so many pods was evicted, and not again and again: the controller of a single pod makes another."""
        evicted = {s.entity.pod for s in self.sightings}
        return self.is_eviction and pods <= 1 and len(evicted) < policy().own_failures.times

    @property
    def is_eviction(self) -> bool:
        """Whether a kubelet took its pods away, and nothing else was in the way."""
        return all(s.text("subtype") == "evicted" for s in self.sightings)

    @property
    def says(self) -> str:
        """What was in the way."""
        return ", ".join(dict.fromkeys(families().says(s) for s in self.sightings))

    def over_at(self, placements: Sequence[Placement]) -> datetime | None:
        """When its pods got over it, or a pod of the job was placed after it."""
        ends = [p.start for p in placements if p.start > self.end]
        ends += [self.gone_at] if self.gone_at is not None else []
        return min(ends, default=None)


def is_exit(s: Sighting) -> bool:
    """Whether only a pod tells that a process ended badly."""
    return s.text("source") == "pod"


def is_of_pace(s: Sighting) -> bool:
    """Whether it says how fast a job or one of its ranks is: nothing has failed or stands still."""
    return s.kind == SignalKind.JOB_STALLED and s.text("subtype") in (SLOW, CALLED_SLOW)


def is_exception(s: Sighting) -> bool:
    """Whether it is the words of an exception that nobody caught: why a process ended, which its launcher tells by itself."""
    return s.kind == SignalKind.JOB_FAILED and s.text("subtype") == EXCEPTION


def is_interrupt(s: Sighting) -> bool:
    """Whether a process ended for SIGINT: a person pressed Ctrl-C. Launchers, kubelets and Slurm send other signals."""
    return s.kind == SignalKind.JOB_FAILED and (
        s.text("exitcode") in ("-2", "130") or s.text("signal") == "2"
    )


def is_own(s: Sighting) -> bool:
    """Whether a failure is the job's own code, data or appetite for memory."""
    return families().family_of(s) == "application" and families().role(s) == "cause"


def platform_blockers(
    failed: Sequence[Sighting],
    pods: Mapping[str, PodTimes],
    config: Config,
    at_once: Collection[str],
) -> list[PlatformBlocker]:
    """What the platform did to a job, in order of time and cut at silences; what did not last is left out.

    `pods` are the job's pods by uid; `at_once` are ids of lines that need not last. What many of its pods suffer at the same
    time is one.
    """
    by_object: dict[tuple[bool, str, str], list[Sighting]] = {}
    for s in sorted((s for s in failed if s.firing and _is_obstacle(s)), key=order):
        rule = families().rule(s)
        each = _object(s) if rule is None or rule.each == "pod" else ""
        by_object.setdefault((_waits(s), s.text("subtype"), each), []).append(s)
    stretches = [
        stretch
        for lines in by_object.values()
        for stretch in _stretches(lines, pods, config)
        if _lasted(stretch.sightings) or any(s.id in at_once for s in stretch.sightings)
    ]
    return _joined(stretches, config)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Lines about one object, without a moment in between at which it got over what they report."""

    sightings: tuple[Sighting, ...]
    times: PodTimes | None
    gone_at: datetime | None

    @property
    def waits(self) -> bool:
        return _waits(self.sightings[0])

    @property
    def until(self) -> datetime | None:
        """When it was over; None while its pod is there and has not got over it."""
        return self.gone_at if self.times is not None else self.sightings[-1].at


def _joined(stretches: Sequence[_Stretch], config: Config) -> list[PlatformBlocker]:
    """Stretches of a job's pods, those of the same time together."""
    groups: list[list[_Stretch]] = []
    for stretch in sorted(stretches, key=lambda s: (s.waits, *order(s.sightings[0]))):
        group = groups[-1] if groups else []
        until = latest_end(one.until for one in group)
        start = stretch.sightings[0].at
        if (
            not group
            or group[0].waits is not stretch.waits
            or (until and start - until > config.same_pods_gap)
        ):
            groups.append([])
        groups[-1].append(stretch)
    return sorted(map(_blocker, groups), key=lambda blocker: (blocker.start, blocker.waits))


def _blocker(group: Sequence[_Stretch]) -> PlatformBlocker:
    lines = tuple(sorted((s for one in group for s in one.sightings), key=order))
    return PlatformBlocker(
        start=lines[0].at,
        end=lines[-1].at,
        seen_at=min(s.seen_at for s in lines),
        sightings=lines,
        waits=group[0].waits,
        since=min((one.times.created_at for one in group if one.times is not None), default=None),
        gone_at=latest_end(one.gone_at for one in group),
    )


def _is_obstacle(s: Sighting) -> bool:
    return families().family_of(s) == PLATFORM and families().role(s) == "cause"


def _waits(s: Sighting) -> bool:
    rule = families().rule(s)
    return rule is not None and rule.waits


def _object(s: Sighting) -> str:
    """Which pod it is about: its uid, for a pod's name may be used again at once."""
    pod = s.entity.pod
    return (pod.uid or pod.key) if pod is not None else ""


def _stretches(lines: Sequence[Sighting], pods: Mapping[str, PodTimes], config: Config) -> Iterator[_Stretch]:
    """Lines about one object, cut where it got over what they report; of a pod that is not known, at silences."""
    times = pods.get(_object(lines[0]))
    ends = times.ends(_waits(lines[0])) if times is not None else []
    stretch = [lines[0]]
    for before, line in pairwise(lines):
        # Of a pod that still has not started silence means nothing: not every one of many lines is kept.
        silent = times is None and line.at - before.at > config.same_pods_gap
        if silent or any(before.at < end <= line.at for end in ends):
            yield _Stretch(tuple(stretch), times, next((e for e in ends if e > before.at), None))
            stretch = []
        stretch.append(line)
    yield _Stretch(tuple(stretch), times, next((e for e in ends if e > lines[-1].at), None))


def _lasted(lines: Sequence[Sighting]) -> bool:
    rule = families().rule(lines[0])
    return lines[-1].at - lines[0].at >= timedelta(seconds=rule.lasts_s if rule else 0)

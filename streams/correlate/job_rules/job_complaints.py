"""What jobs complain of a service, and when that tells that it is the service and none of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from streams.correlate.job_rules.refusals import Owner
from streams.correlate.job_rules.service_policy import REGISTRY, service_policy
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.place import ADDRESS_POOL

Spans = tuple[tuple[datetime, datetime], ...]
"""Stretches of time, each from its first moment to its last."""


@dataclass(frozen=True, slots=True)
class Complaints:
    """What one job says of one service, in order of time; or what keeps another workload from starting."""

    job: str
    sightings: tuple[Sighting, ...]
    owner: Owner | None = None
    """Where something could not be created: for whom."""
    lasting: Spans = ()
    """When it went on without a pause: the lines in between may not be kept."""


class Refused(NamedTuple):
    """A stretch in which pods are refused their sandbox on a node again and again."""

    node: str
    since: datetime
    until: datetime


class JobComplaints:
    """What jobs say of a service, and what that of others adds to it."""

    def __init__(self, kind: str, heard: Iterable[Complaints], others: Iterable[Complaints]) -> None:
        self._kind = kind
        self.owner = {s.id: one.job for one in heard for s in one.sightings}
        """By id of a line: the job."""
        self._lasting = {one.job: one.lasting for one in heard}
        mine = (s for one in others for s in one.sightings if kind == ADDRESS_POOL or stays(s))
        self._witnesses = sorted(mine, key=order) if kind in (REGISTRY, ADDRESS_POOL) else []
        """Lines of others that a certificate has expired, or that no address is free."""

    def are_of_it(self, lines: Sequence[Sighting]) -> bool:
        """Whether the service is why jobs have these lines, in order of time."""
        return (
            self.known_at(lines) is not None
            and _on_several_nodes((*lines, *self._at_that_time(lines)))
            and any(map(is_firm, lines))
        )

    def known_at(self, lines: Sequence[Sighting]) -> datetime | None:
        """When it was known first that it is the service: by several jobs, or by one to which it goes on saying so."""
        together, rule = self._together_at(lines), service_policy()
        if self._kind not in rule.alone or not lines:
            return together
        own = [s for s in lines if stays(s)] if self._kind == REGISTRY else []
        expired = _expired_at(sorted((*own, *self._at_that_time(lines)), key=order)) if own else None
        expired = expired and max(expired, lines[0].seen_at)
        if together is not None:
            return min(together, expired or together)
        lasted = (s.seen_at for s in lines if s.at - lines[0].at >= timedelta(seconds=rule.lasts_s))
        return min((at for at in (expired, *lasted) if at is not None), default=None)

    def _at_that_time(self, lines: Sequence[Sighting]) -> list[Sighting]:
        """What others say while these lines go on, or minutes before and after."""
        if not lines:
            return []
        first, last, within = lines[0].at, lines[-1].at, service_policy().within
        return [s for s in self._witnesses if first - within <= s.at <= last + within]

    def _together_at(self, lines: Sequence[Sighting]) -> datetime | None:
        """When it was known first that enough jobs complain within minutes of each other; None while they do not."""
        rule = service_policy()
        latest: dict[str, Sighting] = {}
        for s in lines:
            latest[self.owner[s.id]] = s
            near = [one for job, one in latest.items() if s.at - self._went_on(job, one, s) <= rule.within]
            if len(near) >= rule.jobs:
                return max(one.seen_at for one in near)
        return None

    def _went_on(self, job: str, since: Sighting, until: Sighting) -> datetime:
        """Until when, before `until`, a job went on complaining without a pause."""
        spans = (span for span in self._lasting.get(job, ()) if span[0] <= since.at <= span[1])
        return max([since.at, *(min(end, until.at) for _, end in spans)])


def is_retry(s: Sighting) -> bool:
    """Whether a complaint is of a program that tries again: nothing has ended with it."""
    return s.text("subtype") in ("no_resolver", "not_resolved")


def is_firm(s: Sighting) -> bool:
    """Whether a complaint can be of nothing but the service: of a retry, only one for a name that is the site's own."""
    if not is_retry(s):
        return True
    name, last = s.text("peer"), s.text("peer").rstrip(".").rpartition(".")[2]
    return (
        s.text("subtype") == "no_resolver"
        and bool(name)
        and len(last) != 2
        and last not in service_policy().outside
    )


def stays(s: Sighting) -> bool:
    """Whether it does not get better by itself."""
    rule = families().rule(s)
    return rule is not None and rule.stays


def _expired_at(lines: Sequence[Sighting]) -> datetime | None:
    """When two nodes had said for long enough that its certificate has expired: a clock that is wrong is one node's."""
    told = [s for s in lines if s.entity.node is not None]
    second = next((s for s in told if s.entity.node != told[0].entity.node), None)
    if second is None:
        return None
    lasted = [s.seen_at for s in told if s.at - told[0].at >= timedelta(seconds=service_policy().expired_s)]
    return max(second.seen_at, min(lasted)) if lasted else None


def _on_several_nodes(lines: Sequence[Sighting]) -> bool:
    """Whether it cannot be one node's own: its disk, its way to the network."""
    nodes = {s.entity.node for s in lines}
    return len(nodes) > 1 or None in nodes

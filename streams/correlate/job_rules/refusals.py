"""When a webhook that must let pods pass is itself at fault: creations go on being refused for it, whoever asks.

The API server's own words say that it cannot be called, so it does not matter whose creations these are, nor whether anything is
known of their pods. What takes time to tell is whether it is over by itself: the webhook's pods are replaced, or somebody
installs one and mends it. What a policy or a quota denies is somebody's intent, and never comes here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from streams.config.yaml_tables import Strict
from streams.correlate.sightings import Sighting

_CHECKED_EVERY = timedelta(seconds=10)
"""Thousands of owners may be refused in a minute, and one more of them decides nothing."""


class RefusalPolicy(Strict):
    """`refusals` in `services.yaml`."""

    apart_s: float
    owners: int
    owners_late: int
    times: int
    times_expired: int
    lasts_s: float
    times_alone: int
    alone_s: float

    @property
    def apart(self) -> timedelta:
        """What is refused sooner after another one is the same occasion."""
        return timedelta(seconds=self.apart_s)


class Owner(NamedTuple):
    """For whom something was to be created."""

    key: str
    namespace: str
    kind: str
    gpus: bool
    """Whether it is known to want GPUs: a training job, or a job that the inventory follows for its GPUs."""


Created = Mapping[tuple[str, str], Sequence[datetime]]
"""By namespace and kind of their owners: when pods were created, as far as the inventory tells; in order."""


def names_webhook(s: Sighting) -> bool:
    """Whether a refusal is by its own words that of a webhook, or of a certificate that has expired."""
    return any(map(s.text, ("webhook", "service", "certificate")))


def fails_at(
    lines: Sequence[Sighting], owner_of: Mapping[str, Owner], created: Created, rule: RefusalPolicy
) -> datetime | None:
    """When it was known that the webhook fails, by these refusals in order of time; None while that is not known.

    Args:
        lines: What `names_webhook`, without a long silence in between.
        owner_of: By id of a line, whose creation was refused.
        created: What shows that the webhook let others pass since.
        rule: How much must be seen.
    """
    kinds: dict[tuple[str, str], _OfKind] = {}
    checked: datetime | None = None
    for s in lines:
        owner = owner_of[s.id]
        name = (owner.namespace, owner.kind)
        mine = kinds.get(name)
        if mine is None or mine.passed_by(s.at):
            mine = kinds[name] = _OfKind(created.get(name, ()))
        mine.add(owner, s, rule)
        if checked is None or s.at - checked >= _CHECKED_EVERY or s is lines[-1]:
            checked = s.at
            if _is_enough([one for one in kinds.values() if not one.passed_by(s.at)], s, rule):
                return s.seen_at
    return None


@dataclass(slots=True)
class _Refused:
    """What one owner was refused."""

    owner: Owner
    occasions: list[datetime] = field(default_factory=list)
    is_firm: bool = False
    """Whether it was refused in other words than that an answer came too late: under load one may, now and then."""
    is_expired: bool = False


@dataclass(slots=True)
class _OfKind:
    """What owners of one kind in one namespace were refused, since anything was created for one of them."""

    created: Sequence[datetime]
    first: datetime | None = None
    last: datetime | None = None
    refused: dict[str, _Refused] = field(default_factory=dict)
    homes: set[str] = field(default_factory=set)
    """Namespaces of the services behind the webhook."""

    def passed_by(self, at: datetime) -> bool:
        """Whether the webhook let one of them pass after the last refusal, and until `at`."""
        return self.last is not None and bisect_right(self.created, self.last) < bisect_right(
            self.created, at
        )

    def add(self, owner: Owner, s: Sighting, rule: RefusalPolicy) -> None:
        """Count one more refusal, later than those before."""
        self.first, self.last = self.first or s.at, s.at
        mine = self.refused.setdefault(owner.key, _Refused(owner))
        if not mine.occasions or s.at - mine.occasions[-1] >= rule.apart:
            mine.occasions.append(s.at)
        mine.is_firm = mine.is_firm or not s.text("late")
        mine.is_expired = mine.is_expired or bool(s.text("certificate"))
        if home := s.text("service_namespace"):
            self.homes.add(home)


def _is_enough(kinds: Sequence[_OfKind], latest: Sighting, rule: RefusalPolicy) -> bool:
    refused = [one for kind in kinds for one in kind.refused.values()]
    homes = set[str]().union(*(kind.homes for kind in kinds))
    elsewhere = any(one.owner.gpus or one.owner.namespace not in homes for one in refused)
    if not elsewhere:
        return False  # a webhook that only its own namespace asks is no part that others share
    lasted = latest.at - min(kind.first for kind in kinds if kind.first is not None)
    occasions = _apart((at for one in refused for at in one.occasions), rule.apart)
    if lasted >= timedelta(seconds=rule.alone_s) and occasions >= rule.times_alone:
        return True
    firm = sum(one.is_firm or len(one.occasions) > 1 for one in refused)
    if firm < rule.owners and len(refused) < rule.owners_late:
        return False
    if sum(one.is_expired for one in refused) >= rule.owners:
        return occasions >= rule.times_expired
    return lasted >= timedelta(seconds=rule.lasts_s) and occasions >= rule.times


def _apart(moments: Iterable[datetime], apart: timedelta) -> int:
    """How many of these moments are so far apart."""
    count, last = 0, None
    for at in sorted(moments):
        if last is None or at - last >= apart:
            count, last = count + 1, at
    return count

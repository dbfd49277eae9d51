"""What a drain has seen and done, as it stands in the step's result from one round to the next, and as people read it.

The run document keeps it, so a takeover continues from it. It is only for the report: what is evicted is decided anew each round
from the pods that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from connectors.base import Result
from connectors.kubernetes.client import Object
from connectors.kubernetes.objects import name_of
from connectors.kubernetes.pod_roles import role_of
from streams.model.clock import rfc3339

LISTED = 200
"""Pods of one drain that are listed by name; more are counted. A kubelet runs 110 unless it is told otherwise."""
NAMED = 5
"""Pods listed by name in a text; the rest are counted."""


@dataclass(slots=True)
class DrainRecord:
    """`seen` are the pods that the drain was about, by uid: role and name. `since` is when something first kept a pod."""

    evicted: int = 0
    seen: dict[str, tuple[str, str]] = field(default_factory=dict)
    unlisted: int = 0
    since: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    """What keeps each pod that is still there, by its name."""
    first_round: bool = True

    @classmethod
    def of(cls, prior: Result) -> DrainRecord:
        """The record in the result of an earlier round, or a new one."""
        record = cls(first_round="pods" not in prior)
        evicted = prior.get("evicted")
        record.evicted = evicted if isinstance(evicted, int) else 0
        unlisted = prior.get("unlisted")
        record.unlisted = unlisted if isinstance(unlisted, int) else 0
        for line in _lines(prior, "pods"):
            uid, role, name = line.split(" ", 2)
            record.seen[uid] = (role, name)
        for line in _lines(prior, "kept_since"):
            at, by = line.split(" ", 1)
            record.since[by] = at
        for line in _lines(prior, "left"):
            name, why = line.split(": ", 1)
            record.left[name] = why
        return record

    def is_late(self, pod: Object) -> bool:
        """Whether the pod came after the drain had begun."""
        return not self.first_round and not self.unlisted and str(pod["metadata"]["uid"]) not in self.seen

    def saw(self, pods: Iterable[Object]) -> None:
        """Take in the pods of a round."""
        for pod in pods:
            uid = str(pod["metadata"]["uid"])
            if uid in self.seen:
                continue
            if len(self.seen) < LISTED:
                self.seen[uid] = (role_of(pod), name_of(pod))
            else:
                self.unlisted += 1

    def keeps(self, left: Mapping[str, str], now: datetime) -> None:
        """Replace what keeps which pod; who keeps on keeping does so since when that began."""
        self.left = dict(left)
        at = rfc3339(now.replace(microsecond=0))
        self.since = {by: self.since.get(by, at) for by in sorted(set(left.values()))}

    def gone(self, there: Iterable[Object]) -> list[str]:
        """Names of the pods that were seen and are not there any more."""
        uids = {str(pod["metadata"]["uid"]) for pod in there}
        return [name for uid, (_, name) in self.seen.items() if uid not in uids]

    def result(
        self, prior: Result, there: Iterable[Object], waits: Mapping[str, str] | None = None
    ) -> Result:
        """The record as a step's result: `evicted`, `gone`, `left` with the reasons, and what the next round needs.

        `waits` is what pods that are Terminating wait for, by name.
        """
        left = {**self.left, **(waits or {})}
        more = {"unlisted": self.unlisted} if self.unlisted else {}
        return {
            **prior,
            "evicted": self.evicted,
            "pods": tuple(f"{uid} {role} {name}" for uid, (role, name) in self.seen.items()),
            "gone": tuple(self.gone(there)),
            "left": tuple(f"{name}: {why}" for name, why in sorted(left.items())[:LISTED]),
            "kept_since": tuple(f"{at} {by}" for by, at in self.since.items()),
            **more,
        }

    def kept_text(self, node: str) -> str:
        """Who keeps which pods, since when."""
        groups: dict[str, list[str]] = {}
        for name, by in self.left.items():
            groups.setdefault(by, []).append(name)
        texts = [
            f"{by} keeps {names(sorted(pods))} on {node} since {self.since[by][11:19]}"
            for by, pods in sorted(groups.items())
        ]
        return "; ".join(texts)


def names(of: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = len(of) - NAMED
    return ", ".join(of[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _lines(prior: Result, key: str) -> tuple[str, ...]:
    value = prior.get(key)
    return tuple(str(line) for line in value) if isinstance(value, tuple | list) else ()

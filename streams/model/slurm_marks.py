"""What Faultline writes on nodes and jobs of Slurm, so that it knows its own acts again. Pure.

On a node, with the drain itself, in one call:

    Reason    `faultline inc-1: XID 79 …`          the owners, oldest first, separated by commas, and why
    Comment   `… faultline[inc-1:KEY]`             each owner with the key of its effect; a person's resume leaves it there

On a job, before it is put back into the queue:

    AdminComment  `… faultline[inc-1 stop=KEY at=2 start=KEY done]`   which effects stopped and started it; `at` is its count of
                                                                       restarts when it was stopped, `done` that it was released

What others wrote in the same fields stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from streams.model.slurm import SlurmNode

OPTED_OUT = "faultline.dev/managed=false"
"""Anywhere in the comment of a node, or in the comment that a user gave a job: never act on it."""
REASON_CHARS = 200

_MARK = re.compile(r"\s*faultline\[([^\[\]]*)\]", re.ASCII)
_REASON = re.compile(r"faultline (\S+): ", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeOwners:
    """The incidents that hold a node, oldest first, each with the key of its effect."""

    keys: Mapping[str, str]

    @classmethod
    def of(cls, node: SlurmNode) -> Self | None:
        """By its comment, even if the node's state differs now; None without a readable mark."""
        found = _MARK.search(node.comment)
        pairs = [pair.partition(":") for pair in found[1].split(",")] if found else []
        keys = {incident: key for incident, _, key in pairs}
        return cls(keys) if keys and all(i and k for i, k in keys.items()) else None

    def comment(self, before: str) -> str:
        """The comment with this mark in place of the former one."""
        return _marked(before, ",".join(f"{incident}:{key}" for incident, key in self.keys.items()))

    def reason(self, why: str) -> str:
        """The reason of the drain."""
        return f"{self._begin} {' '.join(why.split())[:REASON_CHARS]}"

    def is_reason(self, reason: str) -> bool:
        """Whether a node's reason is still the one that Faultline gave for these owners."""
        return reason.startswith(self._begin)

    @property
    def _begin(self) -> str:
        return f"faultline {','.join(self.keys)}:"

    def why(self, reason: str) -> str:
        """What was told in a reason of ours, without its owners."""
        return _REASON.sub("", reason, count=1)

    def taken_over(self, node: SlurmNode) -> str | None:
        """What somebody else changed since, as a sentence; None while the node is as it was left.

        What Slurm says of a node that does not answer any more is nobody's decision.
        """
        if not node.drained:
            return f"{node.name} was returned to service manually"
        if not node.down and not self.is_reason(node.reason):
            return f"the reason of {node.name} was changed manually to {node.reason!r}"
        return None


@dataclass(frozen=True, slots=True)
class JobMark:
    """Which effects of which incident stopped a job and started it again. `at` counts its restarts before it was stopped."""

    incident: str
    stop: str
    at: int
    start: str = ""
    done: bool = False

    @classmethod
    def of(cls, admin_comment: str) -> Self | None:
        """By the job's AdminComment; None without a readable mark."""
        found = _MARK.search(admin_comment)
        words = found[1].split() if found else []
        said = dict(word.partition("=")[::2] for word in words[1:])
        if not words or not said.get("stop") or not said.get("at", "").isdecimal():
            return None
        return cls(words[0], said["stop"], int(said["at"]), said.get("start", ""), "done" in said)

    @property
    def holds(self) -> bool:
        """True from Faultline's stop to its start."""
        return not self.start

    def started(self, key: str, *, done: bool) -> JobMark:
        """The mark of a job that an effect starts; `done` once it is released."""
        return replace(self, start=key, done=done)

    def comment(self, before: str) -> str:
        """The AdminComment with this mark in place of the former one."""
        start = f" start={self.start}" if self.start else ""
        return _marked(before, f"{self.incident} stop={self.stop} at={self.at}{start}{' done' * self.done}")


def unmarked(text: str) -> str:
    """A comment without our mark."""
    return _MARK.sub("", text).strip()


def owners_in(node: SlurmNode) -> tuple[str, ...]:
    """The incidents whose drain a node bears as it was left; empty where it bears none, or somebody changed it."""
    owners = NodeOwners.of(node)
    return tuple(owners.keys) if owners is not None and owners.taken_over(node) is None else ()


def _marked(before: str, mark: str) -> str:
    return f"{unmarked(before)} faultline[{mark}]".strip()

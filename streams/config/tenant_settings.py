"""Teams that share a cluster: whose a job is, and what that changes.

A job belongs to the first row that fits it. What no row fits belongs to nobody, and is treated as without tenants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from pydantic import Field

from streams.config.rollout_settings import Stage
from streams.config.section import Contradiction, Section
from streams.config.setting_types import Channel, Name


class Tenant(Section):
    """One team. All that is set of namespaces, queues and marks has to fit; patterns are shell patterns."""

    team: Name = Field(description="name of the team, shown and counted by")
    namespaces: tuple[str, ...] = Field((), description="patterns of its jobs' namespaces")
    queues: tuple[str, ...] = Field(
        (), description="patterns of the queues its jobs are in: Kueue's LocalQueue or Volcano's queue"
    )
    marks: tuple[str, ...] = Field(
        (),
        description="patterns of the label or annotation faultline.dev/team of its jobs; whoever may write a job may write it",
    )
    stage: Stage = Field(
        Stage.ACT,
        description="ceiling for what disturbs its jobs: observe: nothing; canary: only canary_jobs, the rest asks; act: as "
        "responder.mode allows. Closing a node disturbs none",
    )
    canary_jobs: tuple[str, ...] = Field(
        (), description="patterns of NAMESPACE/NAME of the jobs that are acted on in stage canary"
    )
    approvers: str = Field(
        "", description="one of responder.approval_groups that is asked about what disturbs its jobs"
    )
    moves_per_h: int | None = Field(
        None,
        ge=0,
        description="its jobs that are moved in an hour, each counted once by a run; moving more needs an approval",
    )
    cordons_per_h: int | None = Field(
        None, ge=0, description="nodes closed under its jobs in an hour; more need an approval"
    )
    channel: Channel = Field(
        "", description="Slack channel of incidents that affect its jobs and nobody else's"
    )

    def contradictions(self) -> Iterator[Contradiction]:
        """A row that fits everything or nothing, and canaries without their stage."""
        given = [patterns for patterns in (self.namespaces, self.queues, self.marks) if patterns]
        if not given:
            yield ("team", "namespaces", "queues", "marks"), f"{self.team}: says of no job that it is its own"
        elif all(any(not pattern.strip("*") for pattern in patterns) for patterns in given):
            keys = ("team", "namespaces", "queues", "marks")
            yield (
                keys,
                f"{self.team}: says of every job that it is its own; what no row fits is nobody's, and needs no row",
            )
        if self.stage is Stage.CANARY and not self.canary_jobs:
            yield ("canary_jobs", "stage"), f"{self.team}: stage canary needs canary_jobs"
        if self.canary_jobs and self.stage is not Stage.CANARY:
            yield ("canary_jobs", "stage"), f"{self.team}: not used in stage {self.stage}"

    def has(self, namespace: str, queue: str | None = None, mark: str | None = None) -> bool:
        """Whether a job is the team's."""
        return all(
            any(fnmatchcase(value or "", pattern) for pattern in patterns)
            for patterns, value in ((self.namespaces, namespace), (self.queues, queue), (self.marks, mark))
            if patterns
        )


def tenant_of(
    rows: Sequence[Tenant], namespace: str, queue: str | None = None, mark: str | None = None
) -> Tenant | None:
    """The team of a job; None where no row fits."""
    return next((row for row in rows if row.has(namespace, queue, mark)), None)


def contradictory(rows: Iterable[Tenant], groups: Iterable[str]) -> Iterator[Contradiction]:
    """Teams with several rows, and approvers that are no group."""
    known, seen = set(groups), set[str]()
    for number, row in enumerate(rows):
        if row.team in seen:
            yield (f"tenants.{number}.team",), f"team {row.team} has several rows"
        seen.add(row.team)
        if row.approvers and row.approvers not in known:
            names = ", ".join(sorted(known)) or "none"
            yield (
                (f"tenants.{number}.approvers", "approval_groups"),
                f"{row.team}: no group {row.approvers}; approval_groups has {names}",
            )

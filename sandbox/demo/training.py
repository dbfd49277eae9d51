"""The training jobs: each makes a step a second while all its ranks run and none runs on a broken node.

That is all the demo knows about recovery: a job whose broken node was not found keeps hanging, whatever the pipeline reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sandbox.demo.cluster_layout import PODS
from sandbox.demo.shippers import Record, RunningPod, pod_line
from sandbox.simulation import framework_logs

STEPS = 50_000
CHECKPOINT_EVERY = 10
STEP_MS = 1000


@dataclass(slots=True)
class Training:
    """One job. `moving_since` is when it made its first step with the pods it has now; None while it is stalled."""

    job: str
    step: int
    moving_since: datetime | None = None
    crashed_until: datetime | None = None
    _pods: frozenset[str] = frozenset()
    _due: datetime | None = None

    def look(self, pods: Iterable[RunningPod], broken: frozenset[str], now: datetime) -> list[Record]:
        """Let the job train up to `now` with these Running pods; returns what it prints."""
        mine = sorted((pod for pod in pods if pod.job == self.job), key=lambda pod: pod.rank)
        if not self._works(mine, broken, now):
            self.moving_since = self._due = None
            return []
        if self._due is None:  # restarted, from the last checkpoint
            uids = frozenset(pod.uid for pod in mine)
            if self._pods and uids != self._pods:
                self.step -= self.step % CHECKPOINT_EVERY
            self._pods = uids
            self._due = now + timedelta(milliseconds=STEP_MS)
            return []
        lines = []
        while self._due <= now:
            self.step += 1
            self.moving_since = self.moving_since or self._due
            lines.append(
                pod_line(mine[0], framework_logs.iteration(self._due, self.step, STEPS, STEP_MS), self._due)
            )
            self._due += timedelta(milliseconds=STEP_MS)
        return lines

    def crash(self, until: datetime) -> None:
        """Its processes have ended by themselves; the launcher starts them again at `until`."""
        self.crashed_until = until

    def _works(self, pods: list[RunningPod], broken: frozenset[str], now: datetime) -> bool:
        if self.crashed_until is not None and now < self.crashed_until:
            return False
        return len(pods) == PODS and not any(pod.node in broken for pod in pods)


@dataclass(slots=True)
class Workload:
    """All jobs, and the broken nodes, on which no job makes progress."""

    trainings: Mapping[str, Training]
    broken: set[str] = field(default_factory=set)

    def look(self, pods: Iterable[RunningPod], now: datetime) -> list[Record]:
        """Let every job train up to `now`; returns what they print."""
        seen, broken = list(pods), frozenset(self.broken)
        return [line for job in self.trainings.values() for line in job.look(seen, broken, now)]

    def moving(self, job: str) -> bool:
        """Whether a job makes progress."""
        return self.trainings[job].moving_since is not None

"""The training jobs as their users see them: a step a second, while every rank is there and none stands on a broken node.

That is all the demo knows about recovery. A job whose culprit was not found keeps hanging here, whatever the pipeline says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sandbox.demo.cluster_layout import PODS
from sandbox.demo.shippers import Record, RunningPod, pod_line

STEPS = 50_000
CHECKPOINT_EVERY = 10
STEP_MS = 1000
SAMPLES_A_STEP = 512


@dataclass(slots=True)
class Training:
    """One job. `moving_since` is when it made its first step with the pods it has now; None while it stands still."""

    job: str
    step: int
    moving_since: datetime | None = None
    crashed_until: datetime | None = None
    stood_since: datetime | None = None
    _pods: frozenset[str] = frozenset()
    _due: datetime | None = None

    def look(self, pods: Iterable[RunningPod], broken: frozenset[str], now: datetime) -> list[Record]:
        """Let the job work up to `now` with these Running pods; what it prints."""
        mine = sorted((pod for pod in pods if pod.job == self.job), key=lambda pod: pod.rank)
        if not self._works(mine, broken, now):
            if self.moving_since is not None:
                self.moving_since, self.stood_since = None, now
            self._due = None
            return []
        if self._due is None:  # begun anew, from the last checkpoint
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
            lines.append(pod_line(mine[0], self._line(self._due), self._due, stream="stdout"))
            self._due += timedelta(milliseconds=STEP_MS)
        return lines

    def crash(self, until: datetime) -> None:
        """Its processes have ended by themselves; the launcher starts them again at `until`."""
        self.crashed_until = until

    def _works(self, pods: list[RunningPod], broken: frozenset[str], now: datetime) -> bool:
        if self.crashed_until is not None and now < self.crashed_until:
            return False
        return len(pods) == PODS and not any(pod.node in broken for pod in pods)

    def _line(self, at: datetime) -> str:
        return (
            f" [{at:%Y-%m-%d %H:%M:%S}] iteration {self.step:8d}/{STEPS:8d} | consumed samples: "
            f"{self.step * SAMPLES_A_STEP:12d} | elapsed time per iteration (ms): {STEP_MS:.1f} | "
            f"learning rate: 1.500000E-04 | lm loss: {7.5 / (1 + self.step / 4000):.6E} | grad norm: 0.412 |"
        )


@dataclass(slots=True)
class Workload:
    """All jobs, and the nodes on which nothing moves any more."""

    trainings: Mapping[str, Training]
    broken: set[str] = field(default_factory=set)

    def look(self, pods: Iterable[RunningPod], now: datetime) -> list[Record]:
        """Let every job work up to `now`."""
        seen, broken = list(pods), frozenset(self.broken)
        return [line for job in self.trainings.values() for line in job.look(seen, broken, now)]

    def moving(self, job: str) -> bool:
        """Whether a job makes progress."""
        return self.trainings[job].moving_since is not None

"""What has been done before for the jobs of an incident, as conditions and plans see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobHistory:
    """`moves` has, by the key of each job, how many seconds before the fault it was moved, the latest first. Moves before a
    diagnosis of its nodes do not count any more.

    `diagnosable`: each of the jobs stays stopped while it is suspended, and has so many nodes that they can vote.
    """

    moves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    diagnosable: bool = False

    @property
    def most_moved(self) -> tuple[float, ...]:
        """The moves of the job that was moved most often."""
        return max(self.moves.values(), key=len, default=())

    def told(self, job: str) -> str:
        """That a job was moved before and failed again, for whoever approves what is done now; empty where it was not."""
        moves = self.moves.get(job, ())
        if not moves:
            return ""
        times = "once" if len(moves) == 1 else "twice" if len(moves) == 2 else f"{len(moves)} times"
        return f"it was moved {times} before, last {_span(moves[0])} before it failed again: this would be move {len(moves) + 1}"


UNKNOWN_HISTORY = JobHistory()


def _span(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min"

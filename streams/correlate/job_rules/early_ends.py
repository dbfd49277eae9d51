"""A node on which small jobs end badly as soon as they start, one after the other, while jobs like them go well on other nodes.

Such a job is too small to be followed, and its end says nothing by itself: programs fail all day, most of them at once. But what
fails by itself fails for whoever started it and wherever it lands. So jobs of one user or one array, and of a user whom nobody
names those with neighbouring numbers, are one voice. Two voices accuse the node, or one whose array goes well elsewhere; but only
where a job that was started after the first of them goes well on another node, and fewer jobs end so on all
other nodes meanwhile than on this one: a storage, a registry or a licence that is gone ends jobs wherever they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from streams.correlate.job_rules.first_failures import NEAR_NUMBERS
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting, split_at_gaps
from streams.correlate.state.incarnations import FiringInterval, firing_intervals
from streams.correlate.state.rows import JobRow, NodeRow, of_kind
from streams.correlate.state.slurm_victims import ENDS_JOBS
from streams.model.entity import SLURM_JOB, JobRef
from streams.model.kinds import SignalKind

_EARLY_END = "slurm_early_end"


def ended_early(row: NodeRow, jobs: Mapping[str, JobRow]) -> list[Sighting]:
    """The ends of jobs that accuse a node, and what says that jobs go well there again, as signals of the node.

    Args:
        row: What is known of the node.
        jobs: What is known of jobs, by key.
    """
    seen = of_kind(row.seen, SignalKind.NODE_CONDITION)
    mine = [s for s in seen if s.text("subtype") == _EARLY_END]
    found = (s for interval in firing_intervals(mine) for s in _of_interval(interval, jobs))
    back = [s for s in mine if not s.firing]
    accusing = list(found)
    return [_as_condition(s) for s in (*accusing, *(back if accusing else ()))]


def _of_interval(interval: FiringInterval, jobs: Mapping[str, JobRow]) -> Iterator[Sighting]:
    for series in split_at_gaps(interval.sightings, lambda s: s.at, policy().early_ends.within):
        # Each job once: one that is put back into the queue may end there again.
        first = {_job(s): s for s in reversed(series)}
        once = sorted(first.values(), key=lambda s: (s.at, s.id))
        if any(_is_enough(once[:count], jobs) for count in range(policy().early_ends.jobs, len(once) + 1)):
            yield from series


def _is_enough(ends: Sequence[Sighting], jobs: Mapping[str, JobRow]) -> bool:
    """Whether they accuse their node, by what was known elsewhere when the last of them came."""
    last, began = ends[-1], ends[0].at - timedelta(seconds=ends[0].number("ran_s") or 0)
    if (last.number("others") or 0) >= len(ends) or not _went_well(last, "elsewhere_s", began):
        return False
    if _went_well(last, "array_elsewhere_s", began):
        return True
    return _count([_voice(s, jobs) for s in ends]) >= policy().early_ends.voices


def _went_well(end: Sighting, name: str, began: datetime) -> bool:
    """Whether the job elsewhere that an attribute tells of was started after the first one here."""
    ago = end.number(name)
    return ago is not None and end.at - timedelta(seconds=ago) >= began


@dataclass(frozen=True, slots=True)
class _Voice:
    """A job, and whose it is: its user's number, which a node's daemon logs of batch jobs, and their name in the inventory."""

    number: int
    array: str | None
    uid: str | None
    owner: str | None

    def is_as(self, other: _Voice) -> bool:
        """Whether both may be one program of one user."""
        if self.array is not None and self.array == other.array:
            return True
        for mine, theirs in ((self.uid, other.uid), (self.owner, other.owner)):
            if mine is not None and theirs is not None:
                return mine == theirs
        return abs(self.number - other.number) <= NEAR_NUMBERS


def _voice(s: Sighting, jobs: Mapping[str, JobRow]) -> _Voice:
    name = _job(s)
    array, _, task = name.partition("_")
    row = jobs.get(JobRef(SLURM_JOB, "", name).key) or JobRow()
    owner = row.fact.owner if row.fact is not None else None
    return _Voice(int(array) if array.isdigit() else 0, array if task else None, row.user, owner)


def _count(voices: Iterable[_Voice]) -> int:
    """How many users or programs these are at least."""
    groups: list[list[_Voice]] = []
    for one in voices:
        kin = [group for group in groups if any(map(one.is_as, group))]
        groups = [group for group in groups if group not in kin] + [[one, *(v for g in kin for v in g)]]
    return len(groups)


def _job(s: Sighting) -> str:
    return s.text("array_task") or s.text("job_id")


def _as_condition(s: Sighting) -> Sighting:
    kept = {name: s.attributes[name] for name in ("job_id", "array_task") if name in s.attributes}
    return replace(s, attributes={**kept, "subtype": ENDS_JOBS})

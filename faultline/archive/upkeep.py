"""What is done for the files of a partition beside writing: days that are over become few files, what compacted topics held at
the beginning of today is written down, days that are too old are deleted.

What is to do is found from the files, so a pass may be cut short or made twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from faultline.archive.daily_state import write_daily_state
from faultline.archive.folder import Archive
from faultline.archive.merge import MOST_FILES, merge
from streams.kafka.topics import Topic
from streams.model.crash_points import CrashHook, ignore

_WRITING_AT_MOST = timedelta(days=1)
"""A file that has had no name for so long was left by a process that ended."""


def keep_up(
    archive: Archive,
    topic: Topic,
    partition: int,
    now: datetime,
    *,
    keep_days: int | None = None,
    beat: Callable[[], None] = lambda: None,
    at: CrashHook = ignore,
) -> int:
    """One pass over the files of a partition; returns how many files were merged away or deleted.

    Raises:
        Unreachable: when the archive does not answer.
    """
    today = now.astimezone(UTC).date()
    parts = [one.part for one in archive.parts(topic.name) if one.part.partition == partition]
    gone = 0
    for place, files in Counter(part.place for part in parts).items():
        most = MOST_FILES if place.day >= today else 1
        if files > most:
            gone += merge(archive, place, partition, most_files=most, beat=beat, at=at)
            beat()
    states = [part for part in archive.states(topic.name) if part.partition == partition]
    if topic.cleanup == "compact":
        places = {part.place for part in parts} | {part.place for part in states}
        for cluster in sorted({place.cluster for place in places if place.cluster}):
            write_daily_state(archive, topic, cluster, partition, today, beat)
    old = archive.leftovers(topic.name, now - _WRITING_AT_MOST)
    if keep_days is not None:
        # The state of today is written: what compacted topics still hold is in it.
        oldest = today - timedelta(days=keep_days)
        old += [part.path for part in parts if part.place.day < oldest]
        old += [part.path for part in states if part.place.day < oldest]
    archive.delete(old)
    return gone + len(old)

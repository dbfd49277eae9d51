"""Times that come again, as crontab(5) writes them: `minute hour day-of-month month day-of-week`.

Times are those on the wall of a time zone: one that a clock change leaves out is counted with the offset from before the change,
one that comes twice counts the first time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_LARGEST_CLOCK_CHANGE = timedelta(hours=3)


def check_cron(source: str) -> None:
    """Raise ValueError that names the field at fault when `source` is no expression of five fields that can ever match."""
    # cronsim takes a sixth field for seconds, in front: whoever writes one by mistake would get other times than meant.
    if (count := len(source.split())) != 5:
        raise ValueError(
            f"{source!r} has {count} fields; minute hour day-of-month month day-of-week are five"
        )
    try:
        CronSim(source, datetime.min)
    except CronSimError as error:
        raise ValueError(f"{source!r}: {str(error).lower()}") from error


def check_zone(name: str) -> str:
    """The name of a time zone as it is. Raises ValueError when there is none of that name."""
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"there is no time zone {name!r}") from error
    return name


def latest_cron(source: str, now: datetime, zone: ZoneInfo, within: timedelta) -> datetime | None:
    """The latest time at or before `now` (aware) that is not longer ago than `within`, in UTC; None when there is none."""
    # Without a zone cronsim counts by the wall alone. With one it starts at the wall's `now`, and in the hour that comes twice
    # it misses what was due later in its first pass. Hence the start ahead of `now`, too.
    ahead = now.astimezone(zone).replace(tzinfo=None) + _LARGEST_CLOCK_CHANGE
    for wall in CronSim(source, ahead, reverse=True):
        at = wall.replace(tzinfo=zone).astimezone(UTC)
        if at <= now:
            return at if now - at <= within else None
    return None

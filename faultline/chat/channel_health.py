"""Channels that cannot be posted to: archived, deleted, without the app, or all of them where the token is revoked.

Work for a broken channel waits, and one task at a time is tried, less and less often; so a channel that is mended goes on by
itself, and one that is not makes no traffic. Kept in memory only: after a restart the first try tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

log = structlog.get_logger(__name__)

FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 300.0
EVERY_CHANNEL = ""
"""Stands for all channels: nothing can be posted anywhere."""


@dataclass(slots=True)
class Breakage:
    """Since when and why a channel is broken, and when to try again."""

    reason: str
    since: datetime
    tries: int
    next_at: datetime


class ChannelHealth:
    """What is broken now, by channel."""

    def __init__(self) -> None:
        self.broken: dict[str, Breakage] = {}

    def assume(self, channel: str, now: datetime) -> None:
        """It was broken when a process before this one stopped: to be tried now, and news when it works."""
        self.broken[channel] = Breakage("broken before the restart", now, tries=0, next_at=now)

    def failed(self, channel: str, reason: str, now: datetime) -> bool:
        """A try was refused for the channel's sake. True when the channel is newly broken."""
        known = self.broken.get(channel)
        tries = known.tries + 1 if known is not None else 0
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(tries, 10))
        since = known.since if known is not None else now
        self.broken[channel] = Breakage(reason, since, tries, now + timedelta(seconds=pause_s))
        if known is None:
            what = (
                "no channel can be posted to" if channel == EVERY_CHANNEL else "channel cannot be posted to"
            )
            log.error(what, channel=channel, reason=reason)
        return known is None

    def worked(self, channel: str, now: datetime) -> None:
        """A message got there."""
        for name in (channel, EVERY_CHANNEL):
            mended = self.broken.pop(name, None)
            if mended is not None:
                after_s = round((now - mended.since).total_seconds())
                log.info("channel works again", channel=name, after_s=after_s, reason=mended.reason)

    def paused_until(self, channel: str) -> datetime | None:
        """Until when nothing is tried there."""
        ends = [self.broken[name].next_at for name in (channel, EVERY_CHANNEL) if name in self.broken]
        return max(ends, default=None)

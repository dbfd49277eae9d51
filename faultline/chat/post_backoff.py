"""How long work on messages pauses after a failed or refused call to the chat system."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from faultline.chat.thread_plan import Doing
from streams.model.clock import Clock
from streams.model.thread import Post

MAX_PAUSE_S = 60.0
"""The longest pause of one kind of work while the chat system does not answer."""
MAX_PARKED_S = 600.0
"""The longest a refused message waits for its next try: the app may be invited to the channel meanwhile."""


class PostBackoff:
    """Pauses by kind of work, so that a chat that refuses edits still gets new messages. Kept in memory only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.paused: dict[Doing, datetime] = {}
        """Until when a kind of work is paused."""
        self._failures: dict[Doing, int] = {}

    def pause(self, doing: Doing, after_s: float) -> datetime:
        """Pause this kind of work for at least `after_s`, and longer with each failure in a row; returns until when."""
        failures = self._failures.get(doing, 0)
        self._failures[doing] = failures + 1
        pause_s = max(after_s, min(MAX_PAUSE_S, 0.5 * 2 ** min(failures, 10)))
        self.paused[doing] = self._clock() + timedelta(seconds=pause_s)
        return self.paused[doing]

    def succeeded(self, doing: Doing) -> None:
        """End the pause of this kind of work."""
        self._failures.pop(doing, None)
        self.paused.pop(doing, None)

    def parked(self, post: Post) -> Post:
        """The refused post with its next try, after a pause that doubles each time."""
        pause_s = min(MAX_PARKED_S, 15.0 * 2 ** min(post.failures, 10))
        return replace(post, due_at=self._clock() + timedelta(seconds=pause_s), failures=post.failures + 1)

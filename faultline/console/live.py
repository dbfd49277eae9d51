"""Live updates: each page follows what changes by server-sent events, and asks for itself again when something did.

An event holds no content, only that there is news. So a reader who is slow, asleep or gone costs a set of ids and one blocked
write, and one who comes back sees the present, never a backlog.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web

from faultline.live_view.view import Changes, LiveView

PAUSE_S = 1.0
"""The shortest time between two events of one reader: a storm changes every list at once."""
CROWD = 50
"""With more readers than this the pause grows with their number, so that all of them together cost the same."""
BEAT_S = 15.0
"""A line at least this often, so that proxies keep the connection and dead ones are noticed."""
STUCK_S = 30.0
"""A reader that has not taken anything for this long is cut off; its browser comes back by itself."""
RETRY_MS = 3_000
FULL_RETRY_MS = 30_000


@dataclass(frozen=True, slots=True)
class Interest:
    """What a page shows: incidents or clusters by name, or everything."""

    names: frozenset[str] | None = None

    def covers(self, changed: tuple[str, ...]) -> bool:
        """Whether a change is shown on the page."""
        return bool(changed) and (self.names is None or not self.names.isdisjoint(changed))


class LiveUpdates:
    """The readers of all pages, `limit` at most."""

    def __init__(
        self, view: LiveView, limit: int, *, pause_s: float = PAUSE_S, beat_s: float = BEAT_S
    ) -> None:
        self._view = view
        self._limit = limit
        self._pause_s = pause_s
        self._beat_s = beat_s
        self._ended = asyncio.Event()
        self.readers = 0

    def end(self) -> None:
        """Let every reader go: the process is about to end."""
        self._ended.set()

    async def serve(
        self, request: web.Request, response: web.StreamResponse, interest: Interest, left_s: float | None
    ) -> web.StreamResponse:
        """Send events until the reader leaves, its session ends (`left_s` seconds from now) or the process does."""
        response.content_type = "text/event-stream"
        response.charset = "utf-8"
        # Some proxies collect what they pass on unless told not to.
        response.headers["X-Accel-Buffering"] = "no"
        await response.prepare(request)
        if self.readers >= self._limit:
            # Refused with an error a browser would never ask again; so it is told to come back later, and to look meanwhile.
            await response.write(b"retry: %d\nevent: full\ndata: -\n\n" % FULL_RETRY_MS)
            return response
        self.readers += 1
        try:
            with self._view.changes() as changes:
                async with asyncio.timeout(left_s):
                    await self._send(response, changes, interest)
        except TimeoutError:
            pass
        except ConnectionResetError:
            pass  # the reader has left
        finally:
            self.readers -= 1
        return response

    async def _send(self, response: web.StreamResponse, changes: Changes, interest: Interest) -> None:
        # The first event covers what changed between the page and this connection.
        await _write(response, b"retry: %d\nevent: changed\ndata: -\n\n" % RETRY_MS)
        news = asyncio.ensure_future(changes.wait())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            while not ended.done():
                await asyncio.wait((news, ended), timeout=self._beat_s, return_when=asyncio.FIRST_COMPLETED)
                if not news.done():
                    await _write(response, b"event: beat\ndata: -\n\n")
                    continue
                covered = interest.covers(news.result())
                news = asyncio.ensure_future(changes.wait())
                if covered:
                    await _write(response, b"event: changed\ndata: -\n\n")
                crowd = max(1.0, self.readers / CROWD)
                await asyncio.wait((ended,), timeout=self._pause_s * crowd)
        finally:
            news.cancel()
            ended.cancel()


async def _write(response: web.StreamResponse, event: bytes) -> None:
    async with asyncio.timeout(STUCK_S):
        await response.write(event)

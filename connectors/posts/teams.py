"""Posts in a Teams channel through a workflow that takes webhook requests (tier `teams-webhook`).

Such a workflow can neither edit nor reply: every post stands by itself, and names its incident. It answers 202 as soon as it has
the request; whether the flow then posts, nobody learns here (a flow whose owner has left, or a connection that has expired, loses
posts in silence: `docs/people/other-sinks.md`).
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import orjson

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused, Retry
from connectors.http import Ambiguous, Throttled, deliver, http_client, translated
from connectors.posts.post import POST, Remembered, post_id, post_of, unclear
from connectors.rendering.adaptive_card import adaptive_card
from streams.config.post_settings import TeamsSettings
from streams.model.errors import ConfigError, Temporary

MAX_CARD_BYTES = 24_000
"""Teams refuses messages above about 28 KB; the flow and Teams wrap the card in some text of their own."""

_THROTTLED_S = 30.0
"""The pause where none was asked for: Teams counts posts per channel in windows of seconds up to an hour."""


class Teams:
    """`post`. What may have been posted is not sent again, unless `repeat_unclear` asks for a copy rather than a gap."""

    actions = frozenset({POST})

    def __init__(self, settings: TeamsSettings) -> None:
        if settings.url is None:
            raise ConfigError("posts.teams.url is not set")
        parts = urlsplit(settings.url.get_secret_value())
        self._path = parts.path + (f"?{parts.query}" if parts.query else "")
        self._settings = settings
        self._client = http_client(f"{parts.scheme}://{parts.netloc}", timeout_s=settings.timeout_s)
        self._made = Remembered[AlreadyDone]()
        # One at a time: posts appear in the order they were made, and far below the four a second that a flow takes.
        self._turn = asyncio.Lock()

    async def close(self) -> None:
        """Close connections."""
        await self._client.aclose()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Post it, once."""
        async with self._turn:
            if (known := self._made.get(effect.key)) is not None:
                return known
            return await translated(self._post(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """What is known without asking: a flow has no way to tell."""
        if (known := self._made.get(effect.key)) is not None:
            return known
        if self._settings.repeat_unclear:
            return Absent(
                "Teams cannot be asked, and a copy is preferred to a gap (posts.teams.repeat_unclear)"
            )
        return unclear("Teams cannot be asked, and a copy would show")

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Never: a workflow cannot take back what it posted."""
        return Refused("a post in Teams cannot be taken back through a workflow")

    async def _post(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        post = post_of(effect)
        card = adaptive_card(post.message, MAX_CARD_BYTES, subject=post.subject)
        content = orjson.dumps(
            {
                "type": "message",
                "attachments": [
                    {
                        "contentType": "application/vnd.microsoft.card.adaptive",
                        "contentUrl": None,
                        "content": card,
                    }
                ],
            }
        )
        headers = {"Content-Type": "application/json", "X-Faultline-Id": post_id(effect)}
        try:
            await deliver(
                self._client,
                self._path,
                content,
                lease=lease,
                deadline_s=self._settings.timeout_s,
                headers=headers,
            )
        except Ambiguous as error:
            if not self._settings.repeat_unclear:
                self._made.put(effect.key, unclear(str(error)))
            raise
        except Temporary as error:
            pause = _THROTTLED_S if error.retry_after_s is None else error.retry_after_s
            return Retry(pause, str(error), asked=isinstance(error, Throttled))
        self._made.put(effect.key, AlreadyDone())
        return Done(detail="taken by the Teams workflow")

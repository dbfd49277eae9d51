"""Posts as signed CloudEvents to one receiver.

The body is a CloudEvent 1.0 in structured JSON; its `data` has the neutral blocks, the same as plain text, and the ids. The
headers are those of Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature` (HMAC-SHA256 over id, timestamp and
body). Every copy of a post has the same id and body, so what may have been lost is sent again and a receiver folds the copies.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused
from connectors.http import deliver, http_client, translated
from connectors.posts.post import POST, Post, Remembered, post_id, post_of
from connectors.rendering.neutral import neutral
from connectors.rendering.text import text
from streams.config.post_settings import WebhookSettings, secret_bytes
from streams.model.errors import ConfigError

EVENT_TYPE = "io.faultline.post.v1"
MAX_MESSAGE_BYTES = 256 * 1024
MAX_TEXT = 20_000

_ALREADY_REPORTED = 208


class Webhook:
    """`post`. Sent until the receiver has said yes or no; it folds copies by `webhook-id`, which is the event's `id`."""

    actions = frozenset({POST})

    def __init__(self, settings: WebhookSettings, *, clock: Callable[[], float] = time.time) -> None:
        if settings.url is None or settings.secret is None:
            raise ConfigError("posts.webhook.url and posts.webhook.secret are not set")
        parts = urlsplit(settings.url.get_secret_value())
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        secrets = [one for one in (settings.secret, settings.old_secret) if one is not None]
        self._keys = [secret_bytes(one.get_secret_value()) for one in secrets]
        self._settings = settings
        self._clock = clock
        self._client = http_client(f"{parts.scheme}://{parts.netloc}", timeout_s=settings.timeout_s)
        self._made = Remembered[AlreadyDone]()
        # Waiting here and not in the client: there, time in the queue would count as time without an answer.
        self._places = asyncio.Semaphore(settings.at_once)

    async def close(self) -> None:
        """Close connections."""
        await self._client.aclose()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Send it, unless this process knows that it arrived."""
        if (known := self._made.get(effect.key)) is not None:
            return known
        async with self._places:
            return await translated(self._post(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """A receiver cannot be asked. Where this process does not know better, it is sent again: the id makes that harmless."""
        return self._made.get(effect.key) or Absent(
            "a receiver cannot be asked, and folds copies by their id"
        )

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Never: what was received cannot be taken back."""
        return Refused("an event that was received cannot be taken back")

    async def _post(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        name, content = post_id(effect), orjson.dumps(self._event(effect, post_of(effect)))
        timestamp = int(self._clock())
        headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "webhook-id": name,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(signature(key, name, timestamp, content) for key in self._keys),
        }
        status = await deliver(
            self._client,
            self._path,
            content,
            lease=lease,
            deadline_s=self._settings.timeout_s,
            headers=headers,
        )
        found = AlreadyDone({"id": name})
        self._made.put(effect.key, found)
        return found if status == _ALREADY_REPORTED else Done({"id": name}, "taken by the webhook's receiver")

    def _event(self, effect: Effect, post: Post) -> dict[str, Any]:
        """The event. Nothing in it depends on when or how often it is sent: copies are equal byte for byte."""
        return {
            "specversion": "1.0",
            "id": post_id(effect),
            "source": f"{self._settings.source.rstrip('/')}/{quote(effect.cluster, safe='')}",
            "type": EVENT_TYPE,
            "subject": post.incident or post.thread,
            "datacontenttype": "application/json",
            "data": {
                "cluster": effect.cluster,
                "incident": post.incident,
                "run": effect.run,
                "thread": post.thread,
                "first": post.first,
                "title": post.subject,
                "message": neutral(post.message, MAX_MESSAGE_BYTES),
                "text": text(post.message, MAX_TEXT),
            },
        }


def signature(key: bytes, name: str, timestamp: int, content: bytes) -> str:
    """The signature of one delivery: scheme `v1` of Standard Webhooks."""
    signed = b"%b.%d.%b" % (name.encode(), timestamp, content)
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()

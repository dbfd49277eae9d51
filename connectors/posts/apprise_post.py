"""Posts through Apprise, for the many services that have no connector here.

Apprise says only whether a service took a post, not why it did not, and cannot ask a service what it has. So each service gets a
post at most once: a failure, a timeout and a crash in between are told and not repeated. It runs in threads of its own.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from connectors.base import AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused, Result, Unknown
from connectors.http import translated
from connectors.posts.post import POST, Post, Remembered, post_of, unclear
from connectors.rendering.text import text, without_mentions
from streams.config.post_settings import AppriseSettings
from streams.model.errors import ConfigError

log = structlog.get_logger(__name__)

if TYPE_CHECKING:
    from apprise import Apprise

MAX_BODY = 4_000
"""Characters; Apprise cuts them further for services that take less."""


class ApprisePost:
    """`post`. The outcome is `Done` when at least one service took it, and names those that did not."""

    actions = frozenset({POST})

    def __init__(self, settings: AppriseSettings) -> None:
        if not settings.urls:
            raise ConfigError("posts.apprise.urls is not set")
        self._services = [
            _service(number, url.get_secret_value()) for number, url in enumerate(settings.urls, 1)
        ]
        self._timeout_s = settings.timeout_s
        self._made = Remembered[AlreadyDone]()
        self._turn = asyncio.Lock()
        # Not the loop's own threads: a service that hangs must not hold up name lookups of others. One per service, since posts
        # come one after another; a thread that is left behind by a timeout makes the next post to its service wait.
        self._threads = ThreadPoolExecutor(len(self._services), "apprise")

    async def close(self) -> None:
        """Stop waiting for the threads; a post that still hangs ends with its own timeout."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Post it to every service, each at most once."""
        async with self._turn:
            return self._made.get(effect.key) or await translated(self._post(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """What this process knows; else it stays unclear, and is not repeated."""
        return self._made.get(effect.key) or unclear("Apprise cannot ask, and a copy would show")

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Never: Apprise cannot take back what it posted."""
        return Refused("a post through Apprise cannot be taken back")

    async def _post(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        post = post_of(effect)
        lease.check()
        taken = await asyncio.gather(*(self._told(service, post) for _, service in self._services))
        missed = [name for (name, _), told in zip(self._services, taken, strict=True) if not told]
        result: Result = {"missed": tuple(missed)}
        if missed:
            log.warning("a service did not say that it took a post", services=missed, incident=post.incident)
        if len(missed) == len(self._services):
            self._made.put(effect.key, unclear("no service said that it took it"))
            return Unknown("no service said that it took the post")
        detail = f"not taken, and not repeated: {', '.join(missed)}" if missed else "taken by every service"
        self._made.put(effect.key, AlreadyDone(result, detail))
        return Done(result, detail)

    async def _told(self, service: Apprise, post: Post) -> bool:
        """Whether the service said within its time that it took the post."""
        from apprise import NotifyFormat

        title = without_mentions(post.subject)
        body = without_mentions(text(post.message, MAX_BODY))

        def notify() -> bool:
            # Told to be text, Apprise escapes it for whatever markup the service reads.
            return bool(
                service.notify(
                    body=body,
                    title=title,
                    body_format=NotifyFormat.TEXT,
                    interpret_escapes=False,
                    timeout=self._timeout_s,
                )
            )

        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, notify)
        except TimeoutError:
            return False


def _service(number: int, url: str) -> tuple[str, Apprise]:
    """A service and what to call it: its place in the settings and its kind, for its URL holds credentials."""
    try:
        from apprise import Apprise
    except ModuleNotFoundError as error:
        raise ConfigError(
            "posts.apprise.urls is set, but Apprise is not installed: install faultline[apprise], or unset it"
        ) from error
    service = Apprise()
    if not service.add(url):
        raise ConfigError(f"posts.apprise.urls: URL number {number} is not one that Apprise knows")
    return f"{number} ({urlsplit(url).scheme})", service

"""The connector for Slack threads: a root message, replies, and edits in place, each message once.

Slack has no idempotency keys for bots, so a post is never repeated blindly. Every message carries its key as metadata; after
a cut connection the channel (or the thread) is read twice with a pause in between, and only then is the message posted again.
A duplicate that appears later is deleted; the oldest message stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, LeaseHeld, Outcome, Refused
from connectors.chat.rate_limits import Limits
from connectors.chat.slack_api import EVENT_TYPE, Broken, Posted, SlackApi
from connectors.chat.slack_blocks import render
from connectors.http import translated
from streams.config.connector_settings import SlackSettings
from streams.model.codec import decode
from streams.model.errors import BadInput, Permanent
from streams.model.message import Message

log = structlog.get_logger(__name__)

BROKEN_PAUSE_S = 15.0
"""When to try again what waits for a person."""


class Slack:
    """`open_thread`, `reply`, `edit`.

    Targets: `Channel <id>`, for a reply `Thread <ts>`, for an edit `Message <ts>`, the last two in the namespace of the
    channel. An edit has the key of the message it edits. Results: `channel`, `ts`. `Blocked` by `channel`, `token` or
    `reading` where a person has to mend that first.

    Params: `message` (an encoded `Message`), `since` (seconds since the epoch: no copy can be older), `fresh` (true when the
    caller knows that this is the first attempt: saves the lookup), for the edit of a reply `thread_ts`.
    """

    actions = frozenset({"open_thread", "reply", "edit"})

    def __init__(
        self,
        settings: SlackSettings,
        *,
        limits: Limits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if limits is None:
            limits = Limits(posts_per_s=settings.posts_per_s, calls_per_minute=settings.calls_per_minute)
        self._api = SlackApi(settings, limits)
        self._lag_s = settings.history_lag_s
        self._answers = settings.takes_answers
        self._rich = settings.blocks == "rich"
        self._sleep = sleep

    async def close(self) -> None:
        """Close connections."""
        await self._api.close()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Post the message unless it is there; edit an existing one."""
        return await translated(
            _unless_broken(
                self._edit(effect, lease) if effect.action == "edit" else self._post(effect, lease)
            )
        )

    async def lookup(self, effect: Effect) -> Outcome:
        """Look for the message by its key, twice. For an edit: check what the message shows. `Refused` when it is deleted."""
        return await translated(
            _unless_broken(
                self._lookup_edit(effect) if effect.action == "edit" else self._lookup_post(effect)
            )
        )

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Messages stay: people have read them. Later changes are shown by an edit."""
        return Refused("messages cannot be undone, only edited")

    async def _post(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        channel = _channel(effect)
        content = self._content(effect)
        copies = [] if effect.params.get("fresh") is True else await self._copies(effect)
        if copies:
            await self._remove(channel, [str(copy["ts"]) for copy in copies[1:]], lease)
            return AlreadyDone({"channel": channel, "ts": str(copies[0]["ts"])})
        if effect.action == "reply":
            content["thread_ts"] = effect.target.name
        ts = await self._api.post(channel, content, lease)
        return Done({"channel": channel, "ts": ts})

    async def _remove(self, channel: str, copies: list[str], lease: LeaseHeld) -> None:
        for ts in copies:
            try:
                await self._api.delete(channel, ts, lease)
            except Permanent as error:
                # The first message is fine, and that is what was asked for.
                log.warning("could not delete duplicate message", channel=channel, ts=ts, reason=str(error))

    async def _lookup_post(self, effect: Effect) -> Outcome:
        copies = await self._copies(effect)
        if not copies:
            await self._sleep(self._lag_s)
            copies = await self._copies(effect)
        if not copies:
            return Absent("no message carries its key")
        return AlreadyDone({"channel": _channel(effect), "ts": str(copies[0]["ts"])})

    async def _edit(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        channel, ts = _channel(effect), effect.target.name
        await self._api.update(channel, ts, self._content(effect), lease)
        return Done({"channel": channel, "ts": ts})

    async def _lookup_edit(self, effect: Effect) -> Outcome:
        channel, ts = _channel(effect), effect.target.name
        thread_ts = effect.params.get("thread_ts")
        around = (
            self._api.replies(channel, str(thread_ts), oldest=ts, latest=ts)
            if thread_ts
            else self._api.history(channel, oldest=ts, latest=ts)
        )
        async for message in around:
            if message.get("ts") == ts and message.get("subtype") != "tombstone":
                shown = _payload(message).get("digest") == _message(effect).digest
                done = AlreadyDone({"channel": channel, "ts": ts})
                return done if shown else Absent("it shows something else")
        return Refused("the message was deleted")

    async def _copies(self, effect: Effect) -> list[Posted]:
        """Our messages with the effect's key, oldest first."""
        channel, since = _channel(effect), str(effect.params.get("since", "0"))
        found = (
            self._api.replies(channel, effect.target.name, oldest=since)
            if effect.action == "reply"
            else self._api.history(channel, oldest=since)
        )
        ours = await self._api.bot_id()
        copies = [
            message
            async for message in found
            if _payload(message).get("key") == effect.key and message.get("bot_id", ours) == ours
        ]
        return sorted(copies, key=lambda message: str(message["ts"]))

    def _content(self, effect: Effect) -> dict[str, Any]:
        message = _message(effect)
        payload = {"incident": effect.incident, "key": effect.key, "digest": message.digest}
        return {
            **render(message, answers=self._answers, rich=self._rich),
            "metadata": {"event_type": EVENT_TYPE, "event_payload": payload},
            "unfurl_links": False,
            "unfurl_media": False,
        }


async def _unless_broken(call: Awaitable[Outcome]) -> Outcome:
    try:
        return await call
    except Broken as error:
        return Blocked(error.what, str(error), after_s=BROKEN_PAUSE_S)


def _message(effect: Effect) -> Message:
    try:
        return decode(Message, str(effect.params.get("message", "")))
    except BadInput as error:
        raise Permanent(f"{effect.action} without a message to show: {error}") from error


def _channel(effect: Effect) -> str:
    return effect.target.name if effect.action == "open_thread" else str(effect.target.namespace)


def _payload(message: Posted) -> dict[str, Any]:
    metadata = message.get("metadata") or {}
    payload = metadata.get("event_payload")
    return payload if metadata.get("event_type") == EVENT_TYPE and isinstance(payload, dict) else {}

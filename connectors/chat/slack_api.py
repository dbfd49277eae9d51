"""The part of Slack's Web API that threads need: typed errors, rate limits, no retries.

Slack answers 200 with `ok: false` and an error code. The codes that mean "later" and "unknown" are listed here; all others
are refusals, and some of those concern a whole channel or the token. Install the app as an internal one: since 2025
conversations.history and .replies are throttled for commercially distributed apps outside the marketplace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from connectors.base import LeaseHeld
from connectors.chat.rate_limits import Limits
from connectors.http import Ambiguous, Rejected, change, http_client, read
from streams.config.connector_settings import SlackSettings
from streams.model.errors import ConfigError, Fenced, Temporary

EVENT_TYPE = "faultline_thread"
"""Metadata of every message we post: its payload holds the incident and the key, and no secret, because all apps can read it."""

_LATER = frozenset({"ratelimited", "rate_limited", "request_timeout", "team_added_to_org"})
_UNCERTAIN = frozenset({"internal_error", "fatal_error", "service_unavailable"})
_CHANNEL = frozenset({
    "channel_not_found", "is_archived", "not_in_channel", "restricted_action", "restricted_action_read_only_channel",
    "restricted_action_thread_only_channel", "restricted_action_non_threadable_channel",
})  # fmt: skip
"""Codes of a channel that was archived, deleted, or closed to the app."""
_TOKEN = frozenset({
    "not_authed", "invalid_auth", "account_inactive", "token_revoked", "token_expired", "no_permission", "missing_scope",
    "org_login_required", "access_denied", "ekm_access_denied", "accesslimited", "not_allowed_token_type",
})  # fmt: skip
"""Codes of a token that was revoked, or may not do what is asked."""
_DEFAULT_PAUSE_S = 30.0
_PAGE = 200

Posted = Mapping[str, Any]
"""A message as conversations.history shows it."""


BrokenPart = Literal["channel", "token", "reading"]


class Broken(Rejected):
    """Nothing of this kind can be done until a person mends the `channel` or the `token`. `reading` alone is what fails where
    the app may post and not read."""

    def __init__(self, message: str, *, body: Mapping[str, Any], what: BrokenPart) -> None:
        super().__init__(message, status=200, body=body)
        self.what = what


class SlackApi:
    """The requests. Every method raises what `connectors.http.read` and `change` raise."""

    def __init__(self, settings: SlackSettings, limits: Limits) -> None:
        if settings.token is None:
            raise ConfigError("slack.token: not set, so nothing can be posted")
        self._limits = limits
        self._bot_id: str | None = None
        self._http = http_client(
            settings.base_url,
            timeout_s=settings.timeout_s,
            headers={"Authorization": f"Bearer {settings.token.get_secret_value()}"},
        )

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def bot_id(self) -> str:
        """Our own bot id: another app's message is never taken for ours, whatever its metadata says."""
        if self._bot_id is None:
            self._bot_id = str((await self._read("auth.test", "", {})).get("bot_id", ""))
        return self._bot_id

    async def post(self, channel: str, content: Mapping[str, Any], lease: LeaseHeld) -> str:
        """chat.postMessage, sent once. Returns the message's `ts`, the only id it has."""
        answer = await self._change("chat.postMessage", channel, content, lease)
        if not isinstance(answer.get("ts"), str):
            raise Ambiguous("Slack took the message but did not say which it became")
        return str(answer["ts"])

    async def update(self, channel: str, ts: str, content: Mapping[str, Any], lease: LeaseHeld) -> None:
        """chat.update: the whole message is replaced, its metadata too."""
        await self._change("chat.update", channel, {"ts": ts, **content}, lease)

    async def delete(self, channel: str, ts: str, lease: LeaseHeld) -> None:
        """chat.delete, for a copy of ours; one that is gone already is fine."""
        try:
            await self._change("chat.delete", channel, {"ts": ts}, lease)
        except Rejected as error:
            if error.body.get("error") != "message_not_found":
                raise

    async def history(self, channel: str, *, oldest: str, latest: str | None = None) -> AsyncIterator[Posted]:
        """Messages of a channel from `oldest` on (inclusive), page by page, newest first."""
        async for message in self._pages("conversations.history", channel, {"oldest": oldest}, latest):
            yield message

    async def replies(
        self, channel: str, thread_ts: str, *, oldest: str = "0", latest: str | None = None
    ) -> AsyncIterator[Posted]:
        """A thread from `oldest` on: its root and its replies, oldest first. Nothing when the root is gone."""
        params = {"ts": thread_ts, "oldest": oldest}
        try:
            async for message in self._pages("conversations.replies", channel, params, latest):
                yield message
        except Rejected as error:
            if error.body.get("error") != "thread_not_found":
                raise

    async def _pages(
        self, method: str, channel: str, params: Mapping[str, str], latest: str | None
    ) -> AsyncIterator[Posted]:
        asked: dict[str, str] = {
            "channel": channel,
            "inclusive": "true",
            "include_all_metadata": "true",
            "limit": str(_PAGE),
            **params,
        }
        if latest is not None:
            asked["latest"] = latest
        while True:
            page = await self._read(method, channel, asked)
            for message in page.get("messages", []):
                yield message
            cursor = (page.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return
            asked["cursor"] = cursor

    async def _read(self, method: str, channel: str, params: Mapping[str, str]) -> dict[str, Any]:
        await self._limits.take(method, channel)
        try:
            answer = await read(self._http, "GET", method, params=params)
        except Temporary as error:
            self._hold_back(method, channel, error)
            raise
        return _checked(method, answer, uncertain=Temporary)

    async def _change(
        self, method: str, channel: str, content: Mapping[str, Any], lease: LeaseHeld
    ) -> dict[str, Any]:
        # Wait for the rate limit before the lease is checked, never after it.
        await self._limits.take(method, channel)
        body = {"channel": channel, **content}
        try:
            answer = await change(self._http, "POST", method, lease=lease, json=body)
        except Temporary as error:
            self._hold_back(method, channel, error)
            raise
        except Fenced:
            # Otherwise the next attempt would wait as long again, and a short lease would expire each time.
            self._limits.give_back(method, channel)
            raise
        return _checked(method, answer, uncertain=Ambiguous)

    def _hold_back(self, method: str, channel: str, error: Temporary) -> None:
        if error.retry_after_s is not None:
            self._limits.pause(method, channel, error.retry_after_s)


def _checked(
    method: str, answer: dict[str, Any], *, uncertain: type[Ambiguous] | type[Temporary]
) -> dict[str, Any]:
    if answer.get("ok") is True:
        return answer
    code = str(answer.get("error", "no reason given"))
    if code in _LATER:
        raise Temporary(f"{method}: {code}", retry_after_s=_DEFAULT_PAUSE_S)
    if code in _UNCERTAIN or "error" not in answer:
        raise uncertain(f"{method}: {code}")
    needs = f", needs scope {answer['needed']}" if "needed" in answer else ""
    if code in _CHANNEL or code in _TOKEN:
        raise Broken(f"{method}: {code}{needs}", body=answer, what=_broken_part(method, code))
    raise Rejected(f"{method}: {code}{needs}", status=200, body=answer)


def _broken_part(method: str, code: str) -> BrokenPart:
    if method.startswith("chat."):
        return "channel" if code in _CHANNEL else "token"
    return "reading" if code in _CHANNEL or code == "missing_scope" else "token"

"""What answering people needs of Slack: dialogs, the App Home, user groups, names, a thread's root, and response URLs.

Nothing here changes the cluster, so nothing here needs a lease. Slack answers 200 with `ok: false` and an error code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from connectors.chat.rate_limits import Limits
from connectors.chat.slack_api import EVENT_TYPE
from connectors.http import Rejected, http_client, read
from streams.config.connector_settings import SlackSettings
from streams.model.errors import BadInput, ConfigError, Permanent, Temporary

_LATER = frozenset(
    {"ratelimited", "rate_limited", "request_timeout", "internal_error", "fatal_error", "service_unavailable"}
)
MAX_REQUESTS = 50
"""Requests at once. The pool of connections is larger: a thousand that wait for it spend their time in its queue."""

_SLACK_DOMAINS = (".slack.com", ".slack-gov.com")


class WebApi:
    """The requests. Each raises Temporary when it may succeed later, and Rejected when Slack refused it."""

    def __init__(self, settings: SlackSettings) -> None:
        if settings.token is None:
            raise ConfigError("slack.token: not set, so nobody can be answered")
        token = settings.token.get_secret_value()
        self._http = http_client(
            settings.base_url, timeout_s=settings.timeout_s, headers={"Authorization": f"Bearer {token}"}
        )
        # Without the token: a response URL is an address on its own.
        self._plain = http_client(settings.base_url, timeout_s=settings.timeout_s)
        self._own_site = urlsplit(settings.base_url)[:2]
        self._gate = asyncio.Semaphore(MAX_REQUESTS)
        self._identity: Mapping[str, Any] | None = None
        self._limits = Limits(calls_per_minute=settings.calls_per_minute)

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()
        await self._plain.aclose()

    async def open_dialog(self, trigger_id: str, view: Mapping[str, Any]) -> None:
        """views.open. A trigger is used once, so a repetition opens no second dialog."""
        await self._call("views.open", {"trigger_id": trigger_id, "view": view})

    async def publish_home(self, user: str, view: Mapping[str, Any]) -> None:
        """views.publish: the whole App Home of one person."""
        await self._limits.take("views.publish", "")
        try:
            await self._call("views.publish", {"user_id": user, "view": view})
        except Temporary as error:
            if error.retry_after_s is not None:
                self._limits.pause("views.publish", "", error.retry_after_s)
            raise

    async def user_groups(self) -> dict[str, frozenset[str]]:
        """Every enabled user group with its members, by id."""
        answer = await self._read("usergroups.list", {"include_users": "true"})
        rows = answer.get("usergroups")
        if not isinstance(rows, list):
            raise Temporary("usergroups.list: no list of groups")
        return {str(row["id"]): frozenset(map(str, row.get("users") or ())) for row in rows if "id" in row}

    async def user_name(self, user: str) -> str:
        """The name a person is shown under."""
        found = (await self._read("users.info", {"user": user})).get("user") or {}
        profile = found.get("profile") or {}
        return str(profile.get("display_name") or found.get("real_name") or found.get("name") or "")

    async def incident_of_thread(self, channel: str, ts: str) -> str | None:
        """The incident that one of our messages, at the root of a thread, is about; None for anybody else's.

        Our own bot id counts: another app's message is never taken for ours, whatever its metadata says.
        """
        params = {
            "channel": channel,
            "ts": ts,
            "latest": ts,
            "inclusive": "true",
            "limit": "1",
            "include_all_metadata": "true",
        }
        try:
            answer = await self._read("conversations.replies", params)
        except Rejected as error:
            if error.body.get("error") in ("thread_not_found", "channel_not_found", "not_in_channel"):
                return None
            raise
        root: Mapping[str, Any] = next(
            (one for one in answer.get("messages") or () if one.get("ts") == ts), {}
        )
        metadata = root.get("metadata") or {}
        payload = metadata.get("event_payload") or {}
        if metadata.get("event_type") != EVENT_TYPE or root.get("bot_id") != await self._bot_id():
            return None
        incident = payload.get("incident")
        return incident if isinstance(incident, str) and incident else None

    async def respond(self, url: str, body: Mapping[str, Any]) -> None:
        """Post to a response URL. It takes five posts within thirty minutes; nothing is sent twice.

        Raises:
            Temporary: no answer, or Slack is in trouble.
            Permanent: it is used up or expired.
            BadInput: it does not belong to Slack.
        """
        if not self._is_slacks(url):
            raise BadInput("the response URL is not Slack's")
        try:
            async with self._gate:
                response = await self._plain.post(url, json=dict(body))
        except httpx.HTTPError as error:
            # The address itself is a secret for half an hour, so it is in no message.
            raise Temporary(f"a response URL gave no answer: {type(error).__name__}") from None
        if response.status_code == 429 or response.status_code >= 500:
            raise Temporary(f"a response URL answered {response.status_code}")
        if not response.is_success:
            raise Permanent(f"a response URL answered {response.status_code}: it is used up or expired")

    def _is_slacks(self, url: str) -> bool:
        parts = urlsplit(url)
        if parts[:2] == self._own_site:
            return True
        return (
            parts.scheme == "https"
            and f".{parts.hostname or ''}".endswith(_SLACK_DOMAINS)
            and parts.port in (None, 443)
        )

    async def is_own_team(self, team: str) -> bool:
        """Whether a delivery is about the workspace that our token is for.

        Raises:
            Temporary: while that is not known, also because Slack refuses the token: it may be replaced.
        """
        try:
            return team == (await self._own()).get("team_id")
        except Permanent as error:
            raise Temporary(f"cannot tell which workspace is ours: {error}") from error

    async def _bot_id(self) -> str:
        return str((await self._own()).get("bot_id", ""))

    async def _own(self) -> Mapping[str, Any]:
        """Who we are: read once, because a token never changes it."""
        if self._identity is None:
            self._identity = await self._read("auth.test", {})
        return self._identity

    async def _read(self, method: str, params: Mapping[str, str]) -> dict[str, Any]:
        async with self._gate:
            return _checked(method, await read(self._http, "GET", method, params=params))

    async def _call(self, method: str, body: Mapping[str, Any]) -> dict[str, Any]:
        async with self._gate:
            return _checked(method, await read(self._http, "POST", method, json=dict(body)))


def _checked(method: str, answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("ok") is True:
        return answer
    code = str(answer.get("error", "no reason given"))
    if code in _LATER:
        raise Temporary(f"{method}: {code}")
    needs = f", needs scope {answer['needed']}" if "needed" in answer else ""
    details = (answer.get("response_metadata") or {}).get("messages") or ()
    why = f" ({'; '.join(map(str, details))[:300]})" if details else ""
    raise Rejected(f"{method}: {code}{needs}{why}", status=200, body=answer)

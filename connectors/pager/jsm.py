"""The connector for alerts of Jira Service Management Operations, and of Opsgenie until it is switched off in April 2027.

Both take the same integration API (`https://api.atlassian.com/jsm/ops/integration` or `https://api.opsgenie.com`) with the same
key. The alias is the page's key: while an alert with it is open, another create only counts up. Everything is processed later
(202), so what became of it is asked: at Opsgenie with the same key, at JSM with an API token of its own (`api_url`, `api_user`,
`api_token`), because its integration key may only write. The id of the request tells best: an alias names an alert only while
it is open.

Both show a description as HTML, and what stands in a log line is anybody's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused, Result
from connectors.chat.rate_limits import Limits
from connectors.http import Rejected, change, http_client, read, translated
from connectors.pager.page import CHECK_AFTER, PAGE, UPDATE, Page, one_line, page_of
from streams.config.notifier_settings import SinkSettings
from streams.model.errors import ConfigError, Permanent
from streams.model.message import cut

JSM_URL = "https://api.atlassian.com/jsm/ops/integration"

MAX_MESSAGE = 130
MAX_ALIAS = 512
MAX_DESCRIPTION = 15_000
MAX_DETAILS = 8_000
"""Characters of all details together."""

PRIORITIES = {"critical": "P1", "error": "P2", "warning": "P3", "info": "P5"}

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Alert:
    """An alert as the server shows it."""

    id: str
    status: str
    acknowledged: bool

    @property
    def state(self) -> str:
        """In the words of a page."""
        if self.status == "closed":
            return "resolved"
        return "acknowledged" if self.acknowledged else "triggered"


class JsmOperations:
    """`page` and `update_page`. Result: `dedup_key`, `request`, and `alert` and `status` where the server was asked."""

    actions = frozenset({PAGE, UPDATE})

    def __init__(self, settings: SinkSettings, *, sleep: Sleep = asyncio.sleep) -> None:
        if settings.key is None:
            raise ConfigError("notifier.sinks: a sink of kind jsm needs `key`, the integration's API key")
        url = settings.url or JSM_URL
        self._sleep = sleep
        self._lag_s = settings.lag_s
        self._limits = Limits(calls_per_minute=settings.calls_per_minute, sleep=sleep)
        self._http = http_client(
            url,
            timeout_s=settings.timeout_s,
            headers={"Authorization": f"GenieKey {settings.key.get_secret_value()}"},
        )
        self._api: httpx.AsyncClient | None = None
        if settings.api_url and settings.api_token is not None:
            self._api = http_client(
                settings.api_url,
                timeout_s=settings.timeout_s,
                auth=(settings.api_user, settings.api_token.get_secret_value()),
            )
        self._can_ask = self._api is not None or "/jsm/" not in url
        self._check_after_s = max(1.0, CHECK_AFTER * settings.lag_s) if self._can_ask else 0.0

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()
        if self._api is not None:
            await self._api.aclose()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Raise the alert, or bring it to its state."""
        return await translated(self._apply(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """Whether there is an alert with the alias, asked twice with a pause: a request that was taken is processed later."""
        return await translated(self._lookup(effect))

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Nobody can be un-woken."""
        return Refused("a page cannot be taken back")

    async def _apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        page = page_of(effect)
        alias = quote(page.key[:MAX_ALIAS], safe="")
        if effect.action == PAGE:
            found = None if effect.params.get("fresh") else await self._find(page.key)
            if found is not None:
                return AlreadyDone(_result(page, found))
            path, body = "v2/alerts", _alert(page)
        elif effect.action == UPDATE:
            found = await self._find(page.key)
            if page.state == "triggered":
                if found is not None and found.state == "resolved":
                    return Refused("a person has closed the alert", moot=True)
                return Done(_result(page, found), "an alert is not changed once it is raised")
            if found is not None and found.state in (page.state, "resolved"):
                return AlreadyDone(_result(page, found))
            verb = "acknowledge" if page.state == "acknowledged" else "close"
            path = f"v2/alerts/{alias}/{verb}?identifierType=alias"
            body = {"source": "Faultline", "note": _inert(cut(page.summary, 1_000))}
            if page.actor:
                body["user"] = _inert(cut(page.actor, 100))
        else:
            raise Permanent(f"unknown action {effect.action}")
        await self._limits.take("alerts", "")
        answer = await change(self._http, "POST", path, lease=lease, json=body)
        request = str(answer.get("requestId", ""))
        return Done(_result(page, request=request), check_after_s=self._check_after_s)

    async def _lookup(self, effect: Effect) -> Outcome:
        page, request = page_of(effect), str(effect.prior.get("request", ""))
        if effect.action == PAGE and request and self._can_ask:
            made = await self._was_made(request)
            if made is not None:
                return AlreadyDone(_result(page, request=request)) if made else Absent("it was not processed")
        found = await self._find(page.key)
        if found is None and self._can_ask and not effect.prior:
            await self._sleep(self._lag_s)
            found = await self._find(page.key)
        if found is None:
            # Where nobody may ask, a create with the same alias only counts up the first one.
            return Absent("no alert has its alias")
        if effect.action == PAGE or found.state == page.state:
            return AlreadyDone(_result(page, found))
        if found.state == "resolved":
            return Refused("a person has closed the alert", moot=True)
        return Absent(f"it is {found.state}")

    async def _was_made(self, request: str) -> bool | None:
        """What became of a request; None where it is not processed yet, or not known any more."""
        client, path = (self._api, "v1") if self._api is not None else (self._http, "v2")
        try:
            answer = await read(client, "GET", f"{path}/alerts/requests/{quote(request, safe='')}")
        except Rejected as error:
            if error.status == 404:
                return None
            raise
        told = answer.get("data", answer)  # Opsgenie wraps it
        made = told.get("isSuccess", told.get("success")) if isinstance(told, dict) else None
        return made if isinstance(made, bool) else None

    async def _find(self, alias: str) -> _Alert | None:
        """The alert of an alias: an open one if there is any, else the latest; None where nobody may ask, too."""
        if not self._can_ask:
            return None
        alias = alias[:MAX_ALIAS]
        listing = {"query": f'alias: "{alias}"', "order": "desc"}
        if self._api is not None:
            answer = await read(self._api, "GET", "v1/alerts", params={**listing, "size": 10})
            rows = answer.get("values", [])
        else:
            try:
                answer = await read(
                    self._http,
                    "GET",
                    f"v2/alerts/{quote(alias, safe='')}",
                    params={"identifierType": "alias"},
                )
                rows = [answer.get("data")]
            except Rejected as error:
                if error.status != 404:
                    raise
                # None is open. A closed one is only in the list.
                answer = await read(self._http, "GET", "v2/alerts", params={**listing, "limit": 10})
                rows = answer.get("data", [])
        found = [
            _Alert(str(row.get("id", "")), str(row.get("status", "")), bool(row.get("acknowledged")))
            for row in rows
            if isinstance(row, dict) and row.get("alias") == alias
        ]
        return next((one for one in found if one.status != "closed"), found[0] if found else None)


def _alert(page: Page) -> dict[str, Any]:
    links = "\n".join(f"{_inert(text)}: {url}" for url, text in page.links)
    text = "\n".join(f"{label}: {value}" for label, value in page.details.items())
    return {
        "message": _inert(one_line(page.summary, MAX_MESSAGE)),
        "alias": page.key[:MAX_ALIAS],
        "description": cut(
            "\n\n".join(part for part in (_inert(page.summary), links, _inert(text)) if part), MAX_DESCRIPTION
        ),
        "priority": PRIORITIES.get(page.severity, "P3"),
        "entity": _inert(cut(page.source, 512)),
        "source": "Faultline",
        "tags": [_inert(cut(tag, 50)) for tag in ("faultline", page.kind, page.group) if tag],
        "details": _bounded(page),
    }


def _bounded(page: Page) -> dict[str, str]:
    left, kept = MAX_DETAILS, dict[str, str]()
    for label, text in page.details.items():
        short = _inert(cut(text, 1_000))
        if (left := left - len(label) - len(short)) < 0:
            break
        kept[_inert(label)] = short
    return kept


_INERT = str.maketrans("<>", "\u2039\u203a")


def _inert(text: str) -> str:
    """Text that nothing takes for markup. An entity would be read as such in a push message; this is as long."""
    return text.translate(_INERT)


def _result(page: Page, found: _Alert | None = None, request: str = "") -> Result:
    known = {"alert": found.id, "status": found.state} if found is not None else {}
    return {"dedup_key": page.key, "request": request, **known}

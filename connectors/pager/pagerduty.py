"""The connector for PagerDuty: Events API v2 to raise, acknowledge and resolve, and the REST API to find out what became of it.

The Events API answers 202 before anything exists, and folds a trigger into the open alert with the same key. Once a person has
resolved that alert, the same key opens another one and wakes them again. So before anything is sent a second time, the REST API
is asked, where `api_token` allows it: what was resolved there is not triggered again. It also tells, a while after each event,
whether the event that was taken came to anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused, Result
from connectors.chat.rate_limits import Limits
from connectors.http import change, http_client, read, translated
from connectors.pager.page import CHECK_AFTER, PAGE, UPDATE, Page, one_line, page_of
from streams.config.notifier_settings import SinkSettings
from streams.model.errors import ConfigError, Permanent

EVENTS_URL = "https://events.pagerduty.com"
API_URL = "https://api.pagerduty.com"

MAX_SUMMARY = 1024
MAX_KEY = 255
MAX_BYTES = 512_000
"""PagerDuty refuses larger events."""

SEVERITIES = {"critical": "critical", "error": "error", "warning": "warning", "info": "info"}
_EVENTS = {"triggered": "trigger", "acknowledged": "acknowledge", "resolved": "resolve"}

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Found:
    """What the REST API knows of a key."""

    status: str
    url: str


class PagerDuty:
    """`page` and `update_page`. Result: `dedup_key`, and `status` and `url` where the REST API was asked."""

    actions = frozenset({PAGE, UPDATE})

    def __init__(self, settings: SinkSettings, *, sleep: Sleep = asyncio.sleep) -> None:
        if settings.key is None:
            raise ConfigError("notifier.sinks: a sink of kind pagerduty needs `key`, its routing key")
        self._routing_key = settings.key.get_secret_value()
        self._lag_s = settings.lag_s
        self._check_after_s = 0.0 if settings.api_token is None else max(1.0, CHECK_AFTER * settings.lag_s)
        self._sleep = sleep
        self._limits = Limits(calls_per_minute=settings.calls_per_minute, sleep=sleep)
        self._events = http_client(settings.url or EVENTS_URL, timeout_s=settings.timeout_s)
        token = settings.api_token
        self._api = (
            http_client(
                settings.api_url or API_URL,
                timeout_s=settings.timeout_s,
                headers={
                    "Authorization": f"Token token={token.get_secret_value()}",
                    "Accept": "application/vnd.pagerduty+json;version=2",
                },
            )
            if token is not None
            else None
        )

    async def close(self) -> None:
        """Close connections."""
        await self._events.aclose()
        if self._api is not None:
            await self._api.aclose()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Raise the page, or bring it to its state."""
        return await translated(self._apply(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """Whether PagerDuty knows the key, asked twice with a pause: an event that was taken may not be there yet."""
        return await translated(self._lookup(effect))

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Nobody can be un-woken."""
        return Refused("a page cannot be taken back")

    async def _apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        page = page_of(effect)
        match effect.action:
            case "page":
                found = None if effect.params.get("fresh") else await self._find(page.key)
                if found is not None:
                    return AlreadyDone(_result(page, found))
            case "update_page":
                found = await self._find(page.key)
                if (outcome := self._needs_no_event(page, found)) is not None:
                    return outcome
            case other:
                raise Permanent(f"unknown action {other}")
        await self._limits.take("events", "")
        await change(self._events, "POST", "v2/enqueue", lease=lease, json=self._event(page))
        # What a trigger adds to an open alert shows nowhere.
        shows = effect.action == PAGE or page.state != "triggered"
        return Done(_result(page), check_after_s=self._check_after_s if shows else 0.0)

    def _needs_no_event(self, page: Page, found: _Found | None) -> Outcome | None:
        """The outcome of an update that has nothing to send; None for one that has."""
        if page.state == "triggered":
            # A trigger only adds to the log of an open alert. Where nobody can say that it is open, it could wake somebody.
            if found is None:
                return Done(_result(page), "nothing to add to")
            if found.status == "resolved":
                return Refused("a person has resolved it in PagerDuty", moot=True)
            return None
        if found is not None and found.status in (page.state, "resolved"):
            return AlreadyDone(_result(page, found))
        return None

    async def _lookup(self, effect: Effect) -> Outcome:
        page = page_of(effect)
        found = await self._find(page.key)
        if found is None and self._api is not None and not effect.prior:
            await self._sleep(self._lag_s)
            found = await self._find(page.key)
        if found is None:
            # Without the REST API nobody knows; a trigger with the same key is then folded into the first one.
            return Absent("no incident has its key")
        if effect.action == PAGE or found.status == page.state:
            return AlreadyDone(_result(page, found))
        if found.status == "resolved":
            return Refused("a person has resolved it in PagerDuty", moot=True)
        return Absent(f"it is {found.status}")

    async def _find(self, key: str) -> _Found | None:
        """The incident of a key: an open one if there is any, else the latest; None without the REST API, too."""
        if self._api is None:
            return None
        answer = await read(
            self._api,
            "GET",
            "incidents",
            params={
                "incident_key": key,
                "date_range": "all",
                "statuses[]": ["triggered", "acknowledged", "resolved"],
                "sort_by": "created_at:desc",
                "limit": 10,
            },
        )
        rows = [row for row in answer.get("incidents", []) if isinstance(row, dict)]
        found = [_Found(str(row.get("status", "")), str(row.get("html_url", ""))) for row in rows]
        return next((one for one in found if one.status != "resolved"), found[0] if found else None)

    def _event(self, page: Page) -> dict[str, Any]:
        event: dict[str, Any] = {
            "routing_key": self._routing_key,
            "event_action": _EVENTS[page.state],
            "dedup_key": page.key[:MAX_KEY],
        }
        if page.state == "triggered":
            event |= {
                "client": "Faultline",
                "links": [{"href": url, "text": text} for url, text in page.links],
                "payload": {
                    "summary": one_line(page.summary, MAX_SUMMARY),
                    "source": page.source,
                    "severity": SEVERITIES.get(page.severity, "error"),
                    "component": page.component,
                    "group": page.group,
                    "class": page.kind,
                    "custom_details": dict(page.details),
                },
            }
            if page.links:
                event["client_url"] = page.links[0][0]
            _shorten(event)
        return event


def _shorten(event: dict[str, Any]) -> None:
    """Leave out the longest details until the event fits."""
    details: dict[str, str] = event["payload"]["custom_details"]
    while details and len(orjson.dumps(event)) > MAX_BYTES:
        longest = max(details, key=lambda label: len(details[label]))
        details[longest] = "" if len(details[longest]) < 500 else details[longest][:400] + "…"
        if not details[longest]:
            del details[longest]


def _result(page: Page, found: _Found | None = None) -> Result:
    known = {"status": found.status, "url": found.url} if found is not None else {}
    return {"dedup_key": page.key, **known}

"""`/hooks/events`: anybody's events, as records of `raw.alerts`: JSON, or CloudEvents in every mode of their HTTP binding.

Shapes: cloudevents/spec, bindings/http-protocol-binding.md. In binary mode the event's attributes are headers, which no
signature of the body covers; so that mode needs a token. Signatures: the Standard Webhooks specification.
"""

from __future__ import annotations

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import unquote
from weakref import WeakValueDictionary

import orjson

from faultline.gateway.authentication import Bearer, Headers, StandardWebhook, given, header_bytes
from faultline.gateway.hooks.hook import Delivery, Hook
from faultline.gateway.parts import GatewayParts
from faultline.gateway.raw_records import RawValue
from faultline.gateway.refusal import RequestRefused

REQUIRED = ("id", "source", "specversion", "type")
MAX_EVENTS = 10_000
"""Events in one body."""
MAX_REMEMBERED = 50_000
"""Signed deliveries of the last window that are remembered; one of them that comes again is taken before."""


class EventsWebhook(Hook):
    """Takes events."""

    name = "events"

    def __init__(self, parts: GatewayParts) -> None:
        wanted = parts.settings.events
        heads = [Bearer(given(wanted.token, wanted.token_next))]
        secrets = given(wanted.secret, wanted.secret_next)
        bodies = [StandardWebhook(secrets, parts.settings.replay_window_s)] if secrets else []
        self.most_bytes = parts.settings.max_body_bytes
        self._taken: OrderedDict[str, datetime] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """For each signed delivery in work."""
        super().__init__(parts, heads, bodies)

    async def take(self, delivery: Delivery) -> str:
        """Write each event as a record."""
        name = delivery.headers.get("webhook-id", "") if delivery.by_signature else ""
        # Of two copies at once the second waits: it is the replay, unless the first is not taken after all.
        turn = self._turns.setdefault(name, asyncio.Lock()) if name else asyncio.Lock()
        async with turn:
            return await self._take(delivery, name)

    async def _take(self, delivery: Delivery, name: str) -> str:
        self._forget_old()
        if name and name in self._taken:
            return "taken before"
        events = list(events_of(delivery))
        if len(events) > MAX_EVENTS:
            raise RequestRefused(413, f"more than {MAX_EVENTS} events in one body")
        await self.parts.records.write([RawValue(_written(event), _key(event)) for event in events])
        if name:
            self._taken[name] = self.parts.clock()
        return f"{len(events)} events"

    def _forget_old(self) -> None:
        # A signature may be from one window ahead of this clock, and stays good for one window after its own time.
        limit = 2 * self.parts.settings.replay_window_s
        now = self.parts.clock()
        while self._taken:
            oldest = next(iter(self._taken.values()))
            if len(self._taken) <= MAX_REMEMBERED and (now - oldest).total_seconds() <= limit:
                break
            self._taken.popitem(last=False)


def events_of(delivery: Delivery) -> Iterator[dict[str, Any]]:
    """The events of a body.

    Raises:
        RequestRefused: 415 for another format, 400 for a malformed event.
    """
    media = delivery.content_type.casefold()
    if media == "application/cloudevents+json":
        yield _cloudevent(delivery.json())
    elif media == "application/cloudevents-batch+json":
        batch = delivery.json()
        if not isinstance(batch, list):
            raise RequestRefused(400, "a batch of CloudEvents is a list")
        yield from (_cloudevent(event) for event in batch)
    elif "ce-specversion" in delivery.headers:
        if delivery.by_signature:
            raise RequestRefused(
                403, "a signature does not cover the headers of a CloudEvent in binary mode: use a token"
            )
        yield _cloudevent(_from_headers(delivery))
    elif media == "application/json" or media.endswith("+json"):
        found = delivery.json()
        for event in found if isinstance(found, list) else [found]:
            if not isinstance(event, dict):
                raise RequestRefused(400, "an event is a JSON object")
            yield event
    else:
        raise RequestRefused(415, "neither application/json nor a CloudEvent")


def _written(event: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(event)
    except orjson.JSONEncodeError as error:
        # What is read may be nested deeper than what is written.
        raise RequestRefused(400, f"an event that cannot be passed on: {error}") from error


def _cloudevent(event: Any) -> dict[str, Any]:
    if not isinstance(event, dict):
        raise RequestRefused(400, "a CloudEvent is a JSON object")
    if missing := [name for name in REQUIRED if not isinstance(event.get(name), str) or not event[name]]:
        raise RequestRefused(400, f"a CloudEvent without {', '.join(missing)}")
    return event


def _from_headers(delivery: Delivery) -> dict[str, Any]:
    """An event in binary mode as one in structured mode: attributes from the headers, data from the body."""
    event: dict[str, Any] = dict(_attributes(delivery.headers))
    if not delivery.body:
        return event
    event["datacontenttype"] = delivery.content_type
    if delivery.content_type.casefold().endswith(("/json", "+json")):
        event["data"] = delivery.json()
    elif delivery.content_type.casefold().startswith("text/"):
        event["data"] = delivery.body.decode("utf-8", "replace")
    else:
        event["data_base64"] = base64.b64encode(delivery.body).decode()
    return event


def _attributes(headers: Headers) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        lower = name.casefold()
        if lower.startswith("ce-") and lower not in ("ce-data", "ce-data_base64", "ce-datacontenttype"):
            yield lower[3:], unquote(header_bytes(value).decode("utf-8", "replace"), errors="replace")


def _key(event: dict[str, Any]) -> bytes | None:
    """What an event is about, so that its repetitions meet: source and subject. None where it does not say."""
    source, subject = event.get("source"), event.get("subject")
    if "specversion" not in event or not isinstance(source, str):
        return None
    return f"{source}/{subject if isinstance(subject, str) else ''}"[:500].encode(errors="replace")

"""The connector for Grafana's annotations: an incident as a region over every graph, found again by its tag.

An annotation carries the incident's id as a tag. It is made at the start of the fault and gets its end when the incident ends.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused
from connectors.http import Rejected, change, http_client, read_list, translated
from connectors.pager.page import one_line
from streams.config.notifier_settings import SinkSettings
from streams.model.codec import decode
from streams.model.errors import BadInput, ConfigError, Permanent
from streams.model.message import Message, is_web_address

ANNOTATE = "annotate"
UPDATE = "update_annotation"
MAX_TAG = 100


class GrafanaAnnotations:
    """`annotate` and `update_annotation`. Params: `incident`, `tags`, `time_ms`, `end_ms`, `link`. Result: `annotation`."""

    actions = frozenset({ANNOTATE, UPDATE})

    def __init__(self, settings: SinkSettings) -> None:
        if settings.url is None or settings.key is None:
            raise ConfigError("notifier.sinks: a sink of kind grafana needs `url` and `key`")
        self._tags = settings.tags
        self._where: dict[str, Any] = {}
        if settings.dashboard:
            self._where["dashboardUID"] = settings.dashboard
        if settings.panel:
            self._where["panelId"] = settings.panel
        bearer = {"Authorization": f"Bearer {settings.key.get_secret_value()}"}
        self._http = http_client(settings.url, timeout_s=settings.timeout_s, headers=bearer)

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Make the annotation, or bring it up to date."""
        return await translated(self._apply(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """Whether the annotation is there, and for an update whether it shows what it should."""
        return await translated(self._lookup(effect))

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Delete the annotation unless a person has edited it."""
        if effect.action != ANNOTATE:
            return Refused(f"{effect.action} cannot be undone")
        return await translated(self._take_back(effect, lease))

    async def _apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        wanted = self._body(effect)
        if effect.action == ANNOTATE:
            found = [] if effect.params.get("fresh") else await self._find(effect)
            for copy in found[1:]:
                await self._delete(copy, lease)
            if found:
                return AlreadyDone({"annotation": int(found[0]["id"])})
            answer = await change(
                self._http, "POST", "api/annotations", lease=lease, json=wanted | self._where
            )
            return Done({"annotation": int(answer.get("id", 0))})
        if effect.action != UPDATE:
            raise Permanent(f"unknown action {effect.action}")
        found = await self._find(effect)
        if not found:
            return _missing(effect) or Refused("there is no annotation to bring up to date", moot=True)
        if _shows(found[0], wanted):
            return AlreadyDone({"annotation": int(found[0]["id"])})
        await change(self._http, "PATCH", f"api/annotations/{int(found[0]['id'])}", lease=lease, json=wanted)
        return Done({"annotation": int(found[0]["id"])})

    async def _lookup(self, effect: Effect) -> Outcome:
        found = await self._find(effect)
        if effect.action == UPDATE:
            if not found:
                return _missing(effect) or Absent("no annotation has its tag")
            if not _shows(found[0], self._body(effect)):
                return Absent("it shows something else")
        return (
            AlreadyDone({"annotation": int(found[0]["id"])}) if found else Absent("no annotation has its tag")
        )

    async def _take_back(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        found = await self._find(effect)
        if not found:
            return AlreadyDone()
        if any(not _shows(one, self._body(effect)) for one in found):
            return Refused("a person has edited the annotation")
        for one in found:
            await self._delete(one, lease)
        return Done({"annotation": int(found[0]["id"])})

    async def _delete(self, row: Mapping[str, Any], lease: LeaseHeld) -> None:
        try:
            await change(self._http, "DELETE", f"api/annotations/{int(row['id'])}", lease=lease)
        except Rejected as error:
            if error.status != 404:
                raise

    async def _find(self, effect: Effect) -> list[dict[str, Any]]:
        """The annotations with the incident's tag, oldest first."""
        params = {"tags": ["faultline", _incident(effect)], "type": "annotation", "limit": 100} | self._where
        rows = await read_list(self._http, "api/annotations", params=params)
        return sorted((row for row in rows if isinstance(row.get("id"), int)), key=lambda row: int(row["id"]))

    def _body(self, effect: Effect) -> dict[str, Any]:
        params = effect.params
        try:
            message = decode(Message, str(params.get("message", "")))
        except BadInput as error:
            raise Permanent(f"no message to annotate with: {error}") from error
        link = str(params.get("link", ""))
        # Grafana shows the text as HTML, cleaned of scripts but not of looks.
        text = html.escape(one_line(message.summary, 500))
        if link and is_web_address(link):
            text += f' <a href="{html.escape(link)}">{html.escape(_incident(effect))}</a>'
        tags = params.get("tags", ())
        named = [str(tag) for tag in tags] if isinstance(tags, tuple) else []
        body: dict[str, Any] = {
            "time": int(str(params.get("time_ms", 0))),
            "tags": list(
                dict.fromkeys(
                    one_line(t, MAX_TAG) for t in ("faultline", _incident(effect), *named, *self._tags)
                )
            ),
            "text": text,
        }
        if params.get("end_ms"):
            body["timeEnd"] = int(str(params["end_ms"]))
        return body


def _missing(effect: Effect) -> Outcome | None:
    """What it means that an annotation is not found: one that was made is gone by a person's hand; None for one never made."""
    if "annotation" not in effect.prior:
        return None
    return Refused("a person has deleted the annotation", moot=True)


def _incident(effect: Effect) -> str:
    return str(effect.params.get("incident") or effect.incident)


def _shows(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether an annotation shows what it should. Grafana answers a point with an end that is its start."""
    end = row.get("timeEnd") or row.get("time")
    return (
        row.get("text") == wanted["text"]
        and row.get("time") == wanted["time"]
        and end == wanted.get("timeEnd", wanted["time"])
        and set(row.get("tags") or []) == set(wanted["tags"])
    )

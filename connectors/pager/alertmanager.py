"""The connector for Alertmanager's silences (API v2): no alarms from a node that Faultline has closed.

A silence is not created idempotently, so ours carry their key: in annotations (Alertmanager 0.32 and newer) and at the end of
the comment (older ones drop annotations). What carries the key but another author was taken over by a person and is theirs.
An expired silence whose end is the moment of its last change was lifted by hand, and is not set again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused, Result, Retry
from connectors.http import Rejected, change, http_client, read, read_list, translated
from connectors.pager.page import one_line
from streams.config.notifier_settings import SinkSettings, matcher_parts
from streams.model.clock import Clock, rfc3339, utc_now
from streams.model.errors import ConfigError, Permanent, Temporary

SILENCE = "silence"
UPDATE = "update_silence"

_AT_ONCE = timedelta(seconds=2)
_ROUNDING = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Silence:
    """A silence as the server shows it."""

    id: str
    state: str
    created_by: str
    starts_at: datetime
    ends_at: datetime
    updated_at: datetime
    body: dict[str, Any]

    @property
    def is_live(self) -> bool:
        """Whether it silences, or will."""
        return self.state in ("active", "pending")

    @property
    def was_lifted(self) -> bool:
        """Whether it was ended before its time."""
        return self.state == "expired" and abs(self.ends_at - self.updated_at) < _AT_ONCE


class AlertmanagerSilences:
    """`silence` and `update_silence`.

    Params: `incident`, `node`, `state` (`silenced` or `lifted`), `until`, `title`, `link`. Result: `silence`, its id.
    """

    actions = frozenset({SILENCE, UPDATE})

    def __init__(self, settings: SinkSettings, *, clock: Clock = utc_now) -> None:
        if settings.url is None:
            raise ConfigError("notifier.sinks: a sink of kind alertmanager needs `url`")
        self._matchers = settings.matchers
        self._author = settings.created_by
        self._clock = clock
        bearer = {"Authorization": f"Bearer {settings.key.get_secret_value()}"} if settings.key else {}
        self._http = http_client(settings.url, timeout_s=settings.timeout_s, headers=bearer)

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Set, renew or lift the silence."""
        return await translated(self._apply(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """Whether the silence is as the effect wants it."""
        return await translated(self._lookup(effect))

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Lift a silence that is still ours."""
        if effect.action != SILENCE:
            return Refused(f"{effect.action} cannot be undone")
        return await translated(self._take_back(effect, lease))

    async def _apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        if effect.action not in self.actions:
            raise Permanent(f"unknown action {effect.action}")
        found = [] if effect.params.get("fresh") else await self._find(effect)
        if effect.action == UPDATE:
            if effect.params.get("state") == "lifted":
                return await self._lift(effect, found, lease)
            return await self._renew(effect, found, lease)
        if found:
            live = [one for one in found if one.is_live and one.created_by == self._author]
            for copy in live[1:]:
                await self._delete(copy, lease)
            return AlreadyDone(_result((live or found)[0]))
        return await self._set(effect, None, lease)

    async def _lookup(self, effect: Effect) -> Outcome:
        found = await self._find(effect)
        live = [one for one in found if one.is_live]
        ours = [one for one in live if one.created_by == self._author]
        if effect.action == UPDATE:
            if live and not ours:
                return Refused("a person has taken the silence over", moot=True)
            if effect.params.get("state") == "lifted":
                return Absent("still set") if ours else AlreadyDone()
            if not live and found and found[0].was_lifted:
                return Refused("a person has lifted the silence", moot=True)
            ours = [one for one in ours if one.ends_at >= _until(effect) - _ROUNDING]
        return AlreadyDone(_result(ours[0])) if ours else Absent("no silence of ours")

    async def _renew(self, effect: Effect, found: Sequence[_Silence], lease: LeaseHeld) -> Outcome:
        live = [one for one in found if one.is_live]
        ours = [one for one in live if one.created_by == self._author]
        if live and not ours:
            return Refused("a person has taken the silence over", moot=True)
        if not live and found and found[0].was_lifted:
            return Refused("a person has lifted the silence", moot=True)
        if ours and ours[0].ends_at >= _until(effect) - _ROUNDING:
            return AlreadyDone(_result(ours[0]))
        return await self._set(effect, ours[0] if ours else None, lease)

    async def _take_back(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        return await self._lift(effect, await self._find(effect), lease)

    async def _lift(self, effect: Effect, found: Sequence[_Silence], lease: LeaseHeld) -> Outcome:
        live = [one for one in found if one.is_live]
        ours = [one for one in live if one.created_by == self._author]
        if live and not ours:
            return Refused("a person has taken the silence over", moot=True)
        for one in ours:
            await self._delete(one, lease)
        return Done(detail="lifted") if ours else AlreadyDone()

    async def _set(self, effect: Effect, old: _Silence | None, lease: LeaseHeld) -> Outcome:
        params = effect.params
        node, link, incident = (str(params.get(name, "")) for name in ("node", "link", "incident"))
        why = one_line(str(params.get("title", "")), 300)
        until = _until(effect)
        if until <= self._clock():
            return Retry(60.0, "the silence would have ended already")
        body = {
            # Other matchers would end the old silence and make a new one.
            "matchers": old.body["matchers"] if old else _filled(self._matchers, node, effect.cluster),
            "startsAt": rfc3339(old.starts_at if old else self._clock()),
            "endsAt": rfc3339(until),
            "createdBy": self._author,
            "comment": " ".join(
                filter(None, (f"{node} is closed for {incident}: {why}", link, _mark(effect)))
            ),
            "annotations": {
                "faultline_incident": incident,
                "faultline_key": effect.key,
                "faultline_cluster": effect.cluster,
                "faultline_node": node,
                **({"link": link} if link else {}),
            },
        } | ({"id": old.id} if old else {})
        answer = await change(self._http, "POST", "api/v2/silences", lease=lease, json=body)
        return Done({"silence": str(answer.get("silenceID", ""))})

    async def _delete(self, silence: _Silence, lease: LeaseHeld) -> None:
        await change(self._http, "DELETE", f"api/v2/silence/{silence.id}", lease=lease)

    async def _find(self, effect: Effect) -> list[_Silence]:
        """The silences that carry the effect's key, whoever their author is now: live ones first, then the latest."""
        if effect.action == UPDATE and effect.params.get("state") != "lifted":
            # Thousands may be renewed every hour: one that is where it was is not searched for among all others.
            known = await self._get(str(effect.prior.get("silence", "")))
            if known is not None and _carries(known, effect) and _silence(known).is_live:
                return [_silence(known)]
        rows = await read_list(self._http, "api/v2/silences")
        found = [_silence(row) for row in rows if _carries(row, effect)]
        return sorted(found, key=lambda one: (not one.is_live, -one.updated_at.timestamp(), one.id))

    async def _get(self, silence: str) -> dict[str, Any] | None:
        if not _ID.fullmatch(silence):
            return None
        try:
            return await read(self._http, "GET", f"api/v2/silence/{silence}")
        except Rejected as error:
            if error.status == 404:
                return None
            raise


_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


def _carries(row: Mapping[str, Any], effect: Effect) -> bool:
    annotations = row.get("annotations")
    named = annotations.get("faultline_key") if isinstance(annotations, dict) else None
    return named == effect.key or _mark(effect) in str(row.get("comment", ""))


def _silence(row: Mapping[str, Any]) -> _Silence:
    try:
        starts, ends, updated = (
            datetime.fromisoformat(str(row[name])) for name in ("startsAt", "endsAt", "updatedAt")
        )
        state, author = str(row["status"]["state"]), str(row.get("createdBy", ""))
        return _Silence(str(row["id"]), state, author, starts, ends, updated, dict(row))
    except (KeyError, TypeError, ValueError) as error:
        raise Temporary(f"a silence in Alertmanager's list cannot be read: {error!r}") from error


def _filled(matchers: Sequence[str], node: str, cluster: str) -> list[dict[str, Any]]:
    """The matchers for a node, as the API takes them."""
    filled = []
    for name, how, value in map(matcher_parts, matchers):
        regex = how in ("=~", "!~")
        for place, text in (("{node}", node), ("{cluster}", cluster)):
            value = value.replace(place, _QUOTED.sub(r"\\\g<0>", text) if regex else text)
        filled.append({"name": name, "value": value, "isRegex": regex, "isEqual": how in ("=", "=~")})
    return filled


_QUOTED = re.compile(r"[^A-Za-z0-9_-]")
"""What could mean something in a regular expression; a node name has dots."""


def _mark(effect: Effect) -> str:
    return f"[faultline {effect.key}]"


def _until(effect: Effect) -> datetime:
    try:
        return datetime.fromisoformat(str(effect.params["until"]))
    except (KeyError, ValueError) as error:
        raise Permanent(f"no end of the silence in the effect: {error}") from error


def _result(silence: _Silence) -> Result:
    return {"silence": silence.id}

"""A stand-in for PagerDuty: Events API v2 and the one read of the REST API that pages need.

`POST /v2/enqueue` takes `routing_key`, `event_action` (trigger, acknowledge, resolve), `dedup_key` (at most 255 characters),
`payload` (`summary` at most 1024, `source`, `severity`: critical, error, warning or info) up to 512 KB, and answers 202 before
anything exists: it shows in `GET /incidents` (`incident_key`, `statuses[]`, `date_range`; `Authorization: Token token=…`) after
`lag_s`. A trigger with the key of an open incident adds to its log; after a resolve it opens another one. An acknowledge or a
resolve of an unknown key is taken and ignored. `lose` events are taken and come to nothing.
More than `per_minute` events a minute are answered with 429.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from sandbox.fake_services.server import Standin

MAX_BYTES = 512_000


@dataclass(slots=True)
class StandinIncident:
    """One incident as it is now. `log` holds the actions that were taken on it, oldest first."""

    id: str
    key: str
    payload: dict[str, Any]
    status: str = "triggered"
    log: list[str] = field(default_factory=list)
    visible_at: float = 0.0
    event: dict[str, Any] = field(default_factory=dict)


class PagerDutyStandin(Standin):
    """One service with one integration. `clock` is in seconds."""

    def __init__(
        self,
        *,
        routing_key: str = "0123456789abcdef0123456789abcdef",
        token: str = "standin-token",
        lag_s: float = 0.0,
        per_minute: int = 480,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.routing_key, self.token, self.lag_s, self.per_minute = routing_key, token, lag_s, per_minute
        self.incidents: list[StandinIncident] = []
        self.lose = 0
        self._clock = clock
        self._taken: deque[float] = deque()
        self.app.router.add_post("/v2/enqueue", self._enqueue)
        self.app.router.add_get("/incidents", self._incidents)

    def of(self, key: str) -> list[StandinIncident]:
        """The incidents with a key, oldest first."""
        return [one for one in self.incidents if one.key == key]

    def open_incidents(self) -> list[StandinIncident]:
        """Those that are not resolved."""
        return [one for one in self.incidents if one.status != "resolved"]

    async def _enqueue(self, request: web.Request) -> web.Response:
        raw = await request.read()
        if len(raw) > MAX_BYTES:
            return _invalid("Event object is too large", status=413)
        now = self._clock()
        while self._taken and self._taken[0] <= now - 60:
            self._taken.popleft()
        if len(self._taken) >= self.per_minute:
            return web.json_response(
                {"status": "throttle exceeded", "message": "Requests are coming too fast"}, status=429
            )
        self._taken.append(now)
        event = orjson.loads(raw)
        if faults := self._faults_of(event):
            return _invalid(*faults)
        if self.lose:
            self.lose -= 1
            return _taken(str(event.get("dedup_key")))
        key, action = str(event.get("dedup_key") or f"made-up-{len(self.incidents)}"), event["event_action"]
        alive = next(
            (one for one in reversed(self.incidents) if one.key == key and one.status != "resolved"), None
        )
        if action == "trigger" and alive is None:
            alive = StandinIncident(
                f"Q{len(self.incidents) + 1}", key, event["payload"], visible_at=now + self.lag_s, event=event
            )
            self.incidents.append(alive)
        if alive is not None:
            alive.log.append(action)
            if action != "trigger":
                alive.status = {"acknowledge": "acknowledged", "resolve": "resolved"}[action]
        return _taken(key)

    def _faults_of(self, event: Any) -> list[str]:
        if event.get("routing_key") != self.routing_key:
            return ["routing_key is invalid"]
        faults = []
        if event.get("event_action") not in ("trigger", "acknowledge", "resolve"):
            faults.append("event_action is not one of trigger, acknowledge, resolve")
        if len(str(event.get("dedup_key", ""))) > 255:
            faults.append("dedup_key is too long")
        if event.get("event_action") == "trigger":
            payload = event.get("payload") or {}
            if not payload.get("summary") or len(payload["summary"]) > 1024:
                faults.append("payload.summary is missing or too long")
            if not payload.get("source"):
                faults.append("payload.source is missing")
            if payload.get("severity") not in ("critical", "error", "warning", "info"):
                faults.append("payload.severity is not one of critical, error, warning, info")
        elif not event.get("dedup_key"):
            faults.append("dedup_key is missing")
        return faults

    async def _incidents(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Token token={self.token}":
            return web.json_response({"error": {"message": "Unauthorized", "code": 2006}}, status=401)
        wanted = request.query.getall("statuses[]", ["triggered", "acknowledged", "resolved"])
        key, now = request.query.get("incident_key"), self._clock()
        rows = [
            {
                "id": one.id,
                "incident_key": one.key,
                "status": one.status,
                "html_url": f"{self.url}/incidents/{one.id}",
            }
            for one in reversed(self.incidents)
            if one.visible_at <= now and one.status in wanted and key in (None, one.key)
        ]
        limit = int(request.query.get("limit", 25))
        return web.json_response(
            {"incidents": rows[:limit], "limit": limit, "offset": 0, "more": len(rows) > limit, "total": None}
        )


def _taken(key: str) -> web.Response:
    return web.json_response(
        {"status": "success", "message": "Event processed", "dedup_key": key}, status=202
    )


def _invalid(*errors: str, status: int = 400) -> web.Response:
    return web.json_response(
        {"status": "invalid event", "message": "Event object is invalid", "errors": errors}, status=status
    )
